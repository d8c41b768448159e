"""VSA, Video Sparse Attention (arXiv 2505.13389): mean-pooled cubes choose which cubes to attend to,
and a coarse branch attends to the pooled cubes themselves."""

import math

import torch

from kpage._attention import attention as _attention
from kpage._library import ops
from kpage._plan import plan as _plan
from kpage.layouts import _checks, _lists, cubes

SEGMENTS = ("exempt", "compete")


@_checks.constant
def _kept(sparsity, tiles):
    return ops.vsa_top_k(sparsity, tiles)


def top_k(sparsity, tiles):
    """How many of `tiles` a sparsity in [0, 1] keeps: ceil((1 - sparsity) * tiles), at least 1, in
    double precision as the system computes it."""
    return _kept(_checks.share("sparsity", sparsity), _checks.integer("tiles", tiles, 0))


def scores(q, k, tiling, *, dtype=None):
    """Scores of the coarse branch: products of mean queries and keys over sqrt(D).

    Args:
        q: [B, H, rows, D], k: [B, Hkv, rows, D], rows as in the tiling.
        tiling: a `Tiling` on their device.
        dtype: that means, summed in float32, and products are rounded to. None: that of q, as in the
            released system; its variant for H3 has torch.float32.

    Returns:
        [B, H, tiles, tiles] in that dtype. Differentiable.
    """
    _checks.queries_keys(q, k, tiling)
    dtype = q.dtype if dtype is None else _checks.float_dtype("dtype", dtype)
    means = (tiling.means(x).to(dtype) for x in (q, k))
    return cubes.mean_scores(*means) / math.sqrt(q.shape[-1])


def select(q, k, tiling, *, sparsity=None, keep=None, segments="exempt", dtype=None):
    """Each cube attends to the cubes of the highest coarse scores; ties go to the lower cube.

    Prefix and suffix segments attend to all tiles. "exempt": all cubes attend to them, and choose
    among cubes. "compete": cubes choose among all tiles, as many more as there are segment tiles.

    Args:
        q: [B, H, rows, D], rows as in the tiling: what `kpage.attention` will take.
        k: [B, Hkv, rows, D].
        tiling: a `Tiling` on their device, in any placement.
        sparsity: share of the cubes that is left out, in [0, 1]: see `top_k`.
        keep: how many cubes, in place of `sparsity`; over their number, all, without an error.
        segments: "exempt" or "compete".
        dtype: as of `scores`.

    Returns:
        The arguments of `kpage.plan`.
    """
    keep = _keep(tiling, sparsity, keep, segments)
    with torch.no_grad():
        chosen = scores(q, k, tiling, dtype=dtype)
    return from_scores(chosen, tiling, keep=keep, segments=segments)


def from_scores(scores, tiling, *, sparsity=None, keep=None, segments="exempt"):
    """As `select`, from scores [B, H, tiles, tiles]."""
    keep = _keep(tiling, sparsity, keep, segments)
    _scores(scores, tiling)
    scores = tiling.cubes_of(scores.detach())
    before, after = tiling.prefix_tiles, tiling.tiles - tiling.suffix_tiles
    if segments == "exempt":
        index = _lists.top_k(scores[..., before:after], keep)
        return tiling.layout(*tiling.with_dense_segments(index))
    index = _lists.top_k(scores, keep + tiling.tiles - tiling.cube_count)
    nums = cubes.full(index)
    if tiling.cube_count < tiling.tiles:
        dense = torch.arange(tiling.tiles, dtype=torch.int32, device=index.device)
        dense = dense.expand(*index.shape[:2], tiling.tiles, -1)
        room = tiling.tiles - index.shape[-1]
        index = torch.nn.functional.pad(index, (0, room))
        index = torch.cat([dense[:, :, :before], index, dense[:, :, after:]], 2)
        nums = torch.nn.functional.pad(nums, (before, tiling.suffix_tiles), value=tiling.tiles)
    return tiling.layout(index, nums)


def _keep(tiling, sparsity, keep, segments):
    _checks.tiled("tiling", tiling)
    _checks.one_of("segments", segments, SEGMENTS)
    if (sparsity is None) == (keep is None):
        raise ValueError(
            f"keep: expected either sparsity or keep, got sparsity={sparsity} and keep={keep}"
        )
    if keep is None:
        return top_k(sparsity, tiling.cube_count)
    return min(_checks.integer("keep", keep, 1), max(tiling.cube_count, 1))


def _scores(scores, tiling):
    _checks.floats("scores", scores, "B H tiles tiles", like=tiling)
    if scores.shape[2:] != (tiling.tiles, tiling.tiles):
        raise ValueError(
            f"scores: expected {tiling.tiles} x {tiling.tiles} tiles, got {list(scores.shape)}"
        )


def coarse(scores, v, tiling):
    """The coarse branch: softmax of the scores over tiles, times mean-pooled values; every row of a
    tile gets the tile's result. Differentiable in scores and v.

    Args:
        scores: [B, H, tiles, tiles], of `scores`.
        v: [B, Hkv, rows, D].
        tiling: a `Tiling` on their device.

    Returns:
        [B, H, rows, D] in the dtype of v; 0 in padding rows.
    """
    _scores(scores, tiling)
    _checks.rows_of("v", v, tiling)
    values = tiling.means(v).to(v.dtype)
    values = values.repeat_interleave(_checks.grouped(scores, values, "v"), dim=1)
    of_tiles = scores.softmax(-1).to(v.dtype) @ values
    valid = tiling.block_of_row >= 0
    tile = tiling.tile_of_block[torch.where(valid, tiling.block_of_row, 0)]
    return torch.where(valid[:, None], of_tiles.index_select(2, tile), 0.0)


def _gate(gate, q):
    sizes = zip(reversed(gate.shape), reversed(q.shape), strict=False)
    if gate.dim() > q.dim() or any(size not in (1, of_q) for size, of_q in sizes):
        raise ValueError(
            f"gate: expected shape {list(q.shape)} or one that broadcasts to it, got "
            f"{list(gate.shape)}"
        )


def attention(
    q, k, v, tiling, *, gate=None, sparsity=None, keep=None, segments="exempt", dtype=None
):
    """Both branches: attention over the selected cubes, plus the coarse branch times the gate.

    Args:
        q: [B, H, rows, D], rows as in the tiling; bfloat16 or float16.
        k, v: [B, Hkv, rows, D].
        tiling: a `Tiling` on their device.
        gate: of the coarse branch, [B, H, rows, D] or what broadcasts to it, not squashed. None: 1.
        sparsity, keep, segments, dtype: as of `select`.

    Returns:
        [B, H, rows, D], 0 in padding rows. Differentiable in q, k, v and gate; no gradient goes
        through the choice of cubes.
    """
    if isinstance(gate, torch.Tensor):
        _gate(gate, q)
    chosen = scores(q, k, tiling, dtype=dtype)
    arguments = from_scores(chosen, tiling, sparsity=sparsity, keep=keep, segments=segments)
    fine = _attention(q, k, v, _plan(**arguments))
    rows = coarse(chosen, v, tiling)
    if q.shape[2] > tiling.rows:
        rows = torch.nn.functional.pad(rows, (0, 0, 0, q.shape[2] - tiling.rows))
    return (rows if gate is None else rows * gate) + fine
