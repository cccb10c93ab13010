"""One site's own table, and what it answers of it: the only code that sees its rows.

    schema       the names and kinds of its columns
    labels       which labels and groups it has, without counts
    levels       each category's levels, and how many rows have them
    totals       of each number: how many there are, their sum
    spreads      the sums of squares around the agreed means
    histograms   counts in agreed bins
    centers, products     of the features that the agreed numbers make
    classes      how many rows each label has
    prepared     how many rows it trains on, and what they weigh

At machines the same answers leave as messages (runs/preparing.py), each written down before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from fedmin.core.preparation import Preparation
from fedmin.data.own.frames import Frame, no_column
from fedmin.data.own.rows import Chosen, SiteRows
from fedmin.data.own.schema import kind_of, parsed

MOST_LABELS = 100
Told = Mapping[str, Any]


class SiteTable:
    """The table of client `me`, which answers questions of it."""

    def __init__(self, frame: Frame, chosen: Chosen, me: int):
        self.frame, self.chosen, self.me = frame, chosen, me
        self._rows: tuple[str, Any] = ("", None)
        self._x: tuple[str, Any] = ("", None)

    def answer(self, kind: str, told: Told, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Words, or arrays to be added up over the sites."""
        known: dict[str, Callable[[Told, Any], dict[str, Any]]] = {
            "schema": self.schema, "labels": self.labels, "levels": self.levels,
            "counts": self.counts, "totals": self.totals, "spreads": self.spreads,
            "histograms": self.histograms, "centers": self.centers, "products": self.products,
            "classes": self.classes, "prepared": self.prepared,
        }  # fmt: skip
        if kind not in known:
            raise ValueError(f"a site has no answer about {kind!r}")
        return known[kind](told, arrays)

    # ------------------------------------------------------------ the schema

    @cached_property
    def names(self) -> list[str]:
        """The features of this site."""
        frame, chosen = self.frame, self.chosen
        beside = chosen.beside
        if chosen.features is None:
            found = [n for n in frame.columns if n not in beside and n not in chosen.without]
            if not found:
                raise ValueError(f"site {frame.site}: no column is left to predict from")
            return found
        if not chosen.features:
            raise ValueError("features is an empty list; leave it out for all columns")
        given = list(chosen.features)
        twice = [name for name in given if given.count(name) > 1 or name in beside]
        if twice:
            what = f"features and {beside[twice[0]]}" if twice[0] in beside else "features, twice"
            raise ValueError(f"the column {twice[0]!r} is named in {what}; name it once")
        return given

    @property
    def used(self) -> list[str]:
        """The columns of its file that are looked into."""
        return [*self.names, *(name for name in self.chosen.beside)]

    def schema(self, told: Told, _: Any) -> dict[str, Any]:
        """Names and kinds; what is wrong with them is said with site, file, row and remedy."""
        frame, chosen = self.frame, self.chosen
        if not frame.rows:
            raise ValueError(f"site {frame.site}: it has no rows; leave it out, or fill its file")
        needed = {**dict.fromkeys(chosen.features or (), "features"), **chosen.beside}
        for name, what in needed.items():
            if name not in frame.columns:
                raise ValueError(no_column(frame, name, what))
        given = chosen.kinds or {}
        kind = lambda name: given.get(name) or kind_of(frame, name, chosen.missing)
        found = {name: kind(name) for name in self.names}
        self._check_ids()
        lacks = [name for name in chosen.without if name not in frame.columns]
        outcome = kind(chosen.outcome)
        return {"rows": frame.rows, "columns": found, "outcome": outcome, "lacks": lacks}

    def _check_ids(self) -> None:
        name, frame = self.chosen.id, self.frame
        if name is None:
            return
        first: dict[Any, int] = {}
        for i, value in enumerate(frame.columns[name].tolist()):
            if value == "" or value != value:
                raise ValueError(f"{frame.where(i)}, column {name!r}: the id is missing; give it, "
                                 f"or leave the row out of the file")  # fmt: skip
            if value in first:
                raise ValueError(
                    f"{frame.where(i)}, column {name!r}: the id {value!r} is also in "
                    f"{frame.places[first[value]]}; a row has one id: take one of them out"
                )
            first[value] = i

    def labels(self, told: Told, _: Any) -> dict[str, Any]:
        """The labels and the groups that are here; None where the outcome is a number."""
        kind, chosen = told["outcome"], self.chosen
        y = self._outcome(kind)
        values = sorted(set(y.tolist()))
        found: list[str] | None = None
        if chosen.labels is False and kind == "category":
            raise ValueError(
                f"{self.frame.where(0)}, column {chosen.outcome!r}: words are no numbers; the "
                f"problem needs numbers"
            )
        named = kind == "category" or chosen.labels or set(values) <= {0.0, 1.0}
        if chosen.labels is not False and named:
            self._check_labels(values)
            found = [_label(value) for value in values]
        groups = None if chosen.groups is None else sorted(set(self._groups().tolist()))
        return {"labels": found, "groups": groups}

    def _check_labels(self, values: list[Any]) -> None:
        if len(values) > MOST_LABELS or any(isinstance(v, float) and v != round(v) for v in values):
            raise ValueError(
                f"site {self.frame.site}, column {self.chosen.outcome!r}: it has {len(values)} "
                f"different values, such as {values[0]!r} and {values[-1]!r}, and is used as "
                f"labels; take a problem for numbers (leastsquares), or another column"
            )

    def _outcome(self, kind: str) -> np.ndarray:
        frame, name = self.frame, self.chosen.outcome
        y = parsed(frame, name, kind, self.chosen.missing)
        empty = (y == "") if y.dtype == object else np.isnan(y)
        if empty.any():
            raise ValueError(
                f"{frame.where(int(np.argmax(empty)))}, column {name!r}: the outcome is "
                f"missing; leave the row out of the file"
            )
        return y

    def _groups(self) -> np.ndarray:
        frame, name = self.frame, self.chosen.groups
        assert name is not None
        found = parsed(frame, name, "category", self.chosen.missing)
        if (found == "").any():
            at = frame.where(int(np.argmax(found == "")))
            raise ValueError(f"{at}, column {name!r}: the group is missing; give it a name")
        return found.astype(str)

    def _weights(self) -> np.ndarray:
        frame, name = self.frame, self.chosen.weights
        if name is None:
            return np.ones(frame.rows)
        found = parsed(frame, name, "number", self.chosen.missing)
        wrong = ~(found >= 0)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise ValueError(
                f"{frame.where(i)}, column {name!r}: the weight is {found[i]:g}; it must be a "
                f"number of at least 0"
            )
        return found

    # ------------------------------------------------------------ its rows

    def rows(self, told: Told) -> tuple[SiteRows, SiteRows | None]:
        """The rows that are trained on, and those that are held out."""
        base = {key: told[key] for key in ("kinds", "outcome", "labels", "groups")}
        known = json.dumps(base)
        if self._rows[0] != known:
            self._rows = known, self._held_out(self._all(base))
        return self._rows[1]

    def _all(self, told: Told) -> SiteRows:
        frame, missing = self.frame, self.chosen.missing
        columns = {n: parsed(frame, n, kind, missing) for n, kind in told["kinds"].items()}
        y = self._outcome(told["outcome"])
        if told["labels"] is not None:
            place = {label: k for k, label in enumerate(told["labels"])}
            y = np.array([place[_label(value)] for value in y.tolist()], np.int32)
        groups = None if told["groups"] is None else self._groups()
        return SiteRows(frame, columns, y, groups, self._weights())

    def _held_out(self, whole: SiteRows) -> tuple[SiteRows, SiteRows | None]:
        """The site's own share, drawn by the site; of labels the same share of each."""
        share = self.chosen.test
        if not share:
            return whole, None
        rng = np.random.default_rng([self.chosen.seed, self.me])
        labeled = whole.y.dtype.kind == "i"
        strata = whole.y if labeled else np.zeros(whole.rows, np.int32)
        out = np.concatenate([
            rng.permutation(np.flatnonzero(strata == s))[: round(share * int((strata == s).sum()))]
            for s in np.unique(strata)
        ])  # fmt: skip
        if len(out) in (0, whole.rows):
            left = "no row to test on" if len(out) == 0 else "no row to train on"
            raise ValueError(
                f"site {self.frame.site}: test = {share} of its {whole.rows} rows leaves {left}"
            )
        mask = np.isin(np.arange(whole.rows), out)
        return whole.take(np.flatnonzero(~mask)), whole.take(np.flatnonzero(mask))

    def lacks(self, told: Told) -> str:
        """What is said of a class that this site has no row of; "" if it has all."""
        if told["labels"] is None:
            return ""
        train, _ = self.rows(told)
        missing = [c for k, c in enumerate(told["labels"]) if not (train.y == k).any()]
        if not missing:
            return ""
        return (
            f"site {self.frame.site}: no row of {self.frame.places[0].partition(',')[0]} has "
            f"{self.chosen.outcome} = {missing[0]!r}; its own loss knows only the others. If that "
            f"is no mistake, nothing is to be done"
        )

    # ------------------------------------------------------------ sums over them

    def levels(self, told: Told, _: Any) -> dict[str, Any]:
        """How often each level of each category is there."""
        columns, found = self.rows(told)[0].columns, {}
        for name in told["names"]:
            each, times = np.unique(columns[name].astype(str), return_counts=True)
            found[name] = dict(zip(each.tolist(), times.tolist(), strict=True))
        return {"levels": found}

    def counts(self, told: Told, _: Any) -> dict[str, Any]:
        """How often each of some named levels is there; then all others, then nothing."""
        columns, found = self.rows(told)[0].columns, []
        for name, levels in told["named"].items():
            words = columns[name].astype(str)
            each = [float((words == level).sum()) for level in levels]
            empty = float((words == "").sum())
            found += [*each, len(words) - sum(each) - empty, empty]
        return {"counts": np.array(found)}

    def _numbers(self, told: Told) -> np.ndarray:
        columns = self.rows(told)[0].columns
        return np.stack([columns[name] for name in told["names"]], axis=1)

    def totals(self, told: Told, _: Any) -> dict[str, Any]:
        """How many values there are, and their sum."""
        x = self._numbers(told)
        there = (~np.isnan(x)).sum(axis=0).astype(float)
        return {"there": there, "sum": np.nansum(x, axis=0), "rows": np.array([len(x)], float)}

    def spreads(self, told: Told, arrays: Any) -> dict[str, Any]:
        """Squares around the agreed means, and what rounding left of them."""
        apart = self._numbers(told) - arrays["mean"]
        return {"squares": np.nansum(apart**2, axis=0), "rest": np.nansum(apart, axis=0)}

    def histograms(self, told: Told, arrays: Any) -> dict[str, Any]:
        """Counts in bins around the agreed means, and outside of them on either side."""
        found = []
        edges = np.linspace(
            arrays["mean"] - arrays["half"], arrays["mean"] + arrays["half"], told["bins"] + 1
        )
        for x, each in zip(self._numbers(told).T, edges.T, strict=True):
            x = x[~np.isnan(x)]
            outside = [(x < each[0]).sum(), (x > each[-1]).sum()]
            found.append([*np.histogram(x, each)[0], *outside])
        return {"counts": np.array(found, float)}

    def x(self, told: Told) -> np.ndarray:
        """f64[n, features] of the rows that are trained on, as the agreed numbers make them."""
        known = json.dumps(told["preparation"])
        if self._x[0] != known:
            train, prepared = self.rows(told)[0], Preparation.of(told["preparation"])
            self._x = known, prepared.apply(train.columns, train.frame.where)
        return self._x[1]

    def centers(self, told: Told, _: Any) -> dict[str, Any]:
        """The sums of the features."""
        x = self.x(told)
        return {"sum": x.sum(axis=0), "rows": np.array([len(x)], float)}

    def products(self, told: Told, arrays: Any) -> dict[str, Any]:
        """The sums of products of features around their agreed centers."""
        apart = self.x(told) - arrays["center"]
        return {"products": apart.T @ apart}

    def classes(self, told: Told, _: Any) -> dict[str, Any]:
        """What the rows of each label weigh."""
        train = self.rows(told)[0]
        return {"classes": np.bincount(train.y, train.weights, len(told["labels"]))}

    def weights(self, told: Told) -> np.ndarray:
        """How much each row counts, by its own weight and that of its class."""
        train = self.rows(told)[0]
        factor = told.get("factor")
        return train.weights if factor is None else train.weights * np.array(factor)[train.y]

    def prepared(self, told: Told, _: Any) -> dict[str, Any]:
        """How many rows are trained on, and what they weigh."""
        weights = self.weights(told)
        self.x(told)
        even = bool((weights == 1).all())
        return {"rows": len(weights), "weight": float(weights.sum()), "even": even}


def _label(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"
