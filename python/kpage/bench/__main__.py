"""python -m kpage.bench: see --help."""

import pathlib
import sys

import torch

from kpage.bench import arguments
from kpage.bench.form import BadFile
from kpage.bench.markdown import table
from kpage.bench.report import page
from kpage.bench.run import Bench


def main(words=None):
    parser, options = arguments.parse(words)
    bench = None
    if options.files:
        files = options.files
    else:
        torch.manual_seed(0)
        try:
            bench = Bench(
                options.output, options.device, options.seconds, options.rounds, options.kernels
            )
        except BadFile as error:
            parser.error(f"--output: {error}")
        bench.run(options.jobs)
        bench.results.save()
        files = [bench.results.data]
    if options.table:
        print(table(files))
    if options.report:
        pathlib.Path(options.report).write_text(page(files, options.notes), encoding="utf-8")
    if bench is None:
        return 0
    print(bench.closing(options.report))
    return 0 if bench.complete() else 1


if __name__ == "__main__":
    sys.exit(main())
