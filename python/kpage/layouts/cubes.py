"""Cubes with top-k of block-mean scores in float32: the controlled layouts of paper 4.1. (The command
line's `--layout padded` takes such cubes too, but rounds means and scores as `vsa.select` does.)"""

from kpage.layouts import _checks, _lists


def mean_scores(q_means, k_means):
    """Scores of tiles, [B, H, tiles of q, tiles of k], from their means [B, H, tiles, D]; fewer
    key/value heads serve as many query heads each as in `kpage.attention`."""
    group = _checks.queries_keys(q_means, k_means)
    return q_means @ k_means.repeat_interleave(group, dim=1).mT


def select(q, k, tiling, *, top_k=64):
    """Each tile attends to the `top_k` tiles whose mean key has the highest product with its mean
    query, both in float32. Ties go to the lower tile.

    Args:
        q: [B, H, rows, D], rows as in the tiling: what `kpage.attention` will take.
        k: [B, Hkv, rows, D].
        tiling: a `Tiling` on their device.
        top_k: tiles of a list; at most all.

    Returns:
        The arguments of `kpage.plan`: `kpage.plan(**select(q, k, tiling))`.
    """
    _checks.queries_keys(q, k, tiling)
    top_k = _checks.integer("top_k", top_k, 1)
    index = _lists.top_k(mean_scores(tiling.means(q), tiling.means(k)), top_k)
    return tiling.layout(index, full(index))


def full(index):
    """int32 [B, H, tiles]: the counts of lists [B, H, tiles, K] that are all full."""
    return index.new_full(index.shape[:-1], index.shape[-1])
