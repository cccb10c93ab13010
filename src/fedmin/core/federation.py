"""A federation: which client holds which rows (or which columns), and how much each counts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import jax
import numpy as np
import scipy.sparse

from fedmin.core import checks
from fedmin.core.matrix import Dense, SparseRows, matrix
from fedmin.core.roster import ColumnOwners, Roster
from fedmin.core.rows import Rows, rows


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients and their data. Build it with `from_parts`, `from_clients` or `from_columns`.

    The objective of every run is F(x) = sum_i p_i f_i(x) + r(x), with f_i the mean over client i's
    rows; `weights` says what p_i is: in proportion to the clients' "sizes", "uniform", or numbers.

    >>> import numpy as np, fedmin
    >>> x, y = np.ones((10, 2)), np.zeros(10)
    >>> fedmin.Federation.from_parts(x, y, [range(4), range(4, 10)]).sizes
    array([4, 6])
    """

    pool: (
        Rows  # all clients' rows, one client after the other (features: one block after the other)
    )
    sizes: np.ndarray  # i[N] rows a client (features: columns a client)
    weights: np.ndarray  # f[N], sum 1
    names: tuple[str, ...]
    classes: int | None = None
    test: Rows | None = None
    server_rows: Rows | None = None
    split: Literal["rows", "features"] = "rows"
    columns: tuple[np.ndarray, ...] = field(default=())
    labels: str = "everyone"  # who knows y when columns are split; or "server", or a client's name

    @classmethod
    def from_parts(
        cls,
        x: Any,
        y: Any,
        parts: Sequence[Any],
        *,
        test: tuple[Any, Any] | None = None,
        server: tuple[Any, Any] | None = None,
        weights: Any = "sizes",
        names: Sequence[str] | None = None,
        classes: int | None = None,
        seed: int = 0,
    ) -> "Federation":
        """Rows split over clients: `parts` has the row numbers of each.

        A client's rows are shuffled once here (by `seed`), so that batches of consecutive rows are
        random batches. Rows in no part are left out.
        """
        count = x.shape[0] if hasattr(x, "shape") else len(x)
        parts = checks.check_partition(parts, count, covering=False)
        rng = np.random.default_rng(seed)
        order = np.concatenate([rng.permutation(part) for part in parts])
        y = np.asarray(y)
        if len(y) != count:
            raise ValueError(f"y must have one entry a row: x has {count} rows, y has {len(y)}")
        sizes = np.array([len(part) for part in parts])
        return cls(
            pool=rows(matrix(x, order), _labels(y[order], classes)),
            sizes=sizes,
            weights=_shares(weights, sizes),
            names=_names(names, len(parts)),
            classes=classes,
            test=None if test is None else rows(test[0], _labels(test[1], classes)),
            server_rows=None if server is None else rows(server[0], _labels(server[1], classes)),
        )

    @classmethod
    def from_clients(cls, clients: Sequence[tuple[Any, Any]], **options: Any) -> "Federation":
        """Rows that lie with their clients already: a pair (x, y) each.

        >>> import numpy as np, fedmin
        >>> two = [(np.ones((2, 3)), np.zeros(2)), (np.ones((5, 3)), np.zeros(5))]
        >>> fedmin.Federation.from_clients(two).num_clients
        2
        """
        if not clients:
            raise ValueError("clients must be a list of at least one pair (x, y), got none")
        widths = {np.shape(x)[1:] for x, _ in clients}
        if len(widths) > 1:
            raise ValueError(f"all clients must have the same features, got {sorted(widths)}")
        stack = scipy.sparse.vstack if scipy.sparse.issparse(clients[0][0]) else np.concatenate
        edges = np.cumsum([0] + [np.shape(x)[0] for x, _ in clients])
        parts = [np.arange(a, b) for a, b in pairwise(edges)]
        x = stack([x for x, _ in clients])
        return cls.from_parts(
            x, np.concatenate([np.asarray(y) for _, y in clients]), parts, **options
        )

    @classmethod
    def from_columns(
        cls,
        x: Any,
        y: Any,
        columns: Sequence[Any],
        *,
        test: tuple[Any, Any] | None = None,
        names: Sequence[str] | None = None,
        classes: int | None = None,
        labels: str = "everyone",
        seed: int = 0,
    ) -> "Federation":
        """Columns split over clients: all hold the same rows; `columns` has each one's features.

        `labels` says who knows y: "everyone", the "server" only, or one client, by its name.

        >>> import numpy as np, fedmin
        >>> x, y = np.ones((4, 3)), np.zeros(4)
        >>> bank = fedmin.Federation.from_columns(
        ...     x, y, [[0, 2], [1]], names=["shop", "bank"], labels="bank"
        ... )
        >>> bank.sizes, bank.knows_labels
        (array([2, 1]), array([False,  True]))
        """
        x = x.tocsr() if scipy.sparse.issparse(x) else np.asarray(x)
        y = np.asarray(y)
        if y.shape[:1] != x.shape[:1]:
            raise ValueError(
                f"y must have one entry a row: x has {x.shape[0]} rows, y has {y.shape}"
            )
        blocks = tuple(checks.check_partition(columns, x.shape[1], what="columns"))
        names = _names(names, len(blocks))
        _check_holder(labels, names)
        order = np.concatenate(blocks)
        shuffled = np.random.default_rng(seed).permutation(x.shape[0])
        sizes = np.array([len(block) for block in blocks])
        pool = rows(x[shuffled][:, order], _labels(y[shuffled], classes))
        # what the server has of each row: its label, and no features
        held = Rows(Dense(np.zeros((pool.count, 0), pool.x.dtype)), pool.y, pool.weight)
        return cls(
            pool=pool,
            sizes=sizes,
            weights=_shares("uniform", sizes),
            names=names,
            classes=classes,
            test=None if test is None else rows(test[0][:, order], _labels(test[1], classes)),
            server_rows=held if labels == "server" else None,
            split="features",
            columns=blocks,
            labels=labels,
        )

    @property
    def num_clients(self) -> int:
        """How many clients there are."""
        return len(self.sizes)

    @property
    def starts(self) -> np.ndarray:
        """Where each client's rows (or columns) begin in the pool."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    @property
    def capacity(self) -> int:
        """The rows of the largest client."""
        return int(self.sizes.max()) if self.split == "rows" else self.pool.count

    @property
    def width(self) -> int | None:
        """The columns of the widest client; None if rows are split."""
        return int(self.sizes.max()) if self.split == "features" else None

    def roster(self, everyone: bool = True) -> Roster:
        """What all parties may know of each other; `everyone`: every round has all clients in it.

        >>> import numpy as np, fedmin
        >>> two = [(np.ones((2, 3)), np.zeros(2)), (np.ones((5, 3)), np.zeros(5))]
        >>> fedmin.Federation.from_clients(two).roster().names
        ('0', '1')
        """
        x, y = self.pool.x, self.pool.y
        return Roster(
            shares=self.weights.astype(x.dtype),
            owners=self._owners(),
            names=self.names,
            clients=self.num_clients,
            capacity=self.capacity,
            features=x.shape[1],
            classes=self.classes,
            dtype=str(np.dtype(x.dtype)),
            slots=x.values.shape[1] if isinstance(x, SparseRows) else None,
            target=(str(np.dtype(y.dtype)), tuple(y.shape[1:])),
            even=self.even,
            everyone=everyone,
            by_rows=self.by_rows,
        )

    def _owners(self) -> ColumnOwners | None:
        """Who holds which columns, as a method is told."""
        if self.split == "rows":
            return None
        starts, sizes = (a.astype(np.int32) for a in (self.starts, self.sizes))
        labels: str | int = self.labels
        if labels in self.names:
            labels = self.names.index(labels)
        return ColumnOwners(starts, sizes, int(sizes.max()), self.pool.count, labels)

    @property
    def knows_labels(self) -> np.ndarray:
        """bool[N]: which clients know y."""
        everyone = self.split == "rows" or self.labels == "everyone"
        return np.array([everyone or name == self.labels for name in self.names])

    @property
    def even(self) -> bool:
        """Whether every client has as many rows, each of weight 1."""
        same = self.split == "rows" and bool(np.all(self.sizes == self.capacity))
        return same and bool(np.all(self.pool.weight == 1))

    def measuring_weights(self) -> np.ndarray:
        """f[rows]: a weight a row, so that the weighted mean over all rows is sum_i p_i mean_i."""
        # the rows' own weights, most of them 1, where p_i are shares of the rows: counts stay whole
        weight = np.asarray(self.pool.weight)
        if self.split == "features" or self.by_rows:
            return weight
        return (weight * (self.weights / self._held())[self._owner()]).astype(weight.dtype)

    @property
    def by_rows(self) -> bool:
        """Whether p_i is client i's share of all rows, by their weight."""
        return self.split == "rows" and np.allclose(
            self.weights, self._held() / self._held().sum(), rtol=1e-9, atol=0
        )

    def _owner(self) -> np.ndarray:
        return np.repeat(np.arange(self.num_clients), self.sizes)

    def _held(self) -> np.ndarray:  # the weight of each client's rows
        return np.bincount(self._owner(), np.asarray(self.pool.weight), self.num_clients)

    def client(self, i: int) -> Rows:
        """Client i's own rows (or its own columns of all rows, y being 0 if it does not know y)."""
        begin, end = int(self.starts[i]), int(self.starts[i] + self.sizes[i])
        if self.split == "features":
            y = self.pool.y if self.knows_labels[i] else np.zeros_like(self.pool.y)
            return Rows(self.pool.x.columns(begin, end - begin, end - begin), y, self.pool.weight)
        return jax.tree.map(lambda a: a[begin:end], self.pool)

    def label_counts(self) -> np.ndarray | None:
        """Clients x labels: how many rows of each label a client holds; None without labels."""
        if self.classes is None or self.split == "features":
            return None
        counts = np.zeros((self.num_clients, self.classes), int)
        np.add.at(counts, (self._owner(), self.pool.y), 1)
        return counts

    def describe(self) -> str:
        """A table of who holds what, for reading.

        >>> import numpy as np, fedmin
        >>> x, y = np.ones((4, 2)), np.array([0, 1, 1, 1])
        >>> print(fedmin.Federation.from_parts(x, y, [[0, 1], [2, 3]], classes=2).describe())
        4 rows of 2 features over 2 clients
        client  rows  weight  0  1
             0     2  0.5000  1  1
             1     2  0.5000  0  2
        """
        from fedmin.core.holdings import Holdings, table

        return table(Holdings.of(self))

    def plot(self, ax: Any = None) -> Any:
        """Draw who holds what; returns the matplotlib axes."""
        from fedmin.core.holdings import Holdings, draw

        return draw(Holdings.of(self), ax)

    def __repr__(self) -> str:
        count, features = self.pool.x.shape
        return (
            f"Federation({self.num_clients} clients, {count} rows x {features} features, "
            f"split by {self.split}{f', {self.classes} classes' if self.classes else ''})"
        )


def _shares(weights: Any, sizes: np.ndarray) -> np.ndarray:
    if isinstance(weights, str):
        checks.known("weights", weights, ["sizes", "uniform"])
        weights = sizes if weights == "sizes" else np.ones(len(sizes))
    shares = np.asarray(weights, float)
    if shares.shape != sizes.shape or not (shares > 0).all() or not np.isfinite(shares).all():
        raise ValueError(
            f"weights must be 'sizes', 'uniform' or {len(sizes)} positive numbers, got {weights!r}"
        )
    return shares / shares.sum()


def _names(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if names is None:
        return tuple(str(i) for i in range(count))
    if len(names) != count:
        raise ValueError(f"names must be one a client: {count} clients, {len(names)} names")
    return tuple(str(name) for name in names)


def _check_holder(labels: str, names: tuple[str, ...]) -> None:
    """Refuse labels at nobody, or at two by the same name."""
    places = ("everyone", "server")
    checks.known("holder of the labels", labels, (*places, *names))
    if labels in places and labels in names:
        raise ValueError(f"labels={labels!r} is also a client's name; give that client another one")
    if len(set(names)) < len(names):
        raise ValueError(f"clients that split columns need different names, got {names}")


def _labels(y: Any, classes: int | None) -> np.ndarray:
    y = np.asarray(y)
    if classes is None:
        return y
    if y.dtype.kind not in "iub":
        raise ValueError(f"labels must be whole numbers 0..{classes - 1}, got {y.dtype} values")
    outside = np.flatnonzero((y < 0) | (y >= classes))
    if len(outside):
        raise ValueError(
            f"labels must be in 0..{classes - 1}; row {outside[0]} has label {y[outside[0]]}"
        )
    return y
