"""Measures cases: KPage and dense attention together, then KPage and its peers together."""

import gc
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import kpage
from kpage.bench import peers as peer_list
from kpage.bench.cases import Case
from kpage.bench.reference import Reference
from kpage.bench.results import FLOPS, Results
from kpage.bench.timing import device_state, measure, timer_of

DETERMINISTIC_ON = ("full-512", "padded-5s", "vsa-444-480p", "tiny")


def gradients(attend, tensors, d_o):
    return torch.autograd.grad(attend(), tensors, d_o)


class Dense:
    """R_dense: dense attention through torch, by cuDNN on a GPU. B1 H8 S32768 D128."""

    def __init__(self, device, rows=32768, heads=8, head_dim=128):
        if device.type == "cpu":
            rows = 256
        shape = (1, heads, rows, head_dim)
        self.backend = SDPBackend.CUDNN_ATTENTION if device.type == "cuda" else SDPBackend.MATH
        self.flops = heads * rows * rows * head_dim
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


class Bench:
    def __init__(self, path, device, seconds, rounds):
        self.device = torch.device(device)
        self.timer = timer_of(self.device)
        self.rounds = rounds
        self.end = time.monotonic() + seconds
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else "CPU"
        self.results = Results(path, name, {})
        self.results.data["torch"] = torch.__version__

    def left(self):
        return self.end - time.monotonic()

    def guarded(self, where, function):
        """None where it fails; the failure is recorded. A broken device ends the run."""
        try:
            return function()
        except Exception as error:  # noqa: BLE001
            self.results.fail(where, error)
            self._clean()
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            return None

    def _clean(self):
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    # --- KPage beside dense attention ------------------------------------------------------------

    def own(self, names):
        dense = Dense(self.device)
        for name in names:
            if self.left() < 5:
                self.results.fail(name, TimeoutError("not reached within --seconds"))
                continue
            self.guarded(name, lambda name=name: self._own_case(name, dense))
            self._clean()

    def _own_case(self, name, dense):
        case = Case(name, self.device)
        plan = kpage.plan(**case.layout)
        common = {
            "layout": name,
            "kernel": "kpage",
            "exact": True,
            "useful_pairs": case.useful_pairs,
            "head_dim": case.head_dim,
            "heads": case.heads,
        }
        stats = plan.stats()
        if stats["useful_pairs"] != case.useful_pairs:
            raise AssertionError(f"plan has {stats['useful_pairs']} useful pairs")
        reference = Reference(case)
        tensors = (case.q, case.k, case.v)

        def forward():
            with torch.no_grad():
                return kpage.attention(*tensors, plan)

        with torch.no_grad():
            errors = reference.forward_errors(*kpage.attention(*tensors, plan, return_lse=True))
        times = measure(
            {"kpage": forward, "dense": dense.forward}, self.timer, self.rounds
        )
        self._dense("forward", dense, times["dense"])
        self.results.add(
            **{**common, "pass": "forward"},
            **times["kpage"].fields(),
            **errors,
            executed_pairs=stats["routed_tail_pairs"],
            dense_tflops=dense.tflops("forward", times["dense"].sustained),
            **device_state(),
        )
        backward = self.guarded(
            f"{name} backward", lambda: self._backward(case, plan, common, reference, dense)
        )
        self.guarded(
            f"{name} plan",
            lambda: self._plan(case, plan, common, times["kpage"].sustained, backward),
        )

    def _backward(self, case, plan, common, reference, dense):
        plan.build_backward()
        tensors = (case.q, case.k, case.v)

        def both():
            return gradients(lambda: kpage.attention(*tensors, plan), tensors, case.d_o)

        both()
        errors = {}
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        computed = both()
        if self.device.type == "cuda":
            errors["peak_bytes"] = torch.cuda.max_memory_allocated() - before
        found = reference.gradient_errors(*computed)
        del computed
        errors["error"] = max(found.values())
        errors.update(found)
        stats = plan.stats()
        attended = kpage.attention(*tensors, plan)

        def backward():
            return torch.autograd.grad(attended, tensors, case.d_o, retain_graph=True)

        times = measure(
            {"both": both, "dense": dense.forward_backward, "backward": backward},
            self.timer,
            self.rounds,
        )
        self._dense("forward+backward", dense, times["dense"])
        self.results.add(
            **{**common, "pass": "forward+backward"},
            **times["both"].fields(),
            **errors,
            executed_pairs=stats["backward_tail_pairs"],
            dense_tflops=dense.tflops("forward+backward", times["dense"].sustained),
        )
        self.results.add(
            **{**common, "pass": "backward"},
            **times["backward"].fields(),
            error=errors["error"],
            executed_pairs=stats["backward_tail_pairs"],
        )
        if common["layout"] in DETERMINISTIC_ON:
            self.guarded(
                f"{common['layout']} deterministic",
                lambda: self._deterministic(case, plan, common, reference, both),
            )
        return times["backward"].sustained

    def _deterministic(self, case, plan, common, reference, default):
        tensors = (case.q, case.k, case.v)

        def both():
            return gradients(
                lambda: kpage.attention(*tensors, plan, deterministic=True), tensors, case.d_o
            )

        first, again = both(), both()
        if not all(torch.equal(a, b) for a, b in zip(first, again, strict=True)):
            raise AssertionError("deterministic gradients differ from run to run")
        found = reference.gradient_errors(*first)
        spread = [_difference(a, b) for a, b in zip(default(), default(), strict=True)]
        times = measure({"default": default, "both": both}, self.timer, self.rounds)
        self.results.add(
            **{**common, "pass": "forward+backward", "kernel": "kpage, deterministic"},
            **times["both"].fields(),
            error=max(found.values()),
            cost=times["both"].sustained / times["default"].sustained,
            default_differs_by=max(spread),  # relative l2, from run to run
        )

    def _plan(self, case, plan, common, forward_ms, backward_ms):
        times = measure(
            {
                "forward": lambda: kpage.plan(**case.layout),
                "backward": lambda: kpage._library.ops.plan_backward(plan._forward, plan._shape),
            },
            self.timer,
            self.rounds,
        )
        self.results.add(
            **{**common, "pass": "plan"},
            time_ms=times["forward"].sustained + times["backward"].sustained,
            error=0.0,
            forward_ms=forward_ms,
            plan_forward_ms=times["forward"].sustained,
            backward_ms=backward_ms,
            plan_backward_ms=times["backward"].sustained,
            plan_rested_ms=[times[part].rested for part in ("forward", "backward")],
            plan_bytes=plan.build_backward().nbytes,
            plan_forward_bytes=plan._forward.numel(),
            qkv_bytes=case.qkv_bytes,
        )

    def _dense(self, name, dense, times):
        """The last case's rate stands for the run; each row's fraction uses its own."""
        data = self.results.data
        data["r_dense"][name.replace("+", "_")] = dense.tflops(name, times.sustained)
        data["r_dense_rested"][name.replace("+", "_")] = dense.tflops(name, times.rested)

    # --- KPage beside its peers ------------------------------------------------------------------

    def peers(self, names, kernels):
        found = {}
        for peer in peer_list.PEERS:
            if kernels and not any(word in peer.name for word in kernels):
                self.results.data["peers"][peer.name] = "not asked for in this run"
                continue
            version = self.guarded(f"import {peer.name}", peer.load)
            absence = next(
                (
                    f["error"]
                    for f in self.results.data["failures"]
                    if f["where"] == f"import {peer.name}"
                ),
                "absent",
            )
            self.results.data["peers"][peer.name] = version or f"absent: {absence}"
            if version:
                found[peer.name] = peer
        self.results.data["peers"].update(peer_list.ABSENT)
        for name in names:
            if self.left() < 10:
                self.results.fail(f"{name}, peers", TimeoutError("not reached within --seconds"))
                continue
            self.guarded(f"{name}, peers", lambda name=name: self._peers_case(name, found))
            self._clean()

    def _peers_case(self, name, peers):
        case = Case(name, self.device)
        problem = peer_list.Problem(case)
        plan = kpage.plan(**case.layout).build_backward()
        tensors = (case.q, case.k, case.v)

        def forward():
            with torch.no_grad():
                return kpage.attention(*tensors, plan)

        functions = {
            "forward": {"kpage": forward},
            "forward+backward": {
                "kpage": lambda: gradients(
                    lambda: kpage.attention(*tensors, plan), tensors, case.d_o
                )
            },
        }
        expected = problem.valid_rows(forward())
        both = functions["forward+backward"]["kpage"]
        expected_gradients = [problem.valid_rows(x) for x in both()]
        errors = {"forward": {}, "forward+backward": {}}
        for peer in peers.values():
            for label, build in peer.configurations(problem):
                if self.left() < 10:
                    break

                def prepare(build=build, label=label):
                    run = build()
                    errors["forward"][label] = _difference(run.output(), expected)
                    functions["forward"][label] = run.forward
                    if run.forward_backward is not None:
                        errors["forward+backward"][label] = max(
                            map(_difference, run.gradients(), expected_gradients)
                        )
                        functions["forward+backward"][label] = run.forward_backward

                self.guarded(f"{name}, {label}", prepare)
        for step, kernels in functions.items():
            times = self.guarded(
                f"{name}, {step}, peers",
                lambda kernels=kernels: measure(kernels, self.timer, self.rounds),
            )
            for label in (label for label in kernels if times and label != "kpage"):
                self.results.add(
                    layout=name,
                    kernel=label,
                    exact=errors[step][label] < 1e-2,
                    useful_pairs=case.useful_pairs,
                    head_dim=case.head_dim,
                    heads=case.heads,
                    **{"pass": step},
                    **times[label].fields(),
                    error=errors[step][label],
                    error_against="kpage, all valid rows",
                    kpage_ms=times["kpage"].sustained,
                    kpage_rested_ms=times["kpage"].rested,
                )


def _difference(got, expected):
    got, expected = got.float(), expected.float()
    return float((got - expected).norm() / expected.norm())
