"""Pictures as inline SVG: bars, a waterfall, lines. Colours come from the page's style."""

import math
from html import escape

WIDTH = 860
_LEFT, _RIGHT, _TOP = 52, 12, 14


def _ticks(top, count=4):
    """Round steps from 0 to at least `top`."""
    raw = max(top, 1e-12) / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw)
    return [i * step for i in range(math.ceil(top / step - 1e-9) + 1)]


def _text(x, y, value, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{escape(value)}</text>'


def _frame(height, body, title):
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(body)}</svg>"
    )


def _axis(ticks, y_of, unit):
    out = []
    for tick in ticks:
        y = y_of(tick)
        out.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        out.append(_text(_LEFT - 6, y + 4, f"{tick:g}{unit}", "end"))
    return out


def _legend(names, y):
    out, x = [], float(_LEFT)
    for i, name in enumerate(names):
        out.append(f'<rect class="s{i}" x="{x:.1f}" y="{y - 9}" width="10" height="10"/>')
        out.append(_text(x + 14, y, name, "start"))
        x += 26 + 6.6 * len(name)
    return out


def bars(groups, series, title, unit="", line=None, form="{:.2f}"):
    """groups: names along the axis; series: {name: [value or None, one a group]}."""
    crowded = len(groups) > 14
    height, base, turn = (360, 228, -55) if crowded else (300, 228, -22)
    values = [v for row in series.values() for v in row if v is not None]
    if not values:
        return ""
    ticks = _ticks(max([*values, line or 0.0]))

    def y_of(value):
        return base - (base - _TOP) * value / ticks[-1]

    body = _axis(ticks, y_of, unit)
    step = (WIDTH - _LEFT - _RIGHT) / len(groups)
    wide = min(34.0, 0.8 * step / len(series))
    for g, group in enumerate(groups):
        middle = _LEFT + (g + 0.5) * step
        for s, row in enumerate(series.values()):
            if row[g] is None:
                continue
            x = middle + (s - len(series) / 2) * wide
            y = y_of(row[g])
            body.append(
                f'<rect class="s{s}" x="{x:.1f}" y="{y:.1f}" width="{wide - 2:.1f}" '
                f'height="{base - y:.1f}"><title>{escape(group)}: {row[g]:.4g}{unit}</title></rect>'
            )
            if wide > 15:
                body.append(_text(x + wide / 2 - 1, y - 3, form.format(row[g]), extra='class="v"'))
        body.append(
            f'<text x="{middle:.1f}" y="{base + 14}" text-anchor="end" '
            f'transform="rotate({turn} {middle:.1f} {base + 14})">{escape(group)}</text>'
        )
    if line is not None:
        y = y_of(line)
        body.append(
            f'<line class="mark" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
    return _frame(height, body + _legend(series, height - 4), title)


def waterfall(steps, title, unit):
    """steps: [(name, [value of ours, value of the paper or None])]; bars from zero, falls shown."""
    return bars(
        [name for name, _ in steps],
        {
            "this run": [pair[0] for _, pair in steps],
            "the paper": [pair[1] for _, pair in steps],
        },
        title,
        unit,
        form="{:.1f}",
    )


def lines(series, title, x_label, unit="", logarithmic=True):
    """series: {name: [(x, y), ...]}, ascending in x."""
    points = [p for row in series.values() for p in row]
    if not points:
        return ""
    height, base = 250, 186
    ticks = _ticks(max(y for _, y in points))
    place = math.log10 if logarithmic else float
    low, high = (place(f(x for x, _ in points)) for f in (min, max))
    span = (high - low) or 1.0

    def x_of(value):
        return _LEFT + 24 + (WIDTH - _LEFT - _RIGHT - 48) * (place(value) - low) / span

    def y_of(value):
        return base - (base - _TOP) * value / ticks[-1]

    body = _axis(ticks, y_of, unit)
    for x in sorted({x for x, _ in points}):
        body.append(_text(x_of(x), base + 16, f"{x:,.0f}" if x >= 1 else f"{x:g}"))
    for s, row in enumerate(series.values()):
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in row)
        body.append(f'<polyline class="l{s}" points="{path}"/>')
        for x, y in row:
            body.append(
                f'<circle class="s{s}" cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3.5">'
                f"<title>{x:,g}: {y:.4g}{unit}</title></circle>"
            )
    body.append(_text(WIDTH / 2, base + 34, x_label))
    return _frame(height, body + _legend(series, height - 4), title)
