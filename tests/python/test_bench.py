"""The benchmark's own arithmetic on the CPU: cases, their reference, peers' tiles, results."""

import json

import kpage
import pytest
import torch

pytest.importorskip("kpage.bench")
from kpage.bench import peers, results  # noqa: E402
from kpage.bench.cases import ORDER, Case  # noqa: E402
from kpage.bench.reference import Reference  # noqa: E402
from kpage.bench.timing import HostTimer, measure  # noqa: E402


@pytest.fixture(scope="module")
def case():
    return Case("tiny", torch.device("cpu"))


def test_a_case_and_its_reference_agree_with_the_library(case):
    plan = kpage.plan(**case.layout)
    assert plan.stats()["useful_pairs"] == case.useful_pairs
    tensors = (case.q, case.k, case.v)
    out, lse = kpage.attention(*tensors, plan, return_lse=True)
    reference = Reference(case)
    errors = reference.forward_errors(out, lse)
    assert errors["error"] < 2.5e-3 and errors["lse_error"] < 2e-6
    gradients = torch.autograd.grad(out, tensors, case.d_o)
    assert max(reference.gradient_errors(*gradients).values()) < 5e-3
    wrong = [x.roll(1, 2) for x in gradients]
    assert min(reference.gradient_errors(*wrong).values()) > 0.5


def test_every_case_has_a_layout_and_targets():
    assert set(results.TARGETS) == set(ORDER)
    known = set(kpage.layouts.names())
    assert all(name.removesuffix("-40-heads") in known for name in ORDER)


def test_tiles_of_peers_hold_the_valid_rows(case):
    problem = peers.Problem(case)
    expected = problem.valid_rows(case.k)
    assert expected.shape[2] == int(case.kv_sizes[0].sum())
    rows, count = problem.tile_rows()
    assert torch.equal(problem.inputs(rows, count)[1][:, :, rows], expected)
    lists, counts, sizes, rows, count = problem.halves()
    assert torch.equal(problem.inputs(rows, count)[1][:, :, rows], expected)
    pairs = 0
    for head in range(case.heads):
        for half in range(len(sizes)):
            ids = lists[head, half, : int(counts[head, half])].long()
            assert len(set(ids.tolist())) == len(ids)
            pairs += int(sizes[half] * sizes[ids].sum())
    assert pairs == case.useful_pairs
    full, partial = peers.full_and_partial(problem, peers.BLOCK)
    assert torch.equal(full[0] + partial[0], problem.nums)


def test_results_are_written_as_they_come(tmp_path):
    path = tmp_path / "results.json"
    log = results.Results(path, "CPU", {})
    row = {"layout": "full-512", "kernel": "kpage", "useful_pairs": 1 << 32, "head_dim": 128}
    log.add(**row, **{"pass": "forward"}, time_ms=4.0, dense_tflops=600.0)
    written = json.loads(path.read_text())["rows"][0]
    assert written["useful_tflops"] == pytest.approx(4 * 2**32 * 128 / 4e9, rel=1e-3)
    assert written["fraction_of_ideal"] == pytest.approx(written["useful_tflops"] / 600, rel=1e-3)
    log.fail("padded-5s", ValueError("no"))
    data = json.loads(path.read_text())
    assert data["failures"] == [{"where": "padded-5s", "error": "ValueError: no"}]
    assert "| full-512 | 4.00 | 550 | **0.92** | 0.98 / 1.08 |" in results.table([data])


def test_measure_calls_all_by_turns():
    calls = []
    functions = {name: lambda name=name: calls.append(name) for name in "ab"}
    times = measure(functions, HostTimer(), rounds=3)
    assert set(times) == {"a", "b"}
    assert calls.count("a") >= 3 and calls.count("b") >= 3
    low, high = times["a"].sustained_range
    assert low <= times["a"].sustained <= high
