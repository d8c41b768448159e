"""Useful FLOP rate of kpage.attention on the CPU beside torch's dense SDPA on the same CPU.

    PYTHONPATH=build/host/python python bench/cpu_forward_bench.py

KPage runs the padded "5 s" layout: 2x8x8 cubes of 31x34x60 tokens, random lists of 64 of its 640
blocks, head dimension 128. Dense attention over all of its rows would take minutes, so SDPA runs on
a cut of them; its rate does not grow with the sequence. Runs alternate, and medians are compared.
Only pairs of valid rows count as useful, so padding costs KPage what it costs.
"""

import argparse
import statistics
import time

import kpage
import torch

GRID = (31, 34, 60)
CUBE = (2, 8, 8)
KEEP = 64
HEAD_DIM = 128


def block_sizes():
    """Valid rows of each cube, cubes in raster order. [640]"""
    along = [
        torch.tensor([min(cube, size - start) for start in range(0, size, cube)])
        for size, cube in zip(GRID, CUBE, strict=True)
    ]
    return torch.einsum("t,h,w->thw", *along).reshape(-1).to(torch.int32)


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--dense-rows", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    sizes = block_sizes()
    blocks = len(sizes)
    lists = torch.rand(1, options.heads, blocks, blocks).argsort(-1)[..., :KEEP].to(torch.int32)
    counts = torch.full((1, options.heads, blocks), KEEP, dtype=torch.int32)
    plan = kpage.plan(lists.contiguous(), counts, sizes)
    shape = (1, options.heads, blocks * 128, HEAD_DIM)
    q, k, v = (torch.randn(shape).to(torch.bfloat16) for _ in range(3))
    useful = 4 * HEAD_DIM * plan.stats()["useful_pairs"]

    dense_shape = (1, options.heads, options.dense_rows, HEAD_DIM)
    dense_flops = 4 * HEAD_DIM * options.heads * options.dense_rows**2
    contestants = {"kpage bf16": (lambda: kpage.attention(q, k, v, plan), useful)}
    for dtype in (torch.bfloat16, torch.float32):
        dense = [torch.randn(dense_shape).to(dtype) for _ in range(3)]
        contestants[f"torch dense {str(dtype).removeprefix('torch.')}"] = (
            lambda dense=dense: torch.nn.functional.scaled_dot_product_attention(*dense),
            dense_flops,
        )

    for run, _ in contestants.values():
        run()
    times = {name: [] for name in contestants}
    for _ in range(options.repeats):
        for name, (run, _) in contestants.items():
            times[name].append(seconds(run))
    rates = {
        name: flops / statistics.median(times[name]) / 1e9
        for name, (_, flops) in contestants.items()
    }
    for name, rate in rates.items():
        print(f"{name:22} {statistics.median(times[name]) * 1e3:9.1f} ms {rate:8.1f} GFLOP/s")
    dense_rate = max(rate for name, rate in rates.items() if name.startswith("torch"))
    print(f"kpage / fastest dense: {rates['kpage bf16'] / dense_rate:.2f}")


if __name__ == "__main__":
    main()
