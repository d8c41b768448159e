"""Fake kernels and gradients of the selectors' ops."""

import torch

from kpage._library import ops


@torch.library.register_fake("kpage::top_k")
def _(scores, keep):
    return scores.new_empty((*scores.shape[:-1], keep), dtype=torch.int32)


@torch.library.register_fake("kpage::lists_of_map")
def _(block_map, max_list):
    lead = block_map.shape[:-1]
    index = block_map.new_empty((*lead, max_list), dtype=torch.int32)
    return index, block_map.new_empty(lead, dtype=torch.int32)


@torch.library.register_fake("kpage::block_sums")
def _(x, sizes, offsets, block_of_row, row_of_place):
    shape = (x.shape[0], x.shape[1], sizes.shape[-1], x.shape[3])
    return x.new_empty(shape, dtype=torch.float32)


@torch.library.register_fake("kpage::nearest_centroids")
def _(x, centroids, half_squares):
    return x.new_empty(x.shape[:3], dtype=torch.int32)


def _save(ctx, inputs, output):
    x, _, _, block_of_row, _ = inputs
    ctx.save_for_backward(block_of_row)
    ctx.rows, ctx.dtype = x.shape[2], x.dtype


def _sums_back(ctx, d_sums):
    (block_of_row,) = ctx.saved_tensors
    # Each row of a block gets the block's gradient, padding none.
    d_x = ops.gather_rows(d_sums.contiguous(), block_of_row, None, False).to(ctx.dtype)
    spare = ctx.rows - block_of_row.shape[0]
    if spare > 0:
        d_x = torch.nn.functional.pad(d_x, (0, 0, 0, spare))
    return d_x, None, None, None, None


torch.library.register_autograd("kpage::block_sums", _sums_back, setup_context=_save)


def top_k(scores, k):
    """int32 [..., min(k, N)]: the ids of the `k` highest of each row of scores [..., N], in ascending
    order. Of equal scores the lower id is higher, and NaN is -inf: the same on every device."""
    if scores.dtype == torch.float64:
        scores = scores.float()
    return ops.top_k(scores.detach().contiguous(), min(k, scores.shape[-1]))


def lists_of_map(block_map, max_list=None):
    """The lists that a map holds.

    Args:
        block_map: bool [..., NK], true for a member.
        max_list: room in a list. None: NK. A row with more members keeps its first `max_list`, and
            its count, so that `kpage.plan` reports it.

    Returns:
        index: int32 [..., max_list], ids in ascending order, 0 past the members.
        nums: int32 [...].
    """
    room = block_map.shape[-1] if max_list is None else max_list
    return ops.lists_of_map(block_map.bool().contiguous(), room)


def block_sums(x, tiling):
    """float32 [B, H, blocks, D]: x [B, H, S, D] summed over the valid rows of each block of a tiling,
    in float32. Differentiable."""
    x = x if x.stride(-1) == 1 else x.contiguous()
    return ops.block_sums(x, tiling.block_sizes, tiling.block_offsets, tiling.block_of_row, None)


def cluster_sums(x, sizes, order):
    """float32 [B, H, C, D]: x [B, H, S, D] summed over each cluster, in float32.

    Args:
        sizes: int32 [B, H, C].
        order: int32 [B, H, S], rows by cluster.
    """
    x = x if x.stride(-1) == 1 else x.contiguous()
    offsets = sizes.cumsum(-1, dtype=torch.int32) - sizes
    return ops.block_sums(x, sizes.contiguous(), offsets, None, order.contiguous())


def nearest_centroids(x, centroids):
    """int32 [B, H, S]: the centroid [B, H, C, D] that is nearest to each row of x [B, H, S, D], the
    lower where several are. CUDA, bfloat16 or float16, D 64 or 128."""
    half_squares = centroids.float().square().sum(-1) / 2
    x = x if x.stride(-1) == 1 else x.contiguous()
    return ops.nearest_centroids(x, centroids.contiguous(), half_squares)
