"""kpage.attention on CPU tensors against the fp64 reference: values, gradients, padding."""

import itertools
import math

import kpage
import pytest
import reference
import torch
from reference import random_layout, relative_error

OUTPUT_ERROR = {torch.bfloat16: 2.5e-3, torch.float16: 3.5e-4}
GRADIENT_ERROR = {torch.bfloat16: 5e-3, torch.float16: 7e-4}

SIZES = [128, 1, 0, 15, 16, 17, 63, 64, 65, 127]
LAYOUTS = {
    "shared": {"q_sizes": SIZES},
    "one block": {"q_sizes": [77]},
    "batch": {"q_sizes": SIZES[:6], "batch": 2},
    "per head": {"q_sizes": SIZES, "scope": 2},
    "per batch and head": {"q_sizes": SIZES[:7], "batch": 2, "scope": 3},
    "independent": {"q_sizes": SIZES[:5], "kv_sizes": SIZES[3:]},
    "any row": {"q_sizes": SIZES, "offsets": True},
    "independent at any row": {"q_sizes": SIZES[2:7], "kv_sizes": SIZES, "offsets": True},
    "short lists": {"q_sizes": SIZES, "kmax": 2},
}


def rows_of(sizes, offsets):
    if offsets is None:
        return 128 * sizes.shape[-1]
    return int((sizes + offsets).max())


def tensors(layout, *, dtype, heads, kv_heads, head_dim, bshd, seed=0, spare=7):
    """Leaves q, k, v in the caller's layout, their padding poisoned, and a gradient of O."""
    generator = torch.Generator().manual_seed(seed)
    batch = layout.index.shape[0]
    shared = layout.kv_sizes is None
    q_rows = rows_of(layout.q_sizes, layout.q_offsets) + spare
    kv_rows = q_rows
    if not shared:
        kv_rows = rows_of(layout.kv_sizes, layout.kv_offsets) + spare
    q_valid, kv_valid = layout.valid(q_rows, kv_rows)
    kv_valid = kv_valid.unflatten(1, (kv_heads, -1)).any(2)
    made = []
    for count, rows, valid in (
        (heads, q_rows, q_valid),
        (kv_heads, kv_rows, kv_valid),
        (kv_heads, kv_rows, kv_valid),
        (heads, q_rows, q_valid),
    ):
        x = torch.randn(batch, count, rows, head_dim, generator=generator).to(dtype)
        x = x.masked_fill(~valid[..., None], math.nan)
        made.append(x.transpose(1, 2).contiguous() if bshd else x)
    for x in made[:3]:
        x.requires_grad_()
    return made


def to_bhsd(x, bshd):
    return x.transpose(1, 2) if bshd else x


def check(layout, q, k, v, d_o, *, bshd, scale=None, use_lse=True):
    dtype = q.dtype
    plan = kpage.plan(*layout.arguments, **layout.offsets)
    out, lse = kpage.attention(
        q, k, v, plan, scale=scale, layout="bshd" if bshd else "bhsd", return_lse=True
    )
    assert out.shape == q.shape and out.dtype == dtype and lse.dtype == torch.float32

    exact = [to_bhsd(x.detach(), bshd).double().requires_grad_() for x in (q, k, v)]
    mask = layout.mask(exact[0].shape[2], exact[1].shape[2])
    expected, expected_lse = reference.attention(*exact, mask, scale)
    seeing = mask.any(3)
    got = to_bhsd(out, bshd)
    assert relative_error(got[seeing], expected[seeing]) <= OUTPUT_ERROR[dtype]
    assert torch.all(got[~seeing] == 0)
    assert torch.all(lse[~seeing] == -math.inf)
    torch.testing.assert_close(lse[seeing].double(), expected_lse[seeing], atol=2e-6, rtol=1e-6)

    weight = torch.randn(lse.shape, generator=torch.Generator().manual_seed(3))
    d_lse = torch.where(seeing, weight, math.nan) if use_lse else None
    outputs, gradients = ((out, lse), (d_o, d_lse)) if use_lse else ((out,), (d_o,))
    got = torch.autograd.grad(outputs, (q, k, v), gradients)
    d_o = torch.where(seeing[..., None], to_bhsd(d_o, bshd).double(), 0.0)
    loss = (expected * d_o).sum()
    if use_lse:
        loss = loss + (expected_lse[seeing] * weight[seeing]).sum()
    if seeing.any():
        expected_gradients = torch.autograd.grad(loss, exact)
    else:
        expected_gradients = [torch.zeros_like(x) for x in exact]
    for name, a, b in zip("qkv", got, expected_gradients, strict=True):
        a = to_bhsd(a, bshd)
        assert a.isfinite().all(), name
        assert relative_error(a, b) <= GRADIENT_ERROR[dtype], name
        assert torch.all(a[b == 0] == 0), name


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_layouts(name, dtype):
    layout = random_layout(1, heads=2, **LAYOUTS[name])
    q, k, v, d_o = tensors(layout, dtype=dtype, heads=2, kv_heads=2, head_dim=64, bshd=False)
    check(layout, q, k, v, d_o, bshd=False)


@pytest.mark.parametrize(
    ("kv_heads", "head_dim", "bshd"), list(itertools.product([1, 2, 4], [64, 128], [False, True]))
)
def test_heads_and_head_dims(kv_heads, head_dim, bshd):
    layout = random_layout(2, heads=4, batch=2, q_sizes=[128, 40, 65])
    q, k, v, d_o = tensors(
        layout, dtype=torch.bfloat16, heads=4, kv_heads=kv_heads, head_dim=head_dim, bshd=bshd
    )
    check(layout, q, k, v, d_o, bshd=bshd)


@pytest.mark.parametrize("head_dim", [96, 256])
def test_more_head_dims_on_the_cpu(head_dim):
    layout = random_layout(3, q_sizes=[100, 30])
    q, k, v, d_o = tensors(
        layout, dtype=torch.bfloat16, heads=2, kv_heads=2, head_dim=head_dim, bshd=False
    )
    check(layout, q, k, v, d_o, bshd=False)


@pytest.mark.parametrize("scale", [0.3, 1, -0.5, 0.0])
def test_scale(scale):
    layout = random_layout(4, q_sizes=[100, 30])
    q, k, v, d_o = tensors(
        layout, dtype=torch.float16, heads=2, kv_heads=2, head_dim=64, bshd=False
    )
    check(layout, q, k, v, d_o, bshd=False, scale=scale, use_lse=False)


def test_every_list_empty():
    layout = random_layout(5, q_sizes=[100, 30])
    layout.nums.zero_()
    q, k, v, d_o = tensors(
        layout, dtype=torch.bfloat16, heads=2, kv_heads=2, head_dim=64, bshd=False
    )
    check(layout, q, k, v, d_o, bshd=False)


def test_blocks_that_nobody_selects_may_hold_nan():
    layout = random_layout(6, q_sizes=[128, 70, 128])
    layout.index[...] = torch.tensor([0, 2, 1], dtype=torch.int32)
    layout.nums.fill_(2)
    q, k, v, d_o = tensors(
        layout, dtype=torch.bfloat16, heads=2, kv_heads=2, head_dim=64, bshd=False
    )
    with torch.no_grad():
        k[:, :, 128:198] = math.nan
        v[:, :, 128:198] = math.nan
    check(layout, q, k, v, d_o, bshd=False)


def test_packed_and_strided_without_copies():
    layout = random_layout(7, heads=2, q_sizes=[128, 70])
    rows, head_dim = 256, 64
    packed = torch.randn(1, rows, 3, 2, head_dim).to(torch.bfloat16).requires_grad_()
    q, k, v = packed.unbind(2)
    plan = kpage.plan(*layout.arguments)
    out = kpage.attention(q, k, v, plan, layout="bshd")
    plain = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v)]
    expected = kpage.attention(*plain, plan)
    assert torch.equal(out.transpose(1, 2), expected)
    out.sum().backward()
    expected.sum().backward()
    for part, x in zip(packed.grad.unbind(2), plain, strict=True):
        assert torch.equal(part.transpose(1, 2), x.grad)


def test_expanded_keys_and_gradients():
    layout = random_layout(8, heads=2, q_sizes=[128, 70])
    plan = kpage.plan(*layout.arguments)
    q = torch.randn(1, 2, 256, 64).to(torch.bfloat16).requires_grad_()
    k = torch.randn(1, 1, 256, 64).to(torch.bfloat16)
    out = kpage.attention(q, k.expand(1, 2, 256, 64), k.expand(1, 2, 256, 64), plan)
    assert torch.equal(out, kpage.attention(q, k, k, plan))
    out.sum().backward()  # its gradient has stride 0 everywhere
    assert q.grad.isfinite().all()


def test_int64_metadata():
    layout = random_layout(9, q_sizes=SIZES)
    index = layout.index.long()
    past = torch.arange(index.shape[-1]) >= layout.nums[..., None]
    index = index.masked_fill(past, 1 << 40)
    wide = kpage.plan(index, layout.nums.long(), layout.q_sizes.long())
    assert torch.equal(wide._forward, kpage.plan(*layout.arguments)._forward)


def test_only_lse_has_a_gradient():
    layout = random_layout(10, q_sizes=[128, 70])
    q, k, v, _ = tensors(
        layout, dtype=torch.bfloat16, heads=2, kv_heads=2, head_dim=64, bshd=False
    )
    plan = kpage.plan(*layout.arguments)
    _, lse = kpage.attention(q, k, v, plan, return_lse=True)
    lse[lse.isfinite()].sum().backward()
    assert q.grad.abs().sum() > 0 and k.grad.abs().sum() > 0
    assert torch.all(v.grad == 0)


def test_autocast_casts_to_its_dtype():
    layout = random_layout(1, heads=2, q_sizes=[128, 100, 17])
    plan = kpage.plan(*layout.arguments)
    tensors = [torch.randn(1, 2, 384, 64, requires_grad=True) for _ in range(3)]
    with pytest.raises(ValueError, match="q: expected"):
        kpage.attention(*tensors, plan)
    with torch.autocast("cpu", torch.bfloat16):
        out = kpage.attention(*tensors, plan)
        kept = kpage.attention(*(t.half() for t in tensors), plan)
    expected = kpage.attention(*(t.bfloat16() for t in tensors), plan)
    assert out.dtype == kept.dtype == torch.bfloat16
    assert torch.equal(out, expected)
    got, want = (torch.autograd.grad(o.float().square().sum(), tensors) for o in (out, expected))
    assert all(g.dtype == torch.float32 for g in got)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_double_backward_is_an_error():
    layout = random_layout(11, q_sizes=[128, 70])
    q, k, v = (torch.randn(1, 2, 256, 64).to(torch.bfloat16).requires_grad_() for _ in range(3))
    out = kpage.attention(q, k, v, kpage.plan(*layout.arguments))
    (d_q,) = torch.autograd.grad(out.float().pow(2).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward is not supported"):
        d_q.sum().backward()


def test_bitwise_reproducible():
    layout = random_layout(12, q_sizes=SIZES)
    q, k, v, d_o = tensors(
        layout, dtype=torch.bfloat16, heads=2, kv_heads=1, head_dim=64, bshd=False
    )
    plan = kpage.plan(*layout.arguments)
    first = None
    for _ in range(3):
        out = kpage.attention(q, k, v, plan, deterministic=True)
        results = (out, *torch.autograd.grad(out, (q, k, v), d_o))
        first = results if first is None else first
        assert all(torch.equal(a, b) for a, b in zip(results, first, strict=True))


def test_nothing_to_attend_to():
    empty = torch.zeros(1, 2, 0, 64, dtype=torch.bfloat16)
    q, k, v = (empty.clone().requires_grad_() for _ in range(3))
    no_lists = torch.zeros(1, 2, 0, 0, dtype=torch.int32)
    no_counts = torch.zeros(1, 2, 0, dtype=torch.int32)
    no_blocks = torch.zeros(0, dtype=torch.int32)
    plan = kpage.plan(no_lists, no_counts, no_blocks)
    out = kpage.attention(q, k, v, plan)
    out.sum().backward()
    assert out.shape == q.grad.shape == k.grad.shape == v.grad.shape == empty.shape
