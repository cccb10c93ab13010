"""All sites' prepared rows in one place, which only a simulation has, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from fedmin.core.federation import Federation
from fedmin.core.preparation import About, Preparation
from fedmin.data.own.table import SiteTable

Told = Mapping[str, Any]
SILENT = ("schema", "labels", "prepared")  # what is asked where no sums are


def about_of(told: Told, outcome: str, lines: Sequence[Any], **more: Any) -> About:
    """What is known of the columns, beside the rows."""
    prepared, labels = Preparation.of(told["preparation"]), told["labels"]
    classes = None if labels is None else tuple(labels)
    kinds = {part for line, _ in lines for part in line.parts if part != "header"}
    noted = () if kinds <= set(SILENT) else None  # no sums, so nothing that needs noise
    units = told.get("units") or {}
    return About(prepared.names, prepared, outcome, classes, lines=tuple(lines), told=noted,
                 units=units, **more)  # fmt: skip


def federation_of(
    tables: Sequence[SiteTable], told: Told, lines: Sequence[Any], marks: Mapping[str, str], *,
    weights: Any, seed: int, hidden: bool = False,
) -> Federation:  # fmt: skip
    """The federation of these tables, as the agreed numbers prepare them."""
    if isinstance(weights, str) and weights == "secret":
        raise ValueError(
            "weights = 'secret': preparing columns of one's own tables tells how many rows each "
            "has; give numbers that are prepared already, or weights = 'sizes'"
        )
    x, each = [table.x(told) for table in tables], [table.weights(told) for table in tables]
    rows = [table.rows(told)[0] for table in tables]
    y = [one.y for one in rows]
    edges = np.cumsum([0, *map(len, y)])
    about = about_of(
        told, tables[0].chosen.outcome, lines, fingerprint=marks, hidden=hidden,
        exact=tuple(zip(x, y, each, strict=True)),
    )  # fmt: skip
    groups: Any = [one.groups for one in rows]
    federation = Federation.from_parts(
        np.concatenate(x), np.concatenate(y),
        [np.arange(a, b) for a, b in pairwise(edges)],
        test=_test(tables, told), weights=weights, names=[table.frame.site for table in tables],
        classes=None if about.classes is None else len(about.classes),
        groups=None if groups[0] is None else np.concatenate(groups), group_names=told["groups"],
        row_weights=np.concatenate(each) if weighs(tables[0], told) else None, seed=seed,
    )  # fmt: skip
    return replace(federation, about=about)


def weighs(table: SiteTable, told: Told) -> bool:
    """Whether rows have weights of their own."""
    return table.chosen.weights is not None or told.get("factor") is not None


def order_of(sizes: Sequence[int], me: int, seed: int) -> np.ndarray:
    """The order in which client `me` has its rows in such a federation."""
    rng = np.random.default_rng(seed)
    return [rng.permutation(count) for count in sizes[: me + 1]][-1]


def _test(tables: Sequence[SiteTable], told: Told) -> Any:
    held = [table.rows(told)[1] for table in tables]
    if any(one is None for one in held):
        return None
    prepared = Preparation.of(told["preparation"])
    x = np.concatenate([prepared.apply(one.columns, one.frame.where) for one in held if one])
    y = np.concatenate([one.y for one in held if one])
    if held[0] is None or held[0].groups is None:
        return x, y
    return x, y, np.concatenate([one.groups for one in held if one])
