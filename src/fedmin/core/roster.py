"""A roster: what all parties of a run may know of each other, and not a single row.

Server and sites build the same programs and expect the same messages because they have the same
roster: it says how many clients there are, what each counts for, and the shapes of what they hold.
"""

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin.core import groups
from fedmin.core.matrix import Dense, Matrix, SparseRows
from fedmin.core.rows import Columns, Rows, Shard


class ColumnOwners(eqx.Module):
    """Who holds which columns, and who knows the labels.

    >>> import numpy as np
    >>> from fedmin.core.roster import ColumnOwners
    >>> ColumnOwners(np.array([0, 2]), np.array([2, 1]), 2, 10).clients
    2
    """

    starts: Array | np.ndarray  # i[N] where a client's columns begin
    sizes: Array | np.ndarray  # i[N] how many it has
    width: int = eqx.field(static=True)  # the most of them
    rows: int = eqx.field(static=True)  # how many rows all have
    labels: str | int = eqx.field(default="everyone", static=True)  # "server", or a client's number

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return len(self.starts)


class Roster(eqx.Module):
    """Names, shares and shapes: what a party must know of the others to take part.

    >>> import numpy as np, fedmin
    >>> x, y = np.ones((8, 2)), np.zeros(8)
    >>> roster = fedmin.Federation.from_parts(x, y, [range(2), range(2, 8)]).roster()
    >>> roster.clients, roster.shares.tolist(), roster.capacity
    (2, [0.25, 0.75], 6)
    """

    shares: Array | np.ndarray  # f[N] p_i, which sum to one
    owners: ColumnOwners | None  # where columns are split
    names: tuple[str, ...] = eqx.field(static=True)
    clients: int = eqx.field(static=True)  # N
    capacity: int = eqx.field(static=True)  # no client has more rows than this
    features: int = eqx.field(static=True)  # of a whole row
    classes: int | None = eqx.field(static=True)
    dtype: str = eqx.field(static=True)  # of features and weights
    slots: int | None = eqx.field(static=True)  # entries of a sparse row; None if rows are dense
    target: tuple[str, tuple[int, ...]] = eqx.field(static=True)  # type and shape of a row's y
    groups: tuple[str, ...] = eqx.field(default=(), static=True)  # names, where rows are in groups
    even: bool = eqx.field(default=False, static=True)  # all have as many rows, of weight 1
    everyone: bool = eqx.field(default=True, static=True)  # every round has all clients in it
    by_rows: bool = eqx.field(default=False, static=True)  # p_i are the clients' shares of the rows
    # p_i are known; else a site alone knows how many rows it has, and `shares` say 1/N
    sizes_told: bool = eqx.field(default=True, static=True)
    # Ed25519 public keys in hex, that sites sign with; () where all parties are one person's
    identities: tuple[str, ...] = eqx.field(default=(), static=True)

    @property
    def split(self) -> Literal["rows", "features"]:
        """What clients have a part of."""
        return "rows" if self.owners is None else "features"

    @property
    def width(self) -> int | None:
        """The columns of the widest client; None if rows are split."""
        return None if self.owners is None else self.owners.width

    def unnamed(self) -> "Roster":
        """The same without names: what is compiled does not depend on them."""
        return dataclasses.replace(self, names=(), groups=("",) * len(self.groups), identities=())

    def share(self, i: int) -> np.ndarray:
        """p_i, as a number of the run's type."""
        return np.asarray(self.shares[i], self.dtype)

    def counted(self, i: int, rows: Rows) -> np.ndarray:
        """What client i's replies are multiplied by: p_i. Where sizes are not told two numbers:
        what its rows weigh, of the most that all N could have together, and 1/N, which all know."""
        if self.sizes_told:
            return self.share(i)
        held = float(np.sum(np.asarray(rows.weight), dtype=float))
        return np.asarray([held / (self.clients * self.capacity), self.share(i)], self.dtype)

    def knows_labels(self, i: int) -> bool:
        """Whether client i knows y."""
        return self.owners is None or self.owners.labels in ("everyone", i)

    def view(self, i: int, rows: Rows) -> Shard | Columns:
        """Client i's own rows as its methods see them, padded so that all share one program."""
        number = jnp.int32
        if self.owners is None:
            missing = self.capacity - rows.count
            padded: Rows = jax.tree.map(lambda a: _pad(a, missing), rows)
            return Shard(padded, number(0), number(rows.count), self.capacity, self.even)
        own = rows.holding(_widened(rows.x, self.owners.width))
        pool = jax.tree.map(jnp.asarray, own)
        count, labeled = self.owners.sizes[i], jnp.asarray(self.knows_labels(i))
        return Columns(pool, number(0), number(count), number(i), labeled, self.owners.width)

    def blank(self) -> Shard | Columns:
        """The shapes of such a view, without any row."""
        return jax.eval_shape(lambda: self.view(0, self._zeros(self.width or self.features)))

    def rows_like(self) -> Rows:
        """The shapes of whole rows, as whoever holds all columns has them."""
        return jax.eval_shape(lambda: self._zeros(self.features))

    def _held(self, i: int) -> int:
        """How many columns client i has."""
        return self.features if self.owners is None else int(self.owners.sizes[i])

    def _zeros(self, features: int) -> Rows:
        count = self.capacity if self.owners is None else self.owners.rows
        kind, shape = self.target
        x: Matrix
        if self.slots is None:
            x = Dense(jnp.zeros((count, features), self.dtype))
        else:
            places = jnp.zeros((count, self.slots), jnp.int32)
            x = SparseRows(places, jnp.zeros(places.shape, self.dtype), features)
        group = jnp.zeros(count, jnp.int32) if self.groups else None
        return Rows(x, jnp.zeros((count, *shape), kind), jnp.zeros(count, self.dtype), group)

    def check(self, i: int, rows: Rows) -> None:
        """Refuse rows that are not what the others were told of client i."""
        name, x = self.names[i], rows.x
        kind = (str(np.dtype(rows.y.dtype)), tuple(rows.y.shape[1:]))
        slots = x.values.shape[1] if isinstance(x, SparseRows) else None
        most = self.capacity if self.owners is None else self.owners.rows
        for what, found, said in (
            ("features", x.shape[1], self._held(i)),
            ("type", str(np.dtype(x.dtype)), self.dtype),
            ("entries of a sparse row", slots, self.slots),
            ("type and shape of y", kind, self.target),
            ("groups", rows.group is not None, bool(self.groups)),
        ):
            if found != said:
                raise ValueError(f"client {name}: {what}: the roster says {said}, it has {found}")
        if rows.group is not None:
            groups.within(f"client {name}", rows.group, self.groups)
        if not self.sizes_told and max(rows.count, float(np.sum(rows.weight))) > most:
            raise ValueError(
                f"client {name} has more rows than most_rows = {most} allows, or they weigh more"
            )
        if rows.count > most or (self.owners is not None and rows.count != most):
            raise ValueError(f"client {name} has {rows.count} rows; the roster says {most}")
        # else zeros that only fill up would count as rows
        if self.even and (rows.count != most or not np.all(np.asarray(rows.weight) == 1)):
            raise ValueError(
                f"client {name}: the roster says that all have {most} rows of weight 1, it has "
                f"{rows.count} of weights {np.min(rows.weight):g} to {np.max(rows.weight):g}"
            )


def _pad(a: Any, missing: int) -> Array:
    return jnp.concatenate([jnp.asarray(a), jnp.zeros((missing, *a.shape[1:]), a.dtype)])


def _widened(x: Matrix, width: int) -> Matrix:
    """The same columns, and zeros after them."""
    if isinstance(x, SparseRows):
        return SparseRows(x.features, x.values, width)
    assert isinstance(x, Dense)
    return Dense(jnp.pad(jnp.asarray(x.values), ((0, 0), (0, width - x.shape[1]))))
