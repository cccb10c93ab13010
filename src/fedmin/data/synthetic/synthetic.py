"""What a synthetic set is: a table, its clients' rows, and the true answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedmin.data.table import Table

__all__ = ["Synthetic"]


@dataclass(frozen=True, eq=False, repr=False)
class Synthetic:
    """A synthetic data set: the table, which rows each client holds, and the true answers.

    `partition(synthetic)` gives the federation; `partition(synthetic.table, how)` another split.

    >>> from fedmin.data import quadratics
    >>> sample = quadratics(clients=3, dim=2, rows=4)
    >>> sample  # doctest: +ELLIPSIS
    Synthetic('quadratics', 12 rows x 2 features, regression, 3 clients; truth: ...)
    """

    table: Table
    parts: list[np.ndarray]
    truth: Mapping[str, Any] = field(default_factory=dict)

    name = property(lambda self: self.table.name)
    x = property(lambda self: self.table.x)
    y = property(lambda self: self.table.y)
    classes = property(lambda self: self.table.classes)
    test = property(lambda self: self.table.test)
    rows = property(lambda self: self.table.rows)
    features = property(lambda self: self.table.features)

    def __repr__(self) -> str:
        shown = repr(self.table).removeprefix("Table(").removesuffix(")")
        return f"Synthetic({shown}, {len(self.parts)} clients; truth: {', '.join(self.truth)})"


def contiguous(sizes) -> list[np.ndarray]:
    """Row indices of consecutive clients of the given sizes."""
    ends = np.cumsum(sizes)
    return [np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)]


MOST_NUMBERS = 2**30  # of a set that is made: 8 GiB while it is, in float64


def require_room(name: str, *shapes: tuple[int, ...]) -> None:
    """Refuse a set of more numbers than a computer has room for, before any is drawn."""
    for shape in shapes:
        count = math.prod(shape)
        if count > MOST_NUMBERS:
            sizes = " x ".join(f"{size:,}" for size in shape)
            raise ValueError(
                f"{name}: {sizes} are {count:,} numbers; more than {MOST_NUMBERS:,} are not made"
            )


def require(name: str, **conditions: tuple[Any, bool, str]) -> None:
    """Raise for the first argument=(value, holds, what is right) that does not hold."""
    for argument, (value, holds, right) in conditions.items():
        if not holds:
            raise ValueError(f"{name}: {argument}={value!r}; it must be {right}")
