"""Pieces of the page: its style, sections, tables and cells."""

import math
from html import escape

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1080px;margin:2em auto;padding:0 1em;
  color:#1c2733}
h1{font-size:1.7em;margin-bottom:.2em}
h2{font-size:1.2em;margin-top:2.2em;border-top:1px solid #d8dee4; padding-top:.8em}
p.small,footer,td.why{color:#57636f;font-size:.9em}
table{border-collapse:collapse;width:100%;font-size:.85em;margin:.8em 0;display:block;
  overflow-x:auto}
th,td{padding:.25em .6em;border-bottom:1px solid #e6eaee;text-align:right;white-space:nowrap}
th:first-child,td:first-child,td.why,th.why{text-align:left}
td.why{white-space:normal;min-width:11em} th{background:#f4f6f8}
td.bad{color:#b42318;font-weight:600} td.good{color:#146c43}
svg{width:100%;height:auto;font:11px system-ui,sans-serif;margin:.6em 0} svg text{fill:#3c4854}
svg text.v{font-size:9.5px} .grid{stroke:#e6eaee} .mark{stroke:#b42318;stroke-dasharray:5 4}
.s0{fill:#0f766e} .s1{fill:#94a3b8} .s2{fill:#d9a441} .s3{fill:#6d5fb0} .s4{fill:#c26a4a}
.s5{fill:#5b8bd0} polyline{fill:none;stroke-width:2} .l0{stroke:#0f766e} .l1{stroke:#94a3b8}
.l2{stroke:#d9a441} .l3{stroke:#6d5fb0} @media(max-width:600px){body{margin:1em auto}}
"""


def table(head, rows, left=()):
    """Cells are text, or (text, class). left: columns of prose."""
    if not rows:
        return ""

    def cell(tag, value, i):
        text, style = value if isinstance(value, tuple) else (value, "why" if i in left else "")
        return f'<{tag} class="{style}">{escape(str(text))}</{tag}>'

    def line(tag, values):
        return "<tr>" + "".join(cell(tag, v, i) for i, v in enumerate(values)) + "</tr>"

    return f"<table>{line('th', head)}{''.join(line('td', row) for row in rows)}</table>"


def section(title, text, *content):
    content = "".join(content)
    return f'<h2>{escape(title)}</h2><p class="small">{text}</p>{content}' if content else ""


def number(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def digits(value, places):
    """So many decimals, or two significant digits where those would show none; "" for None."""
    if value is None:
        return ""
    return f"{value:.{places}f}" if value == 0 or abs(value) >= 10**-places else f"{value:.2g}"


def times(value, least=1.0):
    """A factor, marked where it is below what it should be."""
    if value is None:
        return ""
    return (f"{value:.2f}", "good" if value >= least else "bad")


def geometric_mean(values):
    values = [v for v in values if v is not None]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def span(pair, form="{:.2f}"):
    low, high = map(form.format, pair)
    return low if low == high else f"{low} to {high}"
