"""Block layouts: what to give `kpage.plan`."""

import torch

from kpage._library import ops


def names():
    """The layouts that `named` knows."""
    return ops.layout_names()


def named(name, seed=0):
    """A layout that benchmarks speak of ("padded-5s", "vsa-444-720p", ...), the same for a seed on
    every machine, as the arguments of `kpage.plan`: `kpage.plan(**named("padded-5s"))`."""
    tensors = (t if t.numel() > 0 else None for t in ops.named_layout(name, seed))
    arguments = (
        "q2k_block_index",
        "q2k_block_nums",
        "q_block_sizes",
        "kv_block_sizes",
        "q_block_offsets",
        "kv_block_offsets",
    )
    return dict(zip(arguments, tensors, strict=True))


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
