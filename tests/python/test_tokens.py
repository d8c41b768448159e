"""Token movement: against indexing written out, in both layouts, with gradients."""

import math

import kpage
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
SIZES = (0, 1, 15, 16, 17, 63, 64, 65, 127, 128)
BATCH, HEADS = 2, 3

pytestmark = pytest.mark.parametrize("device", DEVICES)


def random_tensor(shape, dtype, device, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(device, dtype)


def random_index(scope, tokens, padding, device, seed=0):
    """Each token at most once, some of them nowhere, and `padding` rows of -1: [R] and the like."""
    generator = torch.Generator().manual_seed(seed)
    leading = {"shared": (), "head": (HEADS,), "batch": (BATCH, HEADS)}[scope]
    rows = []
    for _ in range(math.prod(leading)):
        kept = torch.randperm(tokens, generator=generator)[: tokens - tokens // 5]
        row = torch.cat([kept, torch.full((padding,), -1)])
        rows.append(row[torch.randperm(len(row), generator=generator)])
    return torch.stack(rows).reshape(*leading, -1).to(device, torch.int32)


def expected(x, index, bshd):
    """Row by row."""
    x = x.transpose(1, 2) if bshd else x
    index = index.expand(x.shape[0], x.shape[1], index.shape[-1])
    out = x.new_zeros(*x.shape[:2], index.shape[-1], x.shape[3])
    for b in range(x.shape[0]):
        for h in range(x.shape[1]):
            for row, token in enumerate(index[b, h].tolist()):
                if 0 <= token < x.shape[2]:
                    out[b, h, row] = x[b, h, token]
    return out.transpose(1, 2).contiguous() if bshd else out


def shape_of(rows, head_dim, bshd):
    return (BATCH, rows, HEADS, head_dim) if bshd else (BATCH, HEADS, rows, head_dim)


def layout_of(bshd):
    return "bshd" if bshd else "bhsd"


@pytest.mark.parametrize("scope", ("shared", "head", "batch"))
@pytest.mark.parametrize("bshd", (False, True))
@pytest.mark.parametrize("tokens", SIZES)
def test_tile_and_untile(device, tokens, bshd, scope):
    x = random_tensor(shape_of(tokens, 64, bshd), torch.bfloat16, device)
    index = random_index(scope, tokens, padding=7, device=device)
    order = kpage.token_order(index, tokens)
    tiled = kpage.tile(x, order, layout=layout_of(bshd))
    assert tiled.is_contiguous()
    assert torch.equal(tiled, expected(x, index, bshd))
    assert torch.equal(tiled, kpage.tile(x, index, layout=layout_of(bshd)))
    back = kpage.untile(tiled, order, layout=layout_of(bshd))
    assert torch.equal(back, expected(tiled, order.row_of_token, bshd))
    moved = kpage.untile(torch.ones_like(tiled), order, layout=layout_of(bshd))
    assert torch.equal(back, x * moved)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", (1, 3, 8, 20, 64, 96, 128, 256, 300))
def test_every_width_of_row(device, head_dim, dtype):
    index = random_index("head", 33, padding=5, device=device)
    x = random_tensor((BATCH, HEADS, 33, head_dim), dtype, device)
    assert torch.equal(kpage.tile(x, index), expected(x, index, False))


@pytest.mark.parametrize("bshd", (False, True))
def test_strided_input(device, bshd):
    packed = random_tensor((BATCH, 40, 3, HEADS, 72), torch.float16, device)
    index = random_index("head", 40, padding=3, device=device)
    for part in range(3):
        for columns in (slice(0, 72), slice(4, 68), slice(1, 33)):
            x = packed[:, :, part, :, columns]
            x = x if bshd else x.transpose(1, 2)
            got = kpage.tile(x, index, layout=layout_of(bshd))
            assert torch.equal(got, expected(x, index, bshd))
    expanded = packed[:1, :, :1, 0].expand(BATCH, -1, HEADS, -1).transpose(1, 2)
    assert torch.equal(kpage.tile(expanded, index), expected(expanded, index, False))
    wide = random_index("batch", 40, 3, device).repeat_interleave(2, -1)[..., ::2]
    assert torch.equal(kpage.tile(expanded, wide), expected(expanded, wide, False))


def test_values_are_copied_bit_by_bit(device):
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).reshape(1, 1, -1, 8)
    x = bits.view(torch.bfloat16).to(device)
    index = torch.arange(x.shape[2] - 1, -1, -1, dtype=torch.int32, device=device)
    got = kpage.untile(kpage.tile(x, index), index)
    assert torch.equal(got.view(torch.int16).cpu(), bits)


def test_rows_that_are_none(device):
    x = random_tensor((1, 1, 4, 8), torch.float32, device)
    rows = [-1, 3, 4, -2, 2**31 - 1, -(2**31), 0]
    index = torch.tensor(rows, dtype=torch.int32, device=device)
    got = kpage.tile(x, index)
    assert torch.equal(got[0, 0, 1], x[0, 0, 3])
    assert torch.equal(got[0, 0, 6], x[0, 0, 0])
    assert torch.all(got[0, 0, [0, 2, 3, 4, 5]] == 0)
    wide = torch.tensor([-1, 3, 4, -2, 2**32, -(2**63), 0], device=device)
    assert torch.equal(kpage.tile(x, wide), got)
    assert kpage.token_order(wide, 4).row_of_token.tolist() == [6, -1, -1, 1]
    empty = x[:, :, :0]
    assert torch.all(kpage.tile(empty, index) == 0)
    nan = torch.full_like(x, torch.nan)
    assert torch.all(kpage.tile(nan, index)[0, 0, [0, 2, 3, 4, 5]] == 0)


@pytest.mark.parametrize("bshd", (False, True))
@pytest.mark.parametrize("scope", ("shared", "head", "batch"))
def test_gradient(device, scope, bshd):
    index = random_index(scope, 9, padding=4, device=device)
    order = kpage.token_order(index, 9)
    x = random_tensor(shape_of(9, 2, bshd), torch.float64, device).requires_grad_()
    y = random_tensor(shape_of(index.shape[-1], 2, bshd), torch.float64, device).requires_grad_()
    layout = layout_of(bshd)
    for function, argument, by in (
        (kpage.tile, x, order),
        (kpage.tile, x, index),
        (kpage.untile, y, order),
    ):
        assert torch.autograd.gradcheck(lambda t: function(t, by, layout=layout), argument)
        assert torch.autograd.gradgradcheck(lambda t: function(t, by, layout=layout), argument)
    d_tiled = random_tensor(y.shape, torch.float64, device, seed=1)
    (d_x,) = torch.autograd.grad(kpage.tile(x, order, layout=layout), x, d_tiled)
    assert torch.equal(d_x, expected(d_tiled, order.row_of_token, bshd))


def test_gradient_with_strides_of_its_own(device):
    index = torch.randperm(17).to(device)
    x = random_tensor((1, 2, 17, 8), torch.float32, device).requires_grad_()
    kpage.tile(x, index).sum().backward()
    assert torch.all(x.grad == 1)
    d_out = random_tensor((1, 2, 8, 17), torch.float32, device).transpose(2, 3)
    (d_x,) = torch.autograd.grad(kpage.tile(x, index), x, d_out)
    assert torch.equal(kpage.tile(d_x, index), d_out)


def test_inverse_of_an_index(device):
    index = torch.tensor([[2, -1, 0, 5], [1, 2, -7, 0]], dtype=torch.int32, device=device)
    order = kpage.token_order(index, 3)
    assert order.row_of_token.tolist() == [[2, -1, 0], [3, 0, 1]]
    assert order.row_of_token.dtype == torch.int32
    assert kpage.token_order(index[0, :1], 0).row_of_token.shape == (0,)
    repeated = torch.tensor([[0, 1], [1, 1]], dtype=torch.int32, device=device)
    if device == "cpu":
        with pytest.raises(ValueError, match=r"index\[0, 1, 1\]: expected rows that appear at most"):
            kpage.token_order(repeated)
    else:
        assert kpage.token_order(repeated).row_of_token.tolist() == [[0, 1], [-1, 1]]


def test_attention_in_another_order_of_tokens(device):
    if device == "cuda" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs a Hopper GPU")
    tokens = 150
    index = torch.stack([torch.randperm(tokens) for _ in range(HEADS)]).to(device)
    order = kpage.token_order(index)
    everything = torch.zeros(BATCH, HEADS, 2, 2, dtype=torch.int32, device=device)
    everything[..., 1] = 1
    sizes = torch.tensor([128, tokens - 128], dtype=torch.int32, device=device)
    plan = kpage.plan(everything, torch.full_like(everything[..., 0], 2), sizes)
    q, k, v = (
        random_tensor((BATCH, HEADS, tokens, 64), torch.float16, device, seed).requires_grad_()
        for seed in range(3)
    )

    def moved(q, k, v):
        return kpage.untile(kpage.attention(*(kpage.tile(x, order) for x in (q, k, v)), plan), order)

    got = moved(q, k, v)
    dense = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
    assert torch.linalg.norm(got.double() - dense) <= 3.5e-4 * torch.linalg.norm(dense)
    d_out = random_tensor(got.shape, torch.float16, device, seed=3)
    gradients = torch.autograd.grad(got, (q, k, v), d_out)
    exact = torch.autograd.grad(dense, (q, k, v), d_out.double())
    for a, b in zip(gradients, exact, strict=True):
        assert torch.linalg.norm(a - b) <= 5e-4 * torch.linalg.norm(b)


@pytest.mark.filterwarnings("ignore")
def test_compiles_whole(device):
    index = random_index("head", 20, padding=3, device=device)

    def there_and_back(x, index):
        order = kpage.token_order(index, 20)
        return kpage.untile(kpage.tile(x, order) * 2, order).sum(), kpage.tile(x, index)

    compiled = torch.compile(there_and_back, fullgraph=True, backend="aot_eager")
    results = []
    for function in (there_and_back, compiled):
        x = random_tensor((BATCH, HEADS, 20, 8), torch.float32, device).requires_grad_()
        total, tiled = function(x, index)
        (total + tiled.sum()).backward()
        results.append((tiled.detach(), x.grad))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_fake_tensors(device):
    if device == "cuda":
        pytest.skip("devices of fake tensors are a name")
    with FakeTensorMode():
        x = torch.empty(2, 5, 3, 8, dtype=torch.bfloat16)
        index = torch.empty(3, 7, dtype=torch.int32)
        out = kpage.tile(x, kpage.token_order(index, 5), layout="bshd")
        assert (out.shape, out.dtype, out.stride()) == ((2, 7, 3, 8), x.dtype, (168, 24, 8, 1))
        assert kpage.token_order(index, 5).row_of_token.shape == (3, 5)


def test_schemas(device):
    x = random_tensor((BATCH, HEADS, 6, 4), torch.float32, device).requires_grad_()
    index = random_index("head", 6, padding=2, device=device)
    inverse = kpage.token_order(index, 6).row_of_token
    for arguments in ((x, index, inverse, False), (x, index, None, False)):
        torch.library.opcheck(torch.ops.kpage.gather_rows, arguments)
    torch.library.opcheck(torch.ops.kpage.invert_index, (index, 6))


def test_errors(device):
    x = random_tensor((BATCH, HEADS, 6, 8), torch.float32, device)
    index = torch.arange(6, dtype=torch.int32, device=device)
    order = kpage.token_order(index)
    for message, arguments in (
        (r"x: expected a tensor of 4 dimensions, got 3", (x[0], index)),
        (r"x: expected bfloat16, float16, float32 or float64, got Int", (x.int(), index)),
        (r"x: expected stride 1 in the last dimension, got 2", (x[..., ::2], index)),
        (r"x: expected 6 rows as the order has, got 5", (x[:, :, :5], order)),
        (r"index: expected int32, got Float", (x, index.float())),
        (
            r"index: expected shape \[rows\], \[3, rows\] or \[2, 3, rows\], got \[2, 6\]",
            (x, index.expand(2, 6)),
        ),
        (r"index: .* got \[1, 3, 6\]", (x, index.expand(1, 3, 6))),
        (r"index: .* got \[\]", (x, index[0])),
        (r"layout: expected one of bhsd, bshd, got 'bsd'", (x, index, "bsd")),
    ):
        layout = {"layout": arguments[2]} if len(arguments) > 2 else {}
        with pytest.raises(ValueError, match=message):
            kpage.tile(*arguments[:2], **layout)
    with pytest.raises(ValueError, match="dimensions, got 0"):
        kpage.untile(x, index[0])
    with pytest.raises(ValueError, match="rows: expected at least 0, got -1"):
        kpage.token_order(index, -1)
    with pytest.raises(TypeError, match="order: expected an index, or a tiling .* got list"):
        kpage.tile(x, [0, 1])
    with pytest.raises(TypeError, match="x: expected a tensor, got list"):
        kpage.untile([x], index)
    with pytest.raises(ValueError, match=rf"index: expected a tensor on {x.device} as x, got meta"):
        kpage.tile(x, index.to("meta"))
    with pytest.raises(ValueError, match=rf"order: expected a tensor on {x.device} as x, got meta"):
        kpage.tile(x, kpage.TokenOrder(index.to("meta"), index.to("meta")))
    with torch.inference_mode():
        order = kpage.token_order(index)
    kpage.tile(x.detach().requires_grad_(), order).sum().backward()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        with pytest.raises(RuntimeError, match="x: kpage.tile has no forward-mode derivative"):
            kpage.tile(dual, index)


def test_more_elements_than_32_bits_count(device):
    if device == "cpu":
        pytest.skip("takes memory that a CPU machine may lack")
    rows, head_dim = 2**24 + 3, 128
    numbers = torch.arange(rows, device=device)[:, None] % 30011  # as bits, finite ones
    x = numbers.to(torch.int16).expand(rows, head_dim).contiguous()[None, None]
    x = x.view(torch.bfloat16)
    index = torch.arange(rows - 1, -1, -1, dtype=torch.int32, device=device)
    moved = kpage.tile(x, index)
    assert torch.equal(moved, x.flip(2))
    assert torch.equal(kpage.untile(moved, index), x)


def test_untile_by_a_padded_index_knows_no_number_of_tokens(device):
    index = torch.tensor([4, -1, 0, 1, -1, 3, 2, -1], device=device)
    x = random_tensor((1, 1, 5, 64), torch.float32, device)
    tiled = kpage.tile(x, index)
    back = kpage.untile(tiled, index)
    assert torch.equal(back[:, :, :5], x) and back.shape[2] == 8 and not back[:, :, 5:].any()
    assert torch.equal(kpage.untile(tiled, kpage.token_order(index, 5)), x)
