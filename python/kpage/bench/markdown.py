"""Results as Markdown: fractions of ideal beside what the project asks for, plans, and peers."""

from kpage.bench.results import TARGETS
from kpage.bench.summary import STEPS, Summary, factor, plan_shares

# Columns of the table of peers: kernels by how their names begin.
_PEERS = (
    ("NVIDIA BSA blk128", "NVIDIA BSA blk128"),
    ("NVIDIA BSA halves", "NVIDIA BSA blk64"),
    ("FlashAttention-4", "FlashAttention-4"),
    ("VSA ThunderKittens", "FastVideo VSA ThunderKittens"),
    ("VSA Triton", "FastVideo VSA Triton"),
    ("FlexAttention", "FlexAttention"),
    ("FlashInfer", "FlashInfer"),
    ("FFA", "MagiAttention FFA"),
)


def table(files):
    summary = Summary(files)
    return f"{_targets(summary)}\n\n{_peers(summary)}"


def _table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _targets(summary):
    rows = []
    for layout, targets in TARGETS.items():
        cells = [layout]
        for i, step in enumerate(STEPS):
            floor, goal = targets[2 * i : 2 * i + 2]
            row = summary.one(layout, step, key="fraction_of_ideal")
            if row is None:
                cells += ["", "", ""]
            else:
                fraction = f"{row['fraction_of_ideal']:.2f}"
                met = row["fraction_of_ideal"] >= floor
                cells += [
                    f"{row['time_ms']:.2f}",
                    f"{row['useful_tflops']:.0f}",
                    fraction if met else f"**{fraction}**",
                ]
            cells.append(f"{floor:.2f} / {goal:.2f}")
        plan = summary.one(layout, "plan")
        shares = plan_shares(plan) if plan and plan["backward_ms"] else None
        cells += (
            [
                f"{shares['plan_forward']:.1%}, {shares['plan_backward']:.1%}",
                f"{shares['plan_memory']:.1%}",
            ]
            if shares
            else ["", ""]
        )
        if any(cells[i] for i in (1, 5)):
            rows.append(cells)
    head = ["layout"]
    for step in STEPS:
        head += [f"{step}, ms", "useful TFLOP/s", "of ideal", "floor / goal"]
    return _table([*head, "plan: share of forward, of backward", "plan bytes of Q+K+V"], rows)


def _peers(summary):
    """A peer's fastest exact configuration over KPage in the same rounds: sustained (rested)."""
    rows = []
    for layout in dict.fromkeys(name for step in STEPS for name in summary.measured(step)):
        for step in STEPS:
            if summary.best_peer(layout, step) is None:
                continue
            cells = [layout, step, f"{summary.own(layout, step)['time_ms']:.2f}"]
            for _, begin in _PEERS:
                best = summary.fastest_of(layout, step, begin)
                if best is None:
                    cells.append("")
                    continue
                rested = best["rested_ms"] / best["kpage_rested_ms"]
                text = f"{factor(best):.2f} ({rested:.2f})"
                cells.append(text if factor(best) >= 1 else f"**{text}**")
            rows.append(cells)
    used = [i for i in range(len(_PEERS)) if any(row[3 + i] for row in rows)]
    head = ["layout", "pass", "KPage, ms", *(_PEERS[i][0] for i in used)]
    return _table(head, [[*row[:3], *(row[3 + i] for i in used)] for row in rows])
