"""torch.compile(fullgraph=True), fake kernels and the ops' registrations, on CPU tensors."""

import kpage
import pytest
import torch
from reference import random_layout
from torch._subclasses.fake_tensor import FakeTensorMode

SIZES = [128, 100, 0, 64, 17]


def qkv(rows=640, heads=2, kv_heads=2, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(1, n, rows, 64, generator=generator).to(dtype).requires_grad_()
        for n in (heads, kv_heads, kv_heads)
    ]


@pytest.fixture
def layout():
    return random_layout(1, heads=2, q_sizes=SIZES)


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def check(function, expected, inputs):
    d_o = torch.ones_like(expected)
    out = function()
    assert torch.equal(out, expected)
    assert same(
        torch.autograd.grad(out, inputs, d_o),
        torch.autograd.grad(expected, inputs, d_o, retain_graph=True),
    )


@pytest.mark.parametrize("ahead", [False, True])
def test_attention(layout, ahead):
    q, k, v = qkv()
    plan = kpage.plan(*layout.arguments)
    if ahead:
        plan.build_backward()
    expected = kpage.attention(q, k, v, plan)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def function(q, k, v, plan):
        return kpage.attention(q, k, v, plan, scale=None)

    check(lambda: function(q, k, v, plan), expected, (q, k, v))


def test_plan_and_attention_with_inductor(layout):
    q, k, v = qkv(kv_heads=1)
    expected = kpage.attention(q, k, v, kpage.plan(*layout.arguments))

    @torch.compile(fullgraph=True)
    def function(q, k, v, *tensors):
        return kpage.attention(q, k, v, kpage.plan(*tensors))

    tensors = layout.arguments[:3]
    check(lambda: function(q, k, v, *tensors), expected, (q, k, v))


def test_plan_and_attention_in_bshd_with_lse(layout):
    q, k, v = (x.detach().transpose(1, 2).contiguous().requires_grad_() for x in qkv())

    def function(q, k, v, *tensors):
        plan = kpage.plan(*tensors)
        out, lse = kpage.attention(q, k, v, plan, layout="bshd", return_lse=True, scale=0.1)
        return out.float().sum() + torch.where(lse.isfinite(), lse, 0.0).sum()

    tensors = layout.arguments[:3]
    eager = torch.autograd.grad(function(q, k, v, *tensors), (q, k, v))
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert same(torch.autograd.grad(compiled(q, k, v, *tensors), (q, k, v)), eager)


def test_plan_leaves_a_compiled_function(layout):
    @torch.compile(fullgraph=True, backend="aot_eager")
    def function(*tensors):
        return kpage.plan(*tensors)

    plan = function(*layout.arguments[:3])
    assert isinstance(plan, kpage.Plan)
    assert plan.dump() == kpage.plan(*layout.arguments).dump()


def test_update(layout):
    other = random_layout(2, heads=2, q_sizes=SIZES)
    q, k, v = qkv()
    plan = kpage.plan(*layout.arguments)
    expected = kpage.attention(q, k, v, kpage.plan(*other.arguments))

    @torch.compile(fullgraph=True, backend="aot_eager")
    def function(q, k, v, plan, *tensors):
        return kpage.attention(q, k, v, plan.update_(*tensors))

    check(lambda: function(q, k, v, plan, *other.arguments), expected, (q, k, v))
    assert torch.equal(plan._forward, kpage.plan(*other.arguments)._forward)


def test_autocast(layout):
    q, k, v = (t.detach().float().requires_grad_() for t in qkv())
    plan = kpage.plan(*layout.arguments)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def function(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return kpage.attention(q, k, v, plan)

    check(lambda: function(q, k, v), kpage.attention(*(t.bfloat16() for t in (q, k, v)), plan), (q, k, v))


def test_numbers_of_rows_may_change(layout):
    plan = kpage.plan(*layout.arguments)

    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=True)
    def function(q, k, v, plan):
        return kpage.attention(q, k, v, plan)

    for rows in (640, 641, 700):
        q, k, v = qkv(rows)
        assert torch.equal(function(q, k, v, plan), kpage.attention(q, k, v, plan))


def test_fake_tensors_have_the_shapes_of_real_ones(layout):
    q, k, v = qkv()
    plan = kpage.plan(*layout.arguments)
    out, lse = kpage.attention(q, k, v, plan, return_lse=True)
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(t) for t in (q, k, v, *layout.arguments[:3])]
        fake_plan = kpage.plan(*fake[3:])
        fake_out, fake_lse = kpage.attention(*fake[:3], fake_plan, return_lse=True)
    assert fake_plan._forward.shape == plan._forward.shape
    assert (fake_out.shape, fake_out.stride()) == (out.shape, out.stride())
    assert (fake_lse.shape, fake_lse.dtype) == (lse.shape, lse.dtype)


def test_opcheck(layout):
    ops = torch.ops.kpage
    q, k, v = qkv()
    plan = kpage.plan(*layout.arguments).build_backward()
    blobs = (plan._forward, plan._backward)
    torch.library.opcheck(ops.plan_forward.default, (*layout.arguments, None, None))
    torch.library.opcheck(ops.plan_backward.default, (plan._forward, plan._shape))
    for backward in (None, plan._backward):
        torch.library.opcheck(
            ops.attention_forward.default,
            (q, k, v, plan._forward, backward, plan._shape, None, False, False),
        )
    out, lse = (x.detach() for x in kpage.attention(q, k, v, plan, return_lse=True))
    q, k, v = (x.detach() for x in (q, k, v))
    for d_lse in (None, torch.ones_like(lse)):
        torch.library.opcheck(
            ops.attention_backward.default,
            (out, d_lse, q, k, v, out, lse, *blobs, plan._shape, 0.1, False, True),
        )
