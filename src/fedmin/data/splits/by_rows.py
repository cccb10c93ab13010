"""Partitioners of rows without labels: at random, by size, by clusters of features, by id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from fedmin.core.checks import check_partition, nearest
from fedmin.data.splits.apportion import (
    apportion,
    assign_groups,
    at_least,
    dirichlet_shares,
    enough_rows,
    positive,
    share_groups,
)

__all__ = ["IID", "ByColumn", "Clusters", "QuantitySkew"]


def _rows(table: Any) -> int:
    if isinstance(table, (int, np.integer)):
        return int(table)
    return table.rows if hasattr(table, "rows") else len(table)


@dataclass(frozen=True)
class IID:
    """Rows dealt out at random, in equal numbers (up to one).

    >>> from fedmin.data import IID, load
    >>> [len(part) for part in IID(clients=4)(load("wine"), seed=0)]
    [36, 36, 35, 35]
    """

    clients: int
    split: ClassVar[str] = "rows"

    def __call__(self, table: Any, seed: int = 0) -> list[np.ndarray]:
        """Row indices of each client of a table, a label vector or a number of rows."""
        rows = _rows(table)
        at_least(self, clients=self.clients)
        enough_rows(self, self.clients, rows)
        order = np.random.default_rng(seed).permutation(rows)
        return check_partition([np.sort(p) for p in np.array_split(order, self.clients)], rows)


@dataclass(frozen=True)
class QuantitySkew:
    """Labels IID, sizes in shares drawn from Dirichlet(alpha): small alpha, very unequal clients.

    >>> from fedmin.data import QuantitySkew, load
    >>> sizes = [len(part) for part in QuantitySkew(3, alpha=0.5)(load("wine"), seed=0)]
    >>> sum(sizes), min(sizes) >= 1
    (142, True)
    """

    clients: int
    alpha: float
    min_rows: int = 1
    split: ClassVar[str] = "rows"

    def __call__(self, table: Any, seed: int = 0) -> list[np.ndarray]:
        """Row indices of each client of a table, a label vector or a number of rows."""
        rows = _rows(table)
        at_least(self, clients=self.clients, min_rows=self.min_rows)
        positive(self, alpha=self.alpha)
        enough_rows(self, self.clients, rows, self.min_rows)
        rng = np.random.default_rng(seed)
        spare = rows - self.clients * self.min_rows
        sizes = self.min_rows + apportion(spare, dirichlet_shares(rng, self.alpha, self.clients))
        parts = np.split(rng.permutation(rows), np.cumsum(sizes)[:-1])
        return check_partition([np.sort(part) for part in parts], rows)


@dataclass(frozen=True)
class Clusters:
    """k-means clusters of the features, some clusters a client (Fed-HT, section 5.2).

    Each cluster is cut into equal parts, one for each client that it is assigned to: with 100
    clients, 10 clusters and 2 a client, 20 parts a cluster as in the paper. Sparse data go through
    a truncated SVD of 50 components first.

    >>> from fedmin.data import Clusters, load
    >>> parts = Clusters(clients=6, clusters=3, per_client=2)(load("wine"), seed=0)
    >>> sum(len(part) for part in parts)
    142
    """

    clients: int
    clusters: int = 10
    per_client: int = 2
    split: ClassVar[str] = "rows"

    def __call__(self, table: Any, seed: int = 0) -> list[np.ndarray]:
        """Row indices of each client of a table or a feature matrix."""
        x = table.x if hasattr(table, "x") else table
        at_least(self, clients=self.clients, clusters=self.clusters, per_client=self.per_client)
        enough_rows(self, self.clients, x.shape[0])
        if self.clusters > x.shape[0]:
            raise ValueError(f"Clusters: {self.clusters} clusters but only {x.shape[0]} rows")
        if self.per_client > self.clusters:
            raise ValueError(
                f"Clusters: per_client={self.per_client}, but there are {self.clusters} clusters"
            )
        if self.clients * self.per_client < self.clusters:
            raise ValueError(
                f"Clusters: {self.clients} clients x per_client={self.per_client} cannot hold all "
                f"{self.clusters} clusters; more clients or fewer clusters"
            )
        found, group = np.unique(_kmeans(x, self.clusters, seed), return_inverse=True)
        if found.size < self.clusters:
            raise ValueError(f"Clusters: only {found.size} different clusters; ask for fewer")
        rng = np.random.default_rng(seed)
        assigned = assign_groups(rng, self.clients, self.clusters, self.per_client)
        return check_partition(share_groups(rng, group, assigned), x.shape[0])


def _kmeans(x, clusters: int, seed: int) -> np.ndarray:
    from sklearn.cluster import MiniBatchKMeans

    if sp.issparse(x):
        from sklearn.decomposition import TruncatedSVD

        components = min(50, x.shape[1] - 1, x.shape[0] - 1)
        if components >= 1:
            x = TruncatedSVD(components, random_state=seed).fit_transform(x)
        else:
            x = x.toarray()
    # a batch of 4096 lies above scikit-learn's floor for avoiding a Windows memory warning
    model = MiniBatchKMeans(clusters, random_state=seed, n_init=3, batch_size=4096)
    return model.fit_predict(x)


@dataclass(frozen=True, eq=False)
class ByColumn:
    """One client for each value of a natural id: a speaker, a writer, a hospital.

    Args:
        ids: None for the table's own ids, the name of a feature, or one id a row.
        min_rows: leave out ids with fewer rows (they then belong to nobody).

    >>> from fedmin.data import ByColumn, Table
    >>> table = Table("toy", [[1.0], [2.0], [3.0]], ids=["b", "a", "b"])
    >>> ByColumn()(table), ByColumn().names(table)
    ([array([1]), array([0, 2])], ['a', 'b'])
    """

    ids: str | Sequence[str | int] | np.ndarray | None = None
    min_rows: int = 1
    split: ClassVar[str] = "rows"

    def _groups(self, table: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        at_least(self, min_rows=self.min_rows)
        ids = self._column(table)
        if ids.ndim != 1 or ids.size != _rows(table):
            raise ValueError(f"ByColumn: ids of shape {ids.shape} for {_rows(table)} rows")
        values, group, counts = np.unique(ids, return_inverse=True, return_counts=True)
        keep = np.flatnonzero(counts >= self.min_rows)
        if keep.size == 0:
            raise ValueError(
                f"ByColumn: no id has min_rows={self.min_rows} rows; the most is {counts.max()}"
            )
        return values, group, keep

    def _column(self, table: Any) -> np.ndarray:
        if self.ids is None:
            if getattr(table, "ids", None) is None:
                raise ValueError("ByColumn: the table has no ids; give them as ByColumn(ids)")
            return np.asarray(table.ids)
        if isinstance(self.ids, str):
            names = getattr(table, "feature_names", None) or ()
            if self.ids not in names:
                hint = nearest(self.ids, names) if names else "the table has no feature names"
                raise ValueError(f"ByColumn: no column {self.ids!r}; {hint}")
            column = table.x[:, names.index(self.ids)]
            return column.toarray().ravel() if sp.issparse(column) else column
        return np.asarray(self.ids)

    def __call__(self, table: Any, seed: int = 0) -> list[np.ndarray]:
        """Row indices of each id, in the order of the sorted ids (the seed plays no part)."""
        _, group, keep = self._groups(table)
        order = np.argsort(group, kind="stable")
        bounds = np.searchsorted(group[order], np.arange(group.max() + 2))
        parts = [order[bounds[i] : bounds[i + 1]] for i in keep]
        return check_partition(parts, group.size, covering=self.min_rows == 1)

    def names(self, table: Any) -> list[str]:
        """The ids, one a client."""
        values, _, keep = self._groups(table)
        return [str(value) for value in values[keep]]
