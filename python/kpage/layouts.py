"""Block layouts: what to give `kpage.plan`."""

import torch


def from_block_map(block_map):
    """The lists of a block graph that is given as a map.

    Args:
        block_map: bool [B, H, NQ, NK], true where the query block attends to the key/value block.

    Returns:
        q2k_block_index: int32 [B, H, NQ, NK], ids in ascending order.
        q2k_block_nums: int32 [B, H, NQ].
    """
    block_map = block_map.bool()
    index = torch.argsort(block_map.logical_not().to(torch.uint8), dim=-1, stable=True)
    return index.to(torch.int32), block_map.sum(-1, dtype=torch.int32)
