"""SVG2: k-means, top-p over clusters, blocks and permutations, against plain loops."""

import math

import kpage
import layouts_reference as rules
import pytest
import torch

svg2 = kpage.layouts.svg2


def loop_kmeans(x, centroids, iterations):
    """x [S, D], centroids [C, D] in float64."""
    for _ in range(iterations):
        distances = (x[:, None] - centroids).square().sum(2)
        labels = [min(range(len(centroids)), key=lambda c: (float(row[c]), c)) for row in distances]
        moved = centroids.clone()
        for c in range(len(centroids)):
            mine = [i for i, label in enumerate(labels) if label == c]
            if mine:
                moved[c] = x[mine].mean(0)
        yield labels, moved
        centroids = moved


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_kmeans_on_a_grid_of_ties(iterations):
    # Small integers: distances are exact, most rows are as near to one centroid as to another.
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-2, 3, (1, 2, 130, 4), generator=generator).float()
    start = torch.randint(-2, 3, (1, 2, 9, 4), generator=generator).float()
    start[:, :, 5] = 100.0  # stays empty
    got = svg2.kmeans(x, centroids=start, iterations=iterations)
    for h in range(2):
        steps = list(loop_kmeans(x[0, h].double(), start[0, h].double(), iterations))
        labels, centroids = steps[-1]
        if iterations == 1:
            assert got.labels[0, h].tolist() == labels
        else:
            assert sum(a == b for a, b in zip(got.labels[0, h].tolist(), labels, strict=True)) > 120
        if iterations == 1:
            assert got.sizes[0, h].tolist() == [labels.count(c) for c in range(9)]
            torch.testing.assert_close(got.centroids[0, h].double(), centroids, atol=1e-6, rtol=1e-6)
        assert torch.all(got.centroids[0, h, 5] == 100.0) and got.sizes[0, h, 5] == 0


@pytest.mark.parametrize("data", ["random", "video"])
def test_kmeans(data):
    if data == "video":
        x = rules.video_qkv()[0].float()
    else:
        x = rules.random_qk(300, heads=3, dim=16)[0]
    start = x[:, :, 7::20].contiguous()
    got = svg2.kmeans(x, centroids=start, iterations=3)
    for h in range(x.shape[1]):
        *_, (labels, centroids) = loop_kmeans(x[0, h].double(), start[0, h].double(), 3)
        assert got.labels[0, h].tolist() == labels
        assert got.sizes[0, h].tolist() == [labels.count(c) for c in range(start.shape[2])]
        torch.testing.assert_close(got.centroids[0, h].double(), centroids, atol=1e-5, rtol=1e-5)
    assert got.labels.dtype == got.sizes.dtype == torch.int32


def test_kmeans_stays_once_it_has_settled():
    x = rules.random_qk(100, heads=2, dim=4)[0]
    tolerance = 1.0  # reached at once by no head of two, later by both
    start = x[:, :, :6]
    shifts, centroids = [], start
    for _ in range(12):
        moved = svg2.kmeans(x, centroids=centroids, iterations=1, tolerance=0.0).centroids
        shifts.append(float((moved - centroids).norm(dim=-1).max()))
        if shifts[-1] < tolerance:
            break
        centroids = moved
    assert 1 < len(shifts) < 12
    got = svg2.kmeans(x, centroids=start, iterations=12, tolerance=tolerance)
    assert torch.equal(got.centroids, centroids)


def test_first_call_starts_from_rows():
    x = rules.random_qk(50, heads=2, dim=8, dtype=torch.bfloat16)[0]
    generators = [torch.Generator().manual_seed(4) for _ in range(2)]
    first, again = (svg2.kmeans(x, 6, iterations=2, generator=g) for g in generators)
    assert torch.equal(first.labels, again.labels)
    assert first.centroids.dtype == torch.bfloat16 and first.centroids.shape == (1, 2, 6, 8)
    assert first.sizes.sum(-1).tolist() == [[50, 50]]
    warm = svg2.kmeans(x, centroids=first.centroids)
    assert warm.labels.shape == first.labels.shape


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rows_without_a_distance_leave_the_others_alone(bad, dtype):
    """NaN is -inf, as in the kernel: such a row has the first label, others the one they had."""
    x = rules.random_qk(300, heads=2, dim=16, dtype=dtype)[0]
    start = x[:, :, 5::30].contiguous()
    expected = svg2.kmeans(x, centroids=start, iterations=1).labels
    spoilt = x.clone()
    spoilt[:, 1, 7, 3] = bad
    scores = (spoilt[0, 1, 7].float() * start[0, 1].float()).sum(1)
    label = int((scores == math.inf).int().argmax())  # the first if there is one, else 0
    got = svg2.kmeans(spoilt, centroids=start, iterations=1).labels
    assert int(got[0, 1, 7]) == label
    got[0, 1, 7] = expected[0, 1, 7]
    assert torch.equal(got, expected)
    # No other row is near to a centroid that this one spoils: one, or with Inf one an iteration.
    again = svg2.kmeans(spoilt, centroids=start, iterations=4)
    assert int((again.labels[0, 1] == label).sum()) <= 1
    assert int((again.sizes[0, 1] > 1).sum()) >= (9 if math.isnan(bad) else 10 - 4)


def test_a_cluster_that_is_nan_has_no_weight():
    q = svg2.Clusters(None, None, torch.zeros(1, 1, 2, 16))
    keys = torch.zeros(1, 1, 5, 16)
    keys[0, 0, 1] = math.nan
    sizes = torch.tensor([[[4, 100, 4, 4, 4]]], dtype=torch.int32)
    got = svg2.cluster_map(q, svg2.Clusters(None, sizes, keys), top_p=0.99, min_ratio=0.0)
    assert got[0, 0, 0].tolist() == [True, False, True, True, True]


def test_an_order_goes_with_its_labels():
    x = rules.random_qk(100, heads=1, dim=16)[0]
    made = svg2.kmeans(x, 4, iterations=2, generator=torch.Generator().manual_seed(0))
    assert made._replace(sizes=made.sizes).order is made.order
    other = made._replace(labels=made.labels.flip(2))
    assert isinstance(other, svg2.Clusters) and other.order is None
    got = svg2.select(other, made).q_order.token_of_row[0, 0]
    assert got.tolist() == other.labels[0, 0].argsort(stable=True).tolist()


def test_centroids_that_need_a_gradient():
    x = rules.random_qk(100, heads=1, dim=16)[0]
    start = x[:, :, :4].clone().requires_grad_()
    got = svg2.kmeans(x, centroids=start)
    assert not got.centroids.requires_grad
    assert torch.equal(got.labels, svg2.kmeans(x, centroids=start.detach()).labels)


def test_kmeans_of_no_rows():
    got = svg2.kmeans(torch.zeros(1, 2, 0, 16), centroids=torch.ones(1, 2, 3, 16))
    assert got.labels.shape == (1, 2, 0) and not got.sizes.any()
    assert torch.equal(got.centroids, torch.ones(1, 2, 3, 16))


def test_more_clusters_than_rows():
    x = rules.random_qk(5, heads=1, dim=8)[0]
    got = svg2.kmeans(x, 9, iterations=3)
    assert int((got.sizes > 0).sum()) <= 5 and int(got.sizes.sum()) == 5


# --- Selection --------------------------------------------------------------------------------


def clusters(sizes, centroids):
    """Clusters of one batch element whose tokens are labelled in a random order."""
    labels = []
    for of_head in sizes:
        made = torch.cat([torch.full((n,), c) for c, n in enumerate(of_head)])
        labels.append(made[torch.randperm(len(made), generator=torch.Generator().manual_seed(3))])
    return svg2.Clusters(
        torch.stack(labels)[None].to(torch.int32),
        torch.tensor(sizes, dtype=torch.int32)[None],
        centroids,
    )


def loop_map(q, k, sizes, top_p, min_ratio):
    """Lists of key clusters for centroids q [Cq, D], k [Ck, D] and the sizes of the latter."""
    out = []
    for a in q:
        scores = [rules.dot(a, b) / math.sqrt(len(a)) for b in k]
        top = max(scores)
        weights = [n * math.exp(s - top) for n, s in zip(sizes, scores, strict=True)]
        weights = torch.tensor([w / sum(weights) for w in weights]).to(q.dtype).tolist()
        order = sorted(range(len(k)), key=lambda i: (-weights[i], i))
        chosen, total = [], 0.0
        for place, i in enumerate(order):
            if place > 0 and place >= int(min_ratio * len(k)) and total > top_p:
                break
            chosen.append(i)
            total += weights[i]
        out.append(sorted(chosen))
    return out


@pytest.mark.parametrize("top_p, min_ratio", [(0.9, 0.1), (0.5, 0.0), (0.0, 0.0), (0.3, 0.6)])
def test_cluster_map(top_p, min_ratio):
    generator = torch.Generator().manual_seed(5)
    q = torch.randn(1, 4, 7, 16, generator=generator)
    k = 2 * torch.randn(1, 2, 23, 16, generator=generator)
    sizes = torch.randint(0, 40, (1, 2, 23), generator=generator)
    made = [
        svg2.Clusters(None, s, x)
        for x, s in ((q, torch.zeros(1, 4, 7, dtype=torch.int32)), (k, sizes.to(torch.int32)))
    ]
    got = svg2.cluster_map(*made, top_p=top_p, min_ratio=min_ratio)
    for h in range(4):
        expected = loop_map(q[0, h], k[0, h // 2], sizes[0, h // 2].tolist(), top_p, min_ratio)
        assert [row.nonzero()[:, 0].tolist() for row in got[0, h]] == expected


def test_cluster_map_of_a_video():
    q, k = (x.float() for x in rules.video_qkv()[:2])
    made = [
        svg2.kmeans(x, count, iterations=3, generator=torch.Generator().manual_seed(0))
        for x, count in ((q, 9), (k, 31))
    ]
    got = svg2.cluster_map(*made)
    for h in range(q.shape[1]):
        centroids = [x.centroids[0, h] for x in made]
        expected = loop_map(*centroids, made[1].sizes[0, h].tolist(), 0.9, 0.1)
        assert [row.nonzero()[:, 0].tolist() for row in got[0, h]] == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_ties_go_to_the_lower_cluster(dtype):
    # Equal centroids: weights are n / sum(n), exact in either type.
    sizes = [8, 16, 32, 8, 16, 32, 8, 16, 32, 8, 16, 32, 32]
    q = svg2.Clusters(None, None, torch.zeros(1, 1, 2, 16, dtype=dtype))
    k = svg2.Clusters(
        None, torch.tensor(sizes, dtype=torch.int32)[None, None], torch.ones(1, 1, 13, 16).to(dtype)
    )
    for top_p, expected in (
        (0.0, [2]),
        (0.24, [2, 5]),
        (0.25, [2, 5, 8]),
        (0.7, [1, 2, 4, 5, 8, 11, 12]),
        (0.99, list(range(13))),
    ):
        got = svg2.cluster_map(q, k, top_p=top_p, min_ratio=0.0)
        assert got[0, 0, 0].nonzero()[:, 0].tolist() == expected, top_p
    got = svg2.cluster_map(q, k, top_p=0.0, min_ratio=0.5)
    assert got[0, 0, 0].nonzero()[:, 0].tolist() == [1, 2, 5, 8, 11, 12]


SIZES = {
    "small": ([[5, 0, 17, 8], [1, 1, 27, 1]], [[10, 20, 0], [30, 0, 0]]),
    "split": ([[128, 129, 0, 256], [1, 127, 300, 85]], [[500, 13, 0], [256, 255, 2]]),
    "every size": ([[0, 1, 15, 16, 17, 63, 64, 65, 127, 128]], [[496, 0]]),
    "one": ([[400]], [[400]]),
}


@pytest.mark.parametrize("text", [None, (20, 13), (0, 5), (140, 0)])
@pytest.mark.parametrize("name", SIZES)
def test_blocks_and_orders(name, text):
    q_sizes, kv_sizes = SIZES[name]
    heads = len(q_sizes)
    generator = torch.Generator().manual_seed(6)
    made = [
        clusters(s, torch.randn(1, heads, len(s[0]), 16, generator=generator))
        for s in (q_sizes, kv_sizes)
    ]
    options = {"top_p": 0.4, "min_ratio": 0.0}
    got = svg2.select(*made, **options, text=text)
    chosen = svg2.cluster_map(*made, **options)
    arguments, tail = got.arguments, list(text or ())
    tokens = sum(q_sizes[0])
    for h in range(heads):
        for side, cluster_sizes, order, made_side in (
            ("q", q_sizes[h], got.q_order, made[0]),
            ("kv", kv_sizes[h], got.kv_order, made[1]),
        ):
            begin, blocks, expected_order = 0, [], []
            for size in cluster_sizes + tail:
                blocks += [(begin + i, min(128, size - i)) for i in range(0, size, 128)]
                begin += size
            labels = made_side.labels[0, h].tolist()
            for c in range(len(cluster_sizes)):
                expected_order += [i for i, label in enumerate(labels) if label == c]
            expected_order += range(tokens, tokens + sum(tail))
            assert order.token_of_row[0, h].tolist() == expected_order
            inverse = order.row_of_token[0, h].long()
            assert order.token_of_row[0, h, inverse].tolist() == list(range(tokens + sum(tail)))
            sizes = arguments[f"{side}_block_sizes"][0, h].tolist()
            offsets = arguments[f"{side}_block_offsets"][0, h].tolist()
            assert len(sizes) == svg2.most_blocks(tokens + sum(tail), len(cluster_sizes + tail))
            assert list(zip(offsets, sizes, strict=True))[: len(blocks)] == blocks
            assert not any(sizes[len(blocks) :])
        lists = [row.nonzero()[:, 0].tolist() for row in chosen[0, h]]
        if tail:
            count = len(kv_sizes[h])
            lists = [ids + [count] for ids in lists]
            lists += [list(range(count + 1)), [count + 1]]
        of_cluster, number = [], 0
        for size in kv_sizes[h] + tail:
            of_cluster.append(list(range(number, number + math.ceil(size / 128))))
            number += math.ceil(size / 128)
        expected = [
            [block for c in ids for block in of_cluster[c]]
            for ids, size in zip(lists, q_sizes[h] + tail, strict=True)
            for _ in range(0, size, 128)
        ]
        found = rules.lists(arguments)[0][h]
        assert found[: len(expected)] == expected
        assert not any(found[len(expected) :])
    kpage.plan(**arguments)


@pytest.mark.parametrize("tokens, count", [(0, 3), (5, 9), (300, 4), (128, 1), (129, 1), (1000, 7)])
def test_most_blocks_is_the_most(tokens, count):
    """Over random partitions, and the one that reaches it."""
    limit = svg2.most_blocks(tokens, count)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        cuts = torch.randint(0, tokens + 1, (count - 1,), generator=generator).sort().values
        ends = [0, *cuts.tolist(), tokens]
        assert sum(math.ceil((b - a) / 128) for a, b in zip(ends, ends[1:])) <= limit
    used = min(tokens, count)
    best = [1] * (used - 1) + [tokens - used + 1] if used else []
    assert sum(math.ceil(n / 128) for n in best) == limit


def test_lists_over_the_room_are_an_error_of_the_plan():
    q, k = (clusters([[40, 60]], torch.zeros(1, 1, 2, 16)) for _ in range(2))
    arguments = svg2.select(q, k, top_p=1.0, max_list=1).arguments
    with pytest.raises(ValueError, match="q2k_block_nums"):
        kpage.plan(**arguments)
    kpage.plan(**svg2.select(q, k, top_p=1.0, max_list=2).arguments)


ERRORS = [
    (lambda x, c: svg2.kmeans(x), "centroids: expected either clusters or centroids"),
    (lambda x, c: svg2.kmeans(x, 3, centroids=x), "centroids: expected either"),
    (lambda x, c: svg2.kmeans(x, 0), "clusters: expected at least 1, got 0"),
    (lambda x, c: svg2.kmeans(x[0], 2), r"x: expected shape \[B, H, S, D\]"),
    (lambda x, c: svg2.kmeans(x, centroids=x[..., :4]), r"centroids: expected shape \[1, 1, C, 16\]"),
    (lambda x, c: svg2.kmeans(x, 2, iterations=0), "iterations: expected at least 1, got 0"),
    (lambda x, c: svg2.kmeans(x[:, :, :0], 2), "x: expected at least one row to start from"),
    (lambda x, c: svg2.kmeans(x, centroids=x[:, :, :0]), "centroids: expected at least one, got"),
    (lambda x, c: svg2.kmeans(x.int(), 2), "x: expected floating-point numbers, got torch.int32"),
    (lambda x, c: svg2.kmeans(x.to("meta"), 2), "x: expected a tensor with values, got one on meta"),
    (lambda x, c: svg2.kmeans(x, centroids=x.to("meta")), "centroids: expected a tensor with values"),
    (lambda x, c: svg2.select(c, c._replace(sizes=c.sizes.to("meta"))), "k.sizes: expected a tensor"),
    (
        lambda x, c: svg2.select(c._replace(centroids=c.centroids.to("meta")), c),
        "q.centroids: expected a tensor with values, got one on meta",
    ),
    (
        lambda x, c: svg2.select(c, c._replace(centroids=c.centroids.half())),
        "k.centroids: expected the dtype of q.centroids, torch.float32, got torch.float16",
    ),
    (
        lambda x, c: svg2.select(c, c._replace(centroids=c.centroids[..., :8])),
        "k.centroids: expected the head dimension of q.centroids, 16, got 8",
    ),
    (
        lambda x, c: svg2.select(c._replace(sizes=c.sizes[..., :1]), c),
        r"q.sizes: expected shape \[1, 1, 2\], got \[1, 1, 1\]",
    ),
    (
        lambda x, c: svg2.cluster_map(c, c._replace(sizes=c.sizes[..., :1])),
        r"k.sizes: expected shape \[1, 1, 2\], got \[1, 1, 1\]",
    ),
    (lambda x, c: svg2.select(c, c, top_p=1.5), "top_p: expected a number in"),
    (lambda x, c: svg2.select(c, c, min_ratio=-1), "min_ratio: expected a number in"),
    (lambda x, c: svg2.select(c, c, text=(3,)), r"text: expected \(prompt, unused\), got 1"),
    (lambda x, c: svg2.select(c, c, text=(3, -1)), r"text\[1\]: expected at least 0"),
    (lambda x, c: svg2.select(c, c, max_list=-2), "max_list: expected at least 0"),
    (
        lambda x, c: svg2.select(c, c._replace(labels=c.labels[:, :, 1:])),
        "k: expected the 100 tokens of q, got 99",
    ),
]


@pytest.mark.parametrize("call, message", ERRORS)
def test_errors(call, message):
    x = rules.random_qk(100, heads=1, dim=16)[0]
    with pytest.raises(ValueError, match=message):
        call(x, clusters([[40, 60]], torch.zeros(1, 1, 2, 16)))


def test_what_is_no_number_and_no_clusters():
    x = rules.random_qk(50, heads=2, dim=8)[0]
    with pytest.raises(TypeError, match="tolerance: expected a number, got str"):
        svg2.kmeans(x, 9, tolerance="1e-4x")
    with pytest.raises(ValueError, match="tolerance: expected a number, got nan"):
        svg2.kmeans(x, 9, tolerance=math.nan)
    made = svg2.kmeans(x, 9)
    for call in (svg2.select, svg2.cluster_map):
        with pytest.raises(TypeError, match="k: expected Clusters, got Tensor"):
            call(made, x)


def test_kmeans_of_one_seed_is_the_same():
    x = rules.random_qk(50, heads=2, dim=8)[0]
    made = [svg2.kmeans(x, 9, generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(made[0][:3], made[1][:3], strict=True))
