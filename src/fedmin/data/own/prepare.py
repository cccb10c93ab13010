"""`Prepare`: what is to be done to columns, fitted by sums over the sites and never on pooled rows.

This is the server's half of the exchanges; what a site answers is in table.py, how both travel in
talk.py. Sums are in double precision, and squares are taken around the agreed mean: 1e8 + small
numbers keeps its digits.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fedmin.core import checks
from fedmin.core.preparation import OTHER, Category, Number, Preparation
from fedmin.data.own.histograms import fullest, histograms, quantile
from fedmin.data.own.talk import Talk

__all__ = ["Prepare", "fitted"]

LEAST_SQUARES = 1e-9  # a secure sum is exact to 2^-62: of less it keeps few digits
MOST_PRODUCTS = 400  # features up to which products of columns are looked at
LEVELS = {"levels": dict[str, dict[str, int]]}
PREPARED = {"rows": int, "weight": float | int, "even": bool}


@dataclass(frozen=True)
class Prepare:
    """What is to be done to the columns of several sites; `Sites.federation` fits it, by sums.

    scale            "standard": mean 0 and deviation 1; "range": to [0, 1]; "quantile": the median
                     and the distance of the quartiles, both from histograms; "none"
    missing          "mean": the mean, of categories the most frequent level; "frequent": the most
                     frequent value, of numbers to half a bin of a histogram; "indicator": the mean,
                     and a column that says so; "refuse"
    smallest_count   levels with fewer rows at all sites together become 'other'
    bins             of a histogram: a quantile is wrong by at most its deviation * 8 / bins where
                     no value is beyond 4 deviations
    class_weights    "balanced": every class counts as much as any other, by counts of all sites
    unusable         columns that are constant, or follow from others: "drop" them, which is said,
                     "refuse", or "keep" them and send no products
    ranges           {column: (low, high)} of numbers that are scaled to [0, 1] by these, and filled
                     by their middle: no sum of such a column leaves a site
    levels           {column: levels} of categories: a site counts these, and names no other; all
                     others are 'other'

    >>> import fedmin
    >>> tables = {"a": {"x": [1.0, 2.0], "y": [0, 1]}, "b": {"x": [3.0, 6.0], "y": [1, 0]}}
    >>> fed = fedmin.data.read(tables, outcome="y").federation(fedmin.data.Prepare())
    >>> fed.about.preparation.columns[0].shift
    3.0
    """

    scale: Literal["standard", "range", "quantile", "none"] = "standard"
    missing: Literal["mean", "frequent", "indicator", "refuse"] = "mean"
    smallest_count: int = 10
    bins: int = 256
    class_weights: Literal["balanced", "none"] = "none"
    unusable: Literal["drop", "refuse", "keep"] = "drop"
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, words in (
            ("scale", ("standard", "range", "quantile", "none")),
            ("missing", ("mean", "frequent", "indicator", "refuse")),
            ("class_weights", ("balanced", "none")),
            ("unusable", ("drop", "refuse", "keep")),
        ):
            checks.known(name, getattr(self, name), words)
        checks.at_least("smallest_count", self.smallest_count, 1)
        checks.at_least("bins", self.bins, 8)
        for name, pair in self.ranges.items():
            if len(pair) != 2 or not pair[0] < pair[1] or not np.isfinite(pair).all():
                raise ValueError(f"ranges: {name!r} needs (low, high), low below high; got {pair}")
        for name, levels in self.levels.items():
            twice = [level for level in levels if list(levels).count(level) > 1]
            if not levels or twice or "" in levels:
                what = f"{twice[0]!r} twice" if twice else "no name, or an empty one"
                raise ValueError(f"levels: {name!r} has {what}; name each level once")

    def asks_nothing_of(self, kinds: Mapping[str, str] | None) -> bool:
        """Whether every column's numbers are in the words themselves, so that no sums are sent;
        of columns that are not known yet: whether it could be."""
        sums = self.class_weights != "none" or self.unusable != "keep"
        named = {*self.ranges, *self.levels}
        return not sums and bool(named) and all(name in named for name in kinds or ())

    def check(self, kinds: Mapping[str, str]) -> None:
        """Refuse words about columns that are not there, or are of another kind."""
        for key, is_category in (("ranges", False), ("levels", True)):
            for name in getattr(self, key):
                checks.known(f"column in {key}", name, list(kinds))
                if (kinds[name] == "category") != is_category:
                    raise ValueError(f"{key}: the column {name!r} is a {kinds[name]}")


Told = dict[str, Any]


def fitted(talk: Talk, how: Prepare, told: Told) -> tuple[Told, list[dict[str, Any]]]:
    """What all sites are told in the end: the agreed numbers; and what each says of its rows."""
    how.check(told["kinds"])
    prepared = _columns(talk, how, told)
    prepared = _usable(talk, how, told, prepared)
    told = {**told, "preparation": prepared.words(), "factor": _factor(talk, how, told)}
    return told, talk.words("prepared", told, PREPARED)


def _columns(talk: Talk, how: Prepare, told: Told) -> Preparation:
    kinds = told["kinds"]
    words = [name for name, kind in kinds.items() if kind == "category"]
    numbers = [name for name in kinds if name not in words and name not in how.ranges]
    made: dict[str, Number | Category] = {**_levels(talk, how, told, words)}
    made |= _numbers(talk, how, told, numbers)
    made |= {name: _ranged(name, pair, how, kinds) for name, pair in how.ranges.items()}
    return Preparation(tuple(made[name] for name in kinds))


def _ranged(name: str, pair: tuple[float, float], how: Prepare, kinds: Told) -> Number:
    low, high = map(float, pair)
    fill = None if how.missing == "refuse" else (low + high) / 2
    return Number(name, low, high - low, fill, how.missing == "indicator", kinds[name] == "date")


def _levels(talk: Talk, how: Prepare, told: Told, names: list[str]) -> dict[str, Category]:
    """The agreed levels of the categories, from how often each site has them."""
    total: dict[str, dict[str, int]] = {name: {} for name in names}
    free = [name for name in names if name not in how.levels]
    if free and talk.hides:
        raise ValueError(
            f"column {free[0]!r}: where the channel hides replies its levels must be named to be "
            f'counted: [prepare] levels = {{{free[0]} = ["...", "..."]}}'
        )
    if free:
        for one in talk.words("levels", {**told, "names": free}, LEVELS):
            for name in free:
                for level, times in one["levels"].get(name, {}).items():
                    total[name][level] = total[name].get(level, 0) + times
    named = {name: list(how.levels[name]) for name in names if name in how.levels}
    if how.asks_nothing_of(told["kinds"]):
        return {name: _named(name, levels, how) for name, levels in named.items()}
    if named:
        entries = sum(len(levels) + 2 for levels in named.values())
        (counts,) = talk.sums("counts", {**told, "named": named}, {}, {"counts": (entries,)})
        each = iter(counts.tolist())
        for name, levels in named.items():
            total[name] = {level: int(next(each)) for level in levels}
            total[name] |= {OTHER: total[name].get(OTHER, 0) + int(next(each)), "": int(next(each))}
    return {name: _category(name, total[name], how) for name in names}


def _named(name: str, levels: list[str], how: Prepare) -> Category:
    """The levels that the words name, uncounted; the first fills what is missing."""
    own = [level for level in levels if level != OTHER]
    fill = None if how.missing == "refuse" else own[0]
    return Category(name, (*own, OTHER), fill, how.missing == "indicator", True)


def _category(name: str, total: dict[str, int], how: Prepare) -> Category:
    empty = total.pop("", 0)
    common = sorted(level for level, times in total.items() if times >= how.smallest_count)
    rare = sum(times for times in total.values() if times < how.smallest_count)
    open_ = name in how.levels and total.get(OTHER, 0) > 0  # what nobody named is there
    if not common:
        raise ValueError(
            f"column {name!r}: none of its {len(total)} levels has {how.smallest_count} rows at "
            f"all sites together; give a smaller smallest_count, or leave the column out"
        )
    levels = [level for level in common if not ((rare or open_) and level == OTHER)]
    levels += [OTHER] * bool(rare or open_)
    often = max(common, key=lambda level: total[level])
    fill = None if how.missing == "refuse" else often
    indicator = how.missing == "indicator" and empty > 0
    return Category(name, tuple(levels), fill, indicator, bool(rare or open_))


def _numbers(talk: Talk, how: Prepare, told: Told, names: list[str]) -> dict[str, Number]:
    if not names:
        return {}
    asked, k = {**told, "names": names}, (len(names),)
    there, sums, rows = talk.sums("totals", asked, {}, {"there": k, "sum": k, "rows": (1,)})
    mean = sums / np.maximum(there, 1)
    squares, rest = talk.sums("spreads", asked, {"mean": mean}, {"squares": k, "rest": k})
    mean = mean + rest / np.maximum(there, 1)  # what rounding left of a sum of large numbers
    if talk.hides and ((squares > 0) & (squares < LEAST_SQUARES)).any():
        name = names[int(np.argmax((squares > 0) & (squares < LEAST_SQUARES)))]
        raise ValueError(
            f"column {name!r}: its values differ so little that a secure sum loses their digits; "
            f"give it in another unit, or its range in [prepare] ranges"
        )
    # over all rows: a filled one is at the mean, and the model's column has deviation 1
    deviation = np.sqrt(squares / rows[0])
    shift, scale, often = _scales(talk, how, asked, mean, deviation)
    fill = often if how.missing == "frequent" else mean
    made = {}
    for j, name in enumerate(names):
        some = there[j] < rows[0]
        made[name] = Number(
            name, float(shift[j]), float(scale[j]) if scale[j] > 0 else 1.0,
            None if how.missing == "refuse" else float(fill[j]),
            bool(how.missing == "indicator" and some), told["kinds"][name] == "date",
        )  # fmt: skip
    return made


def _scales(
    talk: Talk, how: Prepare, asked: Told, mean: np.ndarray, deviation: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The shift and the scale of each number, and its most frequent value where that is asked."""
    plain = {"none": (np.zeros_like(mean), np.ones_like(mean)), "standard": (mean, deviation)}
    if how.scale in plain and how.missing != "frequent":
        return *plain[how.scale], mean
    found = histograms(talk, asked, how.bins, mean, deviation)
    each = list(zip(*found, strict=True))
    often = np.array([fullest(edges, counts) for edges, counts in each])
    if how.scale in plain:
        return *plain[how.scale], often
    if how.scale == "range":
        low = np.array([edges[np.argmax(counts > 0)] for edges, counts in each])
        high = np.array([e[len(c) - np.argmax(c[::-1] > 0)] for e, c in each])
        return low, high - low, often
    first, middle, third = (
        np.array([quantile(edges, counts, q) for edges, counts in each]) for q in (0.25, 0.5, 0.75)
    )
    return middle, np.where(third > first, third - first, deviation), often


def _usable(talk: Talk, how: Prepare, told: Told, prepared: Preparation) -> Preparation:
    """Without features that are constant or follow from those before them, which are named."""
    names = prepared.names
    if how.unusable == "keep" or len(names) > MOST_PRODUCTS:
        return prepared
    asked, k = {**told, "preparation": prepared.words()}, len(names)
    total, count = talk.sums("centers", asked, {}, {"sum": (k,), "rows": (1,)})
    (gram,) = talk.sums("products", asked, {"center": total / count}, {"products": (k, k)})
    bad = _dependent(gram, names)
    if not bad:
        return prepared
    said = "; ".join(bad.values())
    if how.unusable == "refuse":
        raise ValueError(f"{said}: leave them out by without, or give unusable = 'drop'")
    warnings.warn(f"left out of the model: {said}", UserWarning, stacklevel=6)
    if len(bad) == len(names):
        raise ValueError("every column is constant: there is nothing to predict from")
    return Preparation(prepared.columns, tuple(bad))


def _dependent(gram: np.ndarray, names: tuple[str, ...]) -> dict[str, str]:
    """The features that are constant, or that follow from earlier ones; and words for each."""
    scale = np.sqrt(np.diag(gram))
    found: dict[str, str] = {}
    kept: list[int] = []
    for j, name in enumerate(names):
        if not scale[j] > 1e-9:
            found[name] = f"column {name!r} is constant"
            continue
        apart, weights = 1.0, np.zeros(0)
        if kept:
            scaled = gram / np.outer(np.where(scale > 0, scale, 1), np.where(scale > 0, scale, 1))
            weights = np.linalg.solve(scaled[np.ix_(kept, kept)], scaled[kept, j])
            apart = 1.0 - scaled[kept, j] @ weights
        if apart < 1e-10:
            others = [names[k] for k, w in zip(kept, weights, strict=True) if abs(w) > 1e-6]
            found[name] = f"column {name!r} follows from {', '.join(map(repr, others))}"
        else:
            kept.append(j)
    return found


def _factor(talk: Talk, how: Prepare, told: Told) -> list[float] | None:
    """How much a row of each class counts; None where all count the same."""
    if how.class_weights == "none":
        return None
    if told["labels"] is None:
        raise ValueError("class_weights need labels, and the outcome is a number")
    classes = len(told["labels"])
    (counts,) = talk.sums("classes", told, {}, {"classes": (classes,)})
    factor = counts.sum() / (classes * np.where(counts > 0, counts, np.inf))
    return [float(each) for each in factor]
