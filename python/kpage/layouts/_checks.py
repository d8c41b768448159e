"""Checks of arguments; each message names the argument, what was expected and what came."""

import math
import operator

import torch

from kpage._library import check_dense


def integer(name, value, least):
    """`value` as an int of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}") from None
    if number < least:
        raise ValueError(f"{name}: expected at least {least}, got {number}")
    return number


def sequence(name, values, of):
    """`values` as a list; `of` says what they are."""
    try:
        return list(values)
    except TypeError:
        raise TypeError(
            f"{name}: expected a sequence of {of}, got {type(values).__name__}"
        ) from None


def integers(name, values, least):
    """`values` as a list of ints of at least `least` each."""
    values = sequence(name, values, "ints")
    return [integer(f"{name}[{i}]", value, least) for i, value in enumerate(values)]


def extents(name, values, least):
    """`values` as three ints, over time, height and width."""
    numbers = integers(name, values, least)
    if len(numbers) != 3:
        raise ValueError(f"{name}: expected 3 extents (t, h, w), got {len(numbers)}")
    return numbers


def number(name, value):
    """`value` as a float that is no NaN."""
    try:
        real = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}") from None
    if math.isnan(real):
        raise ValueError(f"{name}: expected a number, got {value}")
    return real


def share(name, value):
    """`value` as a float in [0, 1]."""
    real = number(name, value)
    if not 0.0 <= real <= 1.0:
        raise ValueError(f"{name}: expected a number in [0, 1], got {value}")
    return real


def one_of(name, value, known):
    if value not in known:
        raise ValueError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
    return value


def made(name, value, kind):
    """`value`, an object of a class of this library's or of PyTorch's."""
    if not isinstance(value, kind):
        raise TypeError(f"{name}: expected {kind.__name__}, got {type(value).__name__}")
    return value


def float_dtype(name, value):
    """`value`, a torch.dtype of floating-point numbers."""
    if not isinstance(value, torch.dtype) or not value.is_floating_point:
        raise TypeError(f"{name}: expected a torch.dtype of floating-point numbers, got {value!r}")
    return value


def tensor(name, value, shape, like=None):
    """A dense tensor with as many dimensions as `shape` has names, for instance "B H S D", on the
    device of `like` where it is given."""
    check_dense({name: value})
    if value.device.type == "meta":
        raise ValueError(f"{name}: expected a tensor with values, got one on meta")
    if like is not None and value.device != like.device:
        raise ValueError(f"{name}: expected a tensor on {like.device}, got one on {value.device}")
    if value.dim() != len(shape.split()):
        raise ValueError(
            f"{name}: expected shape [{', '.join(shape.split())}], got {list(value.shape)}"
        )
    return value


def sized(name, value, sizes):
    """`value`, a tensor, of the shape `sizes`."""
    if tuple(value.shape) != tuple(sizes):
        raise ValueError(f"{name}: expected shape {list(sizes)}, got {list(value.shape)}")
    return value


def floats(name, value, shape, like=None):
    """A `tensor` of floating-point numbers."""
    if not tensor(name, value, shape, like).is_floating_point():
        raise ValueError(f"{name}: expected floating-point numbers, got {value.dtype}")
    return value


def ints(name, value, shape, like=None):
    """A `tensor` of int32 or int64."""
    if tensor(name, value, shape, like).dtype not in (torch.int32, torch.int64):
        raise ValueError(f"{name}: expected int32 or int64, got {value.dtype}")
    return value


def values(name, value, least, most):
    """An error unless all of `value` is in [least, most], where values can be read without waiting
    for a device."""
    if value.device.type != "cpu" or torch.compiler.is_compiling() or value.numel() == 0:
        return
    for found in (int(x) for x in value.aminmax()):
        if not least <= found <= most:
            expected = least if least == most else f"{least} to {most}"
            raise ValueError(f"{name}: expected {expected}, got {found}")


def tiled(name, value):
    """`value`, a Tiling."""
    if not hasattr(value, "block_of_row"):
        raise TypeError(f"{name}: expected Tiling, got {type(value).__name__}")
    return value


def rows_of(name, value, tiling):
    """Floating-point numbers [B, H, rows, D] with all rows of a tiling, on its device."""
    tiled("tiling", tiling)
    floats(name, value, "B H rows D")
    if value.shape[2] < tiling.rows:
        raise ValueError(
            f"{name}: expected the {tiling.rows} rows of the tiling or more, got {value.shape[2]}"
        )
    if value.device != tiling.device:
        raise ValueError(
            f"{name}: expected a tensor on the tiling's device, {tiling.device}, got one on "
            f"{value.device}"
        )
    return value


def grouped(q, k, k_name="k"):
    """How many query heads share a key/value head."""
    if q.shape[0] != k.shape[0] or k.shape[1] == 0 or q.shape[1] % k.shape[1] != 0:
        raise ValueError(
            f"{k_name}: expected {q.shape[0]} batch elements and heads that divide the "
            f"{q.shape[1]} of q, got {list(k.shape)}"
        )
    return q.shape[1] // k.shape[1]


def queries_keys(q, k, q_tiling=None, kv_tiling=None, names=("q", "k")):
    """As `grouped`, for q and k of one head dimension, dtype and device: [B, H, rows, D], with the
    rows of tilings where there are any."""
    kv_tiling = q_tiling if kv_tiling is None else kv_tiling
    for name, value, tiling in zip(names, (q, k), (q_tiling, kv_tiling), strict=True):
        if tiling is None:
            floats(name, value, "B H rows D")
        else:
            rows_of(name, value, tiling)
    for what, a, b in (
        ("head dimension", q.shape[3], k.shape[3]),
        ("dtype", q.dtype, k.dtype),
        ("device", q.device, k.device),
    ):
        if a != b:
            raise ValueError(f"{names[1]}: expected the {what} of {names[0]}, {a}, got {b}")
    return grouped(q, k, names[1])


def constant(function):
    """Marks a function of numbers, whose op has no tensor to trace, as constant in compiled
    functions: what `torch.compiler.assume_constant_result` does, which imports the compiler."""
    function._dynamo_marked_constant = True
    return function
