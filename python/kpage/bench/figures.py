"""The paper's tables and figures (section 4), each beside ours."""

import json
import pathlib

from kpage.bench import charts, suites
from kpage.bench.markup import digits, geometric_mean, number, section, span, table, times
from kpage.bench.summary import BSA, STEPS, factor

PAPER = json.loads(pathlib.Path(__file__).with_name("paper.json").read_text(encoding="utf-8"))


def controlled(summary):
    out = []
    for step in STEPS:
        layouts = [x for x in suites.CONTROLLED if summary.peer_rows(x, step)]
        rows, ours = [], {}
        for layout in layouts:
            best = summary.best_peer(layout, step)
            ours[layout] = summary.against(layout, step, BSA)
            bsa = summary.fastest_of(layout, step, BSA)
            own = (bsa or best or {}).get("kpage_ms")
            rows.append(
                [
                    layout,
                    number(own),
                    number(bsa and bsa["time_ms"]),
                    times(ours[layout]),
                    number(PAPER["controlled"][step].get(layout)),
                    best["kernel"] if best else "",
                    times(factor(best)) if best else "",
                ]
            )
        for kind in ("full", "padded"):
            group = [x for x in layouts if x.startswith(kind)]
            if group:
                paper = geometric_mean(
                    v for k, v in PAPER["controlled"][step].items() if k.startswith(kind)
                )
                mean = geometric_mean(ours[x] for x in group)
                bests = [summary.best_peer(x, step) for x in group]
                over = geometric_mean(factor(b) for b in bests if b)
                rows.append(
                    [f"{kind}, geometric mean", "", "", times(mean), number(paper), "", times(over)]
                )
        if rows:
            head = ["layout", "KPage, ms", "BSA blk128, ms", "BSA / KPage", "in the paper"]
            out.append(f"<h3>{step}</h3>")
            out.append(table([*head, "fastest exact peer", "it / KPage"], rows))
            out.append(
                charts.bars(
                    layouts,
                    {
                        "this run": [ours[x] for x in layouts],
                        "the paper": [PAPER["controlled"][step].get(x) for x in layouts],
                    },
                    f"BSA blk128 / KPage, {step}",
                    line=1.0,
                )
            )
    return section(
        "Controlled layouts (Table 1)",
        "Full blocks and 2x8x8 cubes with padding, lists of 64 blocks, 8 heads. Lists are random "
        "here, of block means in the paper.",
        *out,
    )


def representative(summary):
    names = [x for x in suites.REPRESENTATIVE if summary.peer_rows(x, "forward")]
    rows = []
    for name in names:
        row = [name]
        for step in STEPS:
            peers = summary.peer_rows(name, step)
            best = summary.best_peer(name, step)
            row += [
                number(peers[0]["kpage_ms"], "{:.1f}") if peers else "",
                times(summary.against(name, step, BSA)),
                best["kernel"] if best else "",
                times(factor(best)) if best else "",
            ]
        rows.append([*row, number(PAPER["representative"].get(name))])
    head = ["layout"]
    for step in STEPS:
        head += [f"{step}, ms", "BSA blk128 / KPage", "fastest exact peer", "it / KPage"]
    return section(
        "Representative layouts (section 4.3)",
        "470,000 to 630,000 physical tokens, 8 heads. The first five are fitted to the ratios "
        "that the paper gives, not its own layouts, so single figures do not correspond; the "
        "others are ours, of the same size with other sparsity and occupancy (workloads.json).",
        table([*head, "paper, forward"], rows),
        charts.bars(
            names,
            {
                "BSA blk128 / KPage": [summary.against(x, "forward", BSA) for x in names],
                "the paper": [PAPER["representative"].get(x) for x in names],
            },
            "Forward: BSA blk128 / KPage",
            line=1.0,
        ),
    )


def _dense_ms(summary, layout, step):
    rows = [r for r in summary.of(f"dense {step}") if r["layout"] == layout]
    return min((r["time_ms"] for r in rows), default=None)


def ideal(summary):
    names, ideals, reached, rows = [], [], [], []
    for name in suites.PAPER_LIKE:
        dense = _dense_ms(summary, name, "forward")
        case = summary.own(name, "forward")
        pairs = next(
            (r["useful_pairs"] for r in summary.of("dense forward") if r["layout"] == name), 0
        )
        if not dense or not case:
            continue
        own = case["time_ms"]
        ideal = pairs / case["useful_pairs"]
        names.append(name)
        ideals.append(ideal)
        reached.append(dense / own)
        rows.append(
            [
                name,
                number(dense, "{:.0f}"),
                number(own, "{:.1f}"),
                number(ideal, "{:.1f}"),
                number(dense / own, "{:.1f}"),
                f"{dense / own / ideal:.0%}",
            ]
        )
    low, high = PAPER["ideal"]
    return section(
        "Ideal speedup by sparsity (Figure 5)",
        "Dense attention over the valid rows (the faster of cuDNN and FlashAttention-4, measured "
        f"on one head) against KPage. The paper reaches {low:.0%} to {high:.0%} of the ideal.",
        table(["layout", "dense, ms", "KPage, ms", "ideal speedup", "speedup", "of ideal"], rows),
        charts.bars(
            names,
            {"KPage over dense": reached, "ideal": ideals},
            "Speedup over dense",
            form="{:.0f}",
        ),
    )


def accounting(summary):
    keys = ("whole_block_pairs", "paged_pairs", "routed_pairs", "routed_tail_pairs", "useful_pairs")
    labels = ("whole blocks", "packed pages", "packed and routed", "with walk tails", "useful")
    rows = {r["layout"]: r for r in summary.of("accounting")}
    five = [rows[x] for x in suites.PAPER_LIKE if x in rows]
    picture = ""
    if len(five) == len(suites.PAPER_LIKE):
        ours = [sum(r[key] for r in five) / 1e9 for key in keys]
        steps = [
            (label, [value, PAPER["accounting"][key]])
            for label, key, value in zip(labels, keys, ours, strict=True)
        ]
        picture = charts.waterfall(steps, "Pairs of the five, in thousands of millions", " G")
        shares = (
            f"{label} {ours[-1] / value:.1%}"
            for label, value in zip(labels[:-1], ours[:-1], strict=True)
        )
        picture += f"<p>Useful share, the five together: {', '.join(shares)}.</p>"
    cells = [
        [
            r["layout"],
            r["blocks"],
            f"{r['padding']:.1%}",
            f"{r['partial']:.1%}",
            f"{r['density']:.1%}",
            *(digits(r[key] / 1e9, 2) for key in keys),
            f"{r['efficiency']:.1%}",
        ]
        for r in rows.values()
    ]
    return section(
        "Physical work (Figure 6)",
        "From the plans, nothing timed. Nominal pairs count pages; with tails, walks are rounded "
        "up to whole tiles.",
        picture,
        table(
            [
                "layout",
                "blocks",
                "padding",
                "partial",
                "density",
                *(f"{x}, G" for x in labels),
                "useful / routed",
            ],
            cells,
        ),
    )


def backward(summary):
    step = "forward+backward"
    names = [x for x in suites.PAPER_LIKE if _dense_ms(summary, x, step) and summary.own(x, step)]
    series = {"KPage": [], "fastest exact peer": []}
    for name in names:
        dense = _dense_ms(summary, name, step)
        best = summary.best_peer(name, step)
        series["KPage"].append(dense / summary.own(name, step)["time_ms"])
        series["fastest exact peer"].append(
            dense / summary.own(name, step)["time_ms"] / factor(best) if best else None
        )
    return section(
        "Forward+backward over dense (Figure 7)",
        "Dense forward+backward over the valid rows, over each kernel's time.",
        charts.bars(names, series, "Speedup over dense attention, forward+backward", form="{:.1f}"),
    )


def open_source(summary):
    accounts = {r["layout"]: r for r in summary.of("accounting")}
    rows = []
    for name in suites.OPEN_SOURCE:
        peers = {step: summary.peer_rows(name, step) for step in STEPS}
        if not peers["forward"]:
            continue
        about = accounts.get(name)
        row = [name]
        row += [f"{about['padding']:.1%}", f"{about['partial']:.1%}"] if about else ["", ""]
        for step in STEPS:
            best = summary.best_peer(name, step)
            row += [
                number(peers[step][0]["kpage_ms"]) if peers[step] else "",
                best["kernel"] if best else "",
                times(factor(best)) if best else "",
            ]
        published = next((v for k, v in PAPER["open_source"].items() if name.startswith(k)), None)
        rows.append([*row, span(published) if published else ""])
    head = ["layout", "padding", "partial"]
    for step in STEPS:
        head += [f"KPage {step}, ms", "fastest exact peer", "it / KPage"]
    return section(
        "Layouts of open-source systems (Table 2)",
        "STA and SSTA by their own windows, VSA's cubes with random lists of its length, SVG2 "
        "with log-normal clusters; the paper's column is its range for the system, forward. SSTA "
        "at 480p is not among the named layouts. NVIDIA BSA's backward masks partial blocks in "
        "the release used here, which the paper's did not.",
        table([*head, "paper, forward"], rows),
    )
