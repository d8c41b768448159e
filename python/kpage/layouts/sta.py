"""STA, Sliding Tile Attention (arXiv 2502.04507): each head has a window of cubes, which stays inside
the grid where it fits. Text attends to all, and all attend to it. FPSAttention's 3-D tiles (arXiv
2506.04648) and VORTA's sliding heads have the same windows.

Of n cubes in a dimension and a window of w, a query cube at i sees those of the grid from c - w // 2
to c + w // 2, where c = min(max(i, w // 2), n - 1 - w // 2). An even w sees w + 1 cubes so, as in the
released kernels, which have even windows for whole dimensions only."""

import torch

from kpage._library import ops
from kpage.layouts import _checks
from kpage.layouts._tiling import static_layout


def layout(tiling, windows, *, batch=1):
    """The static layout of per-head windows.

    Args:
        tiling: a `Tiling`; the system's cubes are (6, 8, 8), text is a suffix.
        windows: (t, h, w) in cubes, one a head. Give odd extents, or whole dimensions: an even one
            sees a cube more, 3 for 2.
        batch: B of the plan.

    Returns:
        The arguments of `kpage.plan`, with len(windows) heads. Made on the host once.
    """
    row_offsets, columns = _graph(tiling, windows)
    return static_layout(tiling, row_offsets, columns, len(windows), batch)


def window_map(tiling, window):
    """bool [tiles, tiles]: which tiles a tile sees through a window (t, h, w), segments and what
    they see included. Made on the host once."""
    row_offsets, columns = _graph(tiling, [window])
    rows = torch.arange(tiling.tiles).repeat_interleave(row_offsets[1:] - row_offsets[:-1])
    seen = torch.zeros(tiling.tiles, tiling.tiles, dtype=torch.bool)
    seen[rows, columns.long()] = True
    return seen.to(tiling.device)


def _graph(tiling, windows):
    _checks.tiled("tiling", tiling)
    flat = []
    for i, window in enumerate(_checks.sequence("windows", windows, "(t, h, w)")):
        flat += _checks.extents(f"windows[{i}]", window, 1)
    if not flat:
        raise ValueError("windows: expected one (t, h, w) a head, got none")
    return ops.sliding_windows(*tiling.segments, flat)
