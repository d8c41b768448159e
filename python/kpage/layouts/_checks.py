"""Checks of arguments; each message names the argument, what was expected and what came."""

import operator

import torch


def integer(name, value, least):
    """`value` as an int of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}") from None
    if number < least:
        raise ValueError(f"{name}: expected at least {least}, got {number}")
    return number


def integers(name, values, least):
    """`values` as a list of ints of at least `least` each."""
    try:
        values = list(values)
    except TypeError:
        raise TypeError(f"{name}: expected ints, got {type(values).__name__}") from None
    return [integer(f"{name}[{i}]", value, least) for i, value in enumerate(values)]


def extents(name, values, least):
    """`values` as three ints, over time, height and width."""
    numbers = integers(name, values, least)
    if len(numbers) != 3:
        raise ValueError(f"{name}: expected 3 extents (t, h, w), got {len(numbers)}")
    return numbers


def share(name, value):
    """`value` as a float in [0, 1]."""
    number = float(value)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{name}: expected a number in [0, 1], got {value}")
    return number


def one_of(name, value, known):
    if value not in known:
        raise ValueError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
    return value


def tensor(name, value, shape):
    """A tensor with as many dimensions as `shape` has names, for instance "B H S D"."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(value).__name__}")
    if value.dim() != len(shape.split()):
        raise ValueError(
            f"{name}: expected shape [{', '.join(shape.split())}], got {list(value.shape)}"
        )
    return value


def rows_of(name, value, tiling):
    """A tensor [B, H, rows, D] with all rows of a tiling, on its device."""
    tensor(name, value, "B H rows D")
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


def constant(function):
    """Marks a function of numbers, whose op has no tensor to trace, as constant in compiled
    functions: what `torch.compiler.assume_constant_result` does, which imports the compiler."""
    function._dynamo_marked_constant = True
    return function
