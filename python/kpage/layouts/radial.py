"""Radial Attention (arXiv 2506.19852): a static mask whose windows halve as the distance between two
frames doubles. It takes any number of tokens."""

from kpage._library import ops
from kpage.layouts import _checks
from kpage.layouts._tiling import linear_tiling, static_layout

WAN = {"decay": 0.2, "first_frame_sink": True, "next_frame_whole": False}
HUNYUAN = {"decay": 0.95, "first_frame_sink": False, "next_frame_whole": True}


def layout(
    frames,
    frame_tokens,
    *,
    text_tokens=0,
    heads,
    batch=1,
    decay=0.2,
    first_frame_sink=True,
    next_frame_whole=False,
    device="cpu",
):
    """The layout of tokens in raster order, text after them: `layout(21, 3600, heads=40, **WAN)`.

    Args:
        frames, frame_tokens: of the grid, t and h * w.
        text_tokens: after the grid; they attend to all, and all to them.
        heads, batch: of the plan; all share the mask.
        decay: factor of the windows, over 0.
        first_frame_sink: whether all attend to the first frame.
        next_frame_whole: whether neighbouring frames see each other whole, or by half a frame.
        device: of the tensors.

    Returns:
        The arguments of `kpage.plan`. Made on the host once.
    """
    sizes = _checks.integers("frames, frame_tokens", (frames, frame_tokens), 1)
    text_tokens = _checks.integer("text_tokens", text_tokens, 0)
    graph = ops.radial_graph(
        *sizes, text_tokens, 128, float(decay), first_frame_sink, next_frame_whole
    )
    tiling = linear_tiling(sizes[0] * sizes[1], text_tokens, device=device)
    return static_layout(tiling, *graph, heads, batch)
