"""Radial Attention (arXiv 2506.19852, section 4; released as `attn_mask.py`): a static mask whose
windows halve as the distance between two frames doubles. It takes any number of tokens.

Frames have F tokens, in chunks of 128 rows that need not begin with a frame. For a query frame i and
a key frame j, with d = |i - j| and R = 2^(bits(F) - bits(d)), where bits(n) is the length of n in
binary and bits(0) = 0, the window W is, by the first line that holds:

    j = 0, with first_frame_sink              W = F
    R < 128 and d % floor(128 / R) != 0       none: windows end at a block, then frames thin out
    d = 0                                     W = F
    d = 1                                     W = F with next_frame_whole, else floor(F / 2)
    otherwise                                 W = floor(min(max(R * decay, 128), F))

Row r of frame i and column c of frame j, both counted within their frames, attend if |r - c| <= W.

From tokens to blocks: of the columns of a block pair that lie in frame j, `any` have at least one row
in frame i's part of the query block within W, and `dense` have more than a third of the rows of the
*whole* query block there: of those that it has, so a last block of fewer than 128 is judged by its
own. The pair is kept if 5 dense > 3 any for some pair (i, j) that it overlaps. A block always attends
to itself, since frames of up to 42 tokens would fill none, and text to all and all to text."""

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
        *sizes, text_tokens, 128, _checks.number("decay", decay), first_frame_sink, next_frame_whole
    )
    tiling = linear_tiling(sizes[0] * sizes[1], text_tokens, device=device)
    return static_layout(tiling, *graph, heads, batch)
