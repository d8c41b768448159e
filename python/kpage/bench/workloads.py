"""Layouts of the data file workloads.json: cubes of a grid, and sweeps of one figure at a time.

Lists are random, all of one length. They are drawn on the benchmark's device, so that they are the
same for a seed on the same kind of device.
"""

import json
import pathlib

import torch

_DATA = json.loads(pathlib.Path(__file__).with_name("workloads.json").read_text())
_BLOCK = 128
_CUBES = {entry["name"]: entry for entry in _DATA["cubes"]}
OWN = tuple(_CUBES)


def sweep_names(kind=None):
    """Names of the points of one sweep, or of all: "scale-<what varies>-<its value>"."""
    kinds = _DATA["sweeps"] if kind is None else (kind,)
    return tuple(f"scale-{k}-{value}" for k in kinds for value in _DATA["sweeps"][k])


def knows(name):
    return name in _CUBES or name.startswith("scale-")


def layout(name, seed, device):
    """The arguments of kpage.plan, on the CPU."""
    if name in _CUBES:
        entry = _CUBES[name]
        sizes = cube_sizes(entry["grid"], entry["cube"])
        return random_lists(sizes, entry["heads"], entry["keep"], seed, device)
    _, kind, value = name.split("-")
    point = {**_DATA["sweep_base"], kind: float(value)}
    blocks = max(1, round(point["tokens"] / point["occupancy"] / _BLOCK))
    keep = point["keep"]
    if kind == "density":
        keep = round(point["density"] * blocks)
    sizes = mixed_sizes(blocks, point["occupancy"], seed)
    return random_lists(sizes, int(point["heads"]), min(blocks, max(1, keep)), seed, device)


def cube_sizes(grid, cube):
    """Valid rows [N] of the cubes of a grid of tokens, row-major; cropped at the borders."""
    edges = [
        torch.tensor([min(step, size - at) for at in range(0, size, step)])
        for size, step in zip(grid, cube, strict=True)
    ]
    t, h, w = edges
    return (t[:, None, None] * h[:, None] * w).flatten().to(torch.int32)


def mixed_sizes(blocks, occupancy, seed):
    """Valid rows [N], uniform over the widest range whose mean is `occupancy` of a block."""
    mean = max(1, round(occupancy * _BLOCK))
    low, high = max(1, 2 * mean - _BLOCK), min(_BLOCK, 2 * mean - 1)
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high + 1, (blocks,), dtype=torch.int32, generator=generator)


def random_lists(sizes, heads, keep, seed, device):
    """Every block's list: `keep` blocks [H, N, keep] drawn without replacement, ascending. Blocks
    lie end to end."""
    blocks = len(sizes)
    generator = torch.Generator(device).manual_seed(seed)
    index = torch.empty(1, heads, blocks, keep, dtype=torch.int32)
    for head in range(heads):
        draws = torch.rand(blocks, blocks, device=device, generator=generator)
        index[0, head] = draws.topk(keep, -1).indices.sort(-1).values.to(torch.int32).cpu()
    return {
        "q2k_block_index": index,
        "q2k_block_nums": torch.full((1, heads, blocks), keep, dtype=torch.int32),
        "q_block_sizes": sizes,
        "kv_block_sizes": None,
        "q_block_offsets": (sizes.cumsum(0) - sizes).to(torch.int32),
        "kv_block_offsets": None,
    }
