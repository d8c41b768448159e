"""SSTA, Selective and Sliding Tile Attention, of HunyuanVideo 1.5: a window of cubes, and the cubes
that are most similar to the query's while least like the others. Text attends to all, and all to it."""

import torch
import torch.nn.functional as F

from kpage._attention import attention as _attention
from kpage._library import ops
from kpage._plan import plan as _plan
from kpage.layouts import _checks, _lists, sta


@_checks.constant
def _kept(top_k, latent_frames):
    return ops.ssta_top_k(top_k, latent_frames)


def scores(q, k, tiling, *, similarity=0.7):
    """similarity * sim - (1 - similarity) * redundancy, over cubes of the grid.

    sim = (q . k + 1) / 2 of the normalised means of a query and a key cube; the redundancy of a key
    cube is the mean of (k_i . k + 1) / 2 over the other key cubes i. (The system's means count
    padding as zeros; the norm takes the factor out.)

    Args:
        q: [B, H, rows, D], k: [B, Hkv, rows, D], rows as in the tiling.
        tiling: a `Tiling` on their device.
        similarity: the system's lambda, in [0, 1].

    Returns:
        float32 [B, H, cubes, cubes].
    """
    group = _checks.queries_keys(q, k, tiling)
    similarity = _checks.share("similarity", similarity)
    q_cubes = F.normalize(tiling.cubes_of(tiling.means(q.detach())), dim=-1)
    k_cubes = F.normalize(tiling.cubes_of(tiling.means(k.detach())), dim=-1)
    k_cubes = k_cubes.repeat_interleave(group, dim=1)
    own = k_cubes.square().sum(-1)
    others = (k_cubes.sum(2, keepdim=True) * k_cubes).sum(-1) - own
    redundancy = (others / max(tiling.cube_count - 1, 1) + 1) / 2
    sim = (q_cubes @ k_cubes.mT + 1) / 2
    return similarity * sim - (1 - similarity) * redundancy[:, :, None]


def select(q, k, tiling, *, window=(3, 3, 3), top_k=64, similarity=0.7):
    """Each cube attends to the cubes of its window and to those of the highest `scores`; ties go to
    the lower cube.

    Args:
        q: [B, H, rows, D], rows as in the tiling: what `kpage.attention` will take.
        k: [B, Hkv, rows, D].
        tiling: a `Tiling` on their device; the system's cubes are (6, 8, 8), text is a suffix of
            its valid tokens.
        window: (t, h, w) in cubes, even extents as of `sta.layout`; or `sta.window_map` of it, made
            once, as a graph or a compiled function needs.
        top_k: cubes of a list for more than 31 latent frames; up to 31, half as many, rounded down.
            At least one (so that 1 stays 1) and at most all, without an error.
        similarity: as of `scores`.

    Returns:
        The arguments of `kpage.plan`.
    """
    top_k = _checks.integer("top_k", top_k, 1)
    of_cubes = scores(q, k, tiling, similarity=similarity)
    keep = min(max(_kept(top_k, tiling.grid[0]), 1), tiling.cube_count)
    if isinstance(window, torch.Tensor):
        seen = _checks.tensor("window", window, "tiles tiles", like=tiling)
        _checks.sized("window", seen, (tiling.tiles, tiling.tiles))
        if seen.dtype != torch.bool:
            raise ValueError(f"window: expected bool, got {seen.dtype}")
    else:
        seen = sta.window_map(tiling, window)
    chosen = _lists.top_k_map(of_cubes, keep)
    margins = (tiling.prefix_tiles, tiling.suffix_tiles)
    chosen = F.pad(chosen, (*margins, *margins)) | seen
    return tiling.layout_of_map(chosen, _longest(tiling, window, keep))


def _longest(tiling, window, keep):
    """Room that every list fits in."""
    if isinstance(window, torch.Tensor) or tiling.cube_count < tiling.tiles:
        return None
    seen = 1
    for width, count in zip(window, tiling.cubes, strict=True):
        seen *= min(width // 2 * 2 + 1, count)
    return min(seen + keep, tiling.tiles)


def counting_pads(out, lse, arguments, tiling):
    """What the released kernel computes in place of exact attention: it pads every cube to its whole
    volume with zeros and does not mask them, so each padding key adds exp(0) to the denominator.

    With n such keys in the lists of a query row, exactly

        out' = out * exp(lse) / (exp(lse) + n),  lse' = log(exp(lse) + n)

    Differentiable in out and lse. Only cubes count; give text that is padded by repeating tokens as
    whole tiles of real rows.

    Args:
        out: [B, H, rows, D] of `kpage.attention`.
        lse: float32 [B, H, rows], of the same call.
        arguments: of the plan, from `select` or `sta.layout`.
        tiling: the `Tiling` they were made from.

    Returns:
        out' and lse', like out and lse.
    """
    _checks.rows_of("out", out, tiling)
    _checks.tensor("lse", lse, "B H rows")
    volume = tiling.cube[0] * tiling.cube[1] * tiling.cube[2]
    missing = volume - tiling.tile_sizes
    number = torch.arange(tiling.tiles, device=tiling.device)
    is_cube = (number >= tiling.prefix_tiles) & (number < tiling.tiles - tiling.suffix_tiles)
    missing = torch.where(is_cube, missing, 0)
    # All blocks of a tile stand in the same lists: the first one carries the tile's padding.
    of_block = missing.new_zeros(tiling.blocks).scatter(0, tiling.first_block.long(), missing)
    index, nums = arguments["q2k_block_index"], arguments["q2k_block_nums"]
    listed = torch.arange(index.shape[-1], device=index.device) < nums[..., None]
    pads = torch.where(listed, of_block[torch.where(listed, index, 0)], 0).sum(-1)
    valid = tiling.block_of_row >= 0
    pads = pads.index_select(2, torch.where(valid, tiling.block_of_row, 0))
    log_pads = F.pad(torch.where(valid, pads, 0), (0, lse.shape[2] - tiling.rows)).float().log()
    seeing = lse > -torch.inf
    finite = torch.where(seeing, lse, 0.0)
    share = torch.sigmoid(finite - log_pads)
    out = (out.float() * share[..., None]).to(out.dtype)
    return out, torch.where(seeing, torch.logaddexp(finite, log_pads), lse)


def attention(q, k, v, tiling, *, count_pads=False, return_lse=False, **rule):
    """Attention over `select`'s lists.

    Args:
        q: [B, H, rows, D], rows as in the tiling; bfloat16 or float16.
        k, v: [B, Hkv, rows, D].
        tiling: a `Tiling` on their device.
        count_pads: the released kernel's results, see `counting_pads`, in place of exact ones.
        return_lse: whether to return LSE too.
        rule: as of `select`.

    Returns:
        The output, or output and LSE, as `kpage.attention`.
    """
    arguments = select(q, k, tiling, **rule)
    out, lse = _attention(q, k, v, _plan(**arguments), return_lse=True)
    if count_pads:
        out, lse = counting_pads(out, lse, arguments, tiling)
    return (out, lse) if return_lse else out
