"""Fake kernels and gradients of the selectors' ops."""

import torch

from kpage._library import ops


@torch.library.register_fake("kpage::top_k")
def _(scores, keep):
    return scores.new_empty((*scores.shape[:-1], keep), dtype=torch.int32)


@torch.library.register_fake("kpage::lists_of_map")
def _(block_map, max_list, row_of_list=None, column_of_id=None):
    lead = block_map.shape[:-1] if row_of_list is None else row_of_list.shape
    index = block_map.new_empty((*lead, max_list), dtype=torch.int32)
    return index, block_map.new_empty(lead, dtype=torch.int32)


@torch.library.register_fake("kpage::leading_map")
def _(scores, counts, limit, least, crosses):
    return scores.new_empty(scores.shape, dtype=torch.bool)


@torch.library.register_fake("kpage::cluster_order")
def _(labels, clusters):
    shape = (*labels.shape[:-1], clusters)
    rows = (torch.empty_like(labels) for _ in range(2))
    return (*rows, *(labels.new_empty(shape) for _ in range(2)))


@torch.library.register_fake("kpage::cluster_means")
def _(x, order, sizes, offsets, centroids):
    return torch.empty_like(centroids), x.new_empty(sizes.shape, dtype=torch.float32)


@torch.library.register_fake("kpage::cluster_blocks")
def _(sizes, blocks):
    return tuple(sizes.new_empty((*sizes.shape[:-1], blocks)) for _ in range(3))


@torch.library.register_fake("kpage::block_sums")
def _(x, sizes, offsets, block_of_row):
    shape = (x.shape[0], x.shape[1], sizes.shape[-1], x.shape[3])
    return x.new_empty(shape, dtype=torch.float32)


@torch.library.register_fake("kpage::nearest_centroids")
def _(x, centroids):
    return x.new_empty(x.shape[:3], dtype=torch.int32)


def _save(ctx, inputs, output):
    x, _, _, block_of_row = inputs
    ctx.save_for_backward(block_of_row)
    ctx.rows, ctx.dtype = x.shape[2], x.dtype


def _sums_back(ctx, d_sums):
    (block_of_row,) = ctx.saved_tensors
    # Each row of a block gets the block's gradient, padding none.
    d_x = ops.gather_rows(d_sums.contiguous(), block_of_row, None, False).to(ctx.dtype)
    spare = ctx.rows - block_of_row.shape[0]
    if spare > 0:
        d_x = torch.nn.functional.pad(d_x, (0, 0, 0, spare))
    return d_x, None, None, None


torch.library.register_autograd("kpage::block_sums", _sums_back, setup_context=_save)


def top_k(scores, k):
    """int32 [..., min(k, N)]: the ids of the `k` highest of each row of scores [..., N], in ascending
    order. Of equal scores the lower id is higher, and NaN is -inf: the same on every device, of which
    CUDA takes up to 32,768 columns."""
    if scores.dtype == torch.float64:
        scores = scores.float()
    return ops.top_k(scores.detach().contiguous(), min(k, scores.shape[-1]))


def leading_map(scores, limit, *, counts=None, least=0, crosses=False):
    """Which columns of each row lead: in descending order of weight, of equal ones the lower column
    first, those whose weights up to and with them sum up to no more than `limit`.

    Args:
        scores: [..., R, N], the weights, in [0, 1].
        limit: in [0, 1].
        counts: int32 [..., N]. Where given weights are counts * exp(scores), over their sum, and
            rounded to the dtype of the scores.
        least: how many are kept in any case.
        crosses: whether the one that takes the sum over the limit is kept too.

    Returns:
        bool [..., R, N]. Sums are exact in units of 2^-30: the same on every device, of which CUDA
        takes up to 16,384 columns.
    """
    scores = scores.detach()
    scores = scores.float() if scores.dtype == torch.float64 else scores
    least = min(least, scores.shape[-1])
    counts = None if counts is None else counts.contiguous()
    return ops.leading_map(scores.contiguous(), counts, limit, least, crosses)


def lists_of_map(block_map, max_list=None, *, row_of_list=None, column_of_id=None):
    """The lists that a map holds.

    Args:
        block_map: bool [..., R, C], true for a member.
        max_list: room in a list. None: one for each id. A row with more members keeps its first
            `max_list`, and its count, so that `kpage.plan` reports it.
        row_of_list: int32 [..., L], the row of each list, -1 for one without members. None: lists
            are rows.
        column_of_id: int32 [..., N], the column of each id, -1 for one that is no member. None: ids
            are columns.

    Returns:
        index: int32 [..., L, max_list], ids in ascending order, 0 past the members.
        nums: int32 [..., L].
    """
    ids = block_map if column_of_id is None else column_of_id
    room = ids.shape[-1] if max_list is None else max_list
    return ops.lists_of_map(block_map.bool().contiguous(), room, row_of_list, column_of_id)


def block_sums(x, tiling):
    """float32 [B, H, blocks, D]: x [B, H, S, D] summed over the valid rows of each block of a tiling,
    in float32. Differentiable."""
    x = x if x.stride(-1) == 1 else x.contiguous()
    return ops.block_sums(x, tiling.block_sizes, tiling.block_offsets, tiling.block_of_row)


def cluster_order(labels, clusters):
    """Rows by cluster, in their own order within one.

    Args:
        labels: int32 [..., S], in [0, clusters).

    Returns:
        order: int32 [..., S], the row at each place.
        places: int32 [..., S], the place of each row: its inverse.
        sizes, offsets: int32 [..., clusters], of each cluster in `order`.
    """
    return ops.cluster_order(labels.contiguous(), clusters)


def cluster_means(x, order, sizes, offsets, centroids):
    """The mean of the rows of each cluster, or its centroid where it has none.

    Args:
        x: [B, H, S, D].
        order, sizes, offsets: of its rows, as `cluster_order` gives them.
        centroids: [B, H, C, D], dtype of x.

    Returns:
        means: [B, H, C, D], summed in float32 and rounded to the dtype of x.
        shifts: float32 [B, H, C], |mean - centroid|.
    """
    x = x if x.stride(-1) == 1 else x.contiguous()
    return ops.cluster_means(x, order, sizes, offsets, centroids.contiguous())


def cluster_blocks(sizes, blocks):
    """Clusters end to end, each as blocks of 128 rows and one of the remainder.

    Args:
        sizes: int32 [..., C].
        blocks: room for so many.

    Returns:
        cluster: int32 [..., blocks], of each block; -1 past the last.
        sizes, offsets: int32 [..., blocks], 0 past the last.
    """
    return ops.cluster_blocks(sizes.contiguous(), blocks)


def nearest_centroids(x, centroids):
    """int32 [B, H, S]: the centroid [B, H, C, D] that is nearest to each row of x [B, H, S, D], the
    lower where several are. CUDA, bfloat16 or float16, D 64 or 128."""
    batch, heads, row, column = x.stride()
    mapped = batch % 64 == 0 and heads % 64 == 0 and row % 8 == 0 and column == 1
    x = x if mapped else x.contiguous()
    return ops.nearest_centroids(x, centroids.contiguous())
