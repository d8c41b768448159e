"""SVG1, Sparse VideoGen (arXiv 2502.01776): spatial heads attend to near tokens in raster order,
temporal heads to near tokens in token-major order, through one band, at the level of blocks. (The
system masks single tokens at the band's edges; here a pair of blocks that the band touches counts.)

With T tokens, of which N are text, the half width w of the band follows from the share of pairs that
it keeps (released as `generate_temporal_head_mask_mod` and `sparsity_to_width`):

    s = density - 2 N / T, in [0, 1]     what the rows and columns of text leave of it
    h = T (1 - sqrt(1 - s)) / 128        in blocks: a band of 128 h either side has a share s of pairs
    |q - k| <= w = 128 ceil(h)           with band_up
    |q - k| < w = 128 floor(h)           without

Rows are in chunks of 128. A pair of blocks counts if any of its pairs of tokens is in the band, or,
with first_frame_sink, if the key block begins in the first frame of rows. Tail chunks are as long as
they are: the nearest tokens of a pair are counted from rows that exist. A block always attends to
itself, also where the band rounds down to nothing; text attends to all, and all to text."""

import math

import torch

from kpage._library import ops
from kpage.layouts import _checks
from kpage.layouts._tiling import linear_tiling, static_layout
from kpage.tokens import TokenOrder

WAN = {"density": 0.3, "first_frame_sink": True, "band_up": True}
HUNYUAN = {"density": 0.25, "first_frame_sink": False, "band_up": False}


def layout(
    frames,
    frame_tokens,
    *,
    text_tokens=0,
    heads,
    batch=1,
    density=0.3,
    first_frame_sink=True,
    band_up=True,
    device="cpu",
):
    """The layout of both kinds of heads: `layout(21, 1560, heads=12, **WAN)`. Rows of spatial heads
    are in raster order, those of temporal heads in token-major order (`order_of_heads`), text last.

    Args:
        frames, frame_tokens: of the grid, t and h * w.
        text_tokens: after the grid; they attend to all, and all to them.
        heads, batch: of the plan; all share the mask.
        density: share of the pairs to keep, in [0, 1]; the released scripts call it sparsity.
        first_frame_sink: whether all attend to the first frame of rows.
        band_up: the half width is rounded to 128 rows up and includes its end; or down, without it.
        device: of the tensors.

    Returns:
        The arguments of `kpage.plan`. Made on the host once.
    """
    sizes = _checks.integers("frames, frame_tokens", (frames, frame_tokens), 1)
    text_tokens = _checks.integer("text_tokens", text_tokens, 0)
    density = _checks.share("density", density)
    graph = ops.svg1_graph(*sizes, text_tokens, 128, density, first_frame_sink, band_up)
    tiling = linear_tiling(sizes[0] * sizes[1], text_tokens, device=device)
    return static_layout(tiling, *graph, heads, batch)


def token_major(frames, frame_tokens, text_tokens=0, *, device="cpu"):
    """The order of temporal heads, a TokenOrder of int32 [tokens]: all frames of a patch follow each
    other. Text stays. Made on the host once."""
    sizes = _checks.integers("frames, frame_tokens", (frames, frame_tokens), 1)
    text_tokens = _checks.integer("text_tokens", text_tokens, 0)
    text = torch.arange(text_tokens, dtype=torch.int32) + sizes[0] * sizes[1]
    rows = torch.cat([ops.token_major_order(*sizes), text])
    return TokenOrder(rows.argsort().to(torch.int32).to(device), rows.to(device))


def order_of_heads(temporal, order):
    """`order` for temporal heads, and raster order for the others, for `kpage.tile` and `untile`.
    Heads that share k and v may be of both kinds: repeat those of fewer heads before `kpage.tile`.

    Args:
        temporal: bool [B, H], of `temporal_heads`.
        order: of `token_major`.

    Returns:
        A TokenOrder of int32 [B, H, tokens].
    """
    _checks.tensor("temporal", temporal, "B H")
    raster = torch.arange(order.token_of_row.shape[0], dtype=torch.int32, device=temporal.device)
    return TokenOrder(*(torch.where(temporal[..., None], rows, raster) for rows in order))


def temporal_heads(q, k, v, arguments, order, *, rows=None):
    """Which heads are temporal: those whose output at sampled rows is nearer to that of full
    attention, by mean squared error, in token-major order than in raster order.

    Args:
        q, k, v: [B, H, tokens, D] in raster order, text last. k and v may have fewer heads.
        arguments: of `layout`.
        order: of `token_major`.
        rows: int64 [n], the sampled tokens, at least one, which the system draws at random; on a
            CUDA device they are not checked. None: 64, evenly spaced.

    Returns:
        bool [B, H]; a tie is spatial.
    """
    group = _checks.queries_keys(q, k)
    _checks.queries_keys(q, v, names=("q", "v"))
    _checks.sized("v", v, k.shape)
    tokens = q.shape[2]
    for name, found in (("k", k.shape[2]), ("order", order.row_of_token.shape[-1])):
        if found != tokens:
            raise ValueError(f"{name}: expected the {tokens} tokens of q, got {found}")
    of_blocks = arguments["q_block_sizes"].sum(dtype=torch.int64)
    _checks.values("arguments, the rows of all blocks", of_blocks, tokens, tokens)
    if rows is None:
        count = min(64, tokens)
        rows = torch.arange(count, device=q.device) * tokens // max(count, 1)
    if _checks.ints("rows", rows, "n", like=q).shape[0] == 0:
        raise ValueError("rows: expected at least one token, got none")
    _checks.values("rows", rows, 0, tokens - 1)
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    products = (q.index_select(2, rows) @ k.mT).float() / math.sqrt(q.shape[-1])
    full = _weighted(products, v)
    seen = _map_of_lists(arguments)
    block_of_row = torch.searchsorted(
        arguments["q_block_offsets"],
        torch.arange(tokens, dtype=torch.int32, device=q.device),
        right=True,
    ) - 1
    errors = []
    for block in (block_of_row, block_of_row[order.row_of_token.long()]):
        mask = seen[block[rows]][:, block]
        part = _weighted(products.masked_fill(~mask, -math.inf), v)
        errors.append((part - full).float().square().mean((2, 3)))
    return errors[1] < errors[0]


def _weighted(products, v):
    """softmax(products) @ v in the dtype of v. On a CPU in float32 up to the end: PyTorch's product of
    few long rows in bfloat16 takes 30 times as long there."""
    weights = products.softmax(-1).to(v.dtype)
    return weights @ v if v.is_cuda else (weights.float() @ v.float()).to(v.dtype)


def _map_of_lists(arguments):
    """bool [NQ, NK] of a layout that all heads share."""
    index, nums = (arguments[name][0, 0] for name in ("q2k_block_index", "q2k_block_nums"))
    blocks = arguments["q_block_sizes"].shape[0]
    listed = torch.arange(index.shape[-1], device=index.device) < nums[:, None]
    target = torch.where(listed, index.long(), blocks)
    return torch.zeros(
        index.shape[0], blocks + 1, dtype=torch.bool, device=index.device
    ).scatter(-1, target, True)[:, :blocks]
