"""A path as a table and a picture for the page: scores along sizes, radii or limits."""

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fedmin.core.kept import DamagedError, check_words, read_words

FORM = {"label": str, "rule": str, "table": dict, "bytes": dict, "value": float, "best": float}
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 560, 260, 70, 44, 14, 20
COLUMNS = ("nonzeros", "objective", "loss", "score", "error", "status", "choice")


def path_section(folder: Path) -> str:
    """What is to be said of a path in a run's folder, as HTML; "" if the run is no path."""
    place = folder / "path.json"
    if not place.exists():
        return ""
    words = read_words(place)
    check_words(place, words, FORM)
    table = words["table"]
    lengths = {len(column) for column in table.values() if isinstance(column, list)}
    known = {"score", "error", "choice"} <= set(table)
    if not known or len(lengths) != 1 or not all(isinstance(c, list) for c in table.values()):
        raise DamagedError(place, "its table has no score for each value")
    name = next(iter(table))
    try:
        x, score = (np.array(table[key], float) for key in (name, "score"))
        error = np.array([np.nan if e is None else e for e in table["error"]], float)
    except (ValueError, TypeError):
        raise DamagedError(place, "its table has words where numbers must be") from None
    if not (np.isfinite(x).all() and np.isfinite(score).all()):
        raise DamagedError(place, "its table has numbers that are not finite")
    picture = _picture(x, score, error, words)
    return f"{picture}{_table(table)}<p>Bytes of all its runs: {_bytes(words['bytes'])}.</p>"


def _bytes(kinds: dict[str, Any]) -> str:
    sizes = [size for size in kinds.values() if isinstance(size, int)]
    return f"{sum(sizes):,}"


def _table(table: dict[str, list[Any]]) -> str:
    head = "".join(f"<th>{escape(str(name))}</th>" for name in table)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row) + "</tr>"
        for row in zip(*table.values(), strict=True)
    )
    return f'<div class="wide"><table><tr>{head}</tr>{rows}</table></div>'


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _picture(x: np.ndarray, score: np.ndarray, error: np.ndarray, words: dict[str, Any]) -> str:
    spare = np.where(np.isfinite(error), error, 0)
    low, high = float((score - spare).min()), float((score + spare).max())
    high = high if high > low else low + 1
    across = float(x.max() - x.min()) or 1.0

    def at(value: Any, height: Any) -> tuple[float, float]:
        left = LEFT + (float(value) - float(x.min())) / across * (WIDTH - LEFT - RIGHT)
        top = TOP + (high - float(height)) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return round(left, 1), round(top, 1)

    def points(heights: Iterable[Any], values: Iterable[Any]) -> str:
        each = zip(values, heights, strict=True)
        return " ".join(f"{a:g},{b:g}" for a, b in (at(v, h) for v, h in each))

    band = points([*(score + spare), *(score - spare)[::-1]], [*x, *x[::-1]])
    out = [f'<polygon points="{band}" fill="#4477aa" opacity="0.18"/>']
    for value, color, said in (
        (words["best"], "#228833", "best"), (words["value"], "#ee6677", "chosen"),
    ):  # fmt: skip
        left = at(value, low)[0]
        dashes = ' stroke-dasharray="3 3"' if said == "best" else ""
        out.append(
            f'<line x1="{left}" x2="{left}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="{color}"'
            f"{dashes}><title>{said}: {value:g}</title></line>"
        )
    out.append(
        f'<polyline points="{points(score, x)}" fill="none" stroke="#4477aa" stroke-width="2"/>'
    )
    out += _ticks(x, low, high, at)
    label, rule = escape(words["label"]), escape(words["rule"])
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(_text(middle, HEIGHT - 6, label))
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" style="max-width:{WIDTH}px"'
    note = f"score by {rule}; dotted: the best, {words['best']:g}; line: chosen, {words['value']:g}"
    drawn = f'<svg class="holdings" role="img" aria-label="path" {size}>{"".join(out)}</svg>'
    return f'<div class="wide">{drawn}</div><p class="note">{note}</p>'


def _ticks(x: np.ndarray, low: float, high: float, at: Any) -> list[str]:
    """The values below, and three heights at the side."""
    out, last = [], -np.inf
    for value in x:
        left = at(value, low)[0]
        if left - last >= 34:  # else two of them would lie on each other
            out.append(_text(left, HEIGHT - BOTTOM + 16, f"{value:g}"))
            last = left
    for height in (low, (low + high) / 2, high):
        top = at(x[0], height)[1]
        out.append(_text(LEFT - 8, top + 4, f"{height:.4g}", "end"))
        out.append(
            f'<line x1="{LEFT - 4}" x2="{WIDTH - RIGHT}" y1="{top}" y2="{top}" stroke="#888" '
            f'opacity="0.25"/>'
        )
    return out


def _text(left: float, top: float, words: str, anchor: str = "middle") -> str:
    return f'<text x="{left:g}" y="{top:g}" text-anchor="{anchor}">{words}</text>'
