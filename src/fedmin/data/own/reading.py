"""`read`: the tables of several sites as one value, checked before anybody works with them.

    sites = fedmin.data.read(["a.csv", "b.csv", "c.csv"], outcome="died", groups="sex")
    federation = sites.federation(fedmin.data.Prepare())

Each site's rows stay apart: what all sites need to know of each other is agreed on by sums.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmin.core import checks
from fedmin.core.federation import Federation
from fedmin.core.raw_rows import MISSING
from fedmin.data.own.frames import Frame, frames_of
from fedmin.data.own.prepare import Prepare, fit
from fedmin.data.own.schema import agreed_kind, check_names, parsed

__all__ = ["Sites", "read"]


@dataclass(frozen=True, eq=False)
class SiteRows:
    """One site's rows: columns by name and kind, the outcome, and what stands beside them."""

    frame: Frame  # as they were written, for errors
    columns: dict[str, np.ndarray]
    y: np.ndarray
    groups: np.ndarray | None
    weights: np.ndarray

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.y)

    def take(self, which: np.ndarray) -> SiteRows:
        """Some of the rows."""
        return SiteRows(
            self.frame.take(which), {n: v[which] for n, v in self.columns.items()}, self.y[which],
            None if self.groups is None else self.groups[which], self.weights[which],
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Sites:
    """The tables of several sites, with the schema that they agree on; made by `read`.

    >>> import fedmin
    >>> tables = {
    ...     "a": {"age": [50, 60, 70], "ward": ["x", "y", "x"], "died": ["no", "yes", "no"]},
    ...     "b": {"age": [40, None, 80], "ward": ["y", "y", "x"], "died": ["no", "no", "yes"]},
    ... }
    >>> sites = fedmin.data.read(tables, outcome="died")
    >>> sites
    Sites(2 sites, 6 rows, outcome 'died' of 2 classes: age number, ward category)
    >>> sites.federation(fedmin.data.Prepare(smallest_count=1)).about.names
    ('age', 'ward=y')
    """

    sites: Mapping[str, SiteRows]
    kinds: Mapping[str, str]  # of the features, by name
    outcome: str
    classes: tuple[str, ...] | None  # the labels' names in their order, None for numbers
    test: Mapping[str, SiteRows]  # held out, a share of each site's own
    weighted: bool

    def federation(
        self, prepare: Prepare | None = None, *, weights: Any = "sizes", seed: int = 0
    ) -> Federation:
        """The federation of these sites, their columns prepared by sums over the sites."""
        return fit(self, Prepare() if prepare is None else prepare, weights=weights, seed=seed)

    @property
    def rows(self) -> int:
        """The rows that are trained on, at all sites."""
        return sum(site.rows for site in self.sites.values())

    def fingerprint(self) -> dict[str, str]:
        """A SHA-256 of each site's rows as they were written, which the site can repeat."""
        return {name: _digest(site.frame) for name, site in self.sites.items()}

    def __repr__(self) -> str:
        what = "numbers" if self.classes is None else f"{len(self.classes)} classes"
        kinds = ", ".join(f"{name} {kind}" for name, kind in self.kinds.items())
        head = f"{len(self.sites)} sites, {self.rows} rows, outcome {self.outcome!r} of {what}"
        return f"Sites({head}: {kinds})"


def _digest(frame: Frame) -> str:
    found = hashlib.sha256()
    for name, values in frame.columns.items():
        found.update(name.encode() + b"\0")
        found.update("\0".join(map(str, values.tolist())).encode() + b"\1")
    return found.hexdigest()


def read(
    files: Any,
    *,
    outcome: str,
    features: tuple[str, ...] | None = None,
    without: tuple[str, ...] = (),
    id: str | None = None,
    groups: str | None = None,
    weights: str | None = None,
    client: str | None = None,
    test: float = 0.0,
    labels: bool | None = None,
    kinds: Mapping[str, str] | None = None,
    missing: tuple[str, ...] = MISSING,
    separator: str = ",",
    seed: int = 0,
) -> Sites:
    """The tables of several sites, checked: every mistake names site, file, row, column and remedy.

    files      CSV or Parquet: a list, a folder, or one with `client`; or {site: table}, where a
               table is a file, a DataFrame of pandas or polars, a dict of columns, or a pair (x, y)
    outcome    the column that is predicted; words are labels, numbers are labels if `labels`
    features   what it is predicted from; all others, but for those in `without`, if left out
    id         a column that names each row, checked to do so once at a site
    groups     a column that says which group a row is in, for limits on groups; no feature
    weights    a column that says how much each row counts
    client     a column that says whose row it is, where one file has the rows of all
    test       the share of each site's rows that is held out
    kinds      {column: "number", "category" or "date"}, where the values do not tell
    missing    what stands for a missing value

    >>> import fedmin
    >>> one = {"age": [50, 60], "died": [0, 1]}
    >>> fedmin.data.read({"a": one, "b": {"agee": [50, 60], "died": [0, 1]}}, outcome="died")
    Traceback (most recent call last):
        ...
    ValueError: site b: it lacks 'age' and has 'agee', unlike site a; rename the columns, or name \
those to use by features, or leave some out by without
    """
    checks.between("test", test, 0.0, 0.9)
    frames = frames_of(files, separator, client)
    special = {"outcome": outcome, "id": id, "groups": groups, "weights": weights, "client": client}
    beside = {name: what for what, name in special.items() if name is not None}
    needed = {**dict.fromkeys(features or (), "features"), **dict.fromkeys(without, "without")}
    check_names(frames, needed | beside, features)
    chosen = _chosen(frames[0], features, without, beside)
    said = dict(kinds or {})
    for name in said:
        checks.known("column in kinds", name, (*chosen, outcome))
    agreed = {name: agreed_kind(frames, name, said.get(name), missing) for name in chosen}
    names, ys = _outcomes(frames, outcome, labels, said.get(outcome), missing)
    found = {
        frame.site: SiteRows(
            frame, {name: parsed(frame, name, kind, missing) for name, kind in agreed.items()}, y,
            _groups(frame, groups, missing), _weights(frame, weights, missing),
        )
        for frame, y in zip(frames, ys, strict=True)
    }  # fmt: skip
    for frame in frames:
        _check_ids(frame, id)
    train, held = _held_out(found, test, seed, names is not None)
    sites = Sites(train, agreed, outcome, names, held, weights is not None)
    _warn_of_classes(sites)
    return sites


def _chosen(frame: Frame, features: Any, without: Sequence[str], beside: Mapping[str, str]) -> list:
    if features is None:
        found = [n for n in frame.columns if n not in beside and n not in without]
        if not found:
            raise ValueError(f"site {frame.site}: no column is left to predict from")
        return found
    twice = [name for name in features if list(features).count(name) > 1 or name in beside]
    if twice:
        what = f"features and {beside[twice[0]]}" if twice[0] in beside else "features, twice"
        raise ValueError(f"the column {twice[0]!r} is named in {what}; name it once")
    if not features:
        raise ValueError("features is an empty list; leave it out for all columns")
    return list(features)


def _outcomes(
    frames: Sequence[Frame], outcome: str, labels: bool | None, kind: str | None, missing: Any
) -> tuple[tuple[str, ...] | None, list[np.ndarray]]:
    """The labels' names and the sites' y."""
    kind = agreed_kind(frames, outcome, kind, missing)
    columns = [parsed(frame, outcome, kind, missing) for frame in frames]
    for frame, y in zip(frames, columns, strict=True):
        empty = (y == "") if y.dtype == object else np.isnan(y)
        if empty.any():
            raise ValueError(
                f"{frame.where(int(np.argmax(empty)))}, column {outcome!r}: the outcome is "
                f"missing; leave the row out of the file"
            )
    values = sorted(set().union(*(set(y.tolist()) for y in columns)))
    if labels is None:
        labels = kind == "category" or set(values) <= {0.0, 1.0}
    if not labels:
        if kind == "category":
            raise ValueError(f"column {outcome!r}: words are no numbers; this needs numbers")
        return None, columns
    if len(values) < 2:
        raise ValueError(
            f"column {outcome!r}: every row of every site has {values[0]!r}; labels need two values"
        )
    if len(values) > 100 or any(isinstance(v, float) and v != round(v) for v in values):
        raise ValueError(
            f"column {outcome!r}: it has {len(values)} different values, such as {values[0]!r} and "
            f"{values[1]!r}, and is used as labels; take a problem for numbers (leastsquares), or "
            f"another column"
        )
    place = {value: k for k, value in enumerate(values)}
    named = tuple(v if isinstance(v, str) else f"{v:g}" for v in values)
    return named, [np.array([place[v] for v in y.tolist()], np.int32) for y in columns]


def _groups(frame: Frame, name: str | None, missing: Any) -> np.ndarray | None:
    if name is None:
        return None
    found = parsed(frame, name, "category", missing)
    if (found == "").any():
        at = frame.where(int(np.argmax(found == "")))
        raise ValueError(f"{at}, column {name!r}: the group is missing; give it a name")
    return found.astype(str)


def _weights(frame: Frame, name: str | None, missing: Any) -> np.ndarray:
    if name is None:
        return np.ones(frame.rows)
    found = parsed(frame, name, "number", missing)
    wrong = ~(found >= 0)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"{frame.where(i)}, column {name!r}: the weight is {found[i]:g}; it must be a number "
            f"of at least 0"
        )
    return found


def _check_ids(frame: Frame, name: str | None) -> None:
    if name is None:
        return
    first: dict[Any, int] = {}
    for i, value in enumerate(frame.columns[name].tolist()):
        if value in first:
            raise ValueError(
                f"{frame.where(i)}, column {name!r}: the id {value!r} is also in "
                f"{frame.places[first[value]]}; a row has one id: take one of them out"
            )
        first[value] = i


def _held_out(
    found: dict[str, SiteRows], share: float, seed: int, labeled: bool
) -> tuple[dict[str, SiteRows], dict[str, SiteRows]]:
    """Each site's own share, drawn by the site; of labels the same share of each."""
    if not share:
        return found, {}
    train, held = {}, {}
    for k, (name, site) in enumerate(found.items()):
        rng = np.random.default_rng([seed, k])
        strata = site.y if labeled else np.zeros(site.rows, np.int32)
        out = np.concatenate([
            rng.permutation(np.flatnonzero(strata == s))[: round(share * int((strata == s).sum()))]
            for s in np.unique(strata)
        ])  # fmt: skip
        if len(out) in (0, site.rows):
            left = "no row to test on" if len(out) == 0 else "no row to train on"
            raise ValueError(f"site {name}: test = {share} of its {site.rows} rows leaves {left}")
        mask = np.isin(np.arange(site.rows), out)
        train[name], held[name] = site.take(np.flatnonzero(~mask)), site.take(np.flatnonzero(mask))
    return train, held


def _warn_of_classes(sites: Sites) -> None:
    if sites.classes is None:
        return
    for name, site in sites.sites.items():
        lacks = [c for k, c in enumerate(sites.classes) if not (site.y == k).any()]
        if lacks:
            warnings.warn(
                f"site {name}: no row of {site.frame.places[0].partition(',')[0]} has "
                f"{sites.outcome} = {lacks[0]!r}; its own loss knows only the others. If that is "
                f"no mistake, nothing is to be done",
                UserWarning,
                stacklevel=3,
            )
