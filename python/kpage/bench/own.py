"""KPage beside dense attention: times, errors, memory, and the plans' share."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import kpage
from kpage.bench.cases import Case
from kpage.bench.reference import Reference
from kpage.bench.results import FLOPS
from kpage.bench.timing import captured, device_state, host_ms


def gradients(attend, tensors, d_o):
    return torch.autograd.grad(attend(), tensors, d_o)


class Dense:
    """Dense attention through torch, by cuDNN on a GPU. R_dense: B1 H8 S32768 D128; on a CPU, which
    only tries the benchmark, S256."""

    def __init__(self, device, rows=32768, heads=8, head_dim=128):
        on_gpu = device.type == "cuda"
        rows = rows if on_gpu else min(rows, 256)
        shape = (1, heads, rows, head_dim)
        self.name = "cuDNN dense" if on_gpu else "torch math dense"
        self.backend = SDPBackend.CUDNN_ATTENTION if on_gpu else SDPBackend.MATH
        self.rows = rows
        self.pairs = heads * rows * rows
        self.flops = self.pairs * head_dim
        self.tensors = [
            torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3)
        ]
        self.d_o = torch.randn(shape, device=device, dtype=torch.bfloat16)

    def forward(self):
        with torch.no_grad(), sdpa_kernel(self.backend):
            return F.scaled_dot_product_attention(*self.tensors)

    def forward_backward(self):
        with sdpa_kernel(self.backend):
            return gradients(
                lambda: F.scaled_dot_product_attention(*self.tensors), self.tensors, self.d_o
            )

    def tflops(self, name, ms):
        return FLOPS[name] * self.flops / ms / 1e9


class Planned:
    """A case with its plan, and both passes as functions to time."""

    def __init__(self, case, deterministic=False):
        self.case = case
        self.plan = kpage.plan(**case.layout)
        self.deterministic = deterministic

    def forward(self):
        with torch.no_grad():
            return kpage.attention(*self.case.tensors, self.plan)

    def forward_backward(self):
        return gradients(
            lambda: kpage.attention(
                *self.case.tensors, self.plan, deterministic=self.deterministic
            ),
            self.case.tensors,
            self.case.d_o,
        )


def peak_bytes(function, device):
    """What a call allocates at most, beyond what is there; 0 on a CPU."""
    function()
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = function()
    peak = torch.cuda.max_memory_allocated() - before
    del kept
    return peak


def measure_own(bench, name):
    """Forward, forward+backward, backward alone and plans."""
    planned, reference, forward_ms = _forward(bench, name)
    backward_ms = bench.guarded(
        f"{name} backward", lambda: _backward(bench, planned, reference, alone=True)
    )
    bench.guarded(f"{name} plan", lambda: _plan(bench, planned, forward_ms, backward_ms))


def measure_sweep(bench, name):
    """Forward and forward+backward."""
    planned, reference, _ = _forward(bench, name)
    bench.guarded(f"{name} backward", lambda: _backward(bench, planned, reference, alone=False))


def _forward(bench, name):
    case = Case(name, bench.device)
    planned = Planned(case)
    stats = planned.plan.stats()
    if stats["useful_pairs"] != case.useful_pairs:
        raise AssertionError(f"plan has {stats['useful_pairs']} useful pairs")
    reference = Reference(case)
    with torch.no_grad():
        attended = kpage.attention(*case.tensors, planned.plan, return_lse=True)
    errors = reference.forward_errors(*attended)
    times = bench.measure({"kpage": planned.forward, "dense": bench.dense.forward})
    bench.dense_rate("forward", times["dense"])
    bench.results.add(
        **case.common,
        kernel="kpage",
        exact=True,
        **{"pass": "forward"},
        **times["kpage"].fields(),
        **errors,
        executed_pairs=stats["routed_tail_pairs"],
        dense_tflops=bench.dense.tflops("forward", times["dense"].sustained),
        **device_state(),
    )
    return planned, reference, times["kpage"].sustained


def _backward(bench, planned, reference, alone):
    case = planned.case
    planned.plan.build_backward()
    errors = {"peak_bytes": peak_bytes(planned.forward_backward, bench.device)}
    found = reference.gradient_errors(*planned.forward_backward())
    errors["error"] = max(found.values())
    errors.update(found)
    functions = {
        "both": planned.forward_backward,
        "dense": bench.dense.forward_backward,
    }
    if alone:
        attended = kpage.attention(*case.tensors, planned.plan)
        functions["backward"] = lambda: torch.autograd.grad(
            attended, case.tensors, case.d_o, retain_graph=True
        )
    times = bench.measure(functions)
    bench.dense_rate("forward+backward", times["dense"])
    executed = planned.plan.stats()["backward_tail_pairs"]
    bench.results.add(
        **case.common,
        kernel="kpage",
        exact=True,
        **{"pass": "forward+backward"},
        **times["both"].fields(),
        **errors,
        executed_pairs=executed,
        dense_tflops=bench.dense.tflops("forward+backward", times["dense"].sustained),
    )
    if not alone:
        return None
    bench.results.add(
        **case.common,
        kernel="kpage",
        exact=True,
        **{"pass": "backward"},
        **times["backward"].fields(),
        error=errors["error"],
        executed_pairs=executed,
    )
    return times["backward"].sustained


def _plan(bench, planned, forward_ms, backward_ms):
    case, plan = planned.case, planned.plan
    ops = kpage._library.ops
    builds = {
        "forward": lambda: kpage.plan(**case.layout),
        "backward": lambda: ops.plan_backward(plan._forward, plan._shape),
    }
    host = sum(host_ms(build, bench.device) for build in builds.values())
    # By the host's time the device would wait for Python between builds, as it does not where a
    # plan's kernels follow attention's.
    times = bench.measure({part: captured(build, bench.device) for part, build in builds.items()})
    bench.results.add(
        **case.common,
        kernel="kpage",
        exact=True,
        **{"pass": "plan"},
        time_ms=times["forward"].sustained + times["backward"].sustained,
        error=0.0,
        forward_ms=forward_ms,
        plan_forward_ms=times["forward"].sustained,
        backward_ms=backward_ms,
        plan_backward_ms=times["backward"].sustained,
        plan_rested_ms=[times[part].rested for part in builds],
        plan_host_ms=host,
        plan_bytes=plan.build_backward().nbytes,
        plan_forward_bytes=plan._forward.numel(),
        qkv_bytes=case.qkv_bytes,
    )
