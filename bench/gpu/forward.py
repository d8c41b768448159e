#!/usr/bin/env python3
"""Times the forward kernel beside dense attention and writes bench/results rows.

Dense attention (torch SDPA, cuDNN; B1 H8 S32768 D128, bf16) is timed before and after every layout,
rested and sustained, so that each row has the R_dense of its own moment.

usage: forward.py --bench build/bin/kpage_gpu_forward_bench --out bench/results/NAME.json [LAYOUT ...]
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

ROWS, HEADS, HEAD_DIM = 32768, 8, 128
FLOPS = 4 * HEADS * ROWS**2 * HEAD_DIM


class Dense:
    def __init__(self, iterations):
        self.iterations = iterations
        self.qkv = [
            torch.randn(1, HEADS, ROWS, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
            for _ in range(3)
        ]
        self.call()

    def call(self):
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            torch.nn.functional.scaled_dot_product_attention(*self.qkv)

    def tflops(self, pause_s):
        """Median over the calls."""
        events = []
        for _ in range(self.iterations):
            if pause_s:
                torch.cuda.synchronize()
                time.sleep(pause_s)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            self.call()
            end.record()
            events.append((begin, end))
        torch.cuda.synchronize()
        return FLOPS / statistics.median(b.elapsed_time(e) for b, e in events) / 1e9

    def both(self):
        return {"rested": self.tflops(0.06), "sustained": self.tflops(0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--commit", default="")
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("layouts", nargs="+")
    arguments = parser.parse_args()
    dense = Dense(arguments.iterations)
    before = dense.both()
    rows = []
    for layout in arguments.layouts:
        result = subprocess.run(
            [arguments.bench, "--json", "--iterations", str(arguments.iterations), layout],
            capture_output=True, text=True, check=False)
        after = dense.both()
        if result.returncode != 0:
            print(f"{layout}: {result.stderr.strip()}", file=sys.stderr)
        for line in result.stdout.splitlines():
            row = json.loads(line)
            row["r_dense"] = (before[row["clock"]] + after[row["clock"]]) / 2
            row["fraction_of_ideal"] = row["useful_tflops"] / row["r_dense"]
            rows.append(row)
            print(f"{layout:18} {row['clock']:9} {row['time_ms']:8.3f} ms "
                  f"{row['useful_tflops']:5.0f} TFLOP/s, R_dense {row['r_dense']:4.0f}, "
                  f"fraction {row['fraction_of_ideal']:.3f}, error {row['error']:.2e}", flush=True)
        before = after
    sustained = [row["r_dense"] for row in rows if row["clock"] == "sustained"]
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump({
            "commit": arguments.commit,
            "command": "bench/gpu/" + " ".join(["forward.py"] + sys.argv[1:]),
            "device": torch.cuda.get_device_name(),
            "clock": "sustained",
            "r_dense": {"forward": statistics.median(sustained) if sustained else None,
                        "forward_backward": None},
            "peers": {"cuDNN dense through torch SDPA": torch.__version__},
            "rows": rows,
        }, file, indent=1)


if __name__ == "__main__":
    main()
