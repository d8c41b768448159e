"""SpargeAttn (arXiv 2502.18137): pooled scores choose blocks; blocks that are unlike themselves are
not judged by their mean, and always computed. Only the selection: its kernel is quantised, this
library's attention is exact."""

import torch

from kpage.layouts import _checks, _lists, _ops, cubes


def self_similarity(x, tiling):
    """The mean cosine between two rows of a tile, a row and itself included: float32
    [B, H, tiles], for x [B, H, rows, D]."""
    norm = x.float().norm(dim=-1, keepdim=True)
    # A row of zeros has no direction, and in padding anything may stand.
    unit = torch.where(norm > 0, x.float() / norm, 0.0)
    return tiling.means(unit).square().sum(-1)


def select(
    q, k, q_tiling, kv_tiling, *, top_k=None, cdf=None, similarity=-0.1, smooth_k=True
):
    """Each query block attends to the key/value blocks of the highest softmaxed scores of means.

    Means of k are taken after the mean of all keys is taken off. A key/value block whose
    self-similarity is not over the threshold has no score, and all attend to it; such a query block
    attends to all.

    As in the released code (`get_block_map_meansim`) means, their products over sqrt(D) and the
    softmax are each rounded to the dtype of q and k. In bfloat16 many scores are then equal: of
    those the lower index is taken first, where the system's sort takes any. Beyond that this is more
    exact: self-similarity is in float32 (there rows are rounded to float16), and sums of softmaxed
    scores are exact (there rounded too).

    Args:
        q: [B, H, rows, D], k: [B, Hkv, rows, D], rows as in the tilings and no more: keys that no
            tile holds would be left out.
        q_tiling, kv_tiling: of the queries, and of the keys and values: on Hopper the system has
            `linear_tiling(tokens, chunk=64)` and `chunk=128`, elsewhere 128 and 64.
        top_k: share of the key/value blocks, int(top_k * blocks) and at least one. The system's
            default is 0.5.
        cdf: in place of `top_k`: the highest blocks whose softmaxed scores sum up to no more than
            this, at least one. The system's default is 0.98, with a similarity of 0.6.
        similarity: threshold of self-similarity.
        smooth_k: whether to take the mean off.

    Returns:
        The arguments of `kpage.plan`.
    """
    for name, tiling in (("q_tiling", q_tiling), ("kv_tiling", kv_tiling)):
        _checks.tiled(name, tiling)
    group = _checks.queries_keys(q, k, q_tiling, kv_tiling)
    for name, x, tiling in (("q", q, q_tiling), ("k", k, kv_tiling)):
        if x.shape[2] > tiling.rows:
            raise ValueError(
                f"{name}: expected the {tiling.rows} rows of its tiling, got {x.shape[2]}"
            )
    if (top_k is None) == (cdf is None):
        raise ValueError(f"cdf: expected either top_k or cdf, got top_k={top_k} and cdf={cdf}")
    similarity = _checks.number("similarity", similarity)
    q, k = q.detach(), k.detach()
    if smooth_k:
        sums = kv_tiling.sums(k).sum(2, keepdim=True)
        k = k - (sums / kv_tiling.tokens).to(k.dtype)
    q_alike = self_similarity(q, q_tiling) > similarity
    k_alike = (self_similarity(k, kv_tiling) > similarity).repeat_interleave(group, dim=1)
    means = (tiling.means(x).to(x.dtype) for x, tiling in ((q, q_tiling), (k, kv_tiling)))
    scores = cubes.mean_scores(*means) * q.shape[-1] ** -0.5
    weights = scores.masked_fill(~k_alike[:, :, None], -torch.inf).softmax(-1)
    # Where no key/value block is alike all are forced, and the softmax of nothing does not matter.
    weights = weights.nan_to_num()
    if cdf is None:
        count = max(int(_checks.share("top_k", top_k) * kv_tiling.tiles), 1)
        chosen = _lists.top_k_map(weights, min(count, kv_tiling.tiles))
    else:
        limit = _checks.share("cdf", cdf)
        chosen = _ops.leading_map(weights, limit, least=1)
    chosen = chosen | ~q_alike[..., None] | ~k_alike[:, :, None]
    return q_tiling.layout_of_map(chosen, kv_tiling=kv_tiling)
