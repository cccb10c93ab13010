"""`Prepare`: what is to be done to columns, fitted by sums over the sites and never on pooled rows.

    levels       site -> server   each category's levels and how often they are there
    totals       site -> server   of each number: how many there are, their sum
    spreads      down the means;  up the sums of squares around them
    products     down the centers of the features;  up the sums of their products around these, by
                 which constant columns and those that follow from others are known
    histograms   down the edges;  up the counts, until nobody is outside of them (scale = "range" or
                 "quantile" only)

Sums are in double precision, and squares are taken around the agreed mean: 1e8 + small numbers
keeps its digits. Every exchange has a line in the ledger.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from fedmin.core import checks
from fedmin.core.federation import Federation
from fedmin.core.ledger import Line
from fedmin.core.preparation import OTHER, About, Category, Number, Preparation
from fedmin.data.own.histograms import histograms, quantile

__all__ = ["Prepare", "fit"]

MOST_PRODUCTS = 1000  # features up to which products of columns are looked at


@dataclass(frozen=True)
class Prepare:
    """What is to be done to the columns of several sites; `Sites.federation` fits it, by sums.

    scale            "standard": mean 0 and deviation 1; "range": to [0, 1]; "quantile": the median
                     and the distance of the quartiles, both from histograms; "none"
    missing          "mean": the mean, of categories the most frequent level; "indicator": that, and
                     a column that says so; "refuse"
    smallest_count   levels with fewer rows at all sites together become 'other'
    bins             of a histogram: a quantile is wrong by at most its deviation * 8 / bins where
                     no value is beyond 4 deviations
    class_weights    "balanced": every class counts as much as any other, by counts of all sites
    unusable         columns that are constant, or follow from others: "drop" them, which is said,
                     or "refuse"

    >>> import fedmin
    >>> tables = {"a": {"x": [1.0, 2.0], "y": [0, 1]}, "b": {"x": [3.0, 6.0], "y": [1, 0]}}
    >>> fed = fedmin.data.read(tables, outcome="y").federation(fedmin.data.Prepare())
    >>> fed.about.preparation.columns[0].shift
    3.0
    """

    scale: Literal["standard", "range", "quantile", "none"] = "standard"
    missing: Literal["mean", "indicator", "refuse"] = "mean"
    smallest_count: int = 10
    bins: int = 256
    class_weights: Literal["balanced", "none"] = "none"
    unusable: Literal["drop", "refuse"] = "drop"

    def __post_init__(self) -> None:
        for name, words in (
            ("scale", ("standard", "range", "quantile", "none")),
            ("missing", ("mean", "indicator", "refuse")),
            ("class_weights", ("balanced", "none")),
            ("unusable", ("drop", "refuse")),
        ):
            checks.known(name, getattr(self, name), words)
        checks.at_least("smallest_count", self.smallest_count, 1)
        checks.at_least("bins", self.bins, 8)


@dataclass
class Talk:
    """Asks all sites the same thing and adds up what they say; counts the bytes."""

    sites: Any
    lines: list[tuple[Line, int]] = field(default_factory=list)

    def ask(self, kind: str, down: Any, answer: Callable[[Any], Any], own: Any = None) -> list[Any]:
        """What each site answers from its own rows, or from what it has made of them."""
        trip = len({line.trip for line, _ in self.lines})
        said = [answer(each) for each in (self.sites.sites.values() if own is None else own)]
        self.lines.append((Line(trip, "down", {kind: _weight(down)}, kind="prepare"), len(said)))
        self.lines += [(Line(trip, "up", {kind: _weight(up)}, kind="prepare"), 1) for up in said]
        return said

    def sums(
        self, kind: str, down: Any, answer: Callable[[Any], Any], own: Any = None
    ) -> list[np.ndarray]:
        """The sums of what the sites answer, arrays each."""
        said = self.ask(kind, down, answer, own)
        return [np.sum(np.stack(part), axis=0) for part in zip(*said, strict=True)]


def _weight(message: Any) -> int:
    """The bytes of a message: numbers of eight each, words as JSON."""
    if isinstance(message, np.ndarray):
        return message.nbytes
    if isinstance(message, list | tuple):
        return sum(map(_weight, message))
    return len(json.dumps(message).encode()) if message else 0


def fit(sites: Any, how: Prepare, *, weights: Any = "sizes", seed: int = 0) -> Federation:
    """The federation of these sites as `how` prepares them."""
    talk = Talk(sites)
    prepared = _fitted(talk, how)
    x = [prepared.apply(site.columns, site.frame.where) for site in sites.sites.values()]
    prepared, keep = _usable(talk, how, prepared, x)
    x = [part[:, keep] for part in x]
    each = _row_weights(talk, how)
    y = [site.y for site in sites.sites.values()]
    edges = np.cumsum([0, *map(len, y)])
    about = About(
        prepared.names, prepared, sites.outcome, sites.classes, sites.fingerprint(),
        tuple(talk.lines), tuple(zip(x, y, each, strict=True)),
    )  # fmt: skip
    groups = [site.groups for site in sites.sites.values()]
    federation = Federation.from_parts(
        np.concatenate(x), np.concatenate(y),
        [np.arange(a, b) for a, b in pairwise(edges)],
        test=_test(sites, prepared), weights=weights, names=list(sites.sites),
        classes=None if sites.classes is None else len(sites.classes),
        groups=None if groups[0] is None else np.concatenate(groups), seed=seed,
        row_weights=np.concatenate(each) if _weighs(sites, how) else None,
    )  # fmt: skip
    return replace(federation, about=about)


def _weighs(sites: Any, how: Prepare) -> bool:
    return sites.weighted or how.class_weights != "none"


def _fitted(talk: Talk, how: Prepare) -> Preparation:
    kinds = talk.sites.kinds
    words = [name for name, kind in kinds.items() if kind == "category"]
    numbers = [name for name in kinds if name not in words]
    levels = _levels(talk, how, words)
    made: dict[str, Number | Category] = levels | _numbers(talk, how, numbers)
    return Preparation(tuple(made[name] for name in kinds))


def _levels(talk: Talk, how: Prepare, names: list[str]) -> dict[str, Category]:
    """The agreed levels of the categories, from how often each site has them."""

    def count(site: Any) -> dict[str, dict[str, int]]:
        found = {}
        for name in names:
            each, times = np.unique(site.columns[name].astype(str), return_counts=True)
            found[name] = dict(zip(each.tolist(), times.tolist(), strict=True))
        return found

    if not names:
        return {}
    said = talk.ask("levels", names, count)
    made = {}
    for name in names:
        total: dict[str, int] = {}
        for one in said:
            for level, times in one[name].items():
                total[level] = total.get(level, 0) + times
        made[name] = _category(name, total, how)
    return made


def _category(name: str, total: dict[str, int], how: Prepare) -> Category:
    empty = total.pop("", 0)
    common = sorted(level for level, times in total.items() if times >= how.smallest_count)
    rare = sum(times for times in total.values() if times < how.smallest_count)
    if not common:
        raise ValueError(
            f"column {name!r}: none of its {len(total)} levels has {how.smallest_count} rows at "
            f"all sites together; give a smaller smallest_count, or leave the column out"
        )
    levels = [level for level in common if not (rare and level == OTHER)]
    levels += [OTHER] * bool(rare)
    often = max(common, key=lambda level: total[level])
    fill = None if how.missing == "refuse" else often
    indicator = how.missing == "indicator" and empty > 0
    return Category(name, tuple(levels), fill, indicator, bool(rare))


def _numbers(talk: Talk, how: Prepare, names: list[str]) -> dict[str, Number]:
    if not names:
        return {}

    def total(site: Any) -> list[np.ndarray]:
        x = np.stack([site.columns[name] for name in names], axis=1)
        return [(~np.isnan(x)).sum(axis=0).astype(float), np.nansum(x, axis=0),
                np.array([len(x)], float)]  # fmt: skip

    counts, sums, rows = talk.sums("totals", names, total)
    mean = sums / np.maximum(counts, 1)

    def spread(site: Any) -> list[np.ndarray]:
        x = np.stack([site.columns[name] for name in names], axis=1)
        return [np.nansum((x - mean) ** 2, axis=0), np.nansum(x - mean, axis=0)]

    squares, rest = talk.sums("spreads", mean, spread)
    mean = mean + rest / np.maximum(counts, 1)  # what rounding left of a sum of large numbers
    # over all rows: a filled one is at the mean, and the model's column has deviation 1
    deviation = np.sqrt(squares / rows[0])
    shift, scale = _scales(talk, how, names, mean, deviation)
    made = {}
    for j, name in enumerate(names):
        some = counts[j] < rows[0]
        made[name] = Number(
            name, float(shift[j]), float(scale[j]) if scale[j] > 0 else 1.0,
            None if how.missing == "refuse" else float(mean[j]),
            bool(how.missing == "indicator" and some), talk.sites.kinds[name] == "date",
        )  # fmt: skip
    return made


def _scales(
    talk: Talk, how: Prepare, names: list[str], mean: np.ndarray, deviation: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    if how.scale == "none":
        return np.zeros(len(names)), np.ones(len(names))
    if how.scale == "standard":
        return mean, deviation
    edges, counts = histograms(talk, how.bins, names, mean, deviation)
    if how.scale == "range":
        low = np.array([e[np.argmax(c > 0)] for e, c in zip(edges, counts, strict=True)])
        last = [len(c) - np.argmax(c[::-1] > 0) for c in counts]
        high = np.array([e[k] for e, k in zip(edges, last, strict=True)])
        return low, high - low
    first, middle, third = (
        np.array([quantile(e, c, q) for e, c in zip(edges, counts, strict=True)])
        for q in (0.25, 0.5, 0.75)
    )
    return middle, np.where(third > first, third - first, deviation)


def _usable(
    talk: Talk, how: Prepare, prepared: Preparation, x: list[np.ndarray]
) -> tuple[Preparation, np.ndarray]:
    """Without features that are constant or follow from those before them, which are named."""
    names = prepared.names
    keep = np.ones(len(names), bool)
    if len(names) > MOST_PRODUCTS:
        return prepared, keep
    total, count = talk.sums(
        "centers", list(names), lambda part: [part.sum(axis=0), np.array([len(part)], float)], x
    )
    center = total / count
    around = lambda part: [(part - center).T @ (part - center)]
    (gram,) = talk.sums("products", center, around, x)
    bad = _dependent(gram, names)
    if not bad:
        return prepared, keep
    said = "; ".join(bad.values())
    if how.unusable == "refuse":
        raise ValueError(f"{said}: leave them out by without, or give unusable = 'drop'")
    warnings.warn(f"left out of the model: {said}", UserWarning, stacklevel=5)
    keep = np.array([name not in bad for name in names])
    if not keep.any():
        raise ValueError("every column is constant: there is nothing to predict from")
    return Preparation(prepared.columns, tuple(bad)), keep


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


def _row_weights(talk: Talk, how: Prepare) -> list[np.ndarray]:
    """How much each row counts."""
    sites = talk.sites
    each = [site.weights for site in sites.sites.values()]
    if how.class_weights == "none":
        return each
    if sites.classes is None:
        raise ValueError(f"class_weights need labels, and {sites.outcome!r} is a number")
    classes = len(sites.classes)
    (counts,) = talk.sums("classes", [], lambda site: [np.bincount(site.y, site.weights, classes)])
    factor = counts.sum() / (classes * np.where(counts > 0, counts, np.inf))
    return [w * factor[site.y] for w, site in zip(each, sites.sites.values(), strict=True)]


def _test(sites: Any, prepared: Preparation) -> Any:
    if not sites.test:
        return None
    held = list(sites.test.values())
    x = np.concatenate([prepared.apply(site.columns, site.frame.where) for site in held])
    y = np.concatenate([site.y for site in held])
    if held[0].groups is None:
        return x, y
    return x, y, np.concatenate([site.groups for site in held])
