"""Token movement: from a model's order of tokens to the rows of a layout, and back.

    q, k, v = (kpage.tile(x, tiling) for x in (q, k, v))
    out = kpage.untile(kpage.attention(q, k, v, plan), tiling)

Tokens whose blocks lie contiguous in the model's order need not move: see docs/token-movement.md.
"""

from typing import NamedTuple

import torch

from kpage._library import check_dense, check_input, check_layout, ops, outside_inference_mode


class TokenOrder(NamedTuple):
    """Where tokens lie in a layout, in both directions, for all heads ([R] and [S]), for each head
    ([H, R] and [H, S]) or for each head of each batch element ([B, H, R] and [B, H, S])."""

    token_of_row: torch.Tensor  # int32; -1 in padding
    row_of_token: torch.Tensor  # int32; -1 where the token has no row


def token_order(index, tokens=None):
    """The order of tokens that an index gives, with the inverse that `untile` and gradients need.

    Args:
        index: int32 or int64 [R], [H, R] or [B, H, R]: the token of each row, -1 in padding. A
            token appears at most once in a head; twice is an error on the CPU, on a CUDA device the
            last one counts.
        tokens: S, the number of tokens. None: R, for a permutation.

    Returns:
        A TokenOrder on the device of `index`.

    Raises:
        ValueError: names the argument, what was expected and what came.
        TypeError: index is no tensor.
    """
    check_dense({"index": index})
    if index.dim() == 0:
        raise ValueError("index: expected a tensor of 1 to 3 dimensions, got 0")
    tokens = index.shape[-1] if tokens is None else tokens
    with outside_inference_mode():
        index = _int32(index, tokens)
        return TokenOrder(index, ops.invert_index(index, tokens))


def tile(x, order, *, layout="bhsd"):
    """Tokens in the order of a layout: row r of the result is token `token_of_row[r]` of x, or zeros
    where that is -1. Differentiable: a gradient goes the way back, and none to padding.

    Args:
        x: [B, H, S, D] ("bhsd") or [B, S, H, D] ("bshd"); bfloat16, float16, float32 or float64. Any
            strides, but 1 in the last dimension.
        order: a tiling of S tokens, a TokenOrder, or anything else with `token_of_row` and
            `row_of_token`; or the index alone, int32 or int64 [R], [H, R] or [B, H, R], with each
            token at most once in a head (checked only by the gradient, on the CPU). A number outside
            [0, S) is padding. On the device of x.
        layout: "bhsd" or "bshd", of x and the result.

    Returns:
        [B, H, R, D] or [B, R, H, D], contiguous.

    Raises:
        ValueError: names the argument, what was expected and what came.
        TypeError: x is no tensor, or order neither an index nor a pair of them.
        RuntimeError: x has a tangent of forward-mode differentiation, which there is none of.
    """
    if isinstance(order, torch.Tensor):
        check_dense({"x": x, "index": order})
        check_layout(layout)
        rows = x.shape[1 if layout == "bshd" else 2] if x.dim() == 4 else 0
        return _gather("kpage.tile", x, _int32(order, rows), None, layout)
    return _gather("kpage.tile", x, *_directions(order), layout)


def untile(x, order, *, layout="bhsd"):
    """Tokens back in the model's order: token s of the result is row `row_of_token[s]` of x. Undoes
    `tile`, and is its gradient. Differentiable.

    Args:
        x: [B, H, R, D] ("bhsd") or [B, R, H, D] ("bshd"), as in `tile`.
        order: as in `tile`. An index alone has to be a permutation: it does not say how many tokens
            there are, and one with padding gives as many rows as it has itself, zeros past the
            tokens. For one with padding give `token_order(index, tokens)`.
        layout: "bhsd" or "bshd", of x and the result.

    Returns:
        [B, H, S, D] or [B, S, H, D], contiguous.

    Raises:
        As `tile`; ValueError too where an index on the CPU has a token twice.
    """
    order = token_order(order) if isinstance(order, torch.Tensor) else order
    token_of_row, row_of_token = _directions(order)
    return _gather("kpage.untile", x, row_of_token, token_of_row, layout)


def _gather(function, x, index, inverse, layout):
    check_input(function, "x", x)
    check_layout(layout)
    named = {"x": x, "order": index, "order's other direction": inverse}
    check_dense({name: t for name, t in named.items() if t is not None})
    return ops.gather_rows(x, index, inverse, layout == "bshd")


def _directions(order):
    try:
        return order.token_of_row, order.row_of_token
    except AttributeError:
        raise TypeError(
            "order: expected an index, or a tiling or TokenOrder with token_of_row and "
            f"row_of_token, got {type(order).__name__}"
        ) from None


def _int32(index, rows):
    """The same rows as int32. Numbers outside [0, rows) name no row, and still do afterwards."""
    return index.clamp(-1, rows).to(torch.int32) if index.dtype == torch.int64 else index
