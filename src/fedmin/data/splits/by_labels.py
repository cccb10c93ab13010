"""Partitioners of rows by label: k labels a client, Dirichlet shares, shards, a table of counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedmin.core.checks import check_partition
from fedmin.data.formats.files import DataFileError
from fedmin.data.splits.apportion import (
    apportion,
    assign_groups,
    at_least,
    dirichlet_shares,
    enough_rows,
    fill_up,
    positive,
    share_groups,
)

__all__ = ["CountTable", "Dirichlet", "LabelsPerClient", "Shards"]


def _labels(who: object, table: Any) -> np.ndarray:
    y = table.y if hasattr(table, "y") else table
    y = None if y is None else np.asarray(y)
    if y is None or y.ndim != 1 or getattr(table, "classes", 0) is None:
        raise ValueError(
            f"{type(who).__name__} goes by labels, but there are none (a table for classification "
            "or a vector of integers is needed)"
        )
    if not np.issubdtype(y.dtype, np.integer):
        raise ValueError(f"{type(who).__name__}: labels are {y.dtype}; they must be integers")
    if y.size and y.min() < 0:
        raise ValueError(f"{type(who).__name__}: label {y.min()}; labels are 0, 1, 2, ...")
    return y


@dataclass(frozen=True)
class LabelsPerClient:
    """Exactly k labels a client; a label's rows go evenly to the clients that hold it.

    Every label gets the same number of holders (up to one). FedFW's non-IID split is k = 3.

    >>> import numpy as np
    >>> from fedmin.data import LabelsPerClient, load
    >>> digits = load("digits")
    >>> [len(np.unique(digits.y[part])) for part in LabelsPerClient(5, k=2)(digits, seed=0)]
    [2, 2, 2, 2, 2]
    """

    clients: int
    k: int
    split: ClassVar[str] = "rows"

    def __call__(self, table: Any, seed: int = 0) -> list[np.ndarray]:
        """Row indices of each client of a table or a label vector."""
        y = _labels(self, table)
        at_least(self, clients=self.clients, k=self.k)
        enough_rows(self, self.clients, y.size, self.k)
        present, counts = np.unique(y, return_counts=True)
        if self.k > present.size:
            raise ValueError(f"LabelsPerClient: k={self.k}, but there are {present.size} labels")
        if self.clients * self.k < present.size:
            raise ValueError(
                f"LabelsPerClient: {self.clients} clients x k={self.k} labels cannot hold all "
                f"{present.size} labels; more clients or a larger k"
            )
        rng = np.random.default_rng(seed)
        assigned = assign_groups(rng, self.clients, present.size, self.k)
        holders = np.bincount(assigned.ravel(), minlength=present.size)
        short = np.flatnonzero(holders > counts)
        if short.size:
            raise ValueError(
                f"LabelsPerClient: label {present[short[0]]} has {counts[short[0]]} rows for "
                f"{holders[short[0]]} clients; fewer clients or a smaller k"
            )
        return check_partition(share_groups(rng, np.searchsorted(present, y), assigned), y.size)


@dataclass(frozen=True)
class Dirichlet:
    """Each label's rows in shares drawn from Dirichlet(alpha): small alpha, few labels a client.

    A client with fewer than `min_rows` is filled up with random rows of the largest client.

    >>> from fedmin.data import Dirichlet, load
    >>> parts = Dirichlet(clients=4, alpha=0.1, min_rows=5)(load("digits"), seed=0)
    >>> min(len(part) for part in parts) >= 5
    True
    """

    clients: int
    alpha: float
    min_rows: int = 1
    split: ClassVar[str] = "rows"

    def __call__(self, table: Any, seed: int = 0) -> list[np.ndarray]:
        """Row indices of each client of a table or a label vector."""
        y = _labels(self, table)
        at_least(self, clients=self.clients, min_rows=self.min_rows)
        positive(self, alpha=self.alpha)
        enough_rows(self, self.clients, y.size, self.min_rows)
        rng = np.random.default_rng(seed)
        held: list[list[np.ndarray]] = [[] for _ in range(self.clients)]
        for label in np.unique(y):
            rows = rng.permutation(np.flatnonzero(y == label))
            sizes = apportion(rows.size, dirichlet_shares(rng, self.alpha, self.clients))
            for client, part in enumerate(np.split(rows, np.cumsum(sizes)[:-1])):
                held[client].append(part)
        parts = [np.concatenate(part) for part in held]
        return check_partition(fill_up(rng, parts, self.min_rows), y.size)


@dataclass(frozen=True)
class Shards:
    """Rows sorted by label, cut into equal shards, some shards a client (FedAvg's split).

    >>> import numpy as np
    >>> from fedmin.data import Shards, load
    >>> digits = load("digits")
    >>> parts = Shards(clients=10, shards_per_client=2)(digits, seed=0)
    >>> max(len(np.unique(digits.y[part])) for part in parts) <= 4
    True
    """

    clients: int
    shards_per_client: int = 2
    split: ClassVar[str] = "rows"

    def __call__(self, table: Any, seed: int = 0) -> list[np.ndarray]:
        """Row indices of each client of a table or a label vector."""
        y = _labels(self, table)
        at_least(self, clients=self.clients, shards_per_client=self.shards_per_client)
        enough_rows(self, self.clients, y.size, self.shards_per_client)
        rng = np.random.default_rng(seed)
        order = rng.permutation(y.size)
        order = order[np.argsort(y[order], kind="stable")]
        shards = np.array_split(order, self.clients * self.shards_per_client)
        assigned = rng.permutation(len(shards)).reshape(self.clients, self.shards_per_client)
        parts = [np.sort(np.concatenate([shards[s] for s in mine])) for mine in assigned]
        return check_partition(parts, y.size)


@dataclass(frozen=True)
class CountTable:
    """An explicit table of counts, clients x labels; rows left over belong to nobody.

    Args:
        counts: counts[i][c] rows of label c for client i.
        shrink: scale a label's counts down where the data have fewer rows of it (the FedSSO table
            counts MNIST's training and test rows together; use load("mnist").merged() for all).

    >>> import numpy as np
    >>> from fedmin.data import CountTable
    >>> y = np.array([0, 0, 0, 1, 1, 1])
    >>> [len(part) for part in CountTable(((2, 0), (1, 2)))(y, seed=0)]
    [2, 3]
    """

    counts: Sequence[Sequence[int]]  # clients x labels; kept as a tuple of tuples
    shrink: bool = False
    split: ClassVar[str] = "rows"

    def __post_init__(self) -> None:
        array = np.asarray(self.counts)
        whole = array.ndim == 2 and array.size and np.issubdtype(array.dtype, np.number)
        if not whole or (array != np.floor(array)).any() or (array < 0).any():
            raise ValueError("CountTable: counts must be whole numbers >= 0, [clients][labels]")
        rows = tuple(tuple(int(count) for count in row) for row in array)
        object.__setattr__(self, "counts", rows)

    @classmethod
    def from_json(cls, path: Path | str, shrink: bool = False) -> CountTable:
        """From a configuration file of the FedSSO authors (fetch("fedsso_mnist") finds one).

        >>> import pathlib, tempfile
        >>> from fedmin.data import CountTable
        >>> path = pathlib.Path(tempfile.mkdtemp(), "config.json")
        >>> key = "Size of samples for labels in clients"
        >>> _ = path.write_text('{"num_labels": 3, "%s": [[[0, 5]], [[1, 2], [2, 4]]]}' % key)
        >>> CountTable.from_json(path).counts
        ((5, 0, 0), (0, 2, 4))
        """
        key = "Size of samples for labels in clients"
        try:
            config = json.loads(Path(path).read_text())
            clients = config[key]
            counts = np.zeros((len(clients), int(config["num_labels"])), int)
            for client, pairs in enumerate(clients):
                for label, count in pairs:
                    counts[client, label] += count
        except (ValueError, KeyError, TypeError, IndexError) as error:
            expected = f"JSON with num_labels and {key!r}: [[[label, count], ...], ...]"
            found = f"{type(error).__name__}: {error}"
            raise DataFileError(path, expected, found) from None
        return cls(counts.tolist(), shrink)

    def __call__(self, table: Any, seed: int = 0) -> list[np.ndarray]:
        """Row indices of each client of a table or a label vector."""
        y = _labels(self, table)
        counts = np.array(self.counts)
        available = np.bincount(y, minlength=counts.shape[1])
        wanted = counts.sum(axis=0)
        if available.size > wanted.size:
            wanted = np.pad(wanted, (0, available.size - wanted.size))
        for label in np.flatnonzero(wanted > available).tolist():
            if not self.shrink:
                raise ValueError(
                    f"CountTable: {wanted[label]} rows of label {label} are asked for, but there "
                    f"are {available[label]} (shrink=True scales such a label down)"
                )
            counts[:, label] = apportion(int(available[label]), counts[:, label].astype(float))
        rng = np.random.default_rng(seed)
        held: list[list[np.ndarray]] = [[] for _ in counts]
        for label in range(counts.shape[1]):
            rows = rng.permutation(np.flatnonzero(y == label))
            for client, part in enumerate(np.split(rows, np.cumsum(counts[:, label]))[:-1]):
                held[client].append(part)
        parts = [np.sort(np.concatenate(part)) for part in held]
        return check_partition(parts, y.size, covering=False)
