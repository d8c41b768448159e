"""Layouts of other libraries' forms of a block graph."""

import torch
from torch.nn.attention.flex_attention import BlockMask, create_mask, noop_mask

from kpage.layouts import _checks, _lists
from kpage.layouts._tiling import linear_tiling

PARTIAL = ("error", "whole", "drop")


def from_bsa(
    q2k_block_index, q2k_block_nums, block_sizes=None, *, kv_blocks=None, q_block_sizes=None
):
    """NVIDIA's block-sparse attention with blocks of 128: its tensors are those of `kpage.plan`.

    Args:
        q2k_block_index: int32 [B, H, NQ, Kmax].
        q2k_block_nums: int32 [B, H, NQ].
        block_sizes: int32 [NK], valid rows of each key/value block. None: all are full.
        kv_blocks: NK, where there are no `block_sizes`; else it is checked.
        q_block_sizes: int [NQ], [H, NQ] or [B, H, NQ], valid rows of each query block, which its
            interface lacks. None: all full, so that `kpage.attention` expects 128 NQ rows of q. Of
            fewer say how many the last block has: 2,880 rows are 22 blocks of 128 and one of 64.

    Returns:
        The arguments of `kpage.plan`, with the tensors as they came.
    """
    _checks.tensor("q2k_block_index", q2k_block_index, "B H NQ Kmax")
    _checks.tensor("q2k_block_nums", q2k_block_nums, "B H NQ")
    shape = q2k_block_index.shape[:3]
    if q2k_block_nums.shape != shape:
        raise ValueError(
            f"q2k_block_nums: expected shape {list(shape)}, got {list(q2k_block_nums.shape)}"
        )
    if block_sizes is None:
        if kv_blocks is None:
            raise ValueError("kv_blocks: expected a number, since there are no block_sizes")
        block_sizes = _full(_checks.integer("kv_blocks", kv_blocks, 0), q2k_block_index.device)
    else:
        blocks = _checks.tensor("block_sizes", block_sizes, "NK").shape[0]
        if kv_blocks is not None and kv_blocks != blocks:
            raise ValueError(f"block_sizes: expected {kv_blocks} blocks, got {blocks}")
    if q_block_sizes is None:
        q_block_sizes = _full(shape[2], q2k_block_index.device)
    return {
        "q2k_block_index": q2k_block_index,
        "q2k_block_nums": q2k_block_nums,
        "q_block_sizes": q_block_sizes,
        "kv_block_sizes": block_sizes,
    }


def _full(blocks, device):
    return torch.full((blocks,), 128, dtype=torch.int32, device=device)


def from_fa4(mask_block_cnt, mask_block_idx, full_block_cnt, full_block_idx, q_sizes, kv_sizes=None):
    """FlashAttention-4's block-sparse tensors: a list of blocks that a mask cuts and one of full
    blocks. A mask that only cuts padding off is what valid counts say, so both lists count.

    Args:
        mask_block_cnt, full_block_cnt: int32 or int64 [B, H, NQ].
        mask_block_idx, full_block_idx: the same [B, H, NQ, K], each its own K. Both of a pair may be
            None.
        q_sizes: int32 [NQ], [H, NQ] or [B, H, NQ], valid rows of each query block of 128.
        kv_sizes: the same of key/value blocks. None: those of the queries.

    Returns:
        The arguments of `kpage.plan`.
    """
    lists = []
    for name, nums, index in (
        ("full_block", full_block_cnt, full_block_idx),
        ("mask_block", mask_block_cnt, mask_block_idx),
    ):
        if (nums is None) != (index is None):
            raise ValueError(f"{name}_idx: expected a tensor exactly where {name}_cnt is one")
        if nums is not None:
            _checks.ints(f"{name}_cnt", nums, "B H NQ")
            _checks.ints(f"{name}_idx", index, "B H NQ K", like=nums)
            _checks.values(f"{name}_cnt", nums, 0, index.shape[3])
            if index.shape[:3] != nums.shape:
                raise ValueError(
                    f"{name}_idx: expected shape {list(nums.shape)} and K, got {list(index.shape)}"
                )
            lists += [index, nums]
    if not lists:
        raise ValueError("full_block_cnt: expected at least one pair of lists, got none")
    if len(lists) == 4:
        _checks.tensor("mask_block_cnt", lists[3], "B H NQ", like=lists[1])
        _checks.sized("mask_block_cnt", lists[3], lists[1].shape)
        lists = _lists.joined(*lists)
    index, nums = lists
    return {
        "q2k_block_index": index,
        "q2k_block_nums": nums,
        "q_block_sizes": q_sizes,
        "kv_block_sizes": kv_sizes,
    }


def from_flex(block_mask, *, heads=None, batch=None, partial="error"):
    """FlexAttention's BlockMask.

    Args:
        block_mask: a `torch.nn.attention.flex_attention.BlockMask`; blocks of any size, those over
            128 rows are split.
        heads, batch: of the plan, where the mask has 1.
        partial: what to do with blocks that its mask_mod cuts, which a block graph cannot: "error"
            (this waits for the device), "whole" or "drop". A mask_mod that cuts nothing, `noop_mask`,
            leaves them whole. Rows past the mask's lengths are padding: a block at the end of a
            sequence is cut where its mask_mod cuts a pair of valid rows, for which "error" and
            "drop" evaluate it on the last rows of either side. (Where the mask keeps no lists of
            full blocks, all others count as cut.)

    Returns:
        The arguments of `kpage.plan`, over rows where they are.
    """
    _checks.one_of("partial", partial, PARTIAL)
    _checks.made("block_mask", block_mask, BlockMask)
    q_rows, kv_rows = block_mask.seq_lengths
    q_chunk, kv_chunk = block_mask.BLOCK_SIZE
    q, kv = (
        linear_tiling(rows, chunk=chunk, device=block_mask.kv_indices.device)
        for rows, chunk in ((q_rows, q_chunk), (kv_rows, kv_chunk))
    )
    index, nums = (x[:, :, : q.tiles] for x in (block_mask.kv_indices, block_mask.kv_num_blocks))
    if partial != "whole" and block_mask.mask_mod is not noop_mask:
        index, nums = _uncut(block_mask, index, nums, partial)
    if block_mask.full_kv_indices is not None:
        full, full_nums = block_mask.full_kv_indices, block_mask.full_kv_num_blocks
        index, nums = _lists.joined(full[:, :, : q.tiles], full_nums[:, :, : q.tiles], index, nums)
    shape = []
    for name, wanted, has in (("batch", batch, nums.shape[0]), ("heads", heads, nums.shape[1])):
        shape.append(has if wanted is None else _checks.integer(name, wanted, 1))
        if has not in (1, shape[-1]):
            raise ValueError(f"{name}: expected {has}, as block_mask has, got {wanted}")
    index, nums = index.expand(*shape, -1, -1), nums.expand(*shape, -1)
    return q.layout(index, nums, None if (q_rows, q_chunk) == (kv_rows, kv_chunk) else kv)


def _uncut(block_mask, index, nums, partial):
    """Of the lists of blocks that are not full those that only padding cuts; the others are an error
    or dropped."""
    if partial == "error" and not bool(nums.any()):
        return index, nums
    whole = _whole_at_end(block_mask)
    if whole is None:
        kept = torch.zeros_like(index, dtype=torch.bool)
    else:
        listed = torch.arange(index.shape[-1], device=index.device) < nums[..., None]
        known = index.long().clamp(0, whole.shape[-1] - 1)
        kept = listed & whole[:, :, : index.shape[2]].gather(-1, known)
    uncut = kept.sum(-1, dtype=torch.int32)
    cut = int((nums - uncut).sum()) if partial == "error" else 0
    if cut:
        raise ValueError(
            f"block_mask: expected full blocks only, got {cut} that its mask_mod cuts; "
            'partial="whole" or "drop" makes a block graph of it'
        )
    return index.gather(-1, kept.int().argsort(dim=-1, descending=True, stable=True)), uncut


def _whole_at_end(block_mask):
    """bool [B, H, NQ, NK]: of the blocks that the end of a sequence cuts, those of whose valid pairs
    mask_mod cuts none. None where lengths are whole blocks."""
    batch, heads = block_mask.kv_num_blocks.shape[:2]
    lengths, chunks = block_mask.seq_lengths, block_mask.BLOCK_SIZE
    blocks = [-(-length // chunk) for length, chunk in zip(lengths, chunks, strict=True)]
    whole = None
    for side, (length, chunk) in enumerate(zip(lengths, chunks, strict=True)):
        if length % chunk == 0:
            continue
        first = length // chunk * chunk
        q_first, kv_first = (first, 0) if side == 0 else (0, first)

        def moved(b, h, q, kv, q_first=q_first, kv_first=kv_first):
            return block_mask.mask_mod(b, h, q + q_first, kv + kv_first)

        device = block_mask.kv_indices.device
        sizes = (lengths[0] - q_first, lengths[1] - kv_first)
        seen = create_mask(moved, batch, heads, *sizes, device=device).all(2 + side)
        other = 1 - side
        padding = blocks[other] * chunks[other] - lengths[other]
        seen = torch.nn.functional.pad(seen, (0, padding), value=True)
        seen = seen.unflatten(-1, (blocks[other], chunks[other])).all(-1)
        if whole is None:
            whole = torch.zeros(batch, heads, *blocks, dtype=torch.bool, device=device)
        whole.select(2 + side, blocks[side] - 1).copy_(seen)
    return whole
