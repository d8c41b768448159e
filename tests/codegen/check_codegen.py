#!/usr/bin/env python3
"""Compiles kernels for sm_90a, without a GPU, and fails where the machine code is not what they need:

- spills, a stack frame or local memory;
- more registers a thread than a CTA of that many threads gets;
- notes C75xx of the assembler: products that it made wait for one another, register budgets that it
  ignored;
- no warpgroup products or no bulk tensor loads in the PTX.

usage: check_codegen.py --nvcc NVCC --include DIR [--include DIR] SOURCE [SOURCE]
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

TARGET = "-gencode=arch=compute_90a,code=sm_90a"
MAX_REGISTERS = 168  # of 65,536 for 384 threads, in steps of 8
NEEDED = ("wgmma.mma_async", "cp.async.bulk.tensor", "setmaxnreg", "mbarrier.try_wait")
FIGURES = {
    "stack frame": r"(\d+) bytes stack frame",
    "spill stores": r"(\d+) bytes spill stores",
    "spill loads": r"(\d+) bytes spill loads",
    "local memory": r"(\d+) bytes lmem",
}


def compile_source(nvcc: str, includes: list[str], source: pathlib.Path,
                   folder: pathlib.Path) -> tuple[str, str]:
    """Returns what the assembler said and the PTX."""
    command = [nvcc, "-std=c++20", "-O3", TARGET, "-Xptxas", "-v", "--keep", "--keep-dir", str(folder)]
    command += [f"-I{directory}" for directory in includes]
    command += ["-c", str(source), "-o", str(folder / "object.o")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    said = result.stdout + result.stderr
    if result.returncode != 0:
        sys.exit(f"{source} does not compile:\n{said}")
    return said, "".join(path.read_text() for path in folder.glob("*.ptx"))


def faults(said: str, ptx: str) -> list[str]:
    """What is wrong with a source, in words."""
    found = []
    for note in re.findall(r"\(C75\d\d\)[^\n]*", said):
        found.append(f"assembler note {note}")
    for name, pattern in FIGURES.items():
        worst = max((int(number) for number in re.findall(pattern, said)), default=0)
        if worst > 0:
            found.append(f"{worst} bytes of {name}")
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", said)]
    if not registers:
        found.append("the assembler reported no registers: is there a kernel?")
    elif max(registers) > MAX_REGISTERS:
        found.append(f"{max(registers)} registers a thread, of {MAX_REGISTERS}")
    found += [f"no {name} in the PTX" for name in NEEDED if name not in ptx]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("sources", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    failed = False
    for source in arguments.sources:
        with tempfile.TemporaryDirectory() as folder:
            said, ptx = compile_source(arguments.nvcc, arguments.include, source,
                                       pathlib.Path(folder))
        found = faults(said, ptx)
        failed = failed or bool(found)
        print(f"{source.name}: {'; '.join(found) if found else 'ok'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
