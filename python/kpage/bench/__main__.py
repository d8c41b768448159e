"""python -m kpage.bench: see --help."""

import argparse
import json
import pathlib
import sys

import torch

from kpage.bench import suites
from kpage.bench.markdown import table
from kpage.bench.report import page
from kpage.bench.run import Bench
from kpage.bench.timing import ROUNDS


def _files(names):
    return [json.loads(pathlib.Path(name).read_text(encoding="utf-8")) for name in names]


def main():
    parser = argparse.ArgumentParser(
        prog="python -m kpage.bench",
        description="Times KPage on one GPU beside dense attention and its peers, and checks what "
        "was computed in the same run.",
    )
    parser.add_argument(
        "--suite",
        nargs="+",
        choices=(*suites.SUITES, "all"),
        default=list(suites.DEFAULT),
        help="what to measure, in this order; what the output file has is not measured again",
    )
    parser.add_argument("--layouts", nargs="*", help="names; default: all of the suites")
    parser.add_argument(
        "--kernels", nargs="*", help="peers, or configurations, by parts of their names"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=3600, help="begin nothing after these")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="timed calls of each kind")
    parser.add_argument("--output", help="file of results, JSON")
    parser.add_argument("--from", nargs="+", dest="files", help="files of results; nothing is run")
    parser.add_argument("--table", action="store_true", help="print the results as Markdown")
    parser.add_argument("--report", help="write the results as one HTML page")
    parser.add_argument("--notes", help='JSON: {"<layout>, <pass>": why a target is missed}')
    options = parser.parse_args()
    failures = False
    if options.files:
        files = _files(options.files)
    else:
        torch.manual_seed(0)
        everything = [name for name in suites.SUITES if name != "tiny"]
        names = everything if "all" in options.suite else options.suite
        jobs = suites.jobs(names, options.layouts)
        unknown = set(options.layouts or ()) - {name for _, name in jobs}
        if unknown:
            parser.error(f"--layouts: not in {', '.join(names)}: {', '.join(sorted(unknown))}")
        bench = Bench(
            options.output, options.device, options.seconds, options.rounds, options.kernels
        )
        bench.run(jobs)
        bench.results.save()
        files = [bench.results.data]
        failures = bool(bench.results.data["failures"])
    if options.table:
        print(table(files))
    if options.report:
        notes = _files([options.notes])[0] if options.notes else {}
        pathlib.Path(options.report).write_text(page(files, notes), encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
