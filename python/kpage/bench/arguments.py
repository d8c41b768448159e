"""The command line, checked before anything runs."""

import argparse
import os
import pathlib

import torch

from kpage.bench import suites
from kpage.bench.form import BadFile, read_notes, read_results
from kpage.bench.peers import ABSENT, CONFIGURATIONS
from kpage.bench.timing import ROUNDS


def parse(words=None):
    """(parser, options): `files` and `notes` are read, `jobs` are those of the suites. An error ends
    the process with 2, after one line that names the argument."""
    parser = _parser()
    options = parser.parse_args(words)
    try:
        for name in ("output", "report"):
            _check_target(parser, name, getattr(options, name))
        sources = [*(options.files or ()), *filter(None, (options.notes, options.output))]
        if options.report and any(_same(options.report, path) for path in sources):
            parser.error(f"--report: expected a file of its own, got {options.report}")
        options.notes = read_notes(options.notes) if options.notes else {}
    except BadFile as error:
        parser.error(f"--notes: {error}")
    if options.files:
        _check_from(parser, options)
    else:
        _check_run(parser, options)
    return parser, options


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m kpage.bench",
        description="Times KPage on one GPU beside dense attention and its peers, and checks what "
        "was computed in the same run.",
        epilog="Exit code: 0 where all that the device and the installed peers can do was measured, "
        "1 where something failed or was not reached, 2 for an argument that is wrong.",
    )
    parser.add_argument(
        "--suite",
        nargs="+",
        choices=(*suites.SUITES, "all"),
        help="what to measure, in this order; what the output file has is not measured again; "
        f"default: {' '.join(suites.DEFAULT)}",
    )
    parser.add_argument("--layouts", nargs="+", help="names; default: all of the suites")
    parser.add_argument(
        "--kernels", nargs="+", help="peers, or configurations, by parts of their names"
    )
    parser.add_argument(
        "--device",
        choices=("cuda", "cpu"),
        help="default: cuda where there is one (CUDA_VISIBLE_DEVICES says which), else cpu",
    )
    parser.add_argument("--seconds", type=float, default=3600, help="begin nothing after these")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="timed calls of each kind")
    parser.add_argument(
        "--output",
        help="file of results, JSON; one of the same commit and device is gone on with, any other "
        "file is refused",
    )
    parser.add_argument("--from", nargs="+", dest="files", help="files of results; nothing is run")
    parser.add_argument("--table", action="store_true", help="print the results as Markdown")
    parser.add_argument("--report", help="write the results as one HTML page")
    parser.add_argument("--notes", help='JSON: {"<layout>, <pass>": "why a target is missed"}')
    return parser


def _check_target(parser, name, path):
    if path is None:
        return
    folder = pathlib.Path(path).parent
    if not path or pathlib.Path(path).is_dir():
        parser.error(
            f"--{name}: expected a file, got {f'the folder {path}' if path else 'nothing'}"
        )
    if not folder.is_dir():
        parser.error(f"--{name}: expected a file in a folder that exists, got {path}")
    if not os.access(folder, os.W_OK):
        parser.error(f"--{name}: expected a folder that can be written to, got {folder}")


def _same(one, other):
    return pathlib.Path(one).resolve() == pathlib.Path(other).resolve()


def _check_from(parser, options):
    for name in ("suite", "layouts", "kernels", "device", "output"):
        if getattr(options, name) is not None:
            parser.error(f"--{name}: not with --from, which runs nothing")
    if not options.table and not options.report:
        parser.error("--from: expected --table or --report with it")
    try:
        options.files = [read_results(path) for path in options.files]
    except BadFile as error:
        parser.error(f"--from: {error}")


def _check_run(parser, options):
    if not options.seconds > 0:
        parser.error(f"--seconds: expected a number above 0, got {options.seconds:g}")
    if options.rounds < 1:
        parser.error(f"--rounds: expected 1 or more, got {options.rounds}")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(
            f"--device: expected cpu, since torch {torch.__version__} finds no GPU, got cuda"
        )
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    _check_names(parser, options)


def _check_names(parser, options):
    everything = [name for name in suites.SUITES if name != "tiny"]
    wanted = options.suite or suites.DEFAULT
    names = everything if "all" in wanted else list(wanted)
    options.jobs = suites.jobs(names, options.layouts)
    unknown = set(options.layouts or ()) - {name for _, name in options.jobs}
    if unknown:
        known = dict.fromkeys(name for _, name in suites.jobs(names))
        parser.error(
            f"--layouts: expected layouts of {', '.join(names)}, which has {', '.join(known)}; "
            f"got {', '.join(sorted(unknown))}"
        )
    labels = [label for label in CONFIGURATIONS if label not in ABSENT]
    for word in options.kernels or ():
        if not any(word in label for label in labels):
            parser.error(f"--kernels: expected parts of {'; '.join(labels)}; got {word}")
