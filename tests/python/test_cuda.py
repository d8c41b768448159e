"""The same on CUDA tensors: plans built on the device, attention on any stream, CUDA graphs."""

import kpage
import pytest
import torch
from reference import random_layout, relative_error

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SIZES = [128, 100, 0, 64, 17, 127, 1, 16]


def on_cuda(layout):
    tensors = [None if t is None else t.cuda() for t in layout.arguments]
    return tensors, {n: None if t is None else t.cuda() for n, t in layout.offsets.items()}


def qkv(rows=128 * len(SIZES), heads=4, kv_heads=2, device="cuda"):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(1, n, rows, 64, generator=generator).to(device, torch.bfloat16).requires_grad_()
        for n in (heads, kv_heads, kv_heads)
    ]


@pytest.mark.parametrize("offsets", [False, True])
def test_plan_has_the_bytes_of_the_host(offsets):
    layout = random_layout(1, heads=4, q_sizes=SIZES, offsets=offsets)
    tensors, named = on_cuda(layout)
    device = kpage.plan(*tensors, **named).build_backward()
    host = kpage.plan(*layout.arguments, **layout.offsets).build_backward()
    assert device.device.type == "cuda"
    assert torch.equal(device._forward.cpu(), host._forward)
    assert torch.equal(device._backward.cpu(), host._backward)
    assert device.stats() == host.stats()


def test_wide_integers():
    layout = random_layout(2, heads=4, q_sizes=SIZES)
    tensors, _ = on_cuda(layout)
    wide = [None if t is None else t.long() for t in tensors]
    assert torch.equal(kpage.plan(*wide)._forward, kpage.plan(*tensors)._forward)
    wide[2][0] = 1 << 40
    with pytest.raises(ValueError, match="q_block_sizes"):
        kpage.plan(*wide).stats()


@pytest.mark.parametrize("layout_name", ["bhsd", "bshd"])
def test_attention_agrees_with_the_cpu(layout_name):
    layout = random_layout(3, heads=4, q_sizes=SIZES)
    results = []
    for device in ("cpu", "cuda"):
        q, k, v = qkv(device=device)
        if layout_name == "bshd":
            q, k, v = (x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v))
        plan = kpage.plan(*(None if t is None else t.to(device) for t in layout.arguments))
        out, lse = kpage.attention(q, k, v, plan, layout=layout_name, return_lse=True)
        seeing = lse.isfinite()
        loss = out.float().square().sum() + lse[seeing].sum()
        results.append([x.detach().cpu() for x in (out, lse, *torch.autograd.grad(loss, (q, k, v)))])
    (out, lse, *gradients), (expected, expected_lse, *expected_gradients) = results[1], results[0]
    assert relative_error(out, expected) <= 4e-3
    torch.testing.assert_close(lse, expected_lse, atol=1e-5, rtol=1e-5)
    for a, b in zip(gradients, expected_gradients, strict=True):
        assert relative_error(a, b) <= 1e-2


def test_nothing_waits_for_the_device():
    tensors, _ = on_cuda(random_layout(4, heads=4, q_sizes=SIZES))
    q, k, v = qkv()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        plan = kpage.plan(*tensors)
        kpage.attention(q, k, v, plan).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_side_stream():
    tensors, _ = on_cuda(random_layout(5, heads=4, q_sizes=SIZES))
    q, k, v = qkv()
    expected = kpage.attention(q, k, v, kpage.plan(*tensors))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = kpage.attention(q, k, v, kpage.plan(*tensors))
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(out, expected)


def test_graph_replays_with_new_lists():
    first, second = (
        on_cuda(random_layout(seed, heads=4, q_sizes=SIZES))[0][:3] for seed in (6, 7)
    )
    q, k, v = (x.detach() for x in qkv())
    static = [t.clone() for t in first]

    def step():
        return kpage.attention(q, k, v, kpage.plan(*static))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    for tensors in (second, first):
        for target, source in zip(static, tensors, strict=True):
            target.copy_(source)
        graph.replay()
        assert torch.equal(out, kpage.attention(q, k, v, kpage.plan(*tensors)))


def test_update_in_place():
    first, second = (
        on_cuda(random_layout(seed, heads=4, q_sizes=SIZES))[0] for seed in (8, 9)
    )
    plan = kpage.plan(*first).build_backward()
    plan.update_(*second)
    fresh = kpage.plan(*second).build_backward()
    assert torch.equal(plan._forward, fresh._forward)
    assert torch.equal(plan._backward, fresh._backward)


def test_compiled_plan_and_attention():
    tensors, _ = on_cuda(random_layout(10, heads=4, q_sizes=SIZES))
    q, k, v = qkv()

    @torch.compile(fullgraph=True)
    def function(q, k, v, *tensors):
        return kpage.attention(q, k, v, kpage.plan(*tensors))

    out = function(q, k, v, *tensors[:3])
    assert torch.equal(out, kpage.attention(q, k, v, kpage.plan(*tensors)))
    out.sum().backward()
    assert q.grad.isfinite().all()


@pytest.mark.parametrize(
    ("position", "value", "argument"),
    [((0, 0, 0, 0), 99, "q2k_block_index"), ((0, 1, 0, 0), -5, "q2k_block_index")],
)
def test_bad_value_is_told_later(position, value, argument):
    layout = random_layout(11, heads=4, q_sizes=SIZES)
    layout.nums.fill_(1)
    layout.index[position] = value
    tensors, _ = on_cuda(layout)
    plan = kpage.plan(*tensors)
    kpage.attention(*qkv(), plan).sum().backward()  # runs without the offender
    with pytest.raises(ValueError, match=argument):
        plan.stats()


def test_tensors_on_different_devices():
    layout = random_layout(12, heads=4, q_sizes=SIZES)
    q, k, v = qkv()
    with pytest.raises(ValueError, match="plan: expected a plan on cuda:0 as q, got cpu"):
        kpage.attention(q, k, v, kpage.plan(*layout.arguments))
    tensors, _ = on_cuda(layout)
    with pytest.raises((ValueError, RuntimeError), match="k: expected a tensor on cuda:0"):
        kpage.attention(q, k.cpu(), v, kpage.plan(*tensors))


def test_strides_that_no_tensor_map_reaches():
    tensors, _ = on_cuda(random_layout(13, heads=4, q_sizes=SIZES))
    q, k, v = (x.detach() for x in qkv())
    odd = torch.empty(1, 4, q.shape[2], 65, device="cuda", dtype=torch.bfloat16)[..., :64]
    with pytest.raises(ValueError, match="q: expected"):
        kpage.attention(odd, k, v, kpage.plan(*tensors))
