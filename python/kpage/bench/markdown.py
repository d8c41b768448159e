"""Results as Markdown: fractions of ideal beside what the project asks for, plans, and peers."""

from kpage.bench.markup import digits
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


def _beside_dense(summary):
    """Named layouts measured beside dense attention; where there is none, the others."""
    key = "fraction_of_ideal"
    every = dict.fromkeys([*TARGETS, *(row["layout"] for row in summary.rows)])
    found = [x for x in every if any(summary.one(x, step, key=key) for step in STEPS)]
    return [x for x in found if x in TARGETS] or found


def _targets(summary):
    rows = []
    for layout in _beside_dense(summary):
        targets = TARGETS.get(layout)
        cells = [layout]
        for i, step in enumerate(STEPS):
            floor, goal = targets[2 * i : 2 * i + 2] if targets else (0.0, 0.0)
            row = summary.one(layout, step, key="fraction_of_ideal")
            if row is None:
                cells += ["", "", ""]
            else:
                fraction = f"{row['fraction_of_ideal']:.2f}"
                met = row["fraction_of_ideal"] >= floor
                cells += [
                    f"{row['time_ms']:.2f}",
                    digits(row["useful_tflops"], 0),
                    fraction if met else f"**{fraction}**",
                ]
            cells.append(f"{floor:.2f} / {goal:.2f}" if targets else "")
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
        rows.append(cells)
    if not rows:
        return "No layout was measured beside dense attention."
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
    if not rows:
        return "No peer was measured."
    used = [i for i in range(len(_PEERS)) if any(row[3 + i] for row in rows)]
    head = ["layout", "pass", "KPage, ms", *(_PEERS[i][0] for i in used)]
    return _table(head, [[*row[:3], *(row[3 + i] for i in used)] for row in rows])
