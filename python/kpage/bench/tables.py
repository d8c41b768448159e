"""What the paper does not show: every peer, targets, plans, scaling, variants, checks."""

from kpage.bench import charts, workloads
from kpage.bench import peers as peer_list
from kpage.bench.markup import digits, number, section, span, table, times
from kpage.bench.results import TARGETS
from kpage.bench.summary import LIMITS, STEPS, accuracy_rows, factor, plan_shares


def fastest(summary):
    """By how much KPage is faster than the fastest exact configuration of any peer."""
    names = list(dict.fromkeys(name for step in STEPS for name in summary.measured(step)))
    best = {step: [summary.best_peer(name, step) for name in names] for step in STEPS}
    series = {step: [row and factor(row) for row in rows] for step, rows in best.items()}
    return section(
        "Over the fastest exact peer",
        "The time of the fastest exact configuration of any peer over KPage's, in the same rounds.",
        charts.bars(names, series, "Fastest exact peer / KPage", line=1.0),
    )


def peer_table(summary):
    rows = []
    for step in STEPS:
        for layout in summary.measured(step):
            for row in sorted(summary.peer_rows(layout, step), key=factor):
                rows.append(
                    [
                        layout,
                        (step, "why"),
                        (row["kernel"], "why"),
                        "yes" if row["exact"] else "no",
                        number(row["kpage_ms"]),
                        number(row["time_ms"]),
                        number(row["rested_ms"]),
                        times(factor(row)) if row["exact"] else number(factor(row)),
                        number(row["error"], "{:.1e}"),
                        number(row.get("peer_plan_ms")),
                        number(row.get("peak_bytes") and row["peak_bytes"] / 2**30),
                    ]
                )
    return section(
        "Every configuration of every peer",
        "Times of a row are of the same rounds. Error: relative l2 from KPage over all valid "
        "rows (O, or the worst of dQ, dK, dV). Planning: what the peer builds from a new layout, "
        "wall time, apart from its time; BSA and VSA build backward's lists inside every "
        "backward pass. Memory: peak of forward+backward beyond its inputs.",
        table(
            [
                "layout",
                "pass",
                "kernel",
                "exact",
                "KPage, ms",
                "it, ms",
                "it, rested",
                "it / KPage",
                "error",
                "its planning, ms",
                "its memory, GiB",
            ],
            rows,
            left=(1, 2),
        ),
    )


def configurations(summary):
    """A row for each configuration of each peer: measured, or why not."""
    rows = []
    for label, about in peer_list.CONFIGURATIONS.items():
        name = next((x for x in summary.peers if label.startswith(x)), None)
        cells = [label, (about, "why"), (summary.peers.get(name, "in no run"), "why")]
        for step in STEPS:
            found = [
                row
                for layout in summary.measured(step)
                for row in summary.peer_rows(layout, step)
                if row["kernel"] == label
            ]
            exact = [factor(row) for row in found if row["exact"]]
            cells += [
                f"{len(exact)} of {len(found)}" if found else "",
                span((min(exact), max(exact))) if exact else "",
            ]
        rows.append(cells)
    head = ["configuration", "what it does", "version, or why it is missing"]
    for step in STEPS:
        head += [f"{step}: exact on", "its time / KPage's"]
    return section(
        "What was compared",
        "Exact on so many of the layouts that it was measured on; the range of its time over "
        "KPage's, in the same rounds, where it is exact.",
        table(head, rows, left=(1, 2)),
    )


def targets(summary):
    rows, names, series = [], [], {"forward": [], "forward+backward": []}
    for layout, targets in TARGETS.items():
        cells, have = [layout], False
        for i, step in enumerate(STEPS):
            floor, goal = targets[2 * i : 2 * i + 2]
            row = summary.one(layout, step, key="fraction_of_ideal")
            series[step].append(row and row["fraction_of_ideal"])
            have = have or row is not None
            cells += (
                [
                    number(row["time_ms"]),
                    digits(row["useful_tflops"], 0),
                    times(row["fraction_of_ideal"], floor),
                    f"{floor:.2f} / {goal:.2f}",
                    f"{row['error']:.1e}",
                ]
                if row
                else ["", "", "", f"{floor:.2f} / {goal:.2f}", ""]
            )
        both = summary.one(layout, "forward+backward", key="peak_bytes")
        cells.append(number(both and both["peak_bytes"] / 2**30))
        if have:
            rows.append(cells)
            names.append(layout)
        else:
            for values in series.values():
                values.pop()
    head = ["layout"]
    for step in STEPS:
        head += [f"{step}, ms", "useful TFLOP/s", "of ideal", "floor / goal", "error"]
    return section(
        "Fraction of ideal",
        "Useful pairs at the rate of dense attention "
        f"({'cuDNN, B1 H8 S32,768' if summary.on_gpu else 'torch math, B1 H8 S256'} D128) of the "
        "same moment. Error: relative l2 against fp64 on sampled blocks. Memory: peak of "
        "forward+backward beyond q, k, v, dO and the plan.",
        table([*head, "memory, GiB"], rows),
        charts.bars(names, series, "Fraction of ideal", line=1.0),
    )


def plans(summary):
    rows = [
        [
            row["layout"],
            *(number(row[key], "{:.3f}") for key in ("plan_forward_ms", "forward_ms")),
            *(number(row[key], "{:.3f}") for key in ("plan_backward_ms", "backward_ms")),
            number(row.get("plan_host_ms"), "{:.3f}"),
            *(
                (f"{v:.1%}", "good" if v <= LIMITS[k] else "bad")
                for k, v in plan_shares(row).items()
            ),
        ]
        for row in summary.of("plan")
        if row.get("backward_ms")
    ]
    return section(
        "Plans",
        f"Built on the {'GPU, as replays of a CUDA graph' if summary.on_gpu else 'CPU'}; host: what the "
        "two calls take of the caller's time. Limits: 3 % of the forward it serves, 5 % of the "
        "backward, 5 % of Q+K+V over valid rows.",
        table(
            [
                "layout",
                "forward plan, ms",
                "forward, ms",
                "backward plan, ms",
                "backward, ms",
                "host, ms",
                "share",
                "share",
                "bytes",
            ],
            rows,
        ),
    )


def selection(summary):
    """What choosing blocks costs beside the attention over them."""
    rows = [
        [
            r["layout"],
            (r["pass"], "why"),
            number(r["time_ms"]),
            f"{r['of_attention']:.1%}",
            number(r.get("in_common"), "{:.0%}"),
        ]
        for r in summary.rows
        if "of_attention" in r
    ]
    return section(
        "Selection",
        "Steps of selectors and of what comes before them, q, k and v made from a video clip, "
        "beside the attention over their lists (bench/gpu/layout_selectors.py). In common: what "
        "lists of neighbouring blocks share.",
        table(["layout", "step", "ms", "of attention", "in common"], rows, left=(1,)),
    )


def scaling(summary):
    out = []
    for kind in ("tokens", "density", "occupancy", "heads"):
        series = {}
        for step in STEPS:
            points = [
                (float(name.split("-")[2]), row["fraction_of_ideal"])
                for name in workloads.sweep_names(kind)
                if (row := summary.one(name, step)) is not None
            ]
            if len(points) > 1:
                series[step] = points
        if series:
            out.append(charts.lines(series, f"Fraction of ideal over {kind}", kind))
    return section(
        "Scaling",
        "Fraction of ideal while one figure moves: 65,536 tokens in blocks of mixed sizes at 75 "
        "% occupancy, lists of 64 blocks, 8 heads.",
        *out,
    )


def variants(summary):
    out = []
    for step in STEPS:
        found = [r for r in summary.of(step) if "of_first" in r]
        rows = [
            [
                r["layout"],
                (r["kernel"].removeprefix("kpage, "), "why"),
                number(r["time_ms"]),
                f"{r['of_first']:.3f}",
                f"{r['of_first_rested']:.3f}",
                f"{r['executed_pairs'] / r['useful_pairs']:.2f}",
                digits(r["executed_tflops"], 0),
            ]
            for r in found
        ]
        if rows:
            out.append(f"<h3>{step}</h3>")
            out.append(
                table(
                    [
                        "layout",
                        "variant",
                        "ms",
                        "of the first",
                        "rested",
                        "executed / useful pairs",
                        "executed TFLOP/s",
                    ],
                    rows,
                    left=(1,),
                )
            )
    return section(
        "Page loads and ablations",
        "Loads: full layouts whose key/value rows lie in whole blocks, or in pieces at random "
        "places: the same pairs, loaded by boxes of that many rows. Ablations: packing and "
        "routing one at a time; where they are off, padding rows are computed as if valid. Order "
        "of work: blocks run as they are numbered, walks of much longer ones first; here they are "
        "numbered as they lie, or at random where they stay.",
        *out,
    )


def checks(summary):
    repeat = [
        [
            r["layout"],
            r["runs"],
            r["forward_bits_equal"],
            r["gradient_bits_equal"],
            f"{r['default_differs_by']:.1e}",
            f"{r['cost']:.2f}",
        ]
        for r in summary.of("forward+backward", "kpage, deterministic")
        if "runs" in r
    ]
    errors = [
        [
            r["layout"],
            (r["kernel"], "why"),
            r["dtype"],
            f"{r['input_scale']:g}",
            *(
                number(r.get(k), "{:.2e}")
                for k in (
                    *("error", "d_q_error", "d_k_error", "d_v_error"),
                    *("lse_error", "lse_error_relative"),
                )
            ),
            *(number(r.get(k)) for k in ("of_flash_forward", "of_flash_gradients")),
        ]
        for r in accuracy_rows(summary)
    ]
    energy = [
        [
            r["layout"] if r["kernel"] == "kpage" else "B1 H8 S32,768",
            (r["pass"].removeprefix("energy "), "why"),
            (r["kernel"], "why"),
            number(r["time_ms"]),
            number(r["joules"]),
            number(r["watts"], "{:.0f}"),
            number(r["useful_pairs_per_joule"] / 1e9),
        ]
        for step in STEPS
        for r in summary.of(f"energy {step}")
    ]
    tables = [
        table(
            [
                "layout",
                "runs",
                "forward bits equal",
                "deterministic gradients equal",
                "default differs by",
                "deterministic costs",
            ],
            repeat,
        ),
        table(
            [
                "whole heads",
                "kernel",
                "dtype",
                "inputs times",
                "O",
                "dQ",
                "dK",
                "dV",
                "LSE to 16",
                "past it, relative",
                "forward / flash",
                "gradients / flash",
            ],
            errors,
            left=(1,),
        ),
        table(
            ["layout", "pass", "kernel", "ms", "J a call", "W", "G useful pairs a J"],
            energy,
            left=(1, 2),
        ),
    ]
    return section(
        "Checks",
        "Bits over repeated runs; errors (relative l2) of whole heads against fp64 with q, k, v "
        "scaled, beside torch's flash attention where every row sees every row"
        + ("; energy of a sustained second by the GPU's counter." if energy else "."),
        *tables,
    )


def peers(summary, files):
    rows = [[name, (said, "why")] for name, said in summary.peers.items()]
    return (
        section("Peers", "Versions, or why one is absent.", table(["peer", ""], rows, left=(1,)))
        + section(
            "What failed or was not reached",
            "But for jobs that another file has.",
            table(["where", ""], _said(files, "failures"), left=(1,)),
        )
        + section(
            "What does not apply",
            "Configurations that a peer does not have for a layout or in this installation.",
            table(["where", ""], _said(files, "inapplicable"), left=(1,)),
        )
    )


def _said(files, part):
    finished = {job for data in files for job in data.get("finished", ())}
    return [
        [entry["where"], (entry["error"], "why")]
        for data in files
        for entry in data.get(part, ())
        if entry.get("job") not in finished or entry["job"] in data["finished"]
    ]
