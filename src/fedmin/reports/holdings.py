"""Who holds what, as a picture for the page: clients down, labels across, darker is more rows."""

from html import escape

import numpy as np

from fedmin.core.holdings import Holdings

MOST = 60  # clients shown; the picture of a thousand would be a gray carpet
CELL = 28
ROW = 22


def holdings_picture(held: Holdings) -> str:
    """The picture, with exact counts in it; bars of sizes where there are no labels."""
    if not held.told:
        return f"<p>{escape(str(held))}: {escape(', '.join(held.names))}.</p>"
    if held.counts is None or len(held.counts[0]) > 40:
        counts, labels = np.array(held.sizes)[:, None], [held.unit]
    else:
        counts, labels = np.array(held.counts), [str(c) for c in range(len(held.counts[0]))]
    shown = counts[:MOST]
    rest = len(counts) - len(shown)
    note = f"<p class='note'>and {rest} more clients</p>" if rest else ""
    picture = f'<div class="wide">{_grid(shown, held.names, labels)}</div>'
    return f"<p>{escape(str(held))}.</p>{picture}{note}"


def _grid(counts: np.ndarray, names: list[str], labels: list[str]) -> str:
    left = 16 + 8 * max(len(name) for name in (*names[:MOST], "client"))
    cell = max(CELL, 10 + 8 * max(len(str(counts.max())), *map(len, labels)))
    width, height = left + cell * len(labels) + 4, ROW * (len(counts) + 2)
    most = max(int(counts.max()), 1)
    out = [f'<text class="h" x="{left - 10}" y="{1.68 * ROW:g}" text-anchor="end">client</text>']
    out.append(f'<text class="h" x="{left}" y="{0.7 * ROW:g}">label</text>' * (len(labels) > 1))
    for j, label in enumerate(labels):
        at = left + cell * (j + 0.5)
        out.append(f'<text class="h" x="{at:g}" y="{1.68 * ROW:g}" {MIDDLE}>{escape(label)}</text>')
    for i, line in enumerate(counts):
        y = ROW * (i + 2)
        name = escape(names[i])
        out.append(f'<text x="{left - 10}" y="{y + 15}" text-anchor="end">{name}</text>')
        out += [_cell(left + cell * j, y, cell, int(n), most) for j, n in enumerate(line)]
    size = f'viewBox="0 0 {width} {height}" style="max-width:{width}px;min-width:{width * 0.8:g}px"'
    return (
        f'<svg class="holdings" role="img" aria-label="who holds what" {size}>{"".join(out)}</svg>'
    )


MIDDLE = 'text-anchor="middle"'


def _cell(x: float, y: float, width: float, count: int, most: int) -> str:
    shade = 0.06 if count == 0 else 0.25 + 0.75 * count / most
    box = (
        f'<rect x="{x + 1:g}" y="{y + 1:g}" width="{width - 2:g}" height="{ROW - 2}" rx="3" '
        f'fill-opacity="{shade:.2f}"/>'
    )
    if not count:
        return box
    tone = "on" if shade > 0.55 else "off"
    return box + f'<text class="{tone}" x="{x + width / 2:g}" y="{y + 15}" {MIDDLE}>{count}</text>'
