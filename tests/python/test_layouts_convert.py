"""Other libraries' forms of a block graph, and maps and compressed rows."""

import kpage
import layouts_reference as rules
import pytest
import reference
import torch
from reference import relative_error
from test_attention import OUTPUT_ERROR
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, noop_mask

layouts = kpage.layouts


def random_map(shape=(2, 3, 4, 5), seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5


def ids(block_map):
    return [[[row.nonzero()[:, 0].tolist() for row in h] for h in b] for b in block_map]


def as_lists(index, nums):
    return rules.lists({"q2k_block_index": index, "q2k_block_nums": nums})


@pytest.mark.parametrize("columns", [0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 300])
def test_from_block_map(columns):
    block_map = random_map((2, 3, 4, columns))
    index, nums = layouts.from_block_map(block_map)
    assert as_lists(index, nums) == ids(block_map)
    assert index.shape == block_map.shape and index.dtype == nums.dtype == torch.int32


def test_from_block_map_with_room():
    block_map = random_map()
    longest = int(block_map.sum(-1).max())
    index, nums = layouts.from_block_map(block_map, longest)
    assert index.shape[-1] == longest and as_lists(index, nums) == ids(block_map)
    index, nums = layouts.from_block_map(block_map, longest - 1)
    assert torch.equal(nums, block_map.sum(-1).to(torch.int32))
    with pytest.raises(ValueError, match="q2k_block_nums"):
        kpage.plan(index, nums, torch.full((4,), 128), torch.full((5,), 128))


def test_from_csr():
    block_map = random_map()
    rows = [ids_of for b in ids(block_map) for h in b for ids_of in h]
    offsets = torch.tensor([0, *torch.tensor([len(r) for r in rows]).cumsum(0).tolist()])
    columns = torch.tensor([i for r in rows for i in r], dtype=torch.int32)
    index, nums = layouts.from_csr(offsets, columns, (2, 3, 4), 5)
    assert as_lists(index, nums) == ids(block_map)
    index, nums = layouts.from_csr(torch.zeros(25, dtype=torch.int64), columns[:0], (2, 3, 4), 5)
    assert not nums.any()


def test_from_bsa_is_the_same_tensors():
    index, nums = layouts.from_block_map(random_map())
    sizes = torch.tensor([128, 5, 128, 0, 77], dtype=torch.int32)
    made = layouts.from_bsa(index, nums, sizes)
    assert made["q2k_block_index"] is index and made["q2k_block_nums"] is nums
    assert made["kv_block_sizes"] is sizes and made["q_block_sizes"].tolist() == [128] * 4
    q_sizes = torch.tensor([128, 128, 100, 1])
    made = layouts.from_bsa(index, nums, kv_blocks=5, q_block_sizes=q_sizes)
    assert made["kv_block_sizes"].tolist() == [128] * 5 and made["q_block_sizes"] is q_sizes
    kpage.plan(**made)


def test_from_fa4_joins_both_lists():
    full, mask = random_map(seed=1), random_map(seed=2)
    mask &= ~full
    sizes = torch.tensor([128, 128, 30, 128, 9], dtype=torch.int32)
    q_sizes = torch.full((4,), 128, dtype=torch.int32)
    (full_index, full_nums), (index, nums) = (layouts.from_block_map(m) for m in (full, mask))
    index, full_index = index[..., :5], torch.nn.functional.pad(full_index, (0, 2), value=-1)
    made = layouts.from_fa4(nums, index, full_nums, full_index, q_sizes, sizes)
    expected = [
        [[a + b for a, b in zip(x, y, strict=True)] for x, y in zip(u, w, strict=True)]
        for u, w in zip(ids(full), ids(mask), strict=True)
    ]
    assert rules.lists(made) == expected
    kpage.plan(**made)
    alone = layouts.from_fa4(nums, index, None, None, q_sizes, sizes)
    assert rules.lists(alone) == ids(mask)


def block_mask(block_map, rows, columns, chunk):
    """A BlockMask of full blocks."""
    index, nums = layouts.from_block_map(block_map)
    nothing = torch.zeros_like(nums)
    return BlockMask.from_kv_blocks(
        nothing, index, nums, index, BLOCK_SIZE=chunk, seq_lengths=(rows, columns)
    )


@pytest.mark.parametrize("chunk", [(128, 128), (64, 128), (256, 384), (128, 32)])
def test_from_flex(chunk):
    rows, columns = 500, 700
    q_tiles, kv_tiles = (
        rules.tiles_of((1, 1, n), (1, 1, c)) for n, c in zip((rows, columns), chunk, strict=True)
    )
    block_map = random_map((1, 1, len(q_tiles), len(kv_tiles)))
    made = layouts.from_flex(block_mask(block_map, rows, columns, chunk), heads=2)
    mask = rules.token_mask(ids(block_map.expand(1, 2, -1, -1)), q_tiles, kv_tiles)
    q, k, v = (torch.randn(1, 2, n, 64).to(torch.bfloat16) for n in (rows, columns, columns))
    expected, _ = reference.attention(q, k, v, mask)
    out = kpage.attention(q, k, v, kpage.plan(**made))
    assert relative_error(out, expected) <= OUTPUT_ERROR[torch.bfloat16]


def test_blocks_that_flex_masks():
    made = create_block_mask(lambda b, h, q, k: q >= k, None, None, 384, 384, device="cpu")
    with pytest.raises(ValueError, match="block_mask: expected full blocks only, got 3 that its"):
        layouts.from_flex(made)
    whole, dropped = (layouts.from_flex(made, partial=way) for way in ("whole", "drop"))
    assert [sorted(x) for x in rules.lists(whole)[0][0]] == [[0], [0, 1], [0, 1, 2]]
    assert [sorted(x) for x in rules.lists(dropped)[0][0]] == [[], [0], [0, 1]]


def test_flex_without_a_mask_is_whole():
    made = create_block_mask(noop_mask, 1, 1, 300, 300, device="cpu")
    assert [sorted(x) for x in rules.lists(layouts.from_flex(made))[0][0]] == [[0, 1, 2]] * 3


@pytest.mark.parametrize("chunk", [128, (64, 128), (256, 32)])
@pytest.mark.parametrize(
    "rows, columns", [(384, 300), (300, 384), (1, 1), (127, 129), (1000, 1000), (500, 130)]
)
def test_the_end_of_a_sequence_is_no_cut_of_a_flex_mask(rows, columns, chunk):
    """Of blocks at the end those are cut whose valid pairs the mask cuts, head by head."""
    of_token = torch.arange(1024) // 200

    def near(b, h, q, k):
        return ((q // 256 - k // 256).abs() <= h) & (of_token[q] <= 3)

    made = create_block_mask(near, 1, 2, rows, columns, device="cpu", BLOCK_SIZE=chunk)
    chunks = (chunk, chunk) if isinstance(chunk, int) else chunk
    q_tiles, kv_tiles = (
        rules.tiles_of((1, 1, n), (1, 1, c)) for n, c in zip((rows, columns), chunks, strict=True)
    )
    q, k = torch.arange(rows)[:, None], torch.arange(columns)
    seen = torch.stack([near(0, h, q, k) for h in range(2)])
    seen = [[[head[a][:, b] for b in kv_tiles] for a in q_tiles] for head in seen]
    whole = torch.tensor([[[bool(x.all()) for x in row] for row in head] for head in seen])
    touched = torch.tensor([[[bool(x.any()) for x in row] for row in head] for head in seen])

    def mask(block_map):
        return rules.token_mask(ids(block_map[None]), q_tiles, kv_tiles)

    def blocks(partial):
        arguments = layouts.from_flex(made, partial=partial)
        kpage.plan(**arguments)
        parts = []
        for tiles in (q_tiles, kv_tiles):
            sizes = rules.blocks_of([len(tile) for tile in tiles])[1]
            parts.append([part.tolist() for part in torch.arange(sum(sizes)).split(sizes)])
        return rules.token_mask(rules.lists(arguments), *parts)

    assert torch.equal(blocks("whole"), mask(touched))
    assert torch.equal(blocks("drop"), mask(whole))
    cut = int((touched & ~whole).sum())
    if cut:
        with pytest.raises(ValueError, match=f"full blocks only, got {cut} that its mask_mod cuts"):
            layouts.from_flex(made)
    else:
        assert torch.equal(blocks("error"), mask(whole))


def test_a_flex_band_with_a_ragged_end_is_a_block_graph():
    made = create_block_mask(
        lambda b, h, q, k: (q // 128 - k // 128).abs() <= 1, 1, 1, 1000, 1000, device="cpu"
    )
    expected = [[i for i in (q - 1, q, q + 1) if 0 <= i < 8] for q in range(8)]
    for partial in ("error", "drop", "whole"):
        arguments = layouts.from_flex(made, heads=2, partial=partial)
        assert [[sorted(x) for x in head] for head in rules.lists(arguments)[0]] == [expected] * 2
        assert arguments["q_block_sizes"].tolist() == [128] * 7 + [104]


def small():
    return layouts.from_block_map(random_map())


def csr(offsets, columns, shape=(1, 1, 2), dtype=torch.int64):
    return layouts.from_csr(
        torch.tensor(offsets, dtype=dtype), torch.tensor(columns, dtype=dtype), shape, 3
    )


def fa4(full_nums=1, nums=1, dtype=torch.int32, rows=2, ids=0):
    index = torch.full((1, 1, 2, 3), ids, dtype=dtype)
    full_nums = torch.full((1, 1, 2), full_nums, dtype=dtype)
    nums = torch.full((1, 1, rows), nums, dtype=dtype)
    sizes = torch.full((2,), 128, dtype=torch.int32)
    return layouts.from_fa4(nums, index[:, :, :rows] + 1, full_nums, index, sizes)


def test_ids_of_fa4_that_no_int32_holds_are_errors_of_the_plan():
    for wrong in (1 << 32, -1 << 32):
        with pytest.raises(ValueError, match=r"q2k_block_index\[0, 0, 0, 0\]"):
            kpage.plan(**fa4(ids=wrong, dtype=torch.int64))


def test_counts_that_do_not_fit_stay_wrong_where_lists_are_joined():
    """As on a CUDA device, where `from_fa4` does not look at them."""
    index = torch.tensor([[0, 1, 2]] * 4)
    nums = torch.tensor([3, -1, 4, 1 << 40])
    for pair in ((index, nums, index, nums.clamp(0, 3)), (index, nums.clamp(0, 3), index, nums)):
        assert layouts._lists.joined(*pair)[1].tolist() == [6, -1, -1, -1]


@pytest.mark.parametrize(
    "offsets, columns",
    [([0, 2, 9], [0, 1, 0]), ([0, -2, 3], [0, 1, 0]), ([0, 3, 1], [0, 1, 0]), ([0, 1, 1], []),
     ([0, 1 << 40, 3], [0, 1, 0]), ([0, 2, 3], [0, 1, 1 << 32]), ([0, 2, 3], [0, 1, -1])],
)
def test_bad_rows_that_nobody_looks_at_are_errors_of_the_plan(offsets, columns, monkeypatch):
    """As on a CUDA device."""
    monkeypatch.setattr(layouts._checks, "values", lambda *arguments: None)
    with pytest.raises(ValueError, match="q2k_block"):
        kpage.plan(*csr(offsets, columns), torch.full((2,), 128, dtype=torch.int32))


ERRORS = [
    (lambda i, n: csr([0, 2, 4], [0, 1, 0]), "row_offsets: expected 0 to 3, got 4"),
    (lambda i, n: csr([0, -1, 3], [0, 1, 0]), "row_offsets: expected 0 to 3, got -1"),
    (lambda i, n: csr([1, 2, 3], [0, 1, 0]), r"row_offsets\[0\]: expected 0, got 1"),
    (lambda i, n: csr([0, 2, 2], [0, 1, 0]), r"row_offsets\[-1\]: expected 3, got 2"),
    (lambda i, n: csr([0, 3, 1, 3], [0, 1, 0], (1, 1, 3)), "row_offsets, from one to the next: exp"),
    (lambda i, n: csr([0, 1 << 32, 3], [0, 1, 0]), "row_offsets: expected 0 to 3, got 4294967296"),
    (lambda i, n: csr([0, 2, 3], [0, 1, 1 << 32]), "columns: expected 0 to 2147483647, got 42949"),
    (lambda i, n: csr([0, 2, 3], [0, -1, 2]), "columns: expected 0 to 2147483647, got -1"),
    (lambda i, n: csr([0, 2, 3], [0, 1, 0], dtype=torch.float32), "row_offsets: expected int32 or"),
    (
        lambda i, n: layouts.from_csr(n[0, 0], n[0, 0].float(), (1, 1, 3), 3),
        "columns: expected int32 or int64, got torch.float32",
    ),
    (
        lambda i, n: layouts.from_csr(n[0, 0].to("meta"), n[0, 0].to("meta"), (1, 1, 3), 3),
        "row_offsets: expected a tensor with values, got one on meta",
    ),
    (lambda i, n: fa4(full_nums=-1), "full_block_cnt: expected 0 to 3, got -1"),
    (lambda i, n: fa4(nums=4), "mask_block_cnt: expected 0 to 3, got 4"),
    (lambda i, n: fa4(nums=1 << 32, dtype=torch.int64), "mask_block_cnt: expected 0 to 3, got 42949"),
    (lambda i, n: fa4(rows=1), r"mask_block_cnt: expected shape \[1, 1, 2\], got \[1, 1, 1\]"),
    (lambda i, n: fa4(dtype=torch.float32), "full_block_cnt: expected int32 or int64"),
    (lambda i, n: layouts.from_block_map(n), r"block_map: expected shape \[B, H, NQ, NK\]"),
    (lambda i, n: layouts.from_block_map(i, -1), "max_list: expected at least 0"),
    (lambda i, n: layouts.from_csr(n[0, 0], n[0, 0], (1, 1, 4), 3), "row_offsets: expected 5"),
    (lambda i, n: layouts.from_csr(n, n[0, 0], (1, 1, 4), 3), "row_offsets: expected shape"),
    (lambda i, n: layouts.from_bsa(n, n), "q2k_block_index: expected shape"),
    (lambda i, n: layouts.from_bsa(i, n[:1], n[0, 0]), "q2k_block_nums: expected shape"),
    (lambda i, n: layouts.from_bsa(i, n), "kv_blocks: expected a number"),
    (lambda i, n: layouts.from_bsa(i, n, n[0, 0], kv_blocks=5), "block_sizes: expected 5 blocks"),
    (lambda i, n: layouts.from_bsa(i, n, n), r"block_sizes: expected shape \[NK\]"),
    (lambda i, n: layouts.from_fa4(None, None, None, None, n), "full_block_cnt: expected at least"),
    (lambda i, n: layouts.from_fa4(n, None, None, None, n), "mask_block_idx: expected a tensor"),
    (lambda i, n: layouts.from_fa4(n[:1], i, None, None, n), "mask_block_idx: expected shape"),
    (
        lambda i, n: layouts.from_flex(block_mask(random_map((2, 1, 2, 2)), 200, 200, 128), batch=3),
        "batch: expected 2, as block_mask has, got 3",
    ),
    (lambda i, n: layouts.from_flex(None, partial="cut"), "partial: expected one of"),
]


def test_what_is_no_block_mask():
    with pytest.raises(TypeError, match="block_mask: expected BlockMask, got NoneType"):
        layouts.from_flex(None)


@pytest.mark.parametrize("call, message", ERRORS)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(*small())
