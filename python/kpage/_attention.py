"""Exact attention over a plan."""

import numbers

import torch

from kpage._library import check_dense, check_input, check_layout, ops
from kpage._plan import Plan


def attention(
    q, k, v, plan, *, scale=None, layout="bhsd", return_lse=False, deterministic=False
):
    """Exact attention over the block graph of `plan`: softmax(scale * q @ k.T) @ v, where each query
    row sees the valid rows of its block's key/value blocks (paper 3.2; backward 3.3).

    What padding rows hold, NaN and Inf too, reaches no output; output and gradients are 0 in them,
    LSE is -inf. So they are in a valid query row that sees no key. Differentiable in q, k, v, through
    the output and through LSE; double backward is an error. Forward is bitwise reproducible. Output
    and LSE are kept for the backward pass: change copies of them. Where `torch.autocast` is on, q,
    k and v are cast to its dtype.

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
        TypeError: an argument is of another type; `scale` is a number, also not a tensor of one,
            since no gradient goes to it.
        RuntimeError: no backend runs these arguments; says what each one lacks. Or q, k or v has a
            tangent of forward-mode differentiation, which there is none of.
    """
    check_layout(layout)
    if not isinstance(plan, Plan):
        raise TypeError(f"plan: expected a kpage.Plan, got {type(plan).__name__}")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_input("kpage.attention", name, tensor)
    check_dense({"q": q, "k": k, "v": v})
    if plan.device != q.device:
        raise ValueError(f"plan: expected a plan on {q.device} as q, got {plan.device}")
    q, k, v = (_autocast(tensor) for tensor in (q, k, v))
    _check_options(scale, return_lse, deterministic)
    out, lse = ops.attention_forward(
        q, k, v, plan._forward, plan._backward, plan._shape, scale, layout == "bshd", deterministic
    )
    return (out, lse) if return_lse else out


def _autocast(tensor):
    device = tensor.device.type
    casts = device in _AUTOCAST_ON and torch.is_autocast_enabled(device)
    if not casts or tensor.dtype not in _AUTOCAST_FROM:
        return tensor
    return tensor.to(torch.get_autocast_dtype(device))


_AUTOCAST_ON = ("cpu", "cuda")  # PyTorch refuses the question for others, such as meta
_AUTOCAST_FROM = (torch.float32, torch.float16, torch.bfloat16)


def _check_options(scale, return_lse, deterministic):
    if scale is not None and not isinstance(scale, numbers.Real):
        raise TypeError(f"scale: expected a number, got {type(scale).__name__}")
    for name, value in (("return_lse", return_lse), ("deterministic", deterministic)):
        if not isinstance(value, bool):
            raise TypeError(f"{name}: expected True or False, got {value!r}")
