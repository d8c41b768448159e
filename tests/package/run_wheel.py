#!/usr/bin/env python3
"""Builds the wheel, installs it into an empty folder and uses it from there.

Usage: run_wheel.py SOURCE WORK BUILD [KEY=VALUE...]   (CMake definitions)
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import torch

# The C entry points of PyTorch's stable ABI; anything else binds the wheel to one torch. Templates of
# the standard library that torch happens to export as well are no tie.
STABLE = re.compile(r"^(aoti_torch_|torch_)\w+$|^_Z(T[VIST])?N?[KRO]*St")

USE = """
import kpage, torch
sizes = torch.tensor([128, 100], dtype=torch.int32)
index = torch.tensor([0, 1, 1, 0], dtype=torch.int32).view(1, 1, 2, 2)
nums = torch.full((1, 1, 2), 2, dtype=torch.int32)
plan = kpage.plan(index, nums, sizes)
q, k, v = (torch.ones(1, 1, 256, 64, dtype=torch.bfloat16) for _ in range(3))
out = kpage.attention(q, k, v, plan)
assert bool((out[:, :, :228] == 1).all()) and bool((out[:, :, 228:] == 0).all()), out
print("wheel: attention from", kpage.__file__)
"""


def run(*command, **kwargs):
    print("+", *command, flush=True)
    return subprocess.run([str(part) for part in command], check=True, **kwargs)


def torch_symbols(library):
    """Undefined symbols of `library` that torch must provide."""
    listing = run("nm", "-D", "--undefined-only", library, capture_output=True, text=True).stdout
    names = {line.split()[-1].split("@")[0] for line in listing.splitlines() if "@" not in line}
    return {name for name in names if name not in ("__gmon_start__",) and "ITM" not in name}


def main():
    source, work, build = map(pathlib.Path, sys.argv[1:4])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)

    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    settings = [f"-Ccmake.define.{setting}" for setting in sys.argv[4:]]
    run(*pip, "wheel", "--no-build-isolation", "--no-deps", f"-Cbuild-dir={build}", *settings,
        "-w", work / "dist", source)
    (wheel,) = (work / "dist").glob("*.whl")
    assert re.fullmatch(r"kpage-[\d.]+-py3-none-linux_\w+\.whl", wheel.name), wheel.name

    names = zipfile.ZipFile(wheel).namelist()
    extra = [name for name in names if not re.match(r"kpage/|kpage-[\d.]+\.(dist-info|data/scripts)/", name)]
    assert not extra, f"files that do not belong in the wheel: {extra}"

    site = work / "site"
    run(*pip, "install", "--no-deps", "--target", site, wheel)
    unstable = {name for name in torch_symbols(site / "kpage" / "_ops.so") if not STABLE.match(name)}
    assert not unstable, f"symbols outside PyTorch's stable ABI: {sorted(unstable)}"

    environment = dict(os.environ, PYTHONPATH=str(site))
    run(sys.executable, "-c", USE, cwd=work, env=environment)
    run(site / "bin" / "kpage", "--help", stdout=subprocess.DEVNULL)
    print(f"wheel: ok with torch {torch.__version__}")


if __name__ == "__main__":
    main()
