"""Plans: block layouts compiled to the page walks that kernels execute (paper 3.2 to 3.4)."""

import os

import torch

from kpage import _library
from kpage._library import ops


class Plan:
    """A layout compiled to page walks. It depends on the layout only, never on q, k or v, and serves
    any number of `kpage.attention` calls, forward and backward. It keeps its own copy of what it
    needs. Made by `kpage.plan`."""

    def __init__(self, forward, shape, backward=None):
        self._forward = forward  # uint8 [bytes]
        self._shape = shape  # see _library.shape_of_tensors
        self._backward = backward  # uint8 [bytes]; None: built by the first backward pass

    @classmethod
    def load(cls, path):
        """The plan that `save` wrote to `path`, on the CPU. Every invariant of it is checked;
        RuntimeError where the file cannot be read or holds no valid plan."""
        with _library.outside_inference_mode():
            forward, backward, shape = ops.plan_load(_path(path))
        return cls(forward, tuple(shape), backward if backward.numel() > 0 else None)

    @property
    def batch(self):
        return self._shape[0]

    @property
    def heads(self):
        """Query heads."""
        return self._shape[1]

    @property
    def q_blocks(self):
        """Query blocks of a head."""
        return self._shape[2]

    @property
    def kv_blocks(self):
        """Key/value blocks of a head."""
        return self._shape[3]

    @property
    def max_list(self):
        """Kmax: the longest list that the plan has room for."""
        return self._shape[4]

    @property
    def device(self):
        return self._forward.device

    @property
    def has_backward(self):
        return self._backward_part() is not None

    @property
    def nbytes(self):
        """Bytes of memory that the plan holds, its backward part included where it is built."""
        backward = self._backward_part()
        return self._forward.numel() + (0 if backward is None else backward.numel())

    def build_backward(self):
        """Compiles the backward part now (paper 3.3), and not in the first backward pass. A function
        under `torch.compile` that is given the plan then uses it, and does not build its own.
        Returns the plan."""
        if self._backward is None:
            cached = _library.cached_backward_part(self._forward)
            self._backward = (
                _library.compile_backward(self._forward, self._shape) if cached is None else cached
            )
        return self

    def update_(self, *tensors, **named_tensors):
        """Recompiles the plan in place from new tensors of the same shapes, with the arguments of
        `kpage.plan`. The backward part follows: at once where it was built ahead, else in the next
        backward pass. A backward pass of an earlier forward pass is an error afterwards, as for
        any tensor changed in place; but `torch.utils.checkpoint` runs the forward pass again with
        the plan as it is then, without an error: make a new plan there, or update it after the
        backward pass. Where an error is raised, the plan is as it was. Returns the plan."""
        made = plan(*tensors, **named_tensors)
        if made._shape != self._shape:
            raise ValueError(
                f"plan.update_: expected tensors that make a plan of shape {list(self._shape)} "
                "(batch, heads, query blocks, key/value blocks, Kmax, dimensions of the sizes - 1), "
                f"got {list(made._shape)}"
            )
        with _library.outside_inference_mode():
            if self._backward is None:
                self._forward.copy_(made._forward)
            else:
                backward = _library.compile_backward(made._forward, self._shape)
                self._forward.copy_(made._forward)
                self._backward.copy_(backward)
        return self

    def to(self, device):
        """The same plan on another device; itself where it is there already."""
        if self._forward.device == torch.device(device):
            return self
        backward = self._backward_part()
        with _library.outside_inference_mode():
            return Plan(
                self._forward.to(device),
                self._shape,
                None if backward is None else backward.to(device),
            )

    def check(self):
        """Raises ValueError for a plan made of bad tensors: argument, position, what was expected and
        what came. Waits for the device, and reads the header of the plan alone. A plan on the CPU
        was checked when it was made. Returns the plan."""
        ops.plan_check(self._forward, self._shape)
        return self

    def stats(self):
        """Figures over all batch elements and heads, a dict of ints, and `efficiency` (paper 4.4).

        `useful_pairs`: valid query-key row pairs. `whole_block_pairs`: 128 x 128 for each pair of
        non-empty blocks. `paged_pairs`, `routed_pairs`: pairs in the pages of all walks with 128
        query rows for each block, and with 64 where a block takes the Q64 route; with `_tail`,
        walks count as rounded up to whole tiles. `efficiency`: useful / routed. Tiles and longest
        walks (in tiles) by route; the figures of owners and backward are zero until the backward
        part is built. Waits for the device, and raises ValueError for a plan made of bad tensors.
        """
        backward = self._backward_part()
        values = ops.plan_figures(self._forward, backward, self._shape)
        figures = dict(zip(ops.plan_figure_names(), values, strict=True))
        routed = figures["routed_pairs"]
        figures["efficiency"] = figures["useful_pairs"] / routed if routed else 1.0
        return figures

    def dump(self, batch_head=None):
        """The plan as readable text: extents, walks with their tiles and masks, queues, owners.
        `batch_head`: only this one, numbered batch * heads + head."""
        numbers = range(self.batch * self.heads)
        if batch_head is not None and batch_head not in numbers:
            raise ValueError(
                f"batch_head: expected a number from 0 to {len(numbers) - 1}, got {batch_head!r}"
            )
        number = -1 if batch_head is None else batch_head
        return ops.plan_dump(self._forward, self._backward_part(), self._shape, number)

    def save(self, path):
        """Writes the plan to `path`, the backward part too where it is built."""
        ops.plan_save(self._forward, self._backward_part(), self._shape, _path(path))

    def _backward_part(self):
        if self._backward is not None:
            return self._backward
        return _library.cached_backward_part(self._forward)

    def __repr__(self):
        return (
            f"kpage.Plan(batch={self.batch}, heads={self.heads}, q_blocks={self.q_blocks}, "
            f"kv_blocks={self.kv_blocks}, max_list={self.max_list}, device='{self.device}')"
        )


def _path(path):
    name = os.fsdecode(path)
    if "\0" in name:  # a file's name ends there
        raise ValueError(f"path: expected a name without NUL, got {name!r}")
    return name


_OPTIONAL = ("kv_block_sizes", "q_block_offsets", "kv_block_offsets")


def plan(
    q2k_block_index,
    q2k_block_nums,
    q_block_sizes,
    kv_block_sizes=None,
    *,
    q_block_offsets=None,
    kv_block_offsets=None,
):
    """Compiles a block layout to a plan (paper 3.2 to 3.4).

    Each query block attends to the valid rows of the key/value blocks in its list, and to nothing
    else. A block has at most 128 rows; rows in no block, or past a block's valid count, are padding.

    Args:
        q2k_block_index: [B, H, NQ, Kmax], H the query heads. For each query block, ids of key/value
            blocks in any order, without duplicates. Entries past the valid prefix are ignored.
        q2k_block_nums: [B, H, NQ]. Length of the valid prefix of each list, 0 to Kmax.
        q_block_sizes: [NQ], [H, NQ] or [B, H, NQ]. Valid rows of each query block, 0 to 128.
        kv_block_sizes: [NK], [H, NK] or [B, H, NK]. The same of key/value blocks. None: keys and
            values share the queries' partition, offsets included.
        q_block_offsets: like `q_block_sizes`. First row of each query block: any row, as long as no
            two blocks of a head overlap. None: block b starts at row 128 * b. An empty block's
            offset is ignored.
        kv_block_offsets: like `kv_block_sizes`.

    All are int32, or int64 where no value that counts is lost, and on one device, which the plan
    will be on. The caller may overwrite them once this returns (on CUDA: in stream order).

    Raises:
        ValueError: names the argument and the position, what was expected and what came.
        TypeError: an argument is no tensor.
    """
    tensors = {
        "q2k_block_index": q2k_block_index,
        "q2k_block_nums": q2k_block_nums,
        "q_block_sizes": q_block_sizes,
        "kv_block_sizes": kv_block_sizes,
        "q_block_offsets": q_block_offsets,
        "kv_block_offsets": kv_block_offsets,
    }
    given = {name: t for name, t in tensors.items() if t is not None or name not in _OPTIONAL}
    _library.check_dense(given)
    with _library.outside_inference_mode():
        forward = ops.plan_forward(*(_for_op(t) for t in tensors.values()))
    made = Plan(
        forward, _library.shape_of_tensors(q2k_block_index, q_block_sizes, kv_block_sizes)
    )
    if _eager_checks and _may_wait(forward):
        made.check()
    return made


_eager_checks = False


def check_plans_eagerly(on=True):
    """Whether `kpage.plan` and `plan.update_` on CUDA tensors wait for the device and raise for bad
    values at once, for debugging. Off at the start: a bad value is then dropped from the plan, and
    `plan.check()`, `stats()`, `dump()` or `save()` raise for it. Nothing can wait while a CUDA graph
    is captured or `torch.compile` traces: no check is made then. Returns what held before."""
    global _eager_checks
    before, _eager_checks = _eager_checks, bool(on)
    return before


def _may_wait(tensor):
    return (
        tensor.is_cuda
        and not torch.compiler.is_compiling()
        and not torch.cuda.is_current_stream_capturing()
    )


def _for_op(tensor):
    """int32 on CUDA. On the CPU the op narrows, and reports values as they are."""
    if tensor is None or not tensor.is_cuda or tensor.dtype != torch.int64:
        return tensor
    return narrowed(tensor)


def narrowed(tensor):
    """int32: values that it cannot hold become its extremes, which no argument of a plan may have."""
    if tensor.dtype == torch.int32:
        return tensor
    limits = torch.iinfo(torch.int32)
    return tensor.clamp(limits.min, limits.max).to(torch.int32)
