"""The page: the paper's tables and figures beside what was measured, and what was missed first."""

from html import escape

from kpage.bench import figures, tables
from kpage.bench.markup import STYLE, digits, section, span, table
from kpage.bench.summary import Summary


def page(files, notes):
    """files: of Results, oldest first. notes: why a target is missed, by "<layout>, <pass>"."""
    summary = Summary(files)
    parts = [
        _head(summary, files),
        _missed(summary, notes),
        tables.fastest(summary),
        figures.controlled(summary),
        figures.representative(summary),
        figures.ideal(summary),
        figures.accounting(summary),
        figures.backward(summary),
        figures.open_source(summary),
        tables.configurations(summary),
        tables.peer_table(summary),
        tables.targets(summary),
        tables.plans(summary),
        tables.selection(summary),
        tables.scaling(summary),
        tables.variants(summary),
        tables.checks(summary),
        tables.peers(summary, files),
    ]
    title = "KPage: the paper's experiments, measured"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
        f"{''.join(part for part in parts if part)}</body></html>\n"
    )


def _head(summary, files):
    devices = ", ".join(dict.fromkeys(data["device"] for data in files))
    rows = [
        [
            data["commit"] or "unknown",
            data["device"],
            *(digits(data["r_dense"].get(k), 0) for k in ("forward", "forward_backward")),
            len(data["rows"]),
            *(_range_of(data["rows"], k) for k in ("sm_mhz", "temperature_c", "power_w")),
            (data["command"], "why"),
        ]
        for data in files
    ]
    return (
        f"<p>Ours: measured on {escape(devices)}, sustained (back to back), medians, kernels "
        "taking "
        "turns in one process; only ratios within a run count, since the clock moves with load. "
        f"The paper's: {escape(figures.PAPER['gpu'])}; its figures are quoted, not measured "
        "here.</p>"
        + table(
            [
                *("commit", "GPU" if summary.on_gpu else "device"),
                *("dense forward, TFLOP/s", "forward+backward", "rows"),
                *("clock, MHz", "C", "W", "command"),
            ],
            rows,
            left=(8,),
        )
    )


def _range_of(rows, key):
    """Right after forward passes."""
    values = [row[key] for row in rows if key in row]
    return span((min(values), max(values)), "{:.0f}") if values else ""


def _missed(summary, notes):
    if not summary.on_gpu:
        return (
            "<h2>What is missed</h2><p>The project asks of itself what a GPU can do: nothing is "
            "compared on a CPU.</p>"
        )
    rows = [
        [layout, step, (what, "why"), (notes.get(f"{layout}, {step}", notes.get(step, "")), "why")]
        for layout, step, what in summary.missed()
    ]
    if not rows:
        return "<h2>What is missed</h2><p>Nothing of what the project asks of itself.</p>"
    return section(
        "What is missed",
        "Where KPage is not the fastest exact kernel, or misses a factor, a floor or a limit that "
        "the "
        "project set itself.",
        table(["layout", "pass", "what", "why"], rows, left=(2, 3)),
    )
