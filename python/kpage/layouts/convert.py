"""Layouts of other libraries' forms of a block graph."""

import torch

from kpage.layouts import _checks, _lists
from kpage.layouts._tiling import linear_tiling

PARTIAL = ("error", "whole", "drop")


def from_bsa(q2k_block_index, q2k_block_nums, block_sizes=None, *, q_blocks=None, kv_blocks=None):
    """NVIDIA's block-sparse attention: its tensors are `kpage.plan`'s.

    Args:
        q2k_block_index: int32 [B, H, NQ, Kmax].
        q2k_block_nums: int32 [B, H, NQ].
        block_sizes: int32 [NK], valid rows of key/value blocks of 128. None: all are full.
        q_blocks, kv_blocks: NQ and NK, to check; NK is needed where `block_sizes` is None.

    Returns:
        The arguments of `kpage.plan`. Query blocks are full, as there; where Q has the same number
        of blocks and shares its rows with K and V, give its own sizes in `q_block_sizes`.
    """
    _checks.tensor("q2k_block_index", q2k_block_index, "B H NQ Kmax")
    _checks.tensor("q2k_block_nums", q2k_block_nums, "B H NQ")
    batch, heads, rows, _ = q2k_block_index.shape
    if q2k_block_nums.shape != (batch, heads, rows):
        raise ValueError(
            f"q2k_block_nums: expected shape {[batch, heads, rows]}, got "
            f"{list(q2k_block_nums.shape)}"
        )
    if q_blocks is not None and rows != q_blocks:
        raise ValueError(f"q2k_block_index: expected {q_blocks} query blocks, got {rows}")
    if block_sizes is None:
        if kv_blocks is None:
            raise ValueError("kv_blocks: expected a number, since there are no block_sizes")
        block_sizes = torch.full(
            (_checks.integer("kv_blocks", kv_blocks, 0),),
            128,
            dtype=torch.int32,
            device=q2k_block_index.device,
        )
    else:
        _checks.tensor("block_sizes", block_sizes, "NK")
        if kv_blocks is not None and block_sizes.shape[0] != kv_blocks:
            raise ValueError(
                f"block_sizes: expected {kv_blocks} blocks, got {block_sizes.shape[0]}"
            )
    return {
        "q2k_block_index": q2k_block_index,
        "q2k_block_nums": q2k_block_nums,
        "q_block_sizes": torch.full((rows,), 128, dtype=torch.int32, device=block_sizes.device),
        "kv_block_sizes": block_sizes,
    }


def from_fa4(mask_block_cnt, mask_block_idx, full_block_cnt, full_block_idx, q_sizes, kv_sizes=None):
    """FlashAttention-4's block-sparse tensors: a list of blocks that a mask cuts and one of full
    blocks. A mask that only cuts padding off is what valid counts say, so both lists count.

    Args:
        mask_block_cnt, full_block_cnt: int32 [B, H, NQ].
        mask_block_idx, full_block_idx: int32 [B, H, NQ, K], each its own K. Both of a pair may be
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
            _checks.tensor(f"{name}_cnt", nums, "B H NQ")
            _checks.tensor(f"{name}_idx", index, "B H NQ K")
            if index.shape[:3] != nums.shape:
                raise ValueError(
                    f"{name}_idx: expected shape {list(nums.shape)} and K, got {list(index.shape)}"
                )
            lists += [index, nums]
    if not lists:
        raise ValueError("full_block_cnt: expected at least one pair of lists, got none")
    index, nums = lists if len(lists) == 2 else _lists.joined(*lists)
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
            (this waits for the device), "whole" or "drop".

    Returns:
        The arguments of `kpage.plan`, over rows where they are.
    """
    _checks.one_of("partial", partial, PARTIAL)
    index, nums = block_mask.kv_indices, block_mask.kv_num_blocks
    full, full_nums = block_mask.full_kv_indices, block_mask.full_kv_num_blocks
    if partial == "error" and bool(nums.any()):
        raise ValueError(
            f"block_mask: expected full blocks only, got {int(nums.sum())} that its mask_mod cuts; "
            'partial="whole" or "drop" makes a block graph of it'
        )
    if partial == "drop":
        nums = torch.zeros_like(nums)
    if full is not None:
        index, nums = _lists.joined(full, full_nums, index, nums)
    shape = []
    for name, wanted, has in (("batch", batch, nums.shape[0]), ("heads", heads, nums.shape[1])):
        shape.append(has if wanted is None else _checks.integer(name, wanted, 1))
        if has not in (1, shape[-1]):
            raise ValueError(f"{name}: expected {has}, as block_mask has, got {wanted}")
    q_rows, kv_rows = block_mask.seq_lengths
    q_chunk, kv_chunk = block_mask.BLOCK_SIZE
    q, kv = (
        linear_tiling(rows, chunk=chunk, device=index.device)
        for rows, chunk in ((q_rows, q_chunk), (kv_rows, kv_chunk))
    )
    index = index[:, :, : q.tiles].expand(*shape, -1, -1)
    nums = nums[:, :, : q.tiles].expand(*shape, -1)
    return q.layout(index, nums, None if (q_rows, q_chunk) == (kv_rows, kv_chunk) else kv)
