"""Partitioners of columns: every client holds some features of all rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedmin.core.checks import check_partition, nearest
from fedmin.data.splits.apportion import at_least

__all__ = ["ColumnNames", "ColumnSizes", "EvenColumns", "Parties"]


def _features(table: Any) -> int:
    if isinstance(table, (int, np.integer)):
        return int(table)
    return table.features if hasattr(table, "features") else np.shape(table)[1]


def _cut(features: int, sizes, shuffle: bool, seed: int) -> list[np.ndarray]:
    order = np.arange(features)
    if shuffle:
        order = np.random.default_rng(seed).permutation(features)
    parts = [np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1])]
    return check_partition(parts, features, what="columns")


@dataclass(frozen=True)
class EvenColumns:
    """Columns in equal blocks (up to one), in order or shuffled.

    >>> from fedmin.data import EvenColumns, load
    >>> [len(part) for part in EvenColumns(clients=3)(load("wine"))]
    [5, 4, 4]
    """

    clients: int
    shuffle: bool = False
    split: ClassVar[str] = "features"

    def __call__(self, table: Any, seed: int = 0) -> list[np.ndarray]:
        """Column indices of each client of a table (or a number of columns)."""
        at_least(self, clients=self.clients)
        features = _features(table)
        if self.clients > features:
            raise ValueError(f"EvenColumns: {self.clients} clients but only {features} columns")
        sizes = [len(part) for part in np.array_split(np.arange(features), self.clients)]
        return _cut(features, sizes, self.shuffle, seed)

    def names(self, table: Any) -> None:
        """None: the clients have no names."""


@dataclass(frozen=True)
class ColumnSizes:
    """Columns in blocks of the given sizes, in order or shuffled.

    >>> from fedmin.data import ColumnSizes, load
    >>> [len(part) for part in ColumnSizes((10, 3))(load("wine"))]
    [10, 3]
    """

    sizes: tuple[int, ...]
    shuffle: bool = False
    split: ClassVar[str] = "features"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(self.sizes))

    def __call__(self, table: Any, seed: int = 0) -> list[np.ndarray]:
        """Column indices of each client of a table (or a number of columns)."""
        features = _features(table)
        for client, size in enumerate(self.sizes):
            at_least(self, **{f"sizes[{client}]": size})
        if sum(self.sizes) != features:
            raise ValueError(
                f"ColumnSizes: the sizes sum to {sum(self.sizes)}, but there are {features} columns"
            )
        return _cut(features, self.sizes, self.shuffle, seed)

    def names(self, table: Any) -> None:
        """None: the clients have no names."""


@dataclass(frozen=True)
class ColumnNames:
    """Columns by name: client name -> its columns, every column once.

    >>> from fedmin.data import ColumnNames, Table
    >>> table = Table("toy", [[1.0, 2.0, 3.0]], feature_names=("age", "pay", "debt"))
    >>> ColumnNames({"bank": ["pay", "debt"], "city": ["age"]})(table)
    [array([1, 2]), array([0])]
    """

    groups: Mapping[str, tuple[str, ...]]
    split: ClassVar[str] = "features"

    def __post_init__(self) -> None:
        groups = {str(client): tuple(columns) for client, columns in dict(self.groups).items()}
        object.__setattr__(self, "groups", groups)

    def __hash__(self) -> int:
        return hash(tuple(self.groups.items()))

    def __call__(self, table: Any, seed: int = 0) -> list[np.ndarray]:
        """Column indices of each client of a table that has feature names."""
        if getattr(table, "feature_names", None) is None:
            raise ValueError("ColumnNames: the table has no feature_names")
        place = {name: column for column, name in enumerate(table.feature_names)}
        for client, columns in self.groups.items():
            for column in columns:
                if column not in place:
                    hint = nearest(column, place)
                    raise ValueError(f"ColumnNames: {client}: no column {column!r}; {hint}")
        parts = [np.array([place[c] for c in cols], int) for cols in self.groups.values()]
        return check_partition(parts, len(place), what="columns")

    def names(self, table: Any) -> list[str]:
        """The clients' names."""
        return list(self.groups)


@dataclass(frozen=True)
class Parties:
    """Columns as the table's own parties hold them (`table.columns`).

    >>> from fedmin.data import Parties, Table
    >>> table = Table("toy", [[1.0, 2.0, 3.0]], columns={"guest": [0], "host": [1, 2]})
    >>> Parties()(table)
    [array([0]), array([1, 2])]
    """

    split: ClassVar[str] = "features"

    def __call__(self, table: Any, seed: int = 0) -> list[np.ndarray]:
        """Column indices of each party."""
        if getattr(table, "columns", None) is None:
            raise ValueError("Parties: the table's columns have no owners (table.columns is None)")
        return check_partition(list(table.columns.values()), table.features, what="columns")

    def names(self, table: Any) -> list[str]:
        """The parties' names."""
        return list(table.columns)
