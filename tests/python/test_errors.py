"""Every malformed input gives an error of its own that names the argument, what was expected and
what came."""

import math
import os

import kpage
import numpy as np
import pytest
import torch

BATCH, HEADS, NQ, NK, KMAX = 2, 4, 3, 5, 4


def layout():
    """Independent partitions at offsets of their own, as arguments by name."""
    index = torch.arange(KMAX, dtype=torch.int32).expand(BATCH, HEADS, NQ, KMAX).clone()
    return {
        "q2k_block_index": index,
        "q2k_block_nums": torch.full((BATCH, HEADS, NQ), 2, dtype=torch.int32),
        "q_block_sizes": torch.tensor([128, 100, 30], dtype=torch.int32),
        "kv_block_sizes": torch.tensor([128, 0, 128, 128, 64], dtype=torch.int32),
        "q_block_offsets": torch.tensor([0, 128, 228], dtype=torch.int32),
        "kv_block_offsets": torch.tensor([0, 0, 128, 256, 384], dtype=torch.int32),
    }


def replaced(name, make):
    def spoil(arguments):
        arguments[name] = make(arguments[name])

    return spoil


def with_value(name, position, value):
    def spoil(arguments):
        arguments[name][position] = value

    return spoil


def without(*names):
    def spoil(arguments):
        for name in names:
            arguments[name] = None

    return spoil


PLAN_ERRORS = {
    "index of three dimensions": (
        replaced("q2k_block_index", lambda t: t[0]),
        "q2k_block_index: expected shape [B, H, NQ, Kmax], got [4, 3, 4]",
    ),
    "index of floats": (
        replaced("q2k_block_index", lambda t: t.float()),
        "q2k_block_index: expected int32 or int64, got Float",
    ),
    "no head": (
        replaced("q2k_block_index", lambda t: t[:, :0]),
        "q2k_block_index: expected at least one batch element and head, got [2, 0, 3, 4]",
    ),
    "index on another device": (
        replaced("q2k_block_index", lambda t: t.to("meta")),
        "q2k_block_nums: expected a tensor on meta as q2k_block_index, got cpu",
    ),
    "sizes on another device": (
        replaced("kv_block_sizes", lambda t: t.to("meta")),
        "kv_block_sizes: expected a tensor on cpu as q2k_block_index, got meta",
    ),
    "sparse index": (
        replaced("q2k_block_index", lambda t: t.to_sparse()),
        "q2k_block_index: expected a dense tensor, got torch.sparse_coo",
    ),
    "counts of int16": (
        replaced("q2k_block_nums", lambda t: t.short()),
        "q2k_block_nums: expected int32 or int64, got Short",
    ),
    "sizes of uint8": (
        replaced("q_block_sizes", lambda t: t.to(torch.uint8)),
        "q_block_sizes: expected int32 or int64, got Byte",
    ),
    "offsets of floats": (
        replaced("kv_block_offsets", lambda t: t.double()),
        "kv_block_offsets: expected int32 or int64, got Double",
    ),
    "counts of another shape": (
        replaced("q2k_block_nums", lambda t: t[:, :2]),
        "q2k_block_nums: expected shape [2, 4, 3], got [2, 2, 3]",
    ),
    "query sizes of another length": (
        replaced("q_block_sizes", lambda t: t[:2]),
        "q_block_sizes: expected 3 blocks as in q2k_block_index, got [2]",
    ),
    "leading 1 is not broadcast": (
        replaced("q_block_sizes", lambda t: t[None]),
        "q_block_sizes: expected shape [N], [4, N] or [2, 4, N], got [1, 3]",
    ),
    "sizes of key/value heads": (
        replaced("kv_block_sizes", lambda t: t.expand(2, 5)),
        "kv_block_sizes: expected shape [N], [4, N] or [2, 4, N], got [2, 5]",
    ),
    "query offsets of another shape": (
        replaced("q_block_offsets", lambda t: t.expand(4, 3)),
        "q_block_offsets: expected shape [3], got [4, 3]",
    ),
    "key/value offsets of another shape": (
        replaced("kv_block_offsets", lambda t: t[:4]),
        "kv_block_offsets: expected shape [5], got [4]",
    ),
    "key/value offsets without sizes": (
        without("kv_block_sizes"),
        "kv_block_offsets: expected kv_block_sizes to go with them, got kv_block_sizes=None",
    ),
    "id past the blocks": (
        with_value("q2k_block_index", (1, 3, 2, 1), 5),
        "q2k_block_index[1, 3, 2, 1]: expected an id in [0, 5), got 5",
    ),
    "negative id": (
        with_value("q2k_block_index", (0, 0, 0, 0), -1),
        "q2k_block_index[0, 0, 0, 0]: expected an id in [0, 5), got -1",
    ),
    "duplicate id": (
        with_value("q2k_block_index", (0, 1, 2, 1), 0),
        "q2k_block_index[0, 1, 2, 1]: expected",
    ),
    "count past Kmax": (
        with_value("q2k_block_nums", (0, 2, 1), 5),
        "q2k_block_nums[0, 2, 1]: expected",
    ),
    "negative count": (
        with_value("q2k_block_nums", (1, 0, 0), -2),
        "q2k_block_nums[1, 0, 0]: expected",
    ),
    "size past 128": (
        with_value("q_block_sizes", 1, 129),
        "q_block_sizes[1]: expected",
    ),
    "negative size": (
        with_value("kv_block_sizes", 4, -1),
        "kv_block_sizes[4]: expected",
    ),
    "negative offset": (
        with_value("q_block_offsets", 0, -16),
        "q_block_offsets[0]: expected",
    ),
    "offset past the largest row": (
        with_value("kv_block_offsets", 4, 2**31 - 1),
        "kv_block_offsets[4]: expected",
    ),
    "overlapping query blocks": (
        with_value("q_block_offsets", 2, 200),
        "q_block_offsets[2]: expected",
    ),
    "overlapping key/value blocks": (
        with_value("kv_block_offsets", 3, 200),
        "kv_block_offsets[3]: expected",
    ),
    "int64 id that int32 cannot hold": (
        replaced("q2k_block_index", lambda t: t.long() + (1 << 32)),
        "q2k_block_index, element 0: expected values of 32 bits, got 4294967296",
    ),
    "int64 size that int32 cannot hold": (
        replaced("q_block_sizes", lambda t: t.long() - (1 << 40)),
        "q_block_sizes, element 0: expected values of 32 bits, got -1099511627648",
    ),
}


@pytest.mark.parametrize("case", PLAN_ERRORS)
def test_plan(case):
    spoil, message = PLAN_ERRORS[case]
    arguments = layout()
    spoil(arguments)
    with pytest.raises(ValueError) as error:
        kpage.plan(**arguments)
    assert str(error.value).startswith(message)


def test_the_layout_that_the_cases_spoil_is_correct():
    kpage.plan(**layout())


@pytest.mark.parametrize("value", [[[[1]]], None, np.ones(3, dtype=np.int32)])
@pytest.mark.parametrize("name", ["q2k_block_index", "q2k_block_nums", "q_block_sizes"])
def test_not_a_tensor(name, value):
    message = f"{name}: expected a tensor, got {type(value).__name__}"
    with pytest.raises(TypeError, match=message):
        kpage.plan(**(layout() | {name: value}))


def test_lists_that_only_strides_of_zero_hold():
    index = torch.zeros(1, dtype=torch.int64).expand(1, 1, 1 << 20, 1 << 20)
    sizes = torch.zeros(1, dtype=torch.int32).expand(1 << 20)
    with pytest.raises(ValueError, match="plan: expected .* and 2\\^32 - 2 places in lists, got"):
        kpage.plan(index, sizes.expand(1, 1, 1 << 20), sizes)


def test_outputs_that_memory_does_not_hold():
    plan = kpage.plan(**layout())
    q = torch.zeros(1, dtype=torch.bfloat16).expand(BATCH, HEADS, 1 << 30, HEAD_DIM)
    row = torch.zeros(HEAD_DIM, dtype=torch.bfloat16).expand(BATCH, HEADS, 1 << 30, HEAD_DIM)
    with pytest.raises(ValueError, match="q: expected stride 1 in the last dimension, got 0"):
        kpage.attention(q[:, :, :ROWS_Q], row, row, plan)
    with pytest.raises(RuntimeError, match="cannot allocate .* of BFloat16 on cpu"):
        kpage.attention(row, row, row, plan)


ROWS_Q, ROWS_KV, HEAD_DIM = 260, 450, 64


def run():
    return {
        "q": torch.randn(BATCH, HEADS, ROWS_Q, HEAD_DIM).to(torch.bfloat16),
        "k": torch.randn(BATCH, 2, ROWS_KV, HEAD_DIM).to(torch.bfloat16),
        "v": torch.randn(BATCH, 2, ROWS_KV, HEAD_DIM).to(torch.bfloat16),
        "plan": kpage.plan(**layout()),
    }


def set_to(**changes):
    def spoil(arguments):
        arguments.update(changes)

    return spoil


def on_all(change):
    def spoil(arguments):
        for name in "qkv":
            arguments[name] = change(arguments[name])

    return spoil


CONVERT = "expected bfloat16 or float16 (attention multiplies in 16 bits: convert first), got"
ATTENTION_ERRORS = {
    "q in fp32": (replaced("q", lambda t: t.float()), f"q: {CONVERT} float32"),
    "k in fp32": (replaced("k", lambda t: t.float()), f"k: {CONVERT} float32"),
    "v in fp64": (replaced("v", lambda t: t.double()), f"v: {CONVERT} float64"),
    "q of integers": (replaced("q", lambda t: t.int()), "q: expected bfloat16 or float16, got Int"),
    "mixed dtypes": (replaced("v", lambda t: t.half()), "v: expected bfloat16 as q, got float16"),
    "q of three dimensions": (
        replaced("q", lambda t: t[0]),
        "q: expected a tensor of 4 dimensions, got 3",
    ),
    "k of five dimensions": (
        replaced("k", lambda t: t[None]),
        "k: expected a tensor of 4 dimensions, got 5",
    ),
    "batch of another plan": (on_all(lambda t: t[:1]), "q: expected batch 2 as in the plan, got 1"),
    "heads of another plan": (
        replaced("q", lambda t: t[:, :2]),
        "q: expected 4 heads as in the plan, got 2",
    ),
    "batch of k": (
        replaced("k", lambda t: t[:1]),
        "k: expected batch 2 and head dimension 64 as in q, got [1, 2, 450, 64]",
    ),
    "head dimension of k": (
        replaced("k", lambda t: t[..., :32]),
        "k: expected batch 2 and head dimension 64 as in q, got [2, 2, 450, 32]",
    ),
    "heads of k": (
        replaced("k", lambda t: t.repeat(1, 2, 1, 1)[:, :3]),
        "k: expected a number of heads that divides the 4 of q, got 3",
    ),
    "v unlike k": (
        replaced("v", lambda t: t[:, :, :449]),
        "v: expected shape [2, 2, 450, 64], got [2, 2, 449, 64]",
    ),
    "too few query rows": (
        replaced("q", lambda t: t[:, :, :257]),
        "q: expected at least 258 rows, the end of the plan's last block, got 257",
    ),
    "too few key rows": (
        set_to(
            k=torch.zeros(BATCH, 2, 400, HEAD_DIM, dtype=torch.bfloat16),
            v=torch.zeros(BATCH, 2, 400, HEAD_DIM, dtype=torch.bfloat16),
        ),
        "k: expected at least 448 rows, the end of the plan's last block, got 400",
    ),
    "heads and rows swapped": (
        set_to(layout="bshd"),
        "q: expected 4 heads as in the plan, got 260",
    ),
    "last stride of q": (
        replaced("q", lambda t: t.mT.contiguous().mT),
        "q: expected stride 1 in the last dimension, got 260",
    ),
    "last stride of v": (
        replaced("v", lambda t: t.repeat_interleave(2, -1)[..., ::2]),
        "v: expected stride 1 in the last dimension, got 2",
    ),
    "scale not a number": (set_to(scale=math.nan), "scale: expected a finite number, got nan"),
    "scale past fp32": (
        set_to(scale=1e300),
        "scale: expected a number that is finite in fp32, also times log2(e), got 1e+300",
    ),
    "scale infinite": (set_to(scale=math.inf), "scale: expected a finite number, got inf"),
    "scale past fp32 with the factor of the base 2": (
        set_to(scale=3e38),
        "scale: expected a number that is finite in fp32, also times log2(e), got 3e+38",
    ),
    "k on another device": (
        replaced("k", lambda t: t.to("meta")),
        "k: expected a tensor on cpu as q, got meta",
    ),
    "plan on another device": (
        on_all(lambda t: t.to("meta")),
        "plan: expected a plan on meta as q, got cpu",
    ),
    "sparse q": (
        replaced("q", lambda t: t.to_sparse()),
        "q: expected a dense tensor, got torch.sparse_coo",
    ),
    "unknown layout": (set_to(layout="sbhd"), "layout: expected one of bhsd, bshd, got 'sbhd'"),
}


@pytest.mark.parametrize("case", ATTENTION_ERRORS)
def test_attention(case):
    spoil, message = ATTENTION_ERRORS[case]
    arguments = run()
    spoil(arguments)
    with pytest.raises(ValueError) as error:
        kpage.attention(**arguments)
    assert str(error.value).startswith(message)


def test_the_run_that_the_cases_spoil_is_correct():
    kpage.attention(**run())


def test_head_dim_that_no_backend_has():
    arguments = run()
    on_all(lambda t: t[..., :60])(arguments)
    with pytest.raises(RuntimeError, match="no backend runs bfloat16, head dimension 60 on cpu"):
        kpage.attention(**arguments)


def test_plan_of_another_type():
    arguments = run() | {"plan": layout()}
    with pytest.raises(TypeError, match="plan: expected a kpage.Plan, got dict"):
        kpage.attention(**arguments)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_tensor_of_another_type(name):
    with pytest.raises(TypeError, match=f"{name}: expected a tensor, got NoneType"):
        kpage.attention(**(run() | {name: None}))


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_forward_mode_is_an_error(name):
    arguments = run()
    tensor = arguments.pop(name)
    with pytest.raises(RuntimeError, match=f"{name}: kpage.attention has no forward-mode"):
        torch.func.jvp(lambda t: kpage.attention(**arguments, **{name: t}), (tensor,), (tensor,))


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_gradients_of_torch_func_are_an_error(name):
    arguments = run()
    tensor = arguments.pop(name)
    with pytest.raises(RuntimeError, match=f"{name}: kpage.attention is differentiated by"):
        torch.func.grad(lambda t: kpage.attention(**arguments, **{name: t}).sum())(tensor)


@pytest.mark.parametrize("value", ["0.1", 1j, torch.tensor(0.1)])
def test_scale_of_another_type(value):
    with pytest.raises(TypeError, match=f"scale: expected a number, got {type(value).__name__}"):
        kpage.attention(**run(), scale=value)


@pytest.mark.parametrize("name", ["return_lse", "deterministic"])
def test_switch_of_another_type(name):
    with pytest.raises(TypeError, match=f"{name}: expected True or False, got 'yes'"):
        kpage.attention(**run(), **{name: "yes"})


def test_path_of_another_type():
    with pytest.raises(TypeError, match="NoneType"):
        kpage.plan(**layout()).save(None)
    with pytest.raises(TypeError, match="NoneType"):
        kpage.Plan.load(None)


def test_path_with_a_nul(tmp_path):
    path = tmp_path / "victim"
    path.write_text("kept")
    for name in (f"{path}\0.plan", os.fsencode(f"{path}\0.plan")):
        with pytest.raises(ValueError, match="path: expected a name without NUL, got "):
            kpage.plan(**layout()).save(name)
        with pytest.raises(ValueError, match="path: expected a name without NUL, got "):
            kpage.Plan.load(name)
    assert path.read_text() == "kept"


def test_file_that_is_not_there(tmp_path):
    with pytest.raises(RuntimeError, match="nothing.kpage"):
        kpage.Plan.load(tmp_path / "nothing.kpage")


def test_file_that_is_no_plan(tmp_path):
    path = tmp_path / "text.kpage"
    path.write_text("no plan")
    with pytest.raises((RuntimeError, ValueError), match="text.kpage"):
        kpage.Plan.load(path)


def test_file_cut_short(tmp_path):
    path = tmp_path / "plan.kpage"
    kpage.plan(**layout()).save(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises((RuntimeError, ValueError), match="plan.kpage"):
        kpage.Plan.load(path)


def test_folder_that_is_not_there(tmp_path):
    with pytest.raises(RuntimeError, match="plan.kpage"):
        kpage.plan(**layout()).save(tmp_path / "nowhere" / "plan.kpage")
    assert not any(tmp_path.iterdir())


def test_pipe_is_not_replaced_by_a_file(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(RuntimeError, match="pipe: expected a regular file, got a device or pipe"):
        kpage.plan(**layout()).save(path)
    assert path.is_fifo()


def test_spoiled_blob():
    plan = kpage.plan(**layout())
    plan._forward[0] += 1
    with pytest.raises(ValueError, match="plan: expected a blob of plan format"):
        kpage.attention(**(run() | {"plan": plan}))
    with pytest.raises(ValueError, match="plan: expected a blob of plan format"):
        plan.build_backward()


def test_blob_of_another_size():
    arguments = run()
    plan = arguments["plan"]
    plan._forward = plan._forward[:-1]
    with pytest.raises(ValueError, match="plan: expected a contiguous uint8 tensor of"):
        kpage.attention(**arguments)
