"""Properties that are promised: equal bits, errors at large inputs, energy."""

import itertools
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import kpage
from kpage.bench import workloads
from kpage.bench.cases import Case
from kpage.bench.own import Planned
from kpage.bench.reference import Reference, relative_l2
from kpage.bench.timing import nvml_device

RUNS = 20
SCALES = (1.0, 4.0, 16.0)
BURST_S = 1.0
# Whole heads against fp64: {name: (blocks, list length; None: all)}.
WHOLE_HEADS = {"whole-8k": (96, None), "whole-8k-sparse": (96, 24), "whole-tiny": (6, 3)}


def repeat(bench, name):
    """Whether output and LSE are the same bits in 20 runs, and deterministic gradients too; how far
    the default's gradients are apart; what `deterministic` costs."""
    case = Case(name, bench.device)
    default, deterministic = Planned(case), Planned(case, deterministic=True)

    def attend():
        with torch.no_grad():
            return kpage.attention(*case.tensors, default.plan, return_lse=True)

    first = attend()
    equal = all(_same(first, attend()) for _ in range(RUNS - 1))
    gradients = deterministic.forward_backward()
    equal_gradients = all(
        _same(gradients, deterministic.forward_backward()) for _ in range(RUNS - 1)
    )
    errors = Reference(case).gradient_errors(*gradients)
    runs = [default.forward_backward() for _ in range(4)]
    spread = max(
        relative_l2([a], [b])
        for one, other in itertools.combinations(runs, 2)
        for a, b in zip(one, other, strict=True)
    )
    del runs, gradients
    times = bench.measure(
        {"default": default.forward_backward, "deterministic": deterministic.forward_backward}
    )
    bench.results.add(
        **case.common,
        kernel="kpage, deterministic",
        exact=True,
        **{"pass": "forward+backward"},
        **times["deterministic"].fields(),
        error=max(errors.values()),
        runs=RUNS,
        forward_bits_equal=equal,
        gradient_bits_equal=equal_gradients,
        cost=times["deterministic"].sustained / times["default"].sustained,
        default_differs_by=spread,  # the largest relative l2 between two of four runs
    )
    if not equal or not equal_gradients:
        raise AssertionError("results differ from run to run")


def _same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def accuracy(bench, name):
    """Two whole heads against fp64, with q, k and v scaled; beside torch's flash attention where
    every row sees every row, so that it computes the same (limits: 1.1 times its error
    forward, 1.25 times in gradients)."""
    blocks, keep = WHOLE_HEADS[name]
    sizes = workloads.mixed_sizes(blocks, 0.7, seed=5)
    host = workloads.random_lists(sizes, 2, keep or blocks, 5, bench.device)
    for dtype, scale in itertools.product((torch.bfloat16, torch.float16), SCALES):
        case = Case(name, bench.device, dtype, host=host, input_scale=scale)
        exact = [_whole_head(case, head) for head in range(case.heads)]
        exact = [torch.stack(x)[None] for x in zip(*exact, strict=True)]
        plan = kpage.plan(**case.layout)
        out, lse = kpage.attention(*case.tensors, plan, return_lse=True)
        kernels = {"kpage": (out, lse)}
        if keep is None and bench.device.type == "cuda":
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                kernels["torch flash attention"] = (
                    F.scaled_dot_product_attention(*case.tensors),
                    None,
                )
        found = {}
        for label, (o, row_lse) in kernels.items():
            computed = (o, *torch.autograd.grad(o, case.tensors, case.d_o))
            names = ("error", "d_q_error", "d_k_error", "d_v_error")
            found[label] = {
                key: relative_l2([x], [y])
                for key, x, y in zip(names, computed, exact[:4], strict=True)
            }
            if row_lse is not None:
                off = (row_lse.detach().double() - exact[4]).abs()
                small = exact[4].abs() <= 16
                large = off / exact[4].abs()
                for key, part in (("lse_error", off[small]), ("lse_error_relative", large[~small])):
                    found[label][key] = float(part.max()) if part.numel() else None
        beside = found.get("torch flash attention")
        if beside:
            own = found["kpage"]
            keys = ("d_q_error", "d_k_error", "d_v_error")
            own["of_flash_forward"] = own["error"] / beside["error"]
            own["of_flash_gradients"] = max(own[key] / beside[key] for key in keys)
        for label, errors in found.items():
            bench.results.note(
                **case.common,
                kernel=label,
                exact=True,
                **{"pass": "accuracy"},
                dtype=str(dtype).removeprefix("torch."),
                input_scale=scale,
                rows=case.q.shape[2],
                **errors,
            )


def _whole_head(case, head):
    """O, dQ, dK, dV [S, D] and LSE [S] of a head in fp64; blocks lie end to end."""
    block_of_row = torch.repeat_interleave(torch.arange(case.q_blocks), case.q_sizes[head]).to(
        case.q.device
    )
    graph = torch.zeros(case.q_blocks, case.q_blocks, dtype=torch.bool, device=case.q.device)
    graph.scatter_(1, case.index[head].long().to(case.q.device), True)
    seen = graph[block_of_row][:, block_of_row]
    q, k, v, d_o = (x.detach()[0, head].double() for x in (case.q, case.k, case.v, case.d_o))
    scale = case.head_dim**-0.5
    scores = (scale * q @ k.T).masked_fill(~seen, -torch.inf)
    lse = torch.logsumexp(scores, -1)
    p = torch.exp(scores - lse[:, None])
    o = p @ v
    d_s = p * (d_o @ v.T - (o * d_o).sum(-1, keepdim=True))
    return o, scale * d_s @ k, scale * d_s.T @ q, p.T @ d_o, lse


def energy(bench, name):
    """Joules a call over a sustained second, KPage and dense attention, by the GPU's counter."""
    nvml, gpu = nvml_device()
    case = Case(name, bench.device)
    planned = Planned(case)
    kernels = {
        "forward": {"kpage": planned.forward, bench.dense.name: bench.dense.forward},
        "forward+backward": {
            "kpage": planned.forward_backward,
            bench.dense.name: bench.dense.forward_backward,
        },
    }
    for step, functions in kernels.items():
        for label, function in functions.items():
            function()
            calls = max(2, round(1e3 * BURST_S / bench.timer.rested(function)))
            for _ in range(calls // 3):  # to the sustained clock
                function()
            torch.cuda.synchronize()
            before = nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
            begin = time.perf_counter()
            for _ in range(calls):
                function()
            torch.cuda.synchronize()
            seconds = time.perf_counter() - begin
            joules = (nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) - before) / 1e3
            pairs = case.useful_pairs if label == "kpage" else bench.dense.pairs
            bench.results.add(
                **{**case.common, "useful_pairs": pairs},
                kernel=label,
                exact=label == "kpage",
                **{"pass": f"energy {step}"},
                time_ms=1e3 * seconds / calls,
                joules=joules / calls,
                watts=joules / seconds,
                useful_pairs_per_joule=pairs * calls / joules,
                calls=calls,
            )
