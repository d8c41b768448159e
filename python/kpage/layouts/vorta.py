"""VORTA (arXiv 2505.18809): a router gives each head sliding tiles, which are `sta.layout` with cubes
(6, 8, 8) and windows (3, 3, 3), or a coreset: full attention among the tokens of each window that are
least like its centre, whose output the others take."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from kpage.layouts import _checks
from kpage.layouts._tiling import linear_tiling

SLIDING_CUBE, SLIDING_WINDOW = (6, 8, 8), (3, 3, 3)


class Coreset(NamedTuple):
    token_of_row: torch.Tensor  # int32 [B, H, rows]: the tokens that are kept, for `kpage.tile`
    source: torch.Tensor  # int64 [B, H, tokens]: the row whose output each token takes


def coreset(x, grid, window, *, reduction=0.5):
    """The tokens that stand for each window (t, h, w) of the grid: its centre, and of the others the
    int(volume * (1 - reduction)) - 1 with the lowest cosine to it (ties: the lower token). The rest
    take the centre's output.

    Args:
        x: [B, H, tokens, D] in raster order: the tensor whose likeness decides, for instance q.
        grid: (t, h, w), which the window divides.
        window: (t, h, w).
        reduction: share of the tokens to leave out, in [0, 1].

    Returns:
        Coreset. The centres of all windows come first, then the others, window after window.
    """
    _checks.floats("x", x, "B H tokens D")
    grid, window = _checks.extents("grid", grid, 1), _checks.extents("window", window, 1)
    if any(extent % part for extent, part in zip(grid, window, strict=True)):
        raise ValueError(f"window: expected extents that divide the grid, {grid}, got {window}")
    tokens, volume = grid[0] * grid[1] * grid[2], window[0] * window[1] * window[2]
    if x.shape[2] != tokens:
        raise ValueError(f"x: expected the {tokens} tokens of the grid, got {x.shape[2]}")
    keep = int(volume * (1 - _checks.share("reduction", reduction))) - 1
    if keep < 0:
        raise ValueError(f"reduction: expected one that keeps a token of {volume}, got {reduction}")
    groups = _windows(grid, window).to(x.device)  # [windows, volume]
    middle = (window[0] // 2 * window[1] + window[1] // 2) * window[2] + window[2] // 2
    centre = groups[:, middle]
    others = torch.cat([groups[:, :middle], groups[:, middle + 1 :]], 1)
    unit = F.normalize(x.detach().float(), dim=-1)
    cosine = (unit[:, :, others] * unit[:, :, centre, None]).sum(-1)
    order = cosine.argsort(dim=-1, stable=True)
    tokens_of = others.expand(*x.shape[:2], -1, -1).gather(-1, order)
    kept, dropped = tokens_of[..., :keep].flatten(2), tokens_of[..., keep:].flatten(2)
    centres = centre.expand(*x.shape[:2], -1)
    token_of_row = torch.cat([centres, kept], -1)
    rows = torch.arange(token_of_row.shape[-1], device=x.device).expand(token_of_row.shape)
    stand_in = torch.arange(groups.shape[0], device=x.device).repeat_interleave(
        volume - 1 - keep, output_size=dropped.shape[-1]
    )
    source = torch.cat([rows, stand_in.expand(dropped.shape)], -1)
    token = torch.cat([token_of_row, dropped], -1)
    source = torch.zeros_like(token).scatter(-1, token, source)
    return Coreset(token_of_row.to(torch.int32), source)


def spread(out, made):
    """The output of every token, [B, H, tokens, D], from that of a coreset's rows, [B, H, rows, D]."""
    _checks.tensor("out", out, "B H rows D", like=made.source)
    _checks.sized("out", out, (*made.token_of_row.shape, out.shape[3]))
    return out.gather(2, made.source[..., None].expand(-1, -1, -1, out.shape[-1]))


def coreset_layout(rows, *, heads, batch=1, device="cpu"):
    """The arguments of `kpage.plan` for full attention among `rows` rows of a coreset."""
    tiling = linear_tiling(rows, device=device)
    index = torch.arange(tiling.tiles, dtype=torch.int32, device=tiling.device)
    shape = (_checks.integer("batch", batch, 1), _checks.integer("heads", heads, 1), tiling.tiles)
    nums = torch.full(shape, tiling.tiles, dtype=torch.int32, device=tiling.device)
    return tiling.layout(index.expand(*shape, -1), nums)


def _windows(grid, window):
    """int64 [windows, volume]: tokens in raster order of windows and within each."""
    split = [size for pair in zip(grid, window, strict=True) for size in (pair[0] // pair[1], pair[1])]
    tokens = torch.arange(grid[0] * grid[1] * grid[2]).view(split)
    return tokens.permute(0, 2, 4, 1, 3, 5).reshape(-1, window[0] * window[1] * window[2])
