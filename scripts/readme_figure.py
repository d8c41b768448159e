#!/usr/bin/env python3
"""Draws the README's figure: how a walk is packed, and what that gives on measured layouts.

usage: scripts/readme_figure.py RESULTS.json >docs/images/overview.svg
"""

import json
import sys

PAGES = 8  # of a block and of a tile
BLOCKS = ((8, 0), (5, 11), (8, 0), (2, 0), (4, 0), (3, 5))  # full pages, rows of the tail page
HUES = ("#3b6ea8", "#c8693a", "#2f8f83", "#8a5aa6", "#b59a2d", "#5b7f3a")
SHOWN = ("full-512", "vsa-288-720p", "padded-5s", "ssta-720p-121f", "vsa-444-480p")
CELL = 15
GAP = 3


def rect(x, y, width, height, fill, more=""):
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" {more}/>'


def text(x, y, words, size=13, anchor="start", fill="#24292f", more=""):
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{fill}" {more}>'
        f"{words}</text>"
    )


def page(x, y, hue, rows=16):
    out = [rect(x, y, CELL, CELL, "#eaeef2", 'stroke="#d0d7de"')]
    if rows:
        out.append(rect(x, y, CELL * rows / 16, CELL, hue))
    return out


def blocks(x, y):
    """The selected blocks, a row each, as a block-sparse kernel multiplies them."""
    out = []
    for number, (full, tail) in enumerate(BLOCKS):
        for slot in range(PAGES):
            rows = 16 if slot < full else tail if slot == full else 0
            out += page(x + slot * (CELL + 1), y + number * (CELL + GAP), HUES[number], rows)
    return out


def tiles(x, y):
    """The same rows as KPage packs them: full pages first, then tails."""
    order = sorted(range(len(BLOCKS)), key=lambda b: (BLOCKS[b][1] > 0, -BLOCKS[b][0]))
    pages = [(b, 16) for b in order for _ in range(BLOCKS[b][0])]
    pages += [(b, BLOCKS[b][1]) for b in order if BLOCKS[b][1]]
    pages += [(0, 0)] * (-len(pages) % PAGES)
    out = []
    for place, (block, rows) in enumerate(pages):
        at_x = x + place % PAGES * (CELL + 1)
        out += page(at_x, y + place // PAGES * (CELL + GAP), HUES[block], rows)
    return out, len(pages) // PAGES


def bars(x, y, results):
    measured = {
        row["layout"]: row["fraction_of_ideal"]
        for row in results["rows"]
        if row["kernel"] == "kpage" and row["pass"] == "forward"
    }
    out = []
    scale = 150
    for number, name in enumerate(SHOWN):
        at = y + number * 22
        out.append(text(x, at + 12, name, 12))
        out.append(rect(x + 110, at, measured[name] * scale, 16, HUES[0]))
        out.append(text(x + 116 + measured[name] * scale, at + 12, f"{measured[name]:.2f}", 12))
    line = x + 110 + scale
    end = y + len(SHOWN) * 22
    out.append(
        f'<line x1="{line}" x2="{line}" y1="{y - 4}" y2="{end}" stroke="#24292f" '
        'stroke-dasharray="3 3"/>'
    )
    return out


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        results = json.load(file)
    packed, count = tiles(215, 52)
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 190" font-family="sans-serif" '
        'role="img" aria-label="Pages of selected blocks are packed into full tiles">',
        rect(0, 0, 760, 190, "#ffffff"),
        text(20, 24, "selected blocks", 14, more='font-weight="bold"'),
        text(20, 42, f"{len(BLOCKS)} tiles of 128 rows", 12, fill="#57606a"),
        *blocks(20, 52),
        text(182, 112, "&#8594;", 22, "middle"),
        text(215, 24, "as KPage multiplies them", 14, more='font-weight="bold"'),
        text(215, 42, f"{count} tiles; nothing copied in memory", 12, fill="#57606a"),
        *packed,
        text(420, 24, "speed of useful work, dense = 1", 14, more='font-weight="bold"'),
        text(420, 42, f"forward, {results['device']}, bf16, D 128", 12, fill="#57606a"),
        *bars(420, 60, results),
        "</svg>",
    ]
    print("\n".join(parts))


if __name__ == "__main__":
    main()
