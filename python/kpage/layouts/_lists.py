"""Lists of blocks from scores and maps. All on the tensors' device, of shapes that do not depend on
values. Ties go to the lower index, on every device: the same scores give the same lists."""

import math

import torch

from kpage._plan import narrowed
from kpage.layouts import _checks
from kpage.layouts._ops import lists_of_map, top_k


def top_k_map(scores, k):
    """bool like scores [..., N]: the `k` highest of each row, by the rule of `top_k`."""
    index = top_k(scores, k).long()
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, index, True)


def joined(first_index, first_nums, second_index, second_nums):
    """The members of two lists a row, those of the first before those of the second.

    Args:
        first_index, second_index: int [..., K1] and [..., K2].
        first_nums, second_nums: int [...], the valid prefixes.

    Returns:
        int32 [..., K1 + K2] and [...]. What no plan takes stays so: a count that its list has no
        room for, or a negative one, makes a count of -1.
    """
    width = first_index.shape[-1] + second_index.shape[-1]
    place = torch.arange(width, device=first_index.device).expand(*first_index.shape[:-1], width)
    first_nums, second_nums = first_nums.long(), second_nums.long()
    both = torch.cat([first_index, second_index], -1)
    past = place - first_nums[..., None] + first_index.shape[-1]
    source = torch.where(place < first_nums[..., None], place, past.clamp(0, width - 1))
    fit = (first_nums.clamp(0, first_index.shape[-1]) == first_nums) & (
        second_nums.clamp(0, second_index.shape[-1]) == second_nums
    )
    nums = torch.where(fit, first_nums + second_nums, -1)
    return narrowed(both.gather(-1, source)), nums.to(torch.int32)


def from_block_map(block_map, max_list=None):
    """The lists of a block graph that is given as a map.

    Args:
        block_map: bool [B, H, NQ, NK], true where the query block attends to the key/value block.
        max_list: Kmax of the lists. None: NK. A longer list is an error of `kpage.plan`.

    Returns:
        q2k_block_index: int32 [B, H, NQ, Kmax], ids in ascending order.
        q2k_block_nums: int32 [B, H, NQ].
    """
    _checks.tensor("block_map", block_map, "B H NQ NK")
    if max_list is not None:
        max_list = _checks.integer("max_list", max_list, 0)
    return lists_of_map(block_map, max_list)


def from_csr(row_offsets, columns, shape, max_list):
    """The lists of a block graph in compressed rows.

    Args:
        row_offsets: int [B * H * NQ + 1], from 0 and ascending.
        columns: int [row_offsets[-1]], ids of key/value blocks, no id twice in a row. Both are int32
            or int64 on one device. A CUDA device's values are not looked at: a descending offset
            becomes a negative count and an offset past the columns ids of -1, which are errors of
            `kpage.plan`; columns that no row holds are left out.
        shape: (B, H, NQ).
        max_list: Kmax of the lists. A longer row is an error of `kpage.plan`.

    Returns:
        q2k_block_index: int32 [B, H, NQ, Kmax].
        q2k_block_nums: int32 [B, H, NQ].
    """
    _checks.ints("row_offsets", row_offsets, "rows+1")
    _checks.ints("columns", columns, "entries", like=row_offsets)
    shape = tuple(_checks.extents("shape", shape, 0))
    max_list = _checks.integer("max_list", max_list, 0)
    if row_offsets.shape[0] != math.prod(shape) + 1:
        raise ValueError(
            f"row_offsets: expected {math.prod(shape) + 1} elements, B * H * NQ + 1 of shape "
            f"{shape}, got {row_offsets.shape[0]}"
        )
    entries = columns.shape[0]
    offsets = row_offsets.long()
    nums = offsets[1:] - offsets[:-1]
    _checks.values("row_offsets", offsets, 0, entries)
    _checks.values("row_offsets[0]", offsets[:1], 0, 0)
    _checks.values("row_offsets[-1]", offsets[-1:], entries, entries)
    _checks.values("row_offsets, from one to the next", nums, 0, entries)
    _checks.values("columns", columns, 0, torch.iinfo(torch.int32).max)
    place = offsets[:-1, None] + torch.arange(max_list, device=offsets.device)
    if entries == 0:
        index = torch.full_like(place, -1)
    else:
        index = columns[place.clamp(0, entries - 1)]
        index = torch.where((place >= 0) & (place < entries), index, -1)
    return narrowed(index).view(*shape, max_list), narrowed(nums).view(shape)
