"""How good the last model is, as pictures: calibration, ROC, confusion, a bar for each part.

They are drawn from the last line of the history: the columns of `Calibration`, `Roc`, `Confusion`,
and of `ByClass`, `ByGroup` and `BySite`, whose columns are parts of one picture and no curves.
"""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from fedmin.core.result import Result

PART = re.compile(r"^(?P<base>.+?)_(?P<kind>group|class|site)_(?P<part>.+)$")
SHAPE = re.compile(r"^(train_)?(roc_\d+|calibration_(predicted|observed)_\d+|confusion_\d+_\d+)$")
SIDE, LEFT, TOP, BOTTOM = 230, 52, 10, 44  # of a square picture, in pixels
BAR, WIDE = 24, 240  # of a bar's line, and of the longest bar
TONES = 7  # colors of page.css


class Point(NamedTuple):
    """A number of the last line of the history: what was measured, of which part."""

    base: str
    kind: str  # "", "group", "class" or "site"
    part: str
    value: float


def points_of(run: Result) -> list[Point]:
    """The last line of the history, taken apart."""
    found = []
    for column in run.history:
        match = PART.match(column)
        base, kind, part = match.groups() if match else (column, "", "")
        found.append(Point(base, kind, part, float(run.final(column))))
    return found


def is_part(column: str) -> bool:
    """Whether a column of the history is a part of a picture, and no curve of its own."""
    return bool(PART.match(column) or SHAPE.match(column))


def pictures(results: Mapping[str, Result]) -> str:
    """The pictures of each run, as HTML; "" where no run has columns for one."""
    each = {name: _of_run(run) for name, run in results.items()}
    shown = {name: html for name, html in each.items() if html}
    head = lambda name: f"<h3>{escape(name)}</h3>" if len(results) > 1 else ""
    return "".join(
        f'{head(name)}<div class="pictures">{html}</div>' for name, html in shown.items()
    )


def _of_run(run: Result) -> str:
    points = points_of(run)
    labels = None if run.about is None else run.about.classes
    found = []
    for before, rows in (("", "test rows"), ("train_", "the sites' rows")):
        for kind in ("", "group", "class", "site"):
            here = [p for p in points if p.base.startswith("train_") == bool(before)]
            mine = [p for p in here if p.kind == kind]
            parts = list(dict.fromkeys(p.part for p in mine))
            named = {p: _label(p, labels) if kind == "class" else p for p in parts}
            values = {part: {p.base.removeprefix(before): p.value for p in mine if p.part == part}
                      for part in parts}  # fmt: skip
            of = rows if not kind else f"{rows}, by {kind}"
            found += [_calibration(values, named, of), _roc(values, named, of)]
            found += [_confusion(values[p], named[p], labels, of) for p in parts]
            if kind:
                whole = {p.base.removeprefix(before): p.value for p in here if not p.kind}
                found += _bars(values, named, kind, of, whole)
    return "".join(found)


def _label(number: str, labels: Sequence[str] | None) -> str:
    known = labels is not None and number.isdecimal() and int(number) < len(labels)
    return labels[int(number)] if known and labels is not None else number


# ---------------------------------------------------------------- curves in a square


Curve = Sequence[tuple[float, float]]


def _calibration(values: Mapping[str, Any], named: Mapping[str, str], of: str) -> str:
    curves: dict[str, Curve] = {}
    for part, numbers in values.items():
        bins = sum(name.startswith("calibration_predicted_") for name in numbers)
        both = ("calibration_predicted_", "calibration_observed_")
        pairs = [tuple(numbers[f"{name}{k + 1}"] for name in both) for k in range(bins)]
        known = [pair for pair in pairs if pair != (0.0, 0.0) and all(map(math.isfinite, pair))]
        if known:
            curves[named[part]] = known
    return _square("Calibration", of, "predicted probability", "share that has the label", curves)


def _roc(values: Mapping[str, Any], named: Mapping[str, str], of: str) -> str:
    curves: dict[str, Curve] = {}
    for part, numbers in values.items():
        count = sum(bool(re.fullmatch(r"roc_\d+", name)) for name in numbers)
        found = [((k + 1) / count, numbers[f"roc_{k + 1}"]) for k in range(count)]
        if found and all(math.isfinite(y) for _, y in found):
            area = numbers.get("auc")
            words = named[part] if area is None else f"{named[part]} AUC {area:.3f}".strip()
            curves[words] = [(0.0, 0.0), *found]
    return _square("ROC", of, "share of other rows taken for it", "share of its rows found", curves)


def _square(title: str, of: str, across: str, up: str, curves: Mapping[str, Curve]) -> str:
    if not curves:
        return ""
    out = [_axes(across, up)]
    at = lambda x, y: f"{LEFT + SIDE * x:.1f},{TOP + SIDE * (1 - y):.1f}"
    out.append(f'<path class="cross" d="M{at(0, 0)}L{at(1, 1)}"/>')
    for k, curve in enumerate(curves.values()):
        line = "L".join(at(*point) for point in curve)
        color = f"var(--c{k % TONES})"
        out.append(f'<path d="M{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        for point in curve:
            cx, cy = at(*point).split(",")
            out.append(f'<circle cx="{cx}" cy="{cy}" r="2.5" fill="{color}"/>')
    for k, name in enumerate(filter(None, curves)):
        y = TOP + SIDE - 12 - 16 * (sum(map(bool, curves)) - 1 - k)
        out.append(f'<text x="{LEFT + SIDE - 6}" y="{y}" text-anchor="end" '
                   f'style="fill:var(--c{k % TONES})">{escape(name)}</text>')  # fmt: skip
    return _figure(title, of, LEFT + SIDE + 14, TOP + SIDE + BOTTOM, out)


def _axes(across: str, up: str) -> str:
    out = []
    for k in range(5):
        x, y, word = LEFT + SIDE * k / 4, TOP + SIDE * (1 - k / 4), f"{k / 4:g}"
        out.append(f'<path class="grid" d="M{LEFT},{y:g}H{LEFT + SIDE}M{x:g},{TOP}V{TOP + SIDE}"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:g}" text-anchor="end">{word}</text>')
        out.append(f'<text x="{x:g}" y="{TOP + SIDE + 16}" text-anchor="middle">{word}</text>')
    middle = TOP + SIDE / 2
    out.append(f'<text x="{LEFT + SIDE / 2:g}" y="{TOP + SIDE + 36}" '
               f'text-anchor="middle">{across}</text>')  # fmt: skip
    out.append(f'<text x="12" y="{middle:g}" text-anchor="middle" '
               f'transform="rotate(-90 12 {middle:g})">{up}</text>')  # fmt: skip
    return "".join(out)


# ---------------------------------------------------------------- cells and bars


def _confusion(
    numbers: Mapping[str, float], part: str, labels: Sequence[str] | None, of: str
) -> str:
    found = {n: v for n, v in numbers.items() if re.fullmatch(r"confusion_\d+_\d+", n)}
    count = math.isqrt(len(found))
    if not count or not all(map(math.isfinite, found.values())):
        return ""
    names = [_label(str(k), labels) for k in range(count)]
    left = 34 + 8 * max(map(len, names))
    cell = max(54, 12 + 8 * max(map(len, names)))
    out = [f'<text x="{left + cell * count / 2:g}" y="14" text-anchor="middle">predicted</text>']
    middle = 44 + 36 * count / 2
    out.append(f'<text x="12" y="{middle:g}" text-anchor="middle" '
               f'transform="rotate(-90 12 {middle:g})">true label</text>')  # fmt: skip
    most = max(found.values()) or 1.0
    for i, name in enumerate(names):
        y, x = 44 + 36 * i, left + cell * (i + 0.5)
        out.append(f'<text x="{x:g}" y="34" text-anchor="middle">{escape(name)}</text>')
        out.append(f'<text x="{left - 8}" y="{y + 23}" text-anchor="end">{escape(name)}</text>')
        for j in range(count):
            share = found[f"confusion_{i}_{j}"]
            shade = 0.06 + 0.94 * share / most
            tone = "var(--card)" if shade > 0.55 else "var(--ink)"
            out.append(
                f'<rect x="{left + cell * j + 1}" y="{y + 1}" width="{cell - 2}" height="34" rx="3"'
                f' fill="var(--accent)" fill-opacity="{shade:.2f}"/><text style="fill:{tone}" '
                f'x="{left + cell * (j + 0.5):g}" y="{y + 23}" text-anchor="middle">'
                f"{100 * share:.1f} %</text>"
            )
    what = f"{of}, {part}" if part else of
    return _figure("Confusion", f"shares of {what}", left + cell * count + 8, 50 + 36 * count, out)


def _bars(
    values: Mapping[str, Mapping[str, float]], named: Mapping[str, str], kind: str, of: str,
    whole: Mapping[str, float],
) -> list[str]:  # fmt: skip
    names = dict.fromkeys(n for numbers in values.values() for n in numbers)
    each = [n for n in names if not SHAPE.match(n) and not n.startswith("calibration_")]
    found = []
    for n in each:
        if not n.endswith("_error"):
            own = {part: numbers[n] for part, numbers in values.items() if n in numbers}
            found.append(_bar_picture(n, own, named, kind, of, whole.get(n)))
    return found


def _bar_picture(
    name: str, values: Mapping[str, float], named: Mapping[str, str], kind: str, of: str,
    whole: float | None,
) -> str:  # fmt: skip
    known = [v for v in values.values() if math.isfinite(v)]
    low, high = min([0.0, *known]), max([0.0, *known, whole or 0.0]) or 1.0
    if name in ("accuracy", "auc", "r2"):
        high = 1.0
    left = 16 + 8 * max(len(named[p]) for p in values)
    at = lambda v: left + WIDE * (v - low) / (high - low)
    foot = 8 + BAR * len(values)
    out = []
    for k in range(5):
        tick = low + (high - low) * k / 4
        out.append(f'<path class="grid" d="M{at(tick):.1f},6V{foot}"/><text x="{at(tick):.1f}" '
                   f'y="{foot + 16}" text-anchor="middle">{tick:.3g}</text>')  # fmt: skip
    for i, (part, value) in enumerate(values.items()):
        y = 8 + BAR * i
        out.append(f'<text x="{left - 8}" y="{y + 16}" text-anchor="end">'
                   f"{escape(named[part])}</text>")  # fmt: skip
        if not math.isfinite(value):
            words = "not told" if kind == "site" else "no rows"
            out.append(f'<text x="{left + 6}" y="{y + 16}">{words}</text>')
            continue
        start, end = sorted((at(0.0), at(value)))
        out.append(f'<rect x="{start:.1f}" y="{y + 3}" width="{end - start:.1f}" '
                   f'height="{BAR - 6}" fill="var(--c0)" rx="2"/>'
                   f'<text x="{end + 5:.1f}" y="{y + 16}">{value:.4g}</text>')  # fmt: skip
    words = {"auc": "AUC", "r2": "R2"}.get(name, name.replace("_", " "))
    title = f"{words[0].upper()}{words[1:]} by {kind}"
    if whole is not None and math.isfinite(whole):
        out.append(f'<path class="cross" d="M{at(whole):.1f},2V{foot}"/>')
        words += f" (dashed: all rows, {whole:.4g})"
    out.append(f'<text x="{left + WIDE / 2:g}" y="{foot + 36}" text-anchor="middle">{words}</text>')
    return _figure(title, of.rpartition(", by ")[0],
                   left + WIDE + 56, foot + BOTTOM, out)  # fmt: skip


def _figure(title: str, of: str, width: float, height: float, parts: Sequence[str]) -> str:
    head = f"<figcaption><b>{escape(title)}</b> of {escape(of)}</figcaption>"
    words = escape(f"{title} of {of}", quote=True)
    return (
        f'<figure class="plot" style="width:{width:g}px">{head}<svg role="img" aria-label="{words}"'
        f' viewBox="0 0 {width:g} {height:g}">{"".join(parts)}</svg></figure>'
    )
