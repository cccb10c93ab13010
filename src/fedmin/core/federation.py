"""A federation: which client holds which rows (or which columns), and how much each counts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import jax
import numpy as np
import scipy.sparse

from fedmin.core import checks
from fedmin.core.given import (
    apart,
    at,
    bounded,
    check_clients,
    check_holder,
    grouped,
    labels_of,
    names_of,
    shares_of,
    weighed,
)
from fedmin.core.matrix import Dense, SparseRows, matrix
from fedmin.core.preparation import About
from fedmin.core.roster import ColumnOwners, Roster
from fedmin.core.rows import Rows, rows


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients and their data. Build it with `from_parts`, `from_clients` or `from_columns`.

    The objective of every run is F(x) = sum_i p_i f_i(x) + r(x), with f_i the mean over client i's
    rows; `weights` says what p_i is: in proportion to the clients' "sizes", "uniform", or numbers;
    "secret" are sizes that nobody is told: no more of them than that no client has `most_rows`.

    >>> import numpy as np, fedmin
    >>> x, y = np.ones((10, 2)), np.zeros(10)
    >>> fedmin.Federation.from_parts(x, y, [range(4), range(4, 10)]).sizes
    array([4, 6])
    """

    pool: Rows  # all clients' rows, one client after the other (features: blocks of columns)
    sizes: np.ndarray  # i[N] rows a client (features: columns a client)
    weights: np.ndarray  # f[N], sum 1
    names: tuple[str, ...]
    classes: int | None = None
    test: Rows | None = None
    server_rows: Rows | None = None
    split: Literal["rows", "features"] = "rows"
    columns: tuple[np.ndarray, ...] = field(default=())
    labels: str = "everyone"  # who knows y when columns are split; or "server", or a client's name
    groups: tuple[str, ...] = ()  # the names of the groups that rows are in, if they are
    about: About | None = None  # what is known of its columns, where they were read from tables
    most_rows: int | None = None  # sizes are told to nobody: all that is known is that bound

    def __post_init__(self) -> None:
        if self.split == "rows" and not (self._held() > 0).all():
            name = self.names[int(np.argmin(self._held()))]
            raise ValueError(f"client {name}: all its rows weigh 0; leave the client out")

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
        groups: Any = None,
        group_names: Sequence[str] | None = None,
        row_weights: Any = None,
        most_rows: int | None = None,
        seed: int = 0,
    ) -> "Federation":
        """Rows split over clients: `parts` has the row numbers of each.

        A client's rows are shuffled once here (by `seed`), so that batches of consecutive rows are
        random batches. Rows in no part are left out. `groups` has a value a row, which says what
        group it is in, for constraints on groups; test and server rows are then triples (x, y,
        groups). Groups are in the order of `group_names`, or of their values. `row_weights` say how
        much each row counts; a client's size is then what its rows weigh.
        """
        count = x.shape[0] if hasattr(x, "shape") else len(x)
        parts = checks.check_partition(parts, count, covering=False)
        rng = np.random.default_rng(seed)
        order = np.concatenate([rng.permutation(part) for part in parts])
        y = np.asarray(y)
        if len(y) != count:
            raise ValueError(f"y must have one entry a row: x has {count} rows, y has {len(y)}")
        sizes = np.array([len(part) for part in parts])
        group, names_of_groups = grouped(groups, count, group_names)
        beside = partial(apart, classes=classes, groups=names_of_groups)
        (each, held), labeled = weighed(row_weights, parts), labels_of(y[order], classes)
        most = bounded(most_rows, weights, sizes, held)
        return cls(
            pool=rows(matrix(x, order), labeled, at(each, order), at(group, order)), sizes=sizes,
            weights=shares_of(weights, held), names=names_of(names, len(parts)), classes=classes,
            test=beside("test rows", test), server_rows=beside("server rows", server),
            groups=names_of_groups, most_rows=most,
        )  # fmt: skip

    @classmethod
    def from_clients(cls, clients: Sequence[tuple[Any, ...]], **options: Any) -> "Federation":
        """Rows that lie with their clients already: a pair (x, y) each, or (x, y, groups).

        >>> import numpy as np, fedmin
        >>> two = [(np.ones((2, 3)), np.zeros(2)), (np.ones((5, 3)), np.zeros(5))]
        >>> fedmin.Federation.from_clients(two).num_clients
        2
        """
        if not clients:
            raise ValueError("clients must be a list of at least one pair (x, y), got none")
        check_clients(clients, options.get("names") or (), options.get("classes"))
        if (lengths := {len(client) for client in clients}) not in ({2}, {3}):
            raise ValueError("every client must be a pair (x, y), or every one (x, y, groups)")
        widths = {np.shape(x)[1:] for x, *_ in clients}
        if len(widths) > 1:
            raise ValueError(f"all clients must have the same features, got {sorted(widths)}")
        stack = scipy.sparse.vstack if scipy.sparse.issparse(clients[0][0]) else np.concatenate
        edges = np.cumsum([0] + [np.shape(x)[0] for x, *_ in clients])
        parts = [np.arange(a, b) for a, b in pairwise(edges)]
        x = stack([x for x, *_ in clients])
        y, *groups = (
            np.concatenate([np.asarray(client[k]) for client in clients])
            for k in range(1, max(lengths))
        )
        if groups:
            options["groups"] = groups[0]
        return cls.from_parts(x, y, parts, **options)

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
        groups: Any = None,
        group_names: Sequence[str] | None = None,
        seed: int = 0,
    ) -> "Federation":
        """Columns split over clients: all hold the same rows; `columns` has each one's features.

        `labels` says who knows y: "everyone", the "server" only, or one client, by its name. They
        know the rows' `groups` too, where there are such.

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
            words = f"x has {x.shape[0]} rows, y has {y.shape}"
            raise ValueError(f"y must have one entry a row: {words}")
        blocks = tuple(checks.check_partition(columns, x.shape[1], what="columns"))
        names = names_of(names, len(blocks))
        check_holder(labels, names)
        order = np.concatenate(blocks)
        shuffled = np.random.default_rng(seed).permutation(x.shape[0])
        sizes = np.array([len(block) for block in blocks])
        group, names_of_groups = grouped(groups, len(y), group_names)
        labeled = labels_of(y[shuffled], classes)
        pool = rows(x[shuffled][:, order], labeled, group=at(group, shuffled))
        # what the server has of each row: its label, and no features
        held = pool.holding(Dense(np.zeros((pool.count, 0), pool.x.dtype)))
        if test is not None:
            test = (test[0][:, order], *test[1:])
        return cls(
            pool=pool, sizes=sizes, weights=shares_of("uniform", sizes), names=names,
            classes=classes, test=apart("test rows", test, classes, names_of_groups),
            server_rows=held if labels == "server" else None, split="features", columns=blocks,
            labels=labels, groups=names_of_groups,
        )  # fmt: skip

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
        """The rows of the largest client; or the bound that is told in its place."""
        if self.most_rows is not None:
            return self.most_rows
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
        x, y, told = self.pool.x, self.pool.y, self.most_rows is None
        shares = self.weights if told else np.full(self.num_clients, 1 / self.num_clients)
        return Roster(
            shares=shares.astype(x.dtype),
            owners=self._owners(),
            names=self.names,
            clients=self.num_clients,
            capacity=self.capacity,
            features=x.shape[1],
            classes=self.classes,
            dtype=str(np.dtype(x.dtype)),
            slots=x.values.shape[1] if isinstance(x, SparseRows) else None,
            target=(str(np.dtype(y.dtype)), tuple(y.shape[1:])),
            groups=self.groups,
            even=self.even and told,
            everyone=everyone,
            by_rows=self.by_rows,
            sizes_told=told,
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
            y, group = self.pool.y, self.pool.group
            if not self.knows_labels[i]:
                y, group = jax.tree.map(np.zeros_like, (y, group))
            x = self.pool.x.columns(begin, end - begin, end - begin)
            return Rows(x, y, self.pool.weight, group)
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
