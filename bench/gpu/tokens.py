#!/usr/bin/env python3
"""Times token movement beside torch's copy and torch's own gathers, on a 720p grid in bf16.

Every result is compared with torch's gather. Functions of a case take turns (kpage.bench.timing).

usage: tokens.py [--out bench/results/NAME.json] [--commit HASH] [--grid 21 45 80] [--heads 40]
                 [--device cpu]     (small grids: to try it without a GPU)
"""

import argparse
import json
import sys

import kpage
import torch
from kpage.bench.timing import DeviceTimer, HostTimer, Times

HEAD_DIM = 128
ROUNDS = 11
BURST = 8  # calls of one function in a row
RESTED = 5


def torch_gather(x, index, bshd):
    """What torch has: index_select where heads share an index, else gather; both know no padding, so
    its rows are copies of row 0 here."""
    dim = 1 if bshd else 2
    index = index.clamp(min=0).long()
    if index.dim() == 1:
        return lambda: x.index_select(dim, index)
    index = (index.t() if bshd else index)[None, :, :, None].expand(-1, -1, -1, HEAD_DIM)
    return lambda: x.gather(dim, index)


def check(got, x, index, bshd):
    want = torch_gather(x, index, bshd)()
    padding = index < 0
    if bool(padding.any()):
        want = torch.where(padding[:, None, None] if bshd else padding[:, None], 0, want)
    if not torch.equal(got, want):
        raise SystemExit("tokens.py: results differ from torch's gather")


def cases(grid, heads, device):
    cubes = kpage.layouts.tiling(grid, (4, 4, 4), placement="dense").to(device)
    blocks = kpage.layouts.tiling(grid, (4, 4, 4), placement="blk128").to(device)
    tokens = cubes.tokens
    permutation = torch.stack([torch.randperm(tokens, device=device) for _ in range(heads)])
    order = kpage.token_order(permutation)
    for layout in ("bhsd", "bshd"):
        yield "cubes 4x4x4, dense", layout, cubes
        yield "cubes 4x4x4, 128 rows each", layout, blocks
        yield "random permutation of each head", layout, order


def measure(functions, device):
    timer = DeviceTimer() if device == "cuda" else HostTimer()
    for function in functions:
        function()
    rested = [[timer.rested(f) for _ in range(RESTED)] for f in functions]
    sustained = timer.bursts(functions, [BURST] * len(functions), ROUNDS)
    return [Times(a, b) for a, b in zip(rested, sustained, strict=True)]


def rows_of(name, layout, order, heads, device):
    bshd = layout == "bshd"
    for direction, there, back in (
        ("tile", order.token_of_row, order.row_of_token),
        ("untile", order.row_of_token, order.token_of_row),
    ):
        rows_in, rows_out = back.shape[-1], there.shape[-1]
        shape = (1, rows_in, heads, HEAD_DIM) if bshd else (1, heads, rows_in, HEAD_DIM)
        x = torch.randn(shape, dtype=torch.bfloat16, device=device)
        move = getattr(kpage, direction)
        check(move(x, order, layout=layout), x, there, bshd)
        source = torch.randn(heads, rows_out, HEAD_DIM, dtype=torch.bfloat16, device=device)
        target = torch.empty_like(source)

        def kpage_moves(move=move, x=x):
            move(x, order, layout=layout)

        def torch_copies(target=target, source=source):
            target.copy_(source)

        times = measure([kpage_moves, torch_copies, torch_gather(x, there, bshd)], device)
        row = HEAD_DIM * 2
        moved = int((there >= 0).sum()) * (1 if there.dim() == 2 else heads)
        moved_bytes = (moved + heads * rows_out) * row  # rows read, rows written
        copy_bytes = 2 * heads * rows_out * row
        copy_rate = copy_bytes / times[1].sustained
        for kernel, time, count in zip(
            ("kpage", "torch copy_", "torch index_select" if there.dim() == 1 else "torch gather"),
            times,
            (moved_bytes, copy_bytes, copy_bytes),
            strict=True,
        ):
            rate = count / time.sustained
            yield {
                "layout": name,
                "pass": direction,
                "order": layout,
                "kernel": kernel,
                "exact": True,
                "shape": list(shape),
                "rows_out": rows_out,
                **time.fields(),
                "tb_per_s": round(rate / 1e9, 3),
                "of_copy": round(rate / copy_rate, 3),
            }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="")
    parser.add_argument("--heads", type=int, default=40)
    parser.add_argument("--grid", type=int, nargs=3, default=(21, 45, 80))
    parser.add_argument("--commit", default="")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    rows = []
    for name, layout, order in cases(tuple(args.grid), args.heads, args.device):
        for row in rows_of(name, layout, order, args.heads, args.device):
            rows.append(row)
            print(
                f"{name:32} {layout} {row['pass']:7} {row['kernel']:19} {row['time_ms']:7.3f} ms "
                f"{row['tb_per_s']:6.2f} TB/s {row['of_copy']:6.2f} of copy",
                flush=True,
            )
    if args.out:
        result = {
            "commit": args.commit,
            "command": "python bench/gpu/tokens.py " + " ".join(sys.argv[1:]),
            "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
            "clock": "sustained",
            "r_dense": {},
            "peers": {"torch": torch.__version__},
            "rows": rows,
        }
        with open(args.out, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
