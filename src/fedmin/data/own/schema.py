"""What all sites agree on: the names of the columns and their kinds, number, category or date.

Every site says what it finds in its own columns; where two differ, or a column is text, the error
names the site, the file, the row and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedmin.core import checks
from fedmin.core.raw_rows import day, level, number
from fedmin.data.own.frames import Frame, no_column

KINDS = ("number", "category", "date")
MOST_LEVELS = 50  # of a category, if it has many rows; more are a text, or an id


def check_names(frames: Sequence[Frame], needed: Mapping[str, str], features: Any) -> None:
    """Refuse sites that lack a column, or whose columns differ where all are used."""
    for frame in frames:
        if not frame.rows:
            raise ValueError(f"site {frame.site}: it has no rows; leave it out, or fill its file")
        for name, what in needed.items():
            if name not in frame.columns:
                raise ValueError(no_column(frame, name, what))
    if features is not None:
        return
    first = frames[0]
    for frame in frames[1:]:
        lacks = [name for name in first.columns if name not in frame.columns]
        more = [name for name in frame.columns if name not in first.columns]
        if lacks or more:
            said = [f"lacks {_listed(lacks)}"] * bool(lacks) + [f"has {_listed(more)}"] * bool(more)
            raise ValueError(
                f"site {frame.site}: it {' and '.join(said)}, unlike site {first.site}; rename the "
                f"columns, or name those to use by features, or leave some out by without"
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def agreed_kind(frames: Sequence[Frame], name: str, given: str | None, missing: Any) -> str:
    """The kind of a column at all sites; a site where it is empty goes with the others."""
    if given is not None:
        checks.known(f"kind of column {name!r}", given, KINDS)
        return given
    found = {frame.site: kind_of(frame, name, missing) for frame in frames}
    kinds = {site: kind for site, kind in found.items() if kind is not None}
    if not kinds:
        raise ValueError(
            f"column {name!r}: it is empty at every site ({', '.join(found)}); leave it out: "
            f'without = ["{name}"]'
        )
    (first, kind), *others = kinds.items()
    for site, other in others:
        if other != kind:
            raise ValueError(
                f"column {name!r}: it is a {other} at site {site} and a {kind} at site {first}; "
                f'say what it is: kinds = {{{name} = "category"}}, or repair the file'
            )
    return kind


def kind_of(frame: Frame, name: str, missing: Any) -> str | None:
    """What one site finds in a column; None if there is nothing in it."""
    values = frame.columns[name]
    if values.dtype.kind == "f":
        return None if np.isnan(values).all() else "number"
    there = [i for i, value in enumerate(values) if value.strip() not in missing]
    if not there:
        return None
    wrong = [i for i in there if number(values[i]) is None]
    if not wrong:
        return "number"
    if all(day(values[i]) is not None for i in there):
        return "date"
    if len(wrong) <= 0.1 * len(there):
        raise ValueError(not_a_number(frame, name, wrong[0]))
    levels = {values[i].strip() for i in there}
    if len(levels) > MOST_LEVELS and 2 * len(levels) > len(there):
        i = there[0]
        raise ValueError(
            f"{frame.where(i)}, column {name!r}: {values[i][:40]!r} is text ({len(levels)} values "
            f'in {len(there)} rows), which no model here reads; leave it out: without = ["{name}"]'
        )
    return "category"


def not_a_number(frame: Frame, name: str, i: int) -> str:
    """What is said of a word among numbers."""
    value = frame.columns[name][i].strip()
    comma = value.replace(",", ".") if value.count(",") == 1 else ""
    way = f"write {comma}" if comma and number(comma) is not None else "repair it"
    return (
        f"{frame.where(i)}, column {name!r}: {value!r} is no number; {way}, or count it as "
        f'missing: missing = ["", "NA", "{value}"], or read words: kinds = {{{name} = "category"}}'
    )


def parsed(frame: Frame, name: str, kind: str, missing: Any) -> np.ndarray:
    """A column by its kind: f64 with NaN, or words with "" where nothing is."""
    values = frame.columns[name]
    if kind == "category":
        words = [level(v) if values.dtype.kind == "f" else v.strip() for v in values]
        return np.array(["" if word in missing else word for word in words], object)
    if values.dtype.kind == "f":
        wild = np.flatnonzero(np.isinf(values))
        if len(wild):
            at = frame.where(int(wild[0]))
            raise ValueError(f"{at}, column {name!r}: {values[wild[0]]} is no finite number")
        return values
    read = number if kind == "number" else day
    found = np.full(len(values), np.nan)
    for i, value in enumerate(values):
        if value.strip() in missing:
            continue
        made = read(value)
        if made is None and kind == "number":
            raise ValueError(not_a_number(frame, name, i))
        if made is None:
            raise ValueError(
                f"{frame.where(i)}, column {name!r}: {value!r} is no date; write it as 2024-05-17"
            )
        found[i] = made
    return found
