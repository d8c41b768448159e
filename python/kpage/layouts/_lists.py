"""Lists of blocks from scores and maps. All on the tensors' device, of shapes that do not depend on
values. Ties go to the lower index, on every device: the same scores give the same lists."""

import math

import torch

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
        int32 [..., K1 + K2] and [...].
    """
    width = first_index.shape[-1] + second_index.shape[-1]
    place = torch.arange(width, device=first_index.device).expand(*first_index.shape[:-1], width)
    first_nums, second_nums = first_nums.long(), second_nums.long()
    both = torch.cat([first_index, second_index], -1)
    past = place - first_nums[..., None] + first_index.shape[-1]
    source = torch.where(place < first_nums[..., None], place, past.clamp(max=width - 1))
    return both.gather(-1, source).to(torch.int32), (first_nums + second_nums).to(torch.int32)


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
        columns: int [row_offsets[-1]], ids of key/value blocks, no id twice in a row.
        shape: (B, H, NQ).
        max_list: Kmax of the lists. A longer row is an error of `kpage.plan`.

    Returns:
        q2k_block_index: int32 [B, H, NQ, Kmax].
        q2k_block_nums: int32 [B, H, NQ].
    """
    _checks.tensor("row_offsets", row_offsets, "rows+1")
    _checks.tensor("columns", columns, "entries")
    shape = tuple(_checks.extents("shape", shape, 0))
    max_list = _checks.integer("max_list", max_list, 0)
    if row_offsets.shape[0] != math.prod(shape) + 1:
        raise ValueError(
            f"row_offsets: expected {math.prod(shape) + 1} elements, B * H * NQ + 1 of shape "
            f"{shape}, got {row_offsets.shape[0]}"
        )
    offsets = row_offsets.long()
    nums = (offsets[1:] - offsets[:-1]).to(torch.int32)
    place = offsets[:-1, None] + torch.arange(max_list, device=offsets.device)
    if columns.shape[0] == 0:
        index = torch.zeros_like(place)
    else:
        index = columns[place.clamp(max=columns.shape[0] - 1)]
    return index.to(torch.int32).view(*shape, max_list), nums.view(shape)
