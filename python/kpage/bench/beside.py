"""KPage beside its peers, on the same inputs, all taking turns."""

import statistics
import time

import torch

import kpage
from kpage.bench import peers as peer_list
from kpage.bench.cases import Case
from kpage.bench.own import Dense, Planned, peak_bytes
from kpage.bench.problem import Problem
from kpage.bench.reference import Reference
from kpage.bench.results import OWN_BESIDE
from kpage.bench.timing import device_state

EXACT_BELOW = 1e-2  # relative l2 from KPage, whose own error is measured against fp64


def difference(got, expected):
    """Relative l2 over rows that are compared in parts, so that little memory is asked for."""
    squares = [
        ((a.float() - b.float()).square().sum().double(), b.float().square().sum().double())
        for a, b in zip(got.split(1 << 18), expected.split(1 << 18), strict=True)
    ]
    return float((sum(s[0] for s in squares) / sum(s[1] for s in squares)).sqrt())


def found_peers(bench):
    """Those that can be imported; the file says of each its version, or why it is absent."""
    said = bench.results.data["peers"]
    found = []
    for peer in peer_list.PEERS:
        if bench.peer_names and not any(
            word in peer.name or peer.name in word for word in bench.peer_names
        ):
            said.setdefault(peer.name, "not asked for in this run")
            continue
        if bench.device.type not in peer.devices:
            said[peer.name] = f"absent: has no kernels for this device ({bench.device.type})"
            continue
        try:
            version = peer.load()
        except Exception as error:  # noqa: BLE001
            said[peer.name] = f"absent: {type(error).__name__}: {str(error).strip()[:160]}"
            continue
        said[peer.name] = version
        found.append(peer)
    said.update(peer_list.ABSENT)
    return found


def measure_peers(bench, name):
    """Forward and forward+backward of KPage and of every configuration of every peer."""
    case = Case(name, bench.device)
    problem = Problem(case)
    planned = Planned(case)
    planned.plan.build_backward()
    steps = {"forward": {}, "forward+backward": {}}
    facts = {}
    expected = problem.valid_rows(planned.forward())
    sides = ("q", "kv", "kv")
    expected_gradients = [
        problem.valid_rows(x, side)
        for x, side in zip(planned.forward_backward(), sides, strict=True)
    ]
    late = []
    for peer in found_peers(bench):
        for label, build in (
            bench.guarded(
                f"{name}, {peer.name}", lambda peer=peer: list(peer.configurations(problem))
            )
            or ()
        ):
            if bench.peer_names and not any(word in label for word in bench.peer_names):
                continue
            if bench.left() < 10:
                late.append(label)
                continue
            bench.guarded(
                f"{name}, {label}",
                lambda build=build, label=label: _prepare(
                    bench, build, label, steps, facts, expected, expected_gradients
                ),
            )
    expected = expected_gradients = None
    errors = _own_errors(planned)
    for step, kernels in steps.items():
        own = planned.forward if step == "forward" else planned.forward_backward
        times = bench.guarded(
            f"{name}, {step}", lambda own=own, k=kernels: bench.measure({"kpage": own, **k})
        )
        if not times:
            continue
        bench.results.add(
            **case.common,
            kernel=OWN_BESIDE,
            exact=True,
            **{"pass": step},
            **times["kpage"].fields(),
            **errors[step],
            beside=sorted(kernels),
            **device_state(),
        )
        for label in kernels:
            error = facts[label]["errors"][step]
            bench.results.add(
                **case.common,
                kernel=label,
                exact=error < EXACT_BELOW,
                **{"pass": step},
                **times[label].fields(),
                error=error,
                error_against="kpage, all valid rows",
                kpage_ms=times["kpage"].sustained,
                kpage_rested_ms=times["kpage"].rested,
                **facts[label]["about"].get(step, {}),
            )
    if late:
        raise TimeoutError(f"not reached within --seconds: {', '.join(late)}")


def _own_errors(planned):
    """Against fp64 on sampled blocks, by pass: so a comparison with KPage is one with the truth."""
    reference = Reference(planned.case)
    with torch.no_grad():
        attended = kpage.attention(*planned.case.tensors, planned.plan, return_lse=True)
    gradients = reference.gradient_errors(*planned.forward_backward())
    return {
        "forward": reference.forward_errors(*attended),
        "forward+backward": {"error": max(gradients.values()), **gradients},
    }


def _prepare(bench, build, label, steps, facts, expected, expected_gradients):
    begin = time.monotonic()
    run = build()
    errors = {"forward": difference(run.output(), expected)}
    about = {"forward": {"first_call_s": time.monotonic() - begin}}
    facts[label] = {"errors": errors, "about": about}
    if run.plan is not None:
        about["forward"]["peer_plan_ms"] = _wall_ms(bench, run.plan)
    steps["forward"][label] = run.forward
    if run.forward_backward is None:
        return
    begin = time.monotonic()
    errors["forward+backward"] = max(map(difference, run.gradients(), expected_gradients))
    about["forward+backward"] = {
        "first_call_s": time.monotonic() - begin,
        "peak_bytes": peak_bytes(run.forward_backward, bench.device),
    }
    steps["forward+backward"][label] = run.forward_backward


def _wall_ms(bench, function, calls=3):
    spans = []
    for _ in range(calls):
        begin = time.perf_counter()
        function()
        if bench.device.type == "cuda":
            torch.cuda.synchronize()
        spans.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(spans)


def measure_dense(bench, name):
    """Dense attention over as many rows as the layout has valid ones, one head at a time: what the
    sparse kernel spares (paper, Figures 5 and 7)."""
    case = Case(name, bench.device)
    rows = int(case.q_sizes[0].sum())
    dense = Dense(bench.device, rows, heads=1)
    kernels = {dense.name: (dense.forward, dense.forward_backward)}
    fa4 = next((p for p in found_peers(bench) if p.name == "FlashAttention-4"), None)
    if fa4 is not None:
        q, k, v, d_o = (
            x.detach().transpose(1, 2).contiguous() for x in (*dense.tensors, dense.d_o)
        )
        kernels[f"{fa4.name} dense"] = (
            lambda: fa4.api.dense_forward(q, k, v),
            lambda: fa4.api.dense_forward_backward(q, k, v, d_o),
        )
    for i, step in enumerate(("forward", "forward+backward")):
        for label, functions in kernels.items():
            ms = bench.guarded(f"{name}, {label}", lambda f=functions[i]: _few_calls(bench, f))
            if ms is None:
                continue
            bench.results.add(
                layout=name,
                kernel=label,
                exact=False,
                useful_pairs=case.heads * dense.pairs,
                head_dim=case.head_dim,
                heads=case.heads,
                **{"pass": f"dense {step}"},
                rows=dense.rows,
                time_ms=case.heads * ms,
                measured_heads=1,
            )


def _few_calls(bench, function):
    """Dense attention over 400,000 rows takes long: the median of three calls, or one of over a
    quarter of a second."""
    calls = 3 if bench.timer.rested(function) < 250.0 else 1
    return statistics.median(bench.timer.rested(function) for _ in range(calls))
