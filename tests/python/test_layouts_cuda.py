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
@pytest.mark.parametrize("rows, clusters", [(1, 1), (17, 5), (300, 64), (1000, 65), (257, 1000)])
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
        *(layouts.svg2.Clusters(*(x.cuda() for x in c)) for c in made), text=(20, 13)
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
