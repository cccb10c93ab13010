"""What all sites agree on: the names of the columns and their kinds, number, category or date.

Every site says what it finds in its own columns; where two differ, or a column is text, the error
names the site, the file, the row and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedmin.core import checks
from fedmin.core.raw_rows import day, level, number
from fedmin.data.own.frames import Frame

KINDS = ("number", "category", "date")
MOST_CODES = 10  # different numbers among words; more are a column of numbers with words in it
NEARLY = re.compile(
    r"[+-]?(\d+,\d+|\d{1,3}(,\d{3})+(\.\d+)?|inf(inity)?|\d+(\.\d+)?)", re.IGNORECASE
)
MOST_LEVELS = 50  # of a category, if it has many rows; more are a text, or an id


def agreed_kinds(
    said: Mapping[str, Mapping[str, Any]], given: Mapping[str, str], without: Sequence[str]
) -> dict[str, str]:
    """The kinds of the columns at all sites, by what each said of its own (`SiteTable.schema`)."""
    (first, one), *others = said.items()
    for name in without:
        if all(name in words["lacks"] for words in said.values()):
            near = checks.nearest(name, one["columns"])
            raise ValueError(f"no site has a column {name!r}, which without names; {near}")
    for site, words in others:
        lacks = [name for name in one["columns"] if name not in words["columns"]]
        more = [name for name in words["columns"] if name not in one["columns"]]
        if lacks or more:
            parts = [f"lacks {_listed(lacks)}"] * bool(lacks)
            parts += [f"has {_listed(more)}"] * bool(more)
            raise ValueError(
                f"site {site}: it {' and '.join(parts)}, unlike site {first}; rename the "
                f"columns, or name those to use by features, or leave some out by without"
            )
    for name in given:
        checks.known(f"kind of column {name!r}", given[name], KINDS)
    return {
        name: agreed_kind(name, {site: words["columns"][name] for site, words in said.items()})
        for name in one["columns"]
    }


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def agreed_kind(name: str, found: Mapping[str, str | None]) -> str:
    """The kind of a column at all sites; a site where it is empty goes with the others."""
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
                f'say what it is: kinds = {{{name} = "category"}}, or repair the file (an entry '
                f"that is no number, such as 50 5, makes a category of a short column)"
            )
    checks.known(f"kind of column {name!r}", kind, KINDS)
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
    numbers = {values[i].strip() for i in set(there) - set(wrong)}
    several = len(numbers) > MOST_CODES and len(wrong) < 0.5 * len(there)
    written = all(NEARLY.fullmatch(values[i].strip()) for i in wrong)  # as numbers, elsewhere
    if len(wrong) <= 0.1 * len(there) or several or written:
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
    whole = value.replace(",", "") if "." in value or value.count(",") > 1 else ""
    right = whole or (value.replace(",", ".") if value.count(",") == 1 else "")
    way = f"write {right}" if right and number(right) is not None else "repair it"
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
