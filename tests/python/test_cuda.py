"""The package on CUDA tensors: against the fp64 reference and the CPU backend, streams, graphs."""

import math

import kpage
import pytest
import reference
import torch
from reference import random_layout, relative_error
from test_attention import GRADIENT_ERROR, LAYOUTS, OUTPUT_ERROR, SIZES, tensors, to_bhsd

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def on_device(layout):
    """What `kpage.plan` takes, on the device."""
    arguments = [None if t is None else t.cuda() for t in layout.arguments]
    offsets = {key: None if t is None else t.cuda() for key, t in layout.offsets.items()}
    return arguments, offsets


def plan_of(layout):
    arguments, offsets = on_device(layout)
    return kpage.plan(*arguments, **offsets)


def leaves(host):
    return [x.detach().cuda().requires_grad_() for x in host]


def simple_qkv(rows=640, heads=2, kv_heads=2, head_dim=64):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(1, n, rows, head_dim, generator=generator).to(torch.bfloat16)
        for n in (heads, kv_heads, kv_heads)
    ]


def run(q, k, v, d_o, plan, **options):
    out, lse = kpage.attention(q, k, v, plan, return_lse=True, **options)
    return (out, lse, *torch.autograd.grad(out, (q, k, v), d_o))


def check(layout, *host, bshd):
    options = {"layout": "bshd" if bshd else "bhsd"}
    *host, d_o = host
    got = run(*leaves(host), d_o.cuda(), plan_of(layout), **options)
    got = [x.detach().cpu() for x in got]
    cpu_plan = kpage.plan(*layout.arguments, **layout.offsets)
    cpu = [x.detach() for x in run(*host, d_o, cpu_plan, **options)]

    dtype = host[0].dtype
    exact = [to_bhsd(x.detach(), bshd).double().requires_grad_() for x in host]
    mask = layout.mask(exact[0].shape[2], exact[1].shape[2])
    expected, expected_lse = reference.attention(*exact, mask)
    seeing = mask.any(3)
    attended = mask.any(2).unflatten(1, (exact[1].shape[1], -1)).any(2)
    weights = torch.where(seeing[..., None], to_bhsd(d_o, bshd).double(), 0.0)
    expected_gradients = torch.autograd.grad((expected * weights).sum(), exact)
    for name, x in (("device", got), ("CPU", cpu)):
        out = to_bhsd(x[0], bshd)
        assert relative_error(out[seeing], expected[seeing]) <= OUTPUT_ERROR[dtype], name
        assert torch.all(out[~seeing] == 0), name
        assert torch.all(x[1][~seeing] == -math.inf), name
        torch.testing.assert_close(
            x[1][seeing].double(), expected_lse[seeing], atol=2e-6, rtol=1e-6
        )
        # Not every zero of the reference is one here: a row with one key has a gradient of 0 only in
        # exact arithmetic.
        used = (seeing, attended, attended)
        for part, a, b, rows in zip("qkv", x[2:], expected_gradients, used, strict=True):
            a = to_bhsd(a, bshd)
            assert a.isfinite().all(), (name, part)
            assert relative_error(a, b) <= GRADIENT_ERROR[dtype], (name, part)
            assert torch.all(a[~rows] == 0), (name, part)
    limit = 2 * GRADIENT_ERROR[dtype]
    assert all(relative_error(a, b) <= limit for a, b in zip(got[2:], cpu[2:], strict=True))


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_layouts(name, dtype):
    layout = random_layout(1, heads=2, **LAYOUTS[name])
    check(
        layout,
        *tensors(layout, dtype=dtype, heads=2, kv_heads=2, head_dim=128, bshd=False),
        bshd=False,
    )


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("bshd", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_heads(kv_heads, bshd, head_dim):
    layout = random_layout(2, heads=4, batch=2, q_sizes=[128, 40, 65])
    made = tensors(
        layout,
        dtype=torch.bfloat16,
        heads=4,
        kv_heads=kv_heads,
        head_dim=head_dim,
        bshd=bshd,
    )
    check(layout, *made, bshd=bshd)


def test_plans_are_those_of_the_host():
    for seed in range(20):
        layout = random_layout(seed, heads=3, q_sizes=SIZES, scope=2, offsets=seed % 2 == 1)
        host = kpage.plan(*layout.arguments, **layout.offsets).build_backward()
        device = plan_of(layout).build_backward()
        assert torch.equal(device._forward.cpu(), host._forward)
        assert torch.equal(device._backward.cpu(), host._backward)
        assert device.stats() == host.stats()


def test_forward_is_bitwise_reproducible():
    layout = random_layout(3, heads=4, q_sizes=SIZES * 4)
    plan = plan_of(layout)
    q, k, v = (x.cuda() for x in simple_qkv(rows=128 * 40, heads=4, kv_heads=4, head_dim=128))
    first = kpage.attention(q, k, v, plan, return_lse=True)
    for _ in range(20):
        again = kpage.attention(q, k, v, plan, return_lse=True)
        assert all(torch.equal(a, b) for a, b in zip(again, first, strict=True))


def test_deterministic_gradients_or_an_error():
    layout = random_layout(4, heads=2, q_sizes=SIZES)
    plan = plan_of(layout)
    q, k, v = leaves(simple_qkv(rows=128 * len(SIZES)))
    d_o = torch.randn_like(q)
    first = None
    for _ in range(5):
        try:
            out = kpage.attention(q, k, v, plan, deterministic=True)
            results = torch.autograd.grad(out, (q, k, v), d_o)
        except RuntimeError as error:
            assert "determin" in str(error)
            return
        first = results if first is None else first
        assert all(torch.equal(a, b) for a, b in zip(results, first, strict=True))


def test_packed_and_strided_without_copies():
    layout = random_layout(5, heads=2, q_sizes=[128, 70])
    plan = plan_of(layout)
    packed = torch.randn(1, 256, 3, 2, 64, device="cuda").to(torch.bfloat16)
    q, k, v = packed.unbind(2)
    plain = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    out = kpage.attention(q, k, v, plan, layout="bshd")
    assert torch.equal(out.transpose(1, 2), kpage.attention(*plain, plan))


def test_no_waiting_for_the_device():
    layout = random_layout(6, heads=2, q_sizes=SIZES)
    arguments, _ = on_device(layout)
    q, k, v = leaves(simple_qkv(rows=128 * len(SIZES)))
    d_o = torch.randn_like(q)
    run(q, k, v, d_o, kpage.plan(*arguments))  # what is set up once may wait
    torch.cuda.set_sync_debug_mode("error")
    try:
        plan = kpage.plan(*arguments)
        run(q, k, v, d_o, plan)
        plan.update_(*arguments)
        run(q, k, v, d_o, plan)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_side_stream():
    layout = random_layout(7, heads=2, q_sizes=SIZES)
    q, k, v = leaves(simple_qkv(rows=128 * len(SIZES)))
    d_o = torch.randn_like(q)
    expected = run(q, k, v, d_o, plan_of(layout))
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # inputs come late: work on another stream would miss them
        late = [x.detach().clone().requires_grad_() for x in (q, k, v)]
        got = run(*late, d_o.clone(), plan_of(layout))
    stream.synchronize()
    assert torch.equal(got[0], expected[0]) and torch.equal(got[1], expected[1])
    for a, b in zip(got[2:], expected[2:], strict=True):
        assert relative_error(a, b) < 1e-3  # dQ is summed in any order


def test_more_elements_than_32_bits_count():
    """600,000 tokens, 40 heads of 128: 3.1e9 elements a tensor. The last head is looked at."""
    heads, rows, dim = 40, 600_064, 128
    blocks = rows // 128
    if torch.cuda.mem_get_info()[0] < 100 * 2**30:
        pytest.skip("needs 100 GiB of free memory")
    first = torch.arange(blocks, dtype=torch.int32, device="cuda")
    index = torch.stack([first, (first + 1) % blocks], -1).expand(1, heads, -1, -1).contiguous()
    nums = torch.full((1, heads, blocks), 2, dtype=torch.int32, device="cuda")
    sizes = torch.full((blocks,), 128, dtype=torch.int32, device="cuda")
    sizes[1::3] = 77
    plan = kpage.plan(index, nums, sizes)
    shape = (1, heads, rows, dim)
    q, k, v, d_o = (torch.empty(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    for x in (q, k, v, d_o):
        x[:, :-1] = 0
        x[:, -1].normal_()
    inputs = [x.requires_grad_() for x in (q, k, v)]
    results = run(*inputs, d_o, plan)

    block = blocks - 2  # attends to itself and to the last; attended to by itself and the one before
    span = torch.arange(3 * 128, device="cuda") + (block - 1) * 128
    exact = [x.detach()[0, -1, span].double().requires_grad_() for x in (q, k, v)]
    size = sizes[block - 1 : block + 2].repeat_interleave(128)
    valid = torch.arange(3 * 128, device="cuda") % 128 < size
    part = torch.arange(3 * 128, device="cuda") // 128
    mask = ((part[None] == part[:, None]) | (part[None] == part[:, None] + 1)) & valid
    scores = (exact[0] @ exact[1].T / math.sqrt(dim)).masked_fill(~mask, -math.inf)
    out = scores.softmax(-1) @ exact[2]
    inner = valid & (part < 2)  # the last block's list goes on past the span
    weights = torch.where(inner[:, None], d_o[0, -1, span].double(), 0.0)
    expected = torch.autograd.grad((out * weights).sum(), exact)
    assert relative_error(results[0][0, -1, span][inner], out.detach()[inner]) <= 3e-3
    assert torch.all(results[0][0, -1, span][~valid] == 0)
    own = valid & (part == 1)  # all of their query blocks and key blocks are in the span
    for got, want in zip(results[2:], expected, strict=True):
        assert relative_error(got[0, -1, span][own], want[own]) <= 3.3e-3
        assert torch.all(got[0, :-1] == 0)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_device_that_is_not_the_current_one():
    layout = random_layout(7, heads=2, q_sizes=SIZES)
    q, k, v = leaves(simple_qkv(rows=128 * len(SIZES)))
    d_o = torch.randn_like(q)
    expected = run(q, k, v, d_o, plan_of(layout))
    assert torch.cuda.current_device() == 0
    other = [x.detach().to("cuda:1").requires_grad_() for x in (q, k, v)]
    moved = [None if t is None else t.to("cuda:1") for t in layout.arguments]
    plan = kpage.plan(*moved)
    plan.update_(*moved)
    for got in (
        run(*other, d_o.to("cuda:1"), plan),
        run(*other, d_o.to("cuda:1"), plan_of(layout).to("cuda:1")),
    ):
        assert all(x.device == torch.device("cuda:1") for x in got)
        assert torch.equal(got[0].to("cuda:0"), expected[0])
        for a, b in zip(got[2:], expected[2:], strict=True):
            assert relative_error(a.to("cuda:0"), b) < 1e-3
    with pytest.raises(ValueError, match="plan"):
        kpage.attention(*other, plan_of(layout))
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("ahead", [False, True])
def test_graph_replays_with_new_metadata(ahead):
    layouts = [random_layout(seed, heads=2, q_sizes=SIZES) for seed in (8, 9, 10)]
    static, _ = on_device(layouts[0])
    q, k, v = leaves(simple_qkv(rows=128 * len(SIZES)))
    d_o = torch.randn_like(q)
    plan = kpage.plan(*static)
    if ahead:
        plan.build_backward()

    def step():
        plan.update_(*static)
        return run(q, k, v, d_o, plan)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    for layout in layouts:
        for tensor, value in zip(static[:3], layout.arguments[:3], strict=True):
            tensor.copy_(value)
        graph.replay()
        expected = run(q, k, v, d_o, plan_of(layout))
        assert torch.equal(results[0], expected[0]) and torch.equal(results[1], expected[1])
        for a, b in zip(results[2:], expected[2:], strict=True):
            assert relative_error(a, b) < 1e-3


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_without_graph_breaks(backend):
    layout = random_layout(11, heads=2, q_sizes=SIZES)
    arguments, _ = on_device(layout)
    q, k, v = leaves(simple_qkv(rows=128 * len(SIZES), kv_heads=1))
    d_o = torch.randn_like(q)

    @torch.compile(fullgraph=True, backend=backend)
    def function(q, k, v, *arguments):
        return kpage.attention(q, k, v, kpage.plan(*arguments))

    out = function(q, k, v, *arguments[:3])
    expected = run(q, k, v, d_o, plan_of(layout))
    assert torch.equal(out, expected[0])
    got = torch.autograd.grad(out, (q, k, v), d_o)
    assert all(relative_error(a, b) < 1e-3 for a, b in zip(got, expected[2:], strict=True))


@pytest.mark.parametrize("fault", ["index", "count", "size"])
def test_bad_values_run_safely_and_are_told(fault):
    layout = random_layout(12, heads=2, q_sizes=SIZES)
    arguments, _ = on_device(layout)
    if fault == "index":
        arguments[0][0, 1, 2, 0] = 1 << 30
        arguments[1][0, 1, 2] = max(1, int(arguments[1][0, 1, 2]))
    elif fault == "count":
        arguments[1][0, 0, 0] = -(1 << 31)
    else:
        arguments[2][3] = 129
    name = {"index": "q2k_block_index", "count": "q2k_block_nums", "size": "q_block_sizes"}
    plan = kpage.plan(*arguments)
    q, k, v = leaves(simple_qkv(rows=128 * len(SIZES)))
    run(q, k, v, torch.randn_like(q), plan)
    torch.cuda.synchronize()
    for told in (plan.stats, plan.check):
        with pytest.raises(ValueError, match=name[fault]):
            told()
    assert kpage.check_plans_eagerly() is False
    try:
        for make in (kpage.plan, plan.update_):
            with pytest.raises(ValueError, match=name[fault]):
                make(*arguments)
    finally:
        assert kpage.check_plans_eagerly(False) is True


def test_wide_integers():
    layout = random_layout(13, heads=2, q_sizes=SIZES)
    arguments, _ = on_device(layout)
    wide = [x if x is None else x.long() for x in arguments]
    assert torch.equal(kpage.plan(*wide)._forward, kpage.plan(*arguments)._forward)
    wide[2][3] = (1 << 32) + 16  # 16 in its low bits
    with pytest.raises(ValueError, match="q_block_sizes"):
        kpage.plan(*wide).stats()


def test_wrong_arguments_on_the_device():
    layout = random_layout(13, heads=2, q_sizes=SIZES)
    arguments, _ = on_device(layout)
    with pytest.raises(ValueError, match="q2k_block_index"):
        kpage.plan(arguments[0].float(), *arguments[1:])
    with pytest.raises(ValueError, match="q2k_block_nums"):
        kpage.plan(arguments[0], arguments[1].cpu(), arguments[2])
    plan = kpage.plan(*arguments)
    q, k, v = (x.cuda() for x in simple_qkv(rows=128 * len(SIZES)))
    with pytest.raises(ValueError, match="plan"):
        kpage.attention(q.cpu(), k.cpu(), v.cpu(), plan)
    with pytest.raises(RuntimeError, match="no backend runs"):
        kpage.attention(q[..., :32], k[..., :32], v[..., :32], plan)
