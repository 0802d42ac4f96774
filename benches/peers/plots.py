"""Plots as SVG, without a library: rows with a point for the median and a line from least to most.

The colours follow the reader's scheme; text keeps its size because a plot is as wide as a page.
"""

import math
from html import escape

WIDTH, LEFT, RIGHT, ROW, HEAD, FOOT = 800, 235, 90, 30, 62, 34

STYLE = """
  .back { fill: #ffffff } text { fill: #1f2328; font: 13px system-ui, sans-serif }
  .title { font-size: 15px; font-weight: 600 } .note, .tick { fill: #59636e; font-size: 12px }
  .grid { stroke: #d1d9e0; stroke-width: 1 } .row { stroke: #eff2f5; stroke-width: 1 }
  .ours { font-weight: 600 } .failed { fill: #59636e; font-style: italic; font-size: 12px }
  .s0 { fill: #0969da; stroke: #0969da } .s1 { fill: #bc4c00; stroke: #bc4c00 }
  .s2 { fill: #1a7f37; stroke: #1a7f37 } .range { stroke-width: 3; stroke-opacity: .45 }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117 } text { fill: #e6edf3 } .note, .tick, .failed { fill: #9198a1 }
    .grid { stroke: #3d444d } .row { stroke: #21262d }
    .s0 { fill: #58a6ff; stroke: #58a6ff } .s1 { fill: #f0883e; stroke: #f0883e }
    .s2 { fill: #3fb950; stroke: #3fb950 }
  }
"""


def plot(title, note, unit, series, rows, linear=False):
    """A plot of `rows`: (label, whether it is ours, one entry for each of `series`).

    An entry is (least, median, most), or a text that says why there is none.
    """
    lanes = max(1, len(series))
    height_of_row = ROW + 13 * (lanes - 1)
    height = HEAD + height_of_row * len(rows) + FOOT
    values = [value for _, _, entries in rows for entry in entries if isinstance(entry, tuple)
              for value in entry]
    to_x, ticks = scale(values, linear)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
             f'width="{WIDTH}" height="{height}" role="img">',
             f"<title>{escape(title)}</title><style>{STYLE}</style>",
             f'<rect class="back" width="{WIDTH}" height="{height}" rx="6"/>',
             f'<text class="title" x="16" y="24">{escape(title)}</text>',
             f'<text class="note" x="16" y="43">{escape(note)}</text>']
    parts += legend(series)
    bottom = height - FOOT
    for value in ticks:
        x = to_x(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD - 8}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">'
                     f"{escape(number(value))} {escape(unit)}</text>")
    for index, (label, ours, entries) in enumerate(rows):
        top = HEAD + index * height_of_row
        middle = top + height_of_row / 2
        css = ' class="ours"' if ours else ""
        parts.append(f'<line class="row" x1="16" x2="{WIDTH - 16}" y1="{top}" y2="{top}"/>')
        parts.append(f'<text{css} x="16" y="{middle + 4:.1f}">{escape(label)}</text>')
        for lane, entry in enumerate(entries):
            y = middle + (lane - (lanes - 1) / 2) * 15
            parts += mark(lane, entry, y, to_x, unit)
    return "\n".join(parts) + "\n</svg>\n"


def mark(lane, entry, y, to_x, unit):
    if not isinstance(entry, tuple):
        return [f'<text class="failed" x="{LEFT + 4}" y="{y + 4:.1f}">{escape(short(entry))}</text>']
    least, half, most = map(to_x, entry)
    return [f'<line class="range s{lane}" x1="{least:.1f}" x2="{most:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>',
            f'<circle class="s{lane}" cx="{half:.1f}" cy="{y:.1f}" r="4.5"/>',
            f'<text class="tick" x="{most + 10:.1f}" y="{y + 4:.1f}">'
            f"{escape(number(entry[1]))} {escape(unit)}</text>"]


def legend(series):
    if len(series) < 2:
        return []
    parts, x = [], WIDTH - 16
    for index in reversed(range(len(series))):
        x -= 7 * len(series[index]) + 26
        parts.append(f'<circle class="s{index}" cx="{x}" cy="20" r="4.5"/>')
        parts.append(f'<text class="tick" x="{x + 10}" y="24">{escape(series[index])}</text>')
    return parts


def scale(values, linear):
    """Where a value is, and the values that have a line."""
    room = WIDTH - LEFT - RIGHT
    if linear or not values:
        top = max([*values, 1e-9])
        step = 10 ** math.floor(math.log10(top))
        step = next(step * part for part in (0.2, 0.5, 1, 2, 5) if top / (step * part) <= 6)
        ticks = [n * step for n in range(int(top / step) + 1)]
        return (lambda value: LEFT + room * max(value, 0) / top), ticks
    least = max(min(values), max(values) / 1e6, 1e-9)
    low = math.floor(math.log10(least))
    high = max(math.ceil(math.log10(max(values))), low + 1)

    def to_x(value):
        return LEFT + room * (math.log10(max(value, 10 ** low)) - low) / (high - low)

    return to_x, [10.0 ** n for n in range(low, high + 1)]


def number(value):
    """Three digits, with commas from a thousand on."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if value == int(value):
        return f"{int(value)}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2g}"


def short(text):
    return text if len(text) <= 70 else text[:69] + "…"
