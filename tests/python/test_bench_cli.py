"""`python -m kpage.bench`: what it refuses before anything runs, which commit it measures, how it ends."""

import json
import pathlib
import shutil
import subprocess

import pytest
import torch

pytest.importorskip("kpage.bench")
from kpage.bench import commit, form, markup, peers, results, suites
from kpage.bench.__main__ import main
from kpage.bench.report import page
from kpage.bench.run import Bench


@pytest.fixture(autouse=True)
def known_commit(monkeypatch):
    monkeypatch.setenv("KPAGE_COMMIT", "abc1234")


@pytest.fixture
def ran(monkeypatch):
    """Jobs of a suite "quick", which does nothing else than to add a row; those that ran."""
    found = []

    def measure(bench, name):
        found.append(name)
        row = {"layout": name, "kernel": "kpage", "pass": "x", "useful_pairs": 1, "head_dim": 1}
        bench.results.add(**row, time_ms=1.0)

    monkeypatch.setitem(suites._KINDS, "quick", measure)
    monkeypatch.setitem(suites.SUITES, "quick", [("quick", "a"), ("quick", "b")])
    return found


def refused(capsys, *words):
    """The one line after which nothing runs."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    line = said.err.splitlines()[-1]
    assert line.startswith("python -m kpage.bench: error: ")
    return line.removeprefix("python -m kpage.bench: error: ")


def written(path, **more):
    """A file of results of a run on a CPU."""
    data = {
        "commit": "abc1234",
        "command": "python -m kpage.bench",
        "device": "CPU",
        "r_dense": {},
        "r_dense_rested": {},
        "peers": {},
        **{part: [] for part in ("rows", "figures", "failures", "finished")},
    }
    path.write_text(json.dumps(data | more))
    return path


def test_a_run_goes_on_with_its_file_and_says_how_it_ended(ran, tmp_path, capsys):
    path = tmp_path / "r.json"
    quick = ("--suite", "quick", "--device", "cpu", "--output", str(path))
    assert main([*quick, "--layouts", "a"]) == 0
    assert capsys.readouterr().out.endswith(f"\n1 jobs: 1 ran, 0 failed; results in {path}\n")
    assert main(list(quick)) == 0
    assert ran == ["a", "b"]
    assert capsys.readouterr().out.endswith(
        f"\n2 jobs: 1 ran, 1 in the file before, 0 failed; results in {path}\n"
    )
    assert [row["layout"] for row in json.loads(path.read_text())["rows"]] == ["a", "b"]


def test_what_failed_is_named_and_what_does_not_apply_is_no_failure(ran, monkeypatch, capsys):
    def leave_out(bench, name):
        bench.guarded(f"{name}, peer", lambda: bad(peers.Unsupported("sizes of their own")))
        if name == "b":
            bad(ValueError("no"))

    def bad(error):
        raise error

    monkeypatch.setitem(suites._KINDS, "quick", leave_out)
    bench = Bench(None, "cpu", 600, 2)
    bench.run(suites.jobs(["quick"], ["a"]))
    assert bench.complete()
    assert bench.results.data["inapplicable"] == [
        {"where": "a, peer", "error": "sizes of their own", "job": "quick a"}
    ]
    html = page([bench.results.data], {})
    assert "What does not apply" in html and "What failed" not in html
    assert main(["--suite", "quick", "--device", "cpu"]) == 1
    assert capsys.readouterr().out.endswith("\n2 jobs: 2 ran, 1 failed (quick b); nothing kept\n")
    assert main(["--suite", "quick", "--device", "cpu", "--seconds", "1"]) == 1
    assert capsys.readouterr().out.endswith("\n2 jobs: 2 not reached, 0 failed; nothing kept\n")


@pytest.mark.parametrize("before, now", [("def5678", "abc1234"), ("", "abc1234"), ("", "")])
def test_results_of_another_commit_are_not_overwritten(
    ran, tmp_path, capsys, monkeypatch, before, now
):
    monkeypatch.setattr(results, "commit", lambda: now)
    path = written(tmp_path / "r.json", commit=before)
    bytes_before = path.read_bytes()
    said = refused(capsys, "--suite", "quick", "--device", "cpu", "--output", path)
    assert said == (
        f"--output: {path} holds results of commit {before or '(unknown)'}, this run is of "
        f"{now or '(unknown)'}: give another name, or move the file away"
    )
    assert path.read_bytes() == bytes_before and not ran


def test_no_other_file_is_overwritten(ran, tmp_path, capsys):
    quick = ("--suite", "quick", "--device", "cpu", "--output")
    path = written(tmp_path / "gpu.json", device="NVIDIA H200")
    assert "holds results of device NVIDIA H200, this run is of CPU" in refused(
        capsys, *quick, path
    )
    for text in ("", "hello", "[]", "{}", '{"commit": "abc1234", "rows": []}', "\xff"):
        path.write_bytes(text.encode("latin-1"))
        assert refused(capsys, *quick, path).startswith(f"--output: {path}: expected ")
        assert path.read_bytes() == text.encode("latin-1")
    assert not ran


@pytest.mark.parametrize("name", ["--output", "--report"])
def test_files_are_written_to_folders_that_exist(ran, tmp_path, capsys, name):
    quick = ("--suite", "quick", "--device", "cpu", name)
    said = refused(capsys, *quick, tmp_path / "none" / "r")
    assert said == f"{name}: expected a file in a folder that exists, got {tmp_path}/none/r"
    assert (
        refused(capsys, *quick, tmp_path) == f"{name}: expected a file, got the folder {tmp_path}"
    )
    assert refused(capsys, *quick, "") == f"{name}: expected a file, got nothing"
    assert not ran


def test_a_page_does_not_replace_what_it_is_made_of(tmp_path, capsys):
    path = written(tmp_path / "r.json")
    assert refused(capsys, "--from", path, "--report", path).startswith(
        "--report: expected a file of"
    )
    assert refused(capsys, "--output", path, "--report", path).startswith(
        "--report: expected a file"
    )


@pytest.mark.parametrize(
    "words, begin",
    [
        (("--rounds", "0"), "--rounds: expected 1 or more, got 0"),
        (("--seconds", "-1"), "--seconds: expected a number above 0, got -1"),
        (("--seconds", "nan"), "--seconds: expected a number above 0, got nan"),
        (
            ("--kernels", "BSA", "nothing"),
            "--kernels: expected parts of NVIDIA BSA blk128, no sizes; ",
        ),
        (("--kernels", "flex-block-attn"), "--kernels: expected parts of "),
        (
            ("--layouts", "full-512", "nothing"),
            "--layouts: expected layouts of quick, which has a, b; ",
        ),
        (("--layouts",), "argument --layouts: expected at least one argument"),
        (("--device", "abacus"), "argument --device: invalid choice: 'abacus'"),
        (("--notes", "none.json"), "--notes: none.json: expected a file that can be read: No such"),
    ],
)
def test_arguments_are_checked_before_anything_runs(ran, capsys, words, begin):
    assert refused(capsys, "--suite", "quick", *words).startswith(begin)
    assert not ran


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(ran, capsys):
    said = refused(capsys, "--suite", "quick", "--device", "cuda")
    assert said.startswith("--device: expected cpu, since torch ") and said.endswith(", got cuda")


@pytest.mark.parametrize(
    "text, what",
    [
        ("{", "expected JSON: "),
        ("[]", "expected a file of results: it has no object"),
        ("{}", "expected a file of results: commit is missing"),
        ({"rows": {}}, "expected a file of results: rows is not a list"),
        ({"rows": [{"layout": "a"}]}, "expected a file of results: rows[0]: pass is missing"),
        ({"peers": {"x": 1}}, "expected a file of results: peers is not an object of strings"),
        (
            {"rows": [{"layout": "a", "pass": "forward", "kpage_ms": 1.0}]},
            "expected a file of results: rows[0]: time_ms is missing beside kpage_ms",
        ),
        ({"failures": [3]}, "expected a file of results: failures has an entry without"),
    ],
)
def test_files_that_are_no_results_are_named(tmp_path, capsys, text, what):
    path = tmp_path / "r.json"
    written(path, **text) if isinstance(text, dict) else path.write_text(text)
    good = written(tmp_path / "good.json")
    assert refused(capsys, "--from", good, path, "--table").startswith(f"--from: {path}: {what}")
    assert refused(capsys, "--from", tmp_path / "none", "--table") == (
        f"--from: {tmp_path}/none: expected a file that can be read: No such file or directory"
    )


def test_from_runs_nothing(tmp_path, capsys):
    path = written(tmp_path / "r.json")
    assert refused(capsys, "--from", path) == "--from: expected --table or --report with it"
    said = refused(capsys, "--from", path, "--table", "--output", path)
    assert said == "--output: not with --from, which runs nothing"
    assert main(["--from", str(path), "--table"]) == 0
    assert capsys.readouterr().out == (
        "No layout was measured beside dense attention.\n\nNo peer was measured.\n"
    )


def test_notes_are_an_object_of_strings(tmp_path, capsys):
    path, notes = written(tmp_path / "r.json"), tmp_path / "notes.json"
    for text in ("{", "[]", '{"full-512, forward": 1}'):
        notes.write_text(text)
        said = refused(capsys, "--from", path, "--report", tmp_path / "r.html", "--notes", notes)
        assert said.startswith(f"--notes: {notes}: expected ")
    assert not (tmp_path / "r.html").exists()


def test_results_of_the_command_line_tool_are_results(tmp_path):
    # `kpage bench` knows no dense attention and no peers.
    row = {
        "layout": "a",
        "pass": "plan",
        "kernel": "kpage",
        "time_ms": 1.0,
        "fraction_of_ideal": None,
    }
    plan = {"forward_ms": 1.0, "plan_forward_ms": 0.5, "backward_ms": 0, "plan_backward_ms": 0.0}
    plan |= {"plan_bytes": 1, "qkv_bytes": 10}
    path = written(tmp_path / "r.json", r_dense=None, rows=[row | plan])
    assert "<h2>" in page([form.read_results(path)], {})


@pytest.fixture
def repository(tmp_path):
    """A repository like KPage's, with one commit; -> (root, the file that asks, its git)."""

    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", "-C", tmp_path, *who, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    if shutil.which("git") is None:
        pytest.skip("needs git")
    file = tmp_path / commit._IN_REPOSITORY
    file.parent.mkdir(parents=True)
    file.write_text("1")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("1")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    return tmp_path.resolve(), file.resolve(), git


def test_the_commit_is_that_of_kpages_repository(repository, monkeypatch):
    root, file, git = repository
    head = git("rev-parse", "--short", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(root / "none"))  # a hook of another repository
    assert commit.of_repository(file) == head
    (root / "docs" / "a.md").write_text("2")
    assert commit.of_repository(file) == head
    file.write_text("2")
    once = commit.of_repository(file)
    assert once.startswith(f"{head}-dirty-") and commit.of_repository(file) == once
    file.write_text("3")
    assert commit.of_repository(file) not in (once, head)
    new, seen = root / "src" / "new.cu", set()
    new.parent.mkdir()
    for text in ("1", "2"):
        new.write_text(text)
        seen.add(commit.of_repository(file))
    assert len(seen) == 2
    # Installed inside of a repository, or copied into another's.
    for folder in (".venv/lib/kpage/bench", "third_party/kpage/python/kpage/bench"):
        inside = root / folder / file.name
        inside.parent.mkdir(parents=True)
        inside.write_text("1")
        assert commit.of_repository(inside) == ""
    assert commit.of_repository(pathlib.Path("/") / file.name) == ""


def test_the_commit_does_not_depend_on_the_current_folder(repository, monkeypatch):
    monkeypatch.delenv("KPAGE_COMMIT")
    root, _, git = repository
    here = commit.commit()
    monkeypatch.chdir(root)
    assert commit.commit() == here != git("rev-parse", "--short", "HEAD")
    monkeypatch.setenv("KPAGE_COMMIT", "0123")
    assert commit.commit() == "0123"


def test_an_installed_package_has_its_version(tmp_path, monkeypatch):
    (tmp_path / "kpage-7.8.9.dist-info").mkdir()
    (tmp_path / "kpage-7.8.9.dist-info" / "METADATA").write_text("Name: kpage\nVersion: 7.8.9\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert commit.installed(tmp_path.resolve() / "kpage" / "bench" / "commit.py") == "7.8.9"
    assert commit.installed(pathlib.Path("/elsewhere/kpage/bench/commit.py")) == ""


@pytest.mark.parametrize(
    "value, places, text",
    [(690.4, 0, "690"), (1.4, 0, "1"), (0.0123, 0, "0.012"), (0, 0, "0"), (0.0042, 2, "0.0042")],
)
def test_small_figures_keep_digits(value, places, text):
    assert markup.digits(value, places) == text
