"""Selectors on a CUDA device: equal to the CPU's, without waiting for the device, in CUDA graphs."""

import math

import kpage
import layouts_reference as rules
import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

layouts = kpage.layouts
BF16 = torch.bfloat16
COLUMNS = [1, 15, 16, 17, 63, 64, 65, 127, 128, 511, 1440, 2047, 3000, 9000]


def same(a, b):
    assert a.keys() == b.keys()
    for name, x in a.items():
        y = b[name]
        assert (x is None) == (y is None)
        if x is not None:
            assert torch.equal(x.cpu(), y.cpu()), name


def scores_of(kind, columns, rows=7):
    generator = torch.Generator().manual_seed(columns)
    scores = torch.randn(rows, columns, generator=generator)
    if kind == "ties":
        scores = (2 * scores).round()
        scores[0] = 1.0
        scores[1] = -0.0
        scores[1, ::2] = 0.0
    if kind == "special":
        scores[:, ::3] = math.nan
        scores[:, 1::5] = -math.inf
        scores[0, ::7] = math.inf
        scores[1] = math.nan
    return scores


@pytest.mark.parametrize("dtype", [torch.float32, BF16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", ["random", "ties", "special"])
@pytest.mark.parametrize("columns", COLUMNS)
def test_top_k(columns, kind, dtype):
    scores = scores_of(kind, columns).to(dtype)
    for keep in {1, max(columns // 10, 1), max(columns - 1, 1), columns}:
        got = layouts._ops.top_k(scores.cuda(), keep).cpu()
        assert torch.equal(got, layouts._ops.top_k(scores, keep)), keep


@pytest.mark.parametrize("columns", [0, *COLUMNS])
def test_lists_of_map(columns):
    block_map = torch.rand(3, 5, columns, generator=torch.Generator().manual_seed(0)) < 0.4
    for room in {0, columns // 3, columns, columns + 3}:
        got = layouts._ops.lists_of_map(block_map.cuda(), room)
        for a, b in zip(got, layouts._ops.lists_of_map(block_map, room), strict=True):
            assert torch.equal(a.cpu(), b)


@pytest.mark.parametrize("dtype", [torch.float32, BF16, torch.float16], ids=str)
@pytest.mark.parametrize("crosses", [True, False])
@pytest.mark.parametrize("columns", COLUMNS)
def test_leading_map(columns, crosses, dtype):
    weights = scores_of("ties", columns).softmax(-1).to(dtype)
    weights[2] = 0.0
    weights[3, ::2] = 0.0
    for limit, least in ((0.0, 1), (0.5, 0), (0.9, columns // 2), (1.0, 0), (0.2, columns)):
        got = layouts._ops.leading_map(weights.cuda(), limit, least=least, crosses=crosses).cpu()
        host = layouts._ops.leading_map(weights, limit, least=least, crosses=crosses)
        assert torch.equal(got, host), (limit, least)


@pytest.mark.parametrize("columns", COLUMNS)
def test_leading_map_of_equal_scores(columns):
    # Weights are powers of 2 over a power of 2: no rounding differs.
    generator = torch.Generator().manual_seed(columns)
    counts = 2 ** torch.randint(0, 5, (3, columns), generator=generator).to(torch.int32)
    counts[:, 0] += 2**18 - counts.sum(-1)
    scores = torch.full((3, 4, columns), 0.5)
    for limit in (0.0, 0.5, 0.99):
        rest = {"least": columns // 10, "crosses": True}
        got = layouts._ops.leading_map(scores.cuda(), limit, counts=counts.cuda().int(), **rest)
        host = layouts._ops.leading_map(scores, limit, counts=counts.int(), **rest)
        assert torch.equal(got.cpu(), host)


@pytest.mark.parametrize("clusters", [1, 5, 300, 1000, 3000, 19000])
@pytest.mark.parametrize("rows", [1, 31, 32, 33, 1000, 75600])
def test_cluster_order(rows, clusters):
    labels = torch.randint(-1, clusters + 1, (1, 2, rows), dtype=torch.int32)
    got = layouts._ops.cluster_order(labels.cuda(), clusters)
    for a, b in zip(got, layouts._ops.cluster_order(labels, clusters), strict=True):
        assert torch.equal(a.cpu(), b)


@pytest.mark.parametrize("dtype", [torch.float32, BF16, torch.float16], ids=str)
@pytest.mark.parametrize("dim", [64, 128, 20])
@pytest.mark.parametrize("clusters", [1, 7, 400])
def test_cluster_means(clusters, dim, dtype):
    x = torch.randn(2, 3, 900, dim).to(dtype)
    centroids = torch.randn(2, 3, clusters, dim).to(dtype)
    labels = torch.randint(0, clusters, (2, 3, 900), dtype=torch.int32)
    order, _, *parts = layouts._ops.cluster_order(labels, clusters)
    given = (order, *parts)
    host = layouts._ops.cluster_means(x, *given, centroids)
    got = layouts._ops.cluster_means(x.cuda(), *(t.cuda() for t in given), centroids.cuda())
    for a, b in zip(got, host, strict=True):
        torch.testing.assert_close(a.cpu(), b, atol=1e-2 if dtype != torch.float32 else 1e-5, rtol=0)
    empty = parts[0] == 0
    assert torch.equal(got[0].cpu()[empty], centroids[empty])


@pytest.mark.parametrize("clusters", [1, 31, 1000, 3000])
def test_cluster_blocks(clusters):
    sizes = torch.randint(0, 400, (2, 3, clusters), dtype=torch.int32)
    sizes[0, 0] = 0
    for room in (1, 2 * clusters, 4 * clusters):
        got = layouts._ops.cluster_blocks(sizes.cuda(), room)
        for a, b in zip(got, layouts._ops.cluster_blocks(sizes, room), strict=True):
            assert torch.equal(a.cpu(), b)


@pytest.mark.parametrize("columns", [1, 65, 1000])
def test_lists_of_rows_and_columns(columns):
    generator = torch.Generator().manual_seed(0)
    block_map = torch.rand(2, 3, 7, columns, generator=generator) < 0.4
    rows = torch.randint(-1, 8, (2, 3, 11), generator=generator).int()
    ids = torch.randint(-1, columns + 1, (2, 3, 2 * columns), generator=generator).int()
    for given in ({"row_of_list": rows}, {"column_of_id": ids},
                  {"row_of_list": rows, "column_of_id": ids}):
        host = layouts._ops.lists_of_map(block_map, columns, **given)
        moved = {name: x.cuda() for name, x in given.items()}
        got = layouts._ops.lists_of_map(block_map.cuda(), columns, **moved)
        for a, b in zip(got, host, strict=True):
            assert torch.equal(a.cpu(), b)


@pytest.mark.parametrize("dtype", [torch.float32, BF16, torch.float16], ids=str)
@pytest.mark.parametrize("dim", [64, 128, 20, 256])
@pytest.mark.parametrize("placement", ["blk128", "dense"])
def test_means(placement, dim, dtype):
    tiling = layouts.tiling((5, 9, 11), (4, 8, 8), suffix=(70,), placement=placement)
    x = rules.in_rows(torch.randn(2, 3, tiling.tokens, dim).to(dtype), tiling)
    host, device = x.requires_grad_(), x.detach().cuda().requires_grad_()
    a, b = tiling.means(host), tiling.to("cuda").means(device)
    torch.testing.assert_close(b.cpu(), a, atol=1e-5, rtol=1e-5)
    weights = torch.randn(a.shape)
    (d_host,) = torch.autograd.grad(a, host, weights)
    (d_device,) = torch.autograd.grad(b, device, weights.cuda())
    assert torch.equal(d_device.cpu(), d_host)


def test_means_of_rows_that_are_strided():
    tiling = layouts.tiling((5, 9, 11), (4, 4, 4), placement="dense", device="cuda")
    packed = torch.randn(1, tiling.tokens, 3, 2, 64, device="cuda").to(BF16)
    x = packed[:, :, 1].transpose(1, 2)
    torch.testing.assert_close(tiling.means(x), tiling.means(x.contiguous()))


@pytest.mark.parametrize("dtype", [BF16, torch.float16], ids=str)
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("rows, clusters", [(1, 1), (17, 5), (300, 64), (1000, 65), (257, 1000), (9000, 129)])
def test_nearest_centroids(rows, clusters, dim, dtype):
    x, centroids = (torch.randn(2, 3, n, dim).to(dtype) for n in (rows, clusters))
    got = layouts.svg2.nearest(x.cuda(), centroids.cuda()).cpu().long()
    distances = torch.cdist(x.double(), centroids.double())
    least = distances.amin(-1)
    found = distances.gather(-1, got[..., None])[..., 0]
    torch.testing.assert_close(found, least, atol=1e-5, rtol=1e-6)
    assert (got == distances.argmin(-1)).float().mean() > 0.99


@pytest.mark.parametrize("dim", [64, 128])
def test_nearest_centroids_where_all_is_a_tie(dim):
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-1, 2, (1, 2, 500, dim), generator=generator).to(BF16)
    x[..., 3:] = 0
    centroids = x[:, :, torch.randint(0, 500, (130,), generator=generator)]
    got = layouts.svg2.nearest(x.cuda(), centroids.cuda())
    assert torch.equal(got.cpu(), layouts.svg2.nearest(x, centroids))


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("clusters", [1, 8, 104, 128, 300])
def test_nearest_centroids_of_so_many_rows_that_all_blocks_go_on(clusters, dim):
    """Where few centroids are gone over, a block's next rows wait for the place of those it reads."""
    generator = torch.Generator("cuda").manual_seed(0)
    x, centroids = (
        torch.randint(-3, 4, (1, 2, n, dim), generator=generator, device="cuda").to(BF16)
        for n in (75600, clusters)
    )
    scores = x.float() @ centroids.float().mT - centroids.float().square().sum(-1)[:, :, None] / 2
    is_best = scores == scores.amax(-1, keepdim=True)
    numbers = torch.arange(clusters, device="cuda")
    expected = torch.where(is_best, numbers, clusters).amin(-1).int()
    for _ in range(10):
        assert torch.equal(layouts.svg2.nearest(x, centroids), expected)


# --- Whole selectors: integers in, so that no rounding differs ---------------------------------


def exact_qk(tiling, heads=2, kv_heads=2):
    generator = torch.Generator().manual_seed(3)
    made = []
    for count in (heads, kv_heads):
        x = torch.randint(-2, 3, (1, count, tiling.tokens, 64), generator=generator)
        made.append(rules.in_rows(x.to(BF16), tiling))
    return made


SELECTORS = {
    "cubes": lambda q, k, t: layouts.cubes.select(q, k, t, top_k=7),
    "vsa": lambda q, k, t: layouts.vsa.select(q, k, t, sparsity=0.7),
    "vsa, compete": lambda q, k, t: layouts.vsa.select(q, k, t, keep=3, segments="compete"),
    "sta": lambda q, k, t: layouts.sta.layout(t, [(3, 3, 3), (1, 3, 5)]),
}


@pytest.mark.parametrize("cube", [(4, 4, 4), (4, 8, 8)])
@pytest.mark.parametrize("name", SELECTORS)
def test_same_lists_as_on_the_cpu(name, cube):
    # Cubes of 64 rows have means that are exact in float32, and the clipped ones 16 or 4.
    tiling = layouts.tiling((8, 16, 16), cube, prefix=(64,), placement="dense")
    q, k = exact_qk(tiling)
    host = SELECTORS[name](q, k, tiling)
    device = SELECTORS[name](q.cuda(), k.cuda(), tiling.to("cuda"))
    same(host, device)
    assert torch.equal(kpage.plan(**host)._forward, kpage.plan(**device)._forward.cpu())


def test_clusters_give_the_same_layout():
    generator = torch.Generator().manual_seed(5)
    made = []
    for count in (9, 30):
        labels = torch.randint(0, count, (1, 2, 700), generator=generator).to(torch.int32)
        sizes = torch.stack([x.bincount(minlength=count) for x in labels[0]])[None].int()
        centroids = torch.randint(-2, 3, (1, 2, count, 64), generator=generator).to(BF16)
        made.append(layouts.svg2.Clusters(labels, sizes, centroids))
    host = layouts.svg2.select(*made, text=(20, 13))
    device = layouts.svg2.select(
        *(layouts.svg2.Clusters(*(x.cuda() for x in c[:3])) for c in made), text=(20, 13)
    )
    same(host.arguments, device.arguments)
    for a, b in zip((*host.q_order, *host.kv_order), (*device.q_order, *device.kv_order)):
        assert torch.equal(a, b.cpu())


def steps():
    tiling = layouts.tiling((5, 9, 11), (4, 4, 4), placement="dense", device="cuda")
    linear = layouts.linear_tiling(tiling.tokens, chunk=64, device="cuda")
    window = layouts.sta.window_map(tiling, (3, 3, 3))
    start = torch.randn(1, 2, 12, 64, device="cuda").to(BF16)

    def svg2(q, k):
        made = [layouts.svg2.kmeans(x, centroids=start) for x in (q, k)]
        return layouts.svg2.select(*made).arguments

    return tiling, {
        "cubes": lambda q, k: layouts.cubes.select(q, k, tiling, top_k=7),
        "vsa": lambda q, k: layouts.vsa.select(q, k, tiling, sparsity=0.7),
        "ssta": lambda q, k: layouts.ssta.select(q, k, tiling, window=window, top_k=8),
        "sparge": lambda q, k: layouts.sparge.select(q, k, linear, linear, cdf=0.9),
        "svg2": svg2,
    }


@pytest.mark.parametrize("name", ["cubes", "vsa", "ssta", "sparge", "svg2"])
def test_in_a_graph_and_without_waiting(name):
    tiling, selectors = steps()
    select = selectors[name]
    inputs = [[torch.randn(1, 2, tiling.tokens, 64, device="cuda").to(BF16) for _ in "qk"]
              for _ in range(3)]
    q, k = (x.clone() for x in inputs[0])

    def step():
        return kpage.attention(q, k, k, kpage.plan(**select(q, k)))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    for new_q, new_k in inputs[1:]:
        q.copy_(new_q)
        k.copy_(new_k)
        graph.replay()
        torch.testing.assert_close(out, step(), atol=0.02, rtol=0.02)
