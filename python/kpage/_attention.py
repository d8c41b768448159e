"""Exact attention over a plan."""

import torch
from torch.autograd import forward_ad

from kpage._library import ops
from kpage._plan import Plan

_LAYOUTS = ("bhsd", "bshd")


def attention(
    q, k, v, plan, *, scale=None, layout="bhsd", return_lse=False, deterministic=False
):
    """Exact attention over the block graph of `plan`: softmax(scale * q @ k.T) @ v, where each query
    row sees the valid rows of its block's key/value blocks (paper 3.2; backward 3.3).

    What padding rows hold, NaN and Inf too, reaches no output; output and gradients are 0 in them,
    LSE is -inf. So they are in a valid query row that sees no key. Differentiable in q, k, v, through
    the output and through LSE; double backward is an error. Forward is bitwise reproducible.

    Args:
        q: [B, H, Sq, D] ("bhsd") or [B, Sq, H, D] ("bshd"), bfloat16 or float16; D 64 or 128, on the
            CPU any multiple of 8 up to 256. Any strides, but 1 in the last dimension.
        k: [B, Hkv, Sk, D] or [B, Sk, Hkv, D], as q. H is a multiple of Hkv: each key/value head
            serves H / Hkv query heads that follow each other.
        v: as k.
        plan: of `kpage.plan`, with B batch elements and H heads, on the device of q, k, v. Sq and Sk
            reach at least to its last valid rows.
        scale: of the scores. None: 1 / sqrt(D).
        layout: "bhsd" or "bshd", of q, k, v and the output.
        return_lse: whether to return LSE too.
        deterministic: whether gradients are bitwise reproducible.

    Returns:
        The output, like q and contiguous. With `return_lse`, also LSE: float32 [B, H, Sq] in either
        layout, the natural logarithm of the sum of exponentials of each row's scores.

    Raises:
        ValueError: names the argument, what was expected and what came.
        TypeError: q, k or v is no tensor, or plan no Plan.
        RuntimeError: no backend runs these arguments; says what each one lacks. Or q, k or v has a
            tangent of forward-mode differentiation, which there is none of.
    """
    if layout not in _LAYOUTS:
        raise ValueError(f"layout: expected one of {', '.join(_LAYOUTS)}, got {layout!r}")
    if not isinstance(plan, Plan):
        raise TypeError(f"plan: expected a kpage.Plan, got {type(plan).__name__}")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(tensor).__name__}")
        # PyTorch would drop the tangent without a word.
        if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
            raise RuntimeError(
                f"{name}: kpage.attention has no forward-mode derivative, got a tensor "
                "with a tangent"
            )
    out, lse = ops.attention_forward(
        q, k, v, plan._forward, plan._backward, plan._shape, scale, layout == "bshd", deterministic
    )
    return (out, lse) if return_lse else out
