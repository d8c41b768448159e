"""Loads the ops of `_ops.so` into torch, and gives them fake kernels and gradients."""

import ctypes
from contextlib import nullcontext
from pathlib import Path

import torch
from torch.autograd import forward_ad
from torch.utils.weak import WeakTensorKeyDictionary

# Loading registers the ops; ctypes also reaches the few functions that fake kernels need, since those
# may not call ops.
_so = ctypes.CDLL(str(Path(__file__).with_name("_ops.so")))
_so.kpage_version.restype = ctypes.c_char_p
_so.kpage_plan_bytes.restype = ctypes.c_bool
ops = torch.ops.kpage


def version():
    return _so.kpage_version().decode()


def check_input(function, name, tensor):
    """Raises an error unless `tensor`, the argument `name` of `function`, is a tensor without a
    tangent: PyTorch would drop it without a word."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(tensor).__name__}")
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
        raise RuntimeError(
            f"{name}: {function} has no forward-mode derivative, got a tensor with a tangent"
        )
    if not torch.compiler.is_compiling() and torch._C._functorch.is_gradtrackingtensor(tensor):
        raise RuntimeError(
            f"{name}: {function} is differentiated by torch.autograd, not by torch.func's grad, vjp "
            "and jacrev, got a tensor of theirs"
        )


def check_dense(tensors):
    """Raises an error unless `tensors`, by the names of the arguments, are dense and on one device:
    PyTorch would run the fake kernels where one of them is on `meta`."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(tensor).__name__}")
        if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized:
            kind = tensor.dtype if tensor.is_quantized else tensor.layout
            raise ValueError(
                f"{name}: expected a dense tensor, got {'nested' if tensor.is_nested else kind}"
            )
    first = next(iter(tensors))
    device = tensors[first].device
    for name, tensor in tensors.items():
        if tensor.device != device:
            raise ValueError(
                f"{name}: expected a tensor on {device} as {first}, got {tensor.device}"
            )


LAYOUTS = ("bhsd", "bshd")


def check_layout(layout):
    if layout not in LAYOUTS:
        raise ValueError(f"layout: expected one of {', '.join(LAYOUTS)}, got {layout!r}")


# --- Plans ------------------------------------------------------------------------------------


def shape_of_tensors(q2k_block_index, q_block_sizes, kv_block_sizes):
    """The shape of a plan as ops take it: batch, heads, query blocks, key/value blocks, longest list,
    scope of the query sizes, scope of the key/value sizes."""
    if q2k_block_index.dim() != 4:
        raise ValueError(
            "q2k_block_index: expected shape [B, H, NQ, Kmax], got "
            f"{list(q2k_block_index.shape)}"
        )
    batch, heads, q_blocks, max_list = q2k_block_index.shape
    kv_block_sizes = q_block_sizes if kv_block_sizes is None else kv_block_sizes
    return (
        batch,
        heads,
        q_blocks,
        kv_block_sizes.shape[-1],
        max_list,
        q_block_sizes.dim() - 1,
        kv_block_sizes.dim() - 1,
    )


def _plan_bytes(shape):
    # int() makes a symbolic size a constant: a plan's size is one.
    values = (ctypes.c_int64 * len(shape))(*(int(s) for s in shape))
    forward, backward = ctypes.c_int64(), ctypes.c_int64()
    if not _so.kpage_plan_bytes(values, ctypes.byref(forward), ctypes.byref(backward)):
        raise ValueError(f"plan: expected the shape of a plan, got {list(values)}")
    return forward.value, backward.value


@torch.library.register_fake("kpage::plan_forward")
def _(
    q2k_block_index,
    q2k_block_nums,
    q_block_sizes,
    kv_block_sizes,
    q_block_offsets,
    kv_block_offsets,
):
    shape = shape_of_tensors(q2k_block_index, q_block_sizes, kv_block_sizes)
    return q2k_block_index.new_empty(_plan_bytes(shape)[0], dtype=torch.uint8)


@torch.library.register_fake("kpage::plan_backward")
def _(forward, shape):
    return forward.new_empty(_plan_bytes(shape)[1], dtype=torch.uint8)


# The backward parts that backward passes have built, by the forward part they belong to, with the
# version that it had: Plan.update_ changes it in place.
_backward_parts = WeakTensorKeyDictionary()


def cached_backward_part(forward):
    version, part = _backward_parts.get(forward, (None, None))
    return part if version == forward._version else None


def outside_inference_mode():
    """Plans are ordinary tensors wherever they are made, so that training takes them too."""
    # What a compiler traces it runs outside of this mode, and it does not know the question.
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return nullcontext()
    return torch.inference_mode(False)


def compile_backward(forward, shape):
    with outside_inference_mode():
        return ops.plan_backward(forward, shape)


def _backward_part(forward, shape):
    # A tensor that stands for another one while a graph is traced is not worth remembering.
    if type(forward) is not torch.Tensor:
        return ops.plan_backward(forward, shape)
    part = cached_backward_part(forward)
    if part is None:
        version = forward._version  # before its contents are read: another thread may update it
        part = compile_backward(forward, shape)
        _backward_parts[forward] = version, part
    return part


# --- Attention --------------------------------------------------------------------------------


@torch.library.register_fake("kpage::attention_forward")
def _(q, k, v, plan, plan_backward, plan_shape, scale, bshd, deterministic):
    batch, heads, rows = (q.shape[i] for i in ((0, 2, 1) if bshd else (0, 1, 2)))
    return q.new_empty(q.shape), q.new_empty((batch, heads, rows), dtype=torch.float32)


@torch.library.register_fake("kpage::attention_backward")
def _(
    d_o,
    d_lse,
    q,
    k,
    v,
    o,
    lse,
    plan,
    plan_backward,
    plan_shape,
    scale,
    bshd,
    deterministic,
):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx, inputs, output):
    q, k, v, plan, plan_backward, *ctx.options = inputs
    ctx.save_for_backward(q, k, v, *output, plan, plan_backward)
    ctx.set_materialize_grads(False)


def _gradients(ctx, d_o, d_lse):
    q, k, v, o, lse, plan, plan_backward = ctx.saved_tensors
    plan_shape, scale, bshd, deterministic = ctx.options
    nothing = (None,) * 6  # plan and options have no gradient
    if d_o is None and d_lse is None:
        return (None, None, None, *nothing)
    if d_o is None:
        d_o = torch.zeros_like(o)
    if plan_backward is None:
        plan_backward = _backward_part(plan, plan_shape)
    gradients = ops.attention_backward(
        d_o, d_lse, q, k, v, o, lse, plan, plan_backward, plan_shape, scale, bshd, deterministic
    )
    return (*gradients, *nothing)


def _no_second_derivative(ctx, *gradients):
    raise RuntimeError("kpage.attention: double backward is not supported")


torch.library.register_autograd("kpage::attention_forward", _gradients, setup_context=_save)
torch.library.register_autograd("kpage::attention_backward", _no_second_derivative)


# --- Token movement ---------------------------------------------------------------------------


@torch.library.register_fake("kpage::gather_rows")
def _(x, index, inverse, bshd):
    shape = list(x.shape)
    shape[1 if bshd else 2] = index.shape[-1]
    return x.new_empty(shape)


@torch.library.register_fake("kpage::invert_index")
def _(index, rows):
    return index.new_empty((*index.shape[:-1], rows))


def _save_index(ctx, inputs, output):
    x, index, inverse, bshd = inputs
    ctx.save_for_backward(index, inverse)
    ctx.bshd = bshd
    ctx.rows = x.shape[1 if bshd else 2]


def _gather_back(ctx, d_out):
    index, inverse = ctx.saved_tensors
    if inverse is None:
        inverse = ops.invert_index(index, ctx.rows)
    # Gradients come with any strides; the op reads whole rows.
    if d_out.stride(-1) != 1:
        d_out = d_out.contiguous()
    return ops.gather_rows(d_out, inverse, index, ctx.bshd), None, None, None


torch.library.register_autograd("kpage::gather_rows", _gather_back, setup_context=_save_index)
