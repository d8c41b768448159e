#!/usr/bin/env python3
"""Times of selectors beside the attention that they serve, on 720p of Wan (21x45x80; SSTA: 31x45x80),
and what a real selector's lists have in common with their neighbours'.

q, k, v come from a video clip, as scripts/make_capture.py makes them, but on the device. Functions of
a case take turns (kpage.bench.timing). On a CPU the counts are the same, of fewer heads; its times
say nothing of a GPU's.

usage: layout_selectors.py --video CLIP [--device cuda|cpu] [--out bench/results/NAME.json]
                           [--heads 40] [--rounds 5] [--commit HASH]
"""

import argparse
import importlib.util
import json
import math
import pathlib
import sys

import kpage
import torch
from kpage.bench.timing import Times, timer_of
from torch.profiler import ProfilerActivity, profile

GRID, SSTA_GRID, SSTA_HEADS = (21, 45, 80), (31, 45, 80), 16
HEAD_DIM = 128
SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"
layouts = kpage.layouts


def frames_of(path, count, read_frames):
    """RGB frames [count, height, width, 3], by OpenCV where it is installed."""
    if importlib.util.find_spec("cv2") is None:
        return read_frames(path, count)
    import cv2

    clip, frames = cv2.VideoCapture(path), []
    if not clip.isOpened():
        sys.exit(f"layout_selectors.py: cannot read {path}")
    while len(frames) < count:
        more, frame = clip.read()
        if not more:
            sys.exit(f"layout_selectors.py: {path} has only {len(frames)} frames")
        frames.append(torch.from_numpy(frame[:, :, ::-1].copy()))
    return torch.stack(frames).numpy()


def video_qkv(path, grid, heads, device):
    """q, k, v [1, heads, tokens, 128] in bf16, of the clip's first frames."""
    spec = importlib.util.spec_from_file_location("make_capture", SCRIPTS / "make_capture.py")
    capture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(capture)
    frames = frames_of(path, grid[0] * capture.PATCH_FRAMES, capture.read_frames)
    patches, found = capture.patches_of(frames)
    if found != grid:
        sys.exit(f"layout_selectors.py: {path} makes a grid of {found}, not {grid}")
    generator = torch.Generator().manual_seed(0)
    width, rows = heads * HEAD_DIM, torch.arange(math.prod(grid), device=device)
    embedding = capture.random_matrix(patches.shape[1], capture.EMBEDDING, generator).to(device)
    shared, own_q, own_k, values = (
        capture.random_matrix(capture.EMBEDDING, width, generator).to(device) for _ in range(4)
    )
    angles = capture.rotary_angles(grid).to(device)
    cos, sin = angles.cos().float()[:, None], angles.sin().float()[:, None]
    out = [
        torch.empty(1, heads, len(rows), HEAD_DIM, dtype=torch.bfloat16, device=device)
        for _ in range(3)
    ]
    norm = torch.nn.functional.rms_norm
    patches = patches.to(device)
    mean = patches.sum(0, dtype=torch.float32) / len(patches)
    for part in rows.split(4096):
        hidden = norm((patches[part].float() - mean) @ embedding, (capture.EMBEDDING,), eps=1.0)
        matrices = (shared + 0.5 * own_q, shared + 0.5 * own_k, values)
        for tensor, matrix, turns in zip(out, matrices, (True, True, False), strict=True):
            made = (hidden @ matrix).unflatten(1, (heads, HEAD_DIM))
            if turns:
                made = capture.rotate(norm(made, (HEAD_DIM,)), cos[part], sin[part])
            tensor[0, :, part] = made.transpose(0, 1).bfloat16()
    return out


def timed(functions, rounds, calls, device):
    timer = timer_of(device)
    for function in functions.values():
        function()
    times = timer.bursts(list(functions.values()), [calls] * len(functions), rounds)
    return {name: Times(t, t) for name, t in zip(functions, times, strict=True)}


def kernels_of(step, calls=4):
    """What a step runs on the device, by time: name, calls and ms of one step."""
    step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(calls):
            step()
        torch.cuda.synchronize()
    found = [
        {
            "name": event.key,
            "calls": event.count / calls,
            "time_ms": event.self_device_time_total / 1000 / calls,
        }
        for event in seen.key_averages()
    ]
    return sorted((x for x in found if x["time_ms"] > 0), key=lambda x: -x["time_ms"])


def neighbours_in_common(arguments):
    """The share of a list that the next block's list has too, over all heads."""
    index, nums = arguments["q2k_block_index"], arguments["q2k_block_nums"]
    sizes = arguments["kv_block_sizes"]
    columns = (arguments["q_block_sizes"] if sizes is None else sizes).shape[-1]
    both = total = 0
    for head in range(index.shape[1]):
        listed = torch.arange(index.shape[-1], device=index.device) < nums[0, head, :, None]
        target = torch.where(listed, index[0, head].long(), columns)
        seen = torch.zeros(index.shape[2], columns + 1, dtype=torch.bool, device=index.device)
        seen = seen.scatter(-1, target, True)[:, :columns]
        both += int((seen[1:] & seen[:-1]).sum())
        total += int(seen[:-1].sum())
    return both / total


def random_lists(arguments, seed=0):
    """Lists of the same lengths, drawn evenly."""
    index, nums = arguments["q2k_block_index"], arguments["q2k_block_nums"]
    columns = arguments["q_block_sizes"].shape[-1]
    generator = torch.Generator(nums.device).manual_seed(seed)
    scores = torch.rand((*nums.shape, columns), device=nums.device, generator=generator)
    return {**arguments, "q2k_block_index": scores.topk(index.shape[-1], -1).indices.int()}


def report(case, times, attention, rows, **more):
    for name, time in times.items():
        share = time.sustained / attention
        print(f"{case:10} {name:26} {time.sustained:9.3f} ms {100 * share:6.1f} %", flush=True)
        rows.append({"layout": case, "pass": name, **time.fields(), "of_attention": share, **more})


def attend(q, k, v, arguments, rounds):
    plan = kpage.plan(**arguments)
    time = timed({"attention": lambda: kpage.attention(q, k, v, plan)}, rounds, 1, q.device)["attention"]
    stats = plan.stats()
    return time, {"useful_pairs": stats["useful_pairs"], "efficiency": stats["efficiency"]}


def attend_both(case, q, k, v, chosen, drawn, rounds, rows, **seen):
    """Attention over the selector's lists, whose sustained time it returns, and over random ones."""
    for kind, arguments in (("video", chosen), ("random", drawn)):
        time, counts = attend(q, k, v, arguments, rounds)
        if kind == "video":
            attention = time.sustained
        found = {"in_common": neighbours_in_common(arguments), **counts, **seen}
        found["density"] = counts["useful_pairs"] / (q.shape[1] * q.shape[2] ** 2)
        report(case, {f"attention, {kind} lists": time}, attention, rows, **found)
        print(case, ", ".join(f"{name} {value:.3f}" for name, value in found.items()), flush=True)
    return attention


def vsa(tokens, rounds, rows):
    case = "vsa-444-720p"
    tiling = layouts.tiling(GRID, (4, 4, 4), placement="dense", device=tokens[0].device)
    q, k, v = (kpage.tile(x, tiling) for x in tokens)
    chosen = layouts.vsa.select(q, k, tiling, sparsity=0.9)
    scores = layouts.vsa.scores(q, k, tiling)
    keep = chosen["q2k_block_index"].shape[-1]
    attention = attend_both(case, q, k, v, chosen, random_lists(chosen), rounds, rows)
    steps = {
        "tile q, k, v": lambda: [kpage.tile(x, tiling) for x in tokens],
        "means of q and k": lambda: [tiling.means(x) for x in (q, k)],
        "scores": lambda: layouts.vsa.scores(q, k, tiling),
        "top-k": lambda: layouts._ops.top_k(scores, keep),
        "torch.topk alone": lambda: scores.topk(keep, sorted=False),
        "select": lambda: layouts.vsa.select(q, k, tiling, sparsity=0.9),
        "plan": lambda: kpage.plan(**chosen),
        "select and plan": lambda: kpage.plan(**layouts.vsa.select(q, k, tiling, sparsity=0.9)),
    }
    report(case, timed(steps, rounds, 3, q.device), attention, rows)


def ssta(tokens, rounds, rows):
    case = "ssta-720p-121f"
    tiling = layouts.tiling(SSTA_GRID, (6, 8, 8), placement="dense", device=tokens[0].device)
    q, k, v = (kpage.tile(x, tiling) for x in tokens)
    window = layouts.sta.window_map(tiling, (3, 3, 3))
    chosen = layouts.ssta.select(q, k, tiling, window=window)
    scores = layouts.ssta.scores(q, k, tiling)
    keep = layouts.ssta._kept(64, SSTA_GRID[0])
    noise = torch.rand(
        scores.shape, device=q.device, generator=torch.Generator(q.device).manual_seed(0)
    )
    drawn = tiling.layout_of_map(layouts._lists.top_k_map(noise, keep) | window)
    attention = attend_both(case, q, k, v, chosen, drawn, rounds, rows)
    steps = {
        "tile q, k, v": lambda: [kpage.tile(x, tiling) for x in tokens],
        "scores": lambda: layouts.ssta.scores(q, k, tiling),
        "select": lambda: layouts.ssta.select(q, k, tiling, window=window),
        "plan": lambda: kpage.plan(**chosen),
        "select and plan": lambda: kpage.plan(
            **layouts.ssta.select(q, k, tiling, window=window)
        ),
    }
    report(case, timed(steps, rounds, 3, q.device), attention, rows)


def means(x, labels, centroids):
    order, _, sizes, offsets = layouts._ops.cluster_order(labels, centroids.shape[2])
    return layouts._ops.cluster_means(x, order, sizes, offsets, centroids)


def random_clusters(q, k, chosen, seed=0):
    """As `chosen`, with as many key clusters for each query cluster, drawn evenly."""
    kept = layouts.svg2.cluster_map(q, k)
    generator = torch.Generator(kept.device).manual_seed(seed)
    noise = torch.rand(kept.shape, device=kept.device, generator=generator)
    drawn = noise.argsort(-1).argsort(-1) < kept.sum(-1, keepdim=True)
    blocks = (
        layouts._ops.cluster_blocks(x.sizes, chosen[name].shape[-1])[0]
        for x, name in ((q, "q_block_sizes"), (k, "kv_block_sizes"))
    )
    index, nums = layouts._ops.lists_of_map(
        drawn, None, **dict(zip(("row_of_list", "column_of_id"), blocks, strict=True))
    )
    return {**chosen, "q2k_block_index": index, "q2k_block_nums": nums}


def svg2(tokens, rounds, rows, clusters, kernels):
    case = f"svg2-720p-{clusters[0]}-{clusters[1]}"
    q, k, v = tokens
    generator = torch.Generator(q.device).manual_seed(0)
    q_warm, k_warm = (
        layouts.svg2.kmeans(x, count, iterations=6, generator=generator)
        for x, count in zip((q, k), clusters, strict=True)
    )

    def clustered():
        return [
            layouts.svg2.kmeans(x, centroids=warm.centroids)
            for x, warm in ((q, q_warm), (k, k_warm))
        ]

    made = clustered()
    chosen = layouts.svg2.select(*made)
    longest = int(chosen.arguments["q2k_block_nums"].max())

    def moved():
        return [
            kpage.tile(x, order)
            for x, order in ((q, chosen.q_order), (k, chosen.kv_order), (v, chosen.kv_order))
        ]

    sizes = made[1].sizes.float()
    seen = {
        "longest_list": longest,
        "empty_key_clusters": int((sizes == 0).sum()),
        "mean_key_cluster": float(sizes.mean()),
        "deviation_of_key_clusters": float(sizes.std() / sizes.mean()),
        "largest_key_cluster": int(sizes.max()),
    }
    drawn = random_clusters(*made, chosen.arguments)
    attention = attend_both(case, *moved(), chosen.arguments, drawn, rounds, rows, **seen)
    steps = {
        "labels of k, once": lambda: layouts.svg2.nearest(k, k_warm.centroids),
        "labels of q, once": lambda: layouts.svg2.nearest(q, q_warm.centroids),
        "means of k, once": lambda: means(k, made[1].labels, k_warm.centroids),
        "k-means of q and k": clustered,
        "select": lambda: layouts.svg2.select(*made),
        "permute q, k, v": moved,
        "plan": lambda: kpage.plan(**chosen.arguments),
        "k-means, select and plan": lambda: kpage.plan(
            **layouts.svg2.select(*clustered()).arguments
        ),
    }
    if k.is_cuda:
        # What the fused labels replace, on one head: a product in memory, and its largest.
        head, centres = k[0, :1], k_warm.centroids[0, :1]
        half = centres.float().square().sum(-1)[:, None] / 2

        def in_torch():
            return torch.bmm(head, centres.mT, out_dtype=torch.float32).sub_(half).argmax(-1)

        steps["labels of k in torch, one head"] = in_torch
    report(case, timed(steps, rounds, 1, q.device), attention, rows)
    if k.is_cuda:
        kernels[case] = kernels_of(steps["k-means, select and plan"])
        for kernel in kernels[case][:16]:
            print(f"{case:10} {kernel['time_ms']:9.3f} ms {kernel['calls']:4.1f} {kernel['name'][:80]}")
        print(f"{case:10} {sum(x['time_ms'] for x in kernels[case]):9.3f} ms in kernels", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--video", required=True)
    parser.add_argument("--device", default="cuda", type=torch.device)
    parser.add_argument("--out", default="")
    parser.add_argument("--heads", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    rows, kernels = [], {}
    result = {
        "commit": args.commit,
        "command": "python bench/gpu/layout_selectors.py --video "
        f"{pathlib.Path(args.video).name} --heads {args.heads} --rounds {args.rounds}",
        "device": torch.cuda.get_device_name() if args.device.type == "cuda" else "cpu",
        "clock": "sustained",
        "r_dense": {},
        "peers": {"torch": torch.__version__},
        "rows": rows,
        "kernels": kernels,
    }
    tokens = video_qkv(args.video, GRID, args.heads, args.device)
    print("q, k, v made", flush=True)
    ssta_heads = min(args.heads, SSTA_HEADS)
    cases = (
        lambda: ssta(
            video_qkv(args.video, SSTA_GRID, ssta_heads, args.device), args.rounds, rows
        ),
        lambda: vsa(tokens, args.rounds, rows),
        lambda: svg2(tokens, args.rounds, rows, (300, 1000), kernels),
        lambda: svg2(tokens, args.rounds, rows, (100, 500), kernels),
    )
    for case in cases:
        case()
        if args.out:
            pathlib.Path(args.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
