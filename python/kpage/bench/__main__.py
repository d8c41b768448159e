"""python -m kpage.bench: see --help."""

import argparse
import json
import pathlib
import sys

import torch

from kpage.bench import cases
from kpage.bench.results import table
from kpage.bench.run import Bench
from kpage.bench.timing import ROUNDS


def main():
    parser = argparse.ArgumentParser(
        prog="python -m kpage.bench",
        description="Times KPage on one GPU and checks what it computed in the same run.",
    )
    parser.add_argument(
        "--suite",
        choices=("own", "peers"),
        default="own",
        help="own: KPage beside dense attention, plans, errors; peers: KPage beside its peers",
    )
    parser.add_argument("--layouts", nargs="*", help="names; default: all of the suite")
    parser.add_argument("--kernels", nargs="*", help="peers by parts of their names; default: all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=3600, help="begin nothing after these")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="timed calls of each kind")
    parser.add_argument("--output", help="file of results, JSON")
    parser.add_argument("--table", nargs="+", help="print files of results as Markdown, no run")
    options = parser.parse_args()
    if options.table:
        files = [json.loads(pathlib.Path(name).read_text()) for name in options.table]
        print(table(files))
        return 0
    torch.manual_seed(0)
    bench = Bench(options.output, options.device, options.seconds, options.rounds)
    if options.suite == "own":
        bench.own(options.layouts or cases.ORDER)
    else:
        bench.peers(options.layouts or cases.PEERS_ON, options.kernels)
    bench.results.save()
    return 1 if bench.results.data["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
