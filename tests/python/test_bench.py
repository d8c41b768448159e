"""The benchmark's own arithmetic on the CPU: cases, their reference, peers' tiles, results."""

import json
import math

import kpage
import pytest
import torch

pytest.importorskip("kpage.bench")
from kpage.bench import beside, experiments, markdown, own, peers, results, suites, workloads
from kpage.bench.cases import ORDER, Case
from kpage.bench.problem import Problem
from kpage.bench.reference import Reference
from kpage.bench.report import page
from kpage.bench.run import Bench
from kpage.bench.summary import Summary
from kpage.bench.timing import HostTimer, measure

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def known_commit(monkeypatch):
    monkeypatch.setenv("KPAGE_COMMIT", "abc1234")


@pytest.fixture(scope="module")
def case():
    return Case("tiny", CPU)


def independent_partitions():
    """Two heads with partitions of their own, for queries and for keys, empty blocks among them."""
    generator = torch.Generator().manual_seed(3)
    q_sizes = torch.tensor([[128, 1, 65, 0, 64], [17, 127, 64, 49, 1]], dtype=torch.int32)
    kv_sizes = torch.tensor([[64, 100, 0, 30, 64, 0, 2], [128, 65, 63, 1, 1, 1, 1]])
    kv_sizes = kv_sizes.to(torch.int32)
    index = torch.rand(1, 2, 5, 7, generator=generator).argsort(-1)[..., :4].to(torch.int32)
    nums = torch.tensor([[[4, 1, 3, 2, 4], [1, 2, 4, 4, 3]]], dtype=torch.int32)

    def offsets(sizes):
        return (sizes.cumsum(1) - sizes).to(torch.int32)

    return {
        "q2k_block_index": index.contiguous(),
        "q2k_block_nums": nums,
        "q_block_sizes": q_sizes,
        "kv_block_sizes": kv_sizes,
        "q_block_offsets": offsets(q_sizes),
        "kv_block_offsets": offsets(kv_sizes),
    }


def test_a_case_and_its_reference_agree_with_the_library(case):
    plan = kpage.plan(**case.layout)
    assert plan.stats()["useful_pairs"] == case.useful_pairs
    out, lse = kpage.attention(*case.tensors, plan, return_lse=True)
    reference = Reference(case)
    errors = reference.forward_errors(out, lse)
    assert errors["error"] < 2.5e-3 and errors["lse_error"] < 2e-6
    gradients = torch.autograd.grad(out, case.tensors, case.d_o)
    assert max(reference.gradient_errors(*gradients).values()) < 5e-3
    wrong = [x.roll(1, 2) for x in gradients]
    assert min(reference.gradient_errors(*wrong).values()) > 0.5


def test_every_case_has_a_layout_and_targets():
    assert set(results.TARGETS) == set(ORDER)
    known = set(kpage.layouts.names())
    for name in {name for jobs in suites.SUITES.values() for _, name in jobs}:
        assert (
            name.removesuffix("-40-heads") in known
            or workloads.knows(name)
            or name.startswith(("tiny", "whole-"))
        ), name


@pytest.mark.parametrize("host", [None, independent_partitions()], ids=["tiny", "independent"])
@pytest.mark.parametrize("cut", ["tiles", "halves", "all halves"])
def test_tiles_of_peers_hold_the_valid_rows_and_pairs(host, cut):
    case = Case("tiny", CPU, host=host)
    problem = Problem(case)
    tiles = problem.tiles() if cut == "tiles" else problem.halves(keep_empty=cut != "halves")
    if cut == "all halves":
        blocks = (case.q_blocks, case.kv_sizes.shape[1])
        assert (tiles.q_sizes.shape[1], tiles.kv_sizes.shape[1]) == tuple(2 * n for n in blocks)
        assert torch.equal(tiles.counts, 2 * case.nums.repeat_interleave(2, 1))
    q, k, _, _ = problem.inputs(tiles)
    valid = problem.valid_rows(case.k, "kv")
    assert len(valid) == int(case.kv_sizes.sum())
    assert torch.equal(k[0].flatten(0, 1)[tiles.kv_places], valid)
    assert torch.equal(q[0].flatten(0, 1)[tiles.q_places], problem.valid_rows(case.q))
    assert float(k.detach().abs().sum()) == pytest.approx(float(valid.abs().sum()))
    pairs = 0
    for head, tile in torch.cartesian_prod(
        torch.arange(case.heads), torch.arange(tiles.q_sizes.shape[1])
    ):
        ids = tiles.lists[head, tile, : int(tiles.counts[head, tile])].long()
        assert torch.equal(ids, ids.unique())
        pairs += int(tiles.q_sizes[head, tile]) * int(tiles.kv_sizes[head, ids].sum())
    assert pairs == case.useful_pairs
    (_, whole), (_, partial) = tiles.whole_and_partial()
    assert torch.equal(whole + partial, tiles.counts)
    assert int(tiles.map().sum()) == int(tiles.counts.sum())


@pytest.mark.parametrize("host", [None, independent_partitions()], ids=["tiny", "independent"])
def test_ranges_of_rows_hold_the_pairs(host):
    case = Case("tiny", CPU, host=host)
    problem = Problem(case)
    q_ranges, k_ranges = problem.ranges()
    rows = [x.diff(dim=1)[:, 0].long() for x in (q_ranges, k_ranges)]
    assert int((rows[0] * rows[1]).sum()) == case.useful_pairs
    assert all(int(x.min()) > 0 and int(x.max()) <= 128 for x in rows)
    assert bool((q_ranges[1:, 0] >= q_ranges[:-1, 0]).all())
    # The last block that has rows is the last of all valid rows.
    assert int(q_ranges.max()) <= len(problem.valid_rows(case.q))
    assert int(k_ranges.max()) <= len(problem.valid_rows(case.k, "kv"))


class Masked:
    """A peer of torch operations: dense attention over its tiles, with a mask."""

    name = "masked"
    devices = ("cpu",)

    def __init__(self, wrong=False):
        self.wrong = wrong

    def load(self):
        return "1"

    def configurations(self, problem):
        for cut in ("tiles", "halves"):
            yield f"{self.name} {cut}", lambda c=cut: self._run(problem, getattr(problem, c)())

    def _run(self, problem, tiles):
        *tensors, d_o = (x.float() for x in problem.inputs(tiles))
        for x in tensors:
            x.requires_grad_()
        block = tiles.block
        rows = torch.arange(block) < tiles.kv_sizes[..., None]
        seen = tiles.map().repeat_interleave(block, 1).repeat_interleave(block, 2)
        seen = seen & rows.flatten(1)[:, None]

        def forward():
            q, k, v = tensors
            scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~seen, -torch.inf)
            out = torch.nan_to_num(scores.softmax(-1)) @ v
            return 1.1 * out if self.wrong else out

        def rows_of(x, places):
            return x.detach()[0].flatten(0, 1)[places]

        def both():
            return torch.autograd.grad(forward(), tensors, d_o)

        places = (tiles.q_places, tiles.kv_places, tiles.kv_places)
        return peers.Run(
            lambda: forward().detach(),
            lambda: rows_of(forward(), tiles.q_places),
            both,
            lambda: [rows_of(x, at) for x, at in zip(both(), places, strict=True)],
            plan=lambda: None,
        )


def test_peers_are_timed_and_compared(monkeypatch, tmp_path):
    class Missing:
        name = "missing"
        devices = ("cpu",)

        def load(self):
            raise ImportError("no such package")

    wrong = Masked(wrong=True)
    wrong.name = "wrong"
    monkeypatch.setattr(peers, "PEERS", (Masked(), wrong, Missing()))
    bench = Bench(tmp_path / "r.json", "cpu", 600, 2)
    bench.run({("peers", "tiny"): beside.measure_peers})
    data = json.loads((tmp_path / "r.json").read_text())
    assert not data["failures"]
    assert data["peers"]["masked"] == "1"
    assert data["peers"]["missing"] == "absent: ImportError: no such package"
    rows = {(row["kernel"], row["pass"]): row for row in data["rows"]}
    for step in ("forward", "forward+backward"):
        for cut in ("tiles", "halves"):
            row = rows[f"masked {cut}", step]
            assert row["exact"] and row["error"] < 5e-3 and row["kpage_ms"] > 0
            assert not rows[f"wrong {cut}", step]["exact"]
        assert rows["kpage beside peers", step]["error"] < 5e-3


def test_one_configuration_of_a_peer_can_be_asked_for(monkeypatch, tmp_path):
    other = Masked()
    other.name = "other"
    monkeypatch.setattr(peers, "PEERS", (Masked(), other))
    bench = Bench(tmp_path / "r.json", "cpu", 600, 2, ["masked halves"])
    bench.run({("peers", "tiny"): beside.measure_peers})
    assert {row["kernel"] for row in bench.results.data["rows"]} == {
        "kpage beside peers",
        "masked halves",
    }
    assert bench.results.data["peers"]["other"] == "not asked for in this run"


def test_a_job_in_the_file_is_not_run_again(tmp_path):
    path = tmp_path / "r.json"
    ran = []

    def good(bench, name):
        ran.append(name)
        bench.results.add(
            layout=name, kernel="kpage", useful_pairs=1, head_dim=1, **{"pass": "x"}, time_ms=1.0
        )

    def bad(bench, name):
        good(bench, name)
        raise ValueError("no")

    jobs = {("own", "a"): good, ("own", "b"): bad}
    for expected in (["a", "b"], ["a", "b", "b"]):
        bench = Bench(path, "cpu", 600, 2)
        bench.run(jobs)
        assert ran == expected
        data = json.loads(path.read_text())
        assert [row["layout"] for row in data["rows"]] == ["a", "b"]
        assert [failure["where"] for failure in data["failures"]] == ["own b"]
        assert data["finished"] == ["own a"]


def test_suites_share_their_jobs():
    assert list(suites.jobs(["own", "plans"])) == list(suites.jobs(["own"]))
    assert list(suites.jobs(["own", "peers"], ["padded-5s"])) == [
        ("own", "padded-5s"),
        ("peers", "padded-5s"),
    ]


def test_workloads_have_the_figures_they_name():
    layout = workloads.layout("scale-occupancy-0.25", 1, CPU)
    sizes = layout["q_block_sizes"].double()
    assert len(sizes) == 2048 and float(sizes.mean()) == pytest.approx(32, rel=0.05)
    assert layout["q2k_block_index"].shape == (1, 8, 2048, 64)
    layout = workloads.layout("scale-density-0.1", 1, CPU)
    assert layout["q2k_block_index"].shape[2:] == (683, 68)
    assert workloads.layout("scale-heads-4", 1, CPU)["q2k_block_index"].shape[1] == 4
    sizes = workloads.cube_sizes((3, 5, 9), (2, 4, 8))
    assert sizes.tolist() == [64, 8, 16, 2, 32, 4, 8, 1]
    ids = workloads.random_lists(sizes, 2, 5, 1, CPU)["q2k_block_index"][0]
    assert bool((ids[..., 1:] > ids[..., :-1]).all()) and int(ids.max()) < 8


def test_variants_have_the_same_pairs():
    full = Case("tiny-full", CPU)
    cut = Case("tiny-full", CPU, host=experiments._cut(experiments.placed(full.host), 16))
    assert cut.useful_pairs == full.useful_pairs
    assert cut.kv_sizes.shape == (2, 40)
    rows = torch.arange(640).view(40, 16)
    assert torch.equal(cut.kv_offsets[0].sort().values, rows[:, 0])
    errors = experiments._errors(own.Planned(cut))
    assert errors["error"] < 2.5e-3 and errors["gradient_error"] < 5e-3


def test_an_order_has_the_same_rows_and_results(case):
    shuffled = Case("tiny", CPU, host=experiments._shuffled(case.host))
    assert shuffled.useful_pairs == case.useful_pairs
    assert not torch.equal(shuffled.q_offsets, case.q_offsets)
    results = [own.Planned(x) for x in (case, shuffled)]
    for one, other in zip(*(x.forward_backward() for x in results), strict=True):
        assert float((one - other).float().norm() / one.float().norm()) < 5e-3
    with pytest.raises(ValueError, match="one partition"):
        experiments._shuffled(independent_partitions())


def test_each_configuration_of_each_peer_has_a_row(case):
    found = {
        label
        for peer in peers.PEERS
        if hasattr(peer, "configurations")
        for label, _ in peer.configurations(Problem(case))
    }
    absent = {label for label in peers.CONFIGURATIONS if label.startswith(tuple(peers.ABSENT))}
    assert set(peers.CONFIGURATIONS) == found | absent
    html = page(
        [file_of(recorded("padded-5s", "forward", "FlashInfer variable blocks", kpage_ms=1.5))], {}
    )
    for label in peers.CONFIGURATIONS:
        assert label in html
    assert '1 of 1</td><td class="">2.00' in html


def recorded(layout, step, kernel="kpage", **more):
    row = {"layout": layout, "kernel": kernel, "pass": step, "exact": True, "useful_pairs": 1 << 32}
    row |= {"head_dim": 128, "heads": 8, "time_ms": 3.0, "rested_ms": 3.0, "error": 2e-3}
    return row | more


def file_of(*rows):
    return {
        "commit": "abc",
        "command": "python -m kpage.bench",
        "device": "a GPU",
        "r_dense": {"forward": 600.0},
        "peers": {"NVIDIA BSA": "1", "other": "absent: <none>"},
        "rows": list(rows),
        "failures": [{"where": "padded-5s", "error": "ValueError: no"}],
    }


def test_the_summary_names_what_is_missed():
    slow = recorded("full-512", "forward", "slow", time_ms=6.0, kpage_ms=3.0)
    wrong = recorded("full-512", "forward", "wrong", time_ms=1.0, kpage_ms=3.0, exact=False)
    fast = recorded("full-512", "forward", "fast", time_ms=2.7, kpage_ms=3.0)
    data = file_of(
        recorded("full-512", "forward", fraction_of_ideal=0.97, useful_tflops=600.0),
        slow,
        wrong,
    )
    assert Summary([data]).missed() == [("full-512", "forward", "0.97 of ideal, floor 0.98")]
    data["rows"].append(fast)
    assert Summary([data]).missed()[0] == (
        "full-512",
        "forward",
        "not the fastest: fast takes 0.90 of its time",
    )
    near = recorded("padded-5s", "forward", "near", time_ms=3.3, kpage_ms=3.0)
    bsa = recorded("padded-5s", "forward", "NVIDIA BSA blk128, sizes", time_ms=4.5, kpage_ms=3.0)
    assert [what for _, _, what in Summary([file_of(near, bsa)]).missed()] == [
        "1.10 times faster than near, asked 1.25",
        "1.50 times faster than NVIDIA BSA blk128, asked 1.6",
    ]
    cool = recorded("padded-5s", "forward", "cool", time_ms=4.5, kpage_ms=3.0, kpage_rested_ms=3.2)
    assert [what for _, _, what in Summary([file_of(cool)]).missed()] == [
        "not the fastest rested: cool takes 0.93 of its time"
    ]


def test_the_later_file_counts():
    files = [
        file_of(recorded("full-512", "forward", "peer", time_ms=ms, kpage_ms=3.0))
        for ms in (6.0, 4.5)
    ]
    assert Summary(files).against("full-512", "forward", "peer") == 1.5


def test_the_page_holds_what_was_measured_and_escapes_it():
    bsa = recorded("full-512", "forward", "NVIDIA BSA blk128", time_ms=4.5, kpage_ms=3.0)
    html = page([file_of(bsa)], {"padded-5s, forward": "unused"})
    assert html.startswith("<!doctype html>") and "<svg" in html
    assert "http" not in html.replace("http://www.w3.org", "")
    assert "1.50" in html and "absent: &lt;none&gt;" in html and "Nothing of what" in html


def test_all_sections_of_a_run_on_the_cpu(tmp_path):
    path = tmp_path / "r.json"
    bench = Bench(path, "cpu", 600, 2)
    jobs = suites.jobs(["tiny"])
    bench.run(jobs)
    data = json.loads(path.read_text())
    assert not data["failures"] and len(data["finished"]) == len(jobs)
    assert bench.complete() and bench.closing("r.html") == (
        f"10 jobs: 10 ran, 0 failed; results in {path}, page in r.html"
    )
    # Peers' kernels are a GPU's: that is no failure of a run on a CPU.
    assert len(data["peers"]) == len(peers.PEERS) + len(peers.ABSENT)
    assert all(said.startswith("absent: ") for said in data["peers"].values())
    html = page([data], {})
    for wrong in ("cuDNN", "Built on the GPU", '<th class="">GPU<', "GPU's counter"):
        assert wrong not in html
    assert "Built on the CPU" in html and "nothing is compared on a CPU" in html
    assert '<td class="">0</td>' not in html.split("Page loads and ablations")[1].split("<h2")[0]
    table = markdown.table([data])
    assert "\n| tiny | " in table and "\n| scale-tokens-1000 | " in table
    assert " | 0 | " not in table and table.endswith("No peer was measured.")
    for heading in ("Physical work", "Page loads and ablations", "Checks", "Plans"):
        assert heading in html
    assert not math.isnan(data["rows"][0]["error"])
    # What `kpage bench --compare` asks for.
    keys = [(row["layout"], row["pass"], row["kernel"]) for row in data["rows"]]
    assert len(set(keys)) == len(keys)
    assert all(row["time_ms"] > 0 for row in data["rows"])


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
    assert "| full-512 | 4.00 | 550 | **0.92** | 0.98 / 1.08 |" in markdown.table([data])


def test_measure_calls_all_by_turns():
    calls = []
    functions = {name: lambda name=name: calls.append(name) for name in "ab"}
    times = measure(functions, HostTimer(), rounds=3)
    assert set(times) == {"a", "b"}
    assert calls.count("a") >= 3 and calls.count("b") >= 3
    low, high = times["a"].sustained_range
    assert low <= times["a"].sustained <= high
