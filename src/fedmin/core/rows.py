"""Rows of data, and one client's share of them.

All clients' rows lie one after the other in one pool, so that unequal clients waste no memory and a
batch is read straight from the pool. `Shard` is the view of one client: where its rows begin and
how many there are. It is what a method's client function receives. `Columns` is the same for data
split by columns: all rows, but only the client's own features, and labels only if it holds them.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import jaxpr_as_fun

from fedmin.core import checks
from fedmin.core.matrix import Dense, Matrix, SparseRows, float_type, matrix, window


class Rows(eqx.Module):
    """Rows of features with their targets and weights; a row of weight 0 does not count.

    >>> import numpy as np, fedmin
    >>> fedmin.rows(np.ones((3, 2)), np.zeros(3)).weight.sum()
    np.float32(3.0)
    """

    x: Matrix  # [n, features]
    y: Array | np.ndarray  # [n, ...] labels or values
    weight: Array | np.ndarray  # f[n]
    group: Array | np.ndarray | None = None  # i[n] which group a row is in, where there are groups
    site: Array | np.ndarray | None = None  # i[n] whose row it is, where a metric has a line a site

    @property
    def count(self) -> int:
        """How many rows, padding included."""
        return self.weight.shape[0]

    def weighing(self, weight: Array | np.ndarray) -> "Rows":
        """The same rows with other weights."""
        return Rows(self.x, self.y, weight, self.group, self.site)

    def holding(self, x: Matrix) -> "Rows":
        """The same rows with other features."""
        return Rows(x, self.y, self.weight, self.group, self.site)

    def of_site(self, site: int | np.ndarray) -> "Rows":
        """The same rows, each with the number of the site that it is of; -1 is of no line."""
        number = np.broadcast_to(np.asarray(site, np.int32), (self.count,))
        return Rows(self.x, self.y, self.weight, self.group, np.array(number))

    def take(self, i: Array) -> "Rows":
        """The rows with these indices."""
        return Rows(self.x.take(i), *_beside(self, i))

    def window(self, start: Array, size: int) -> "Rows":
        """`size` rows from `start` on."""
        beside = (self.y, self.weight, self.group, self.site)
        found = jax.tree.map(lambda a: window(a, start, size), beside)
        return Rows(self.x.window(start, size), *found)


def _beside(rows: Rows, i: Array) -> tuple[Any, ...]:
    """What stands beside x in the rows with these indices: y, weight and group."""
    return jax.tree.map(
        lambda a: jnp.asarray(a).at[i].get(mode="promise_in_bounds"),
        (rows.y, rows.weight, rows.group),
    )


def rows(x: Any, y: Any, weight: Any = None, group: Any = None) -> Rows:
    """`Rows` from plain arrays (x may be a SciPy sparse matrix), checked.

    `group` has the number of each row's group, 0, 1, ..., where rows are in groups.

    >>> import numpy as np, fedmin
    >>> fedmin.rows(np.ones((3, 2)), [0, 1, 0]).x.shape
    (3, 2)
    """
    x = matrix(x)
    count = x.shape[0]
    y = np.asarray(y)
    if y.ndim == 0 or len(y) != count:
        raise ValueError(f"y must have one entry a row: x has {count} rows, y has shape {y.shape}")
    y = y.astype(np.int32) if y.dtype.kind in "iub" else y.astype(float_type())
    values = x.values if isinstance(x, Dense | SparseRows) else x
    checks.finite("x", values)
    checks.finite("y", y)
    weight = np.ones(count, x.dtype) if weight is None else np.asarray(weight, x.dtype)
    if weight.shape != (count,) or (weight < 0).any() or not np.isfinite(weight).all():
        raise ValueError(f"weight must be {count} numbers of at least 0, got shape {weight.shape}")
    if not (weight > 0).any():
        raise ValueError(f"all {count} rows weigh 0: nothing would count; leave them out")
    return Rows(x, y, weight, None if group is None else _numbers(group, count))


def _numbers(group: Any, count: int) -> np.ndarray:
    """The groups' numbers as they are kept."""
    group = np.asarray(group)
    if group.shape != (count,) or group.dtype.kind not in "iub" or (group < 0).any():
        raise ValueError(
            f"group must be {count} whole numbers of at least 0, got {group.dtype} values of "
            f"shape {group.shape}"
        )
    return group.astype(np.int32)


class Shard(eqx.Module):
    """One client's rows: `size` of them, from `start` on, in a pool it may share with others.

    >>> import jax, jax.numpy as jnp, numpy as np, fedmin
    >>> pool = jax.tree.map(jnp.asarray, fedmin.rows(np.zeros((5, 1)), np.arange(5)))
    >>> mine = fedmin.Shard(pool, jnp.int32(3), jnp.int32(2), 4).window(jnp.int32(0), 4)
    >>> mine.y[mine.weight > 0].tolist()
    [3, 4]
    """

    pool: Rows
    start: Array  # i[]
    size: Array  # i[]
    capacity: int = eqx.field(static=True)  # no client has more rows than this
    even: bool = eqx.field(default=False, static=True)  # all have as many, each of weight 1

    @classmethod
    def whole(cls, rows: Rows) -> "Shard":
        """All of some rows, as if one client held them."""
        return cls(rows, jnp.int32(0), jnp.int32(rows.count), rows.count)

    def take(self, i: Array) -> Rows:
        """The client's rows with these indices, each below `size`."""
        return self.pool.take(self.start + i)

    def window(self, first: Array, count: int) -> Rows:
        """The client's rows first .. first + count - 1; those beyond its last weigh 0."""
        count = min(count, self.pool.count)
        begin = self.start + first
        # a window at the pool's end is moved back to fit, and what it then has too early weighs 0
        at = jnp.minimum(begin, self.pool.count - count)
        rows = self.pool.window(at, count)
        place = at + jnp.arange(count, dtype=jnp.int32)
        mine = (place >= begin) & (place < self.start + self.size)
        return rows.weighing(jnp.where(mine, rows.weight, 0))

    def block(self, j: Array, count: int) -> Rows:
        """The j-th `count` rows of the client; those beyond its last weigh 0."""
        if self.even and self.capacity % count == 0:  # then none is, and nothing need be asked
            rows = self.pool.window(self.start + j * count, count)
            return rows.weighing(jnp.ones_like(rows.weight))
        return self.window(j * count, count)

    def sum(self, function: Callable[[Rows], Any], most: int) -> Any:
        """The sum of function(block) over blocks of up to `most` rows; it must be additive.

        Blocks keep the work in proportion to the rows that are there, and in the processor's cache.
        """
        count = -(-self.capacity // -(-self.capacity // most))
        # traced once, which takes longer than to run it: a loop must know what it adds up
        part, like = jax.make_jaxpr(lambda j: function(self.block(j, count)), return_shape=True)(
            jnp.zeros((), jnp.int32)
        )
        like, form = jax.tree.flatten(like)
        zeros = [jnp.zeros(a.shape, a.dtype) for a in like]

        def add(j, sums):
            # an index counts in the type of the loop's bounds, which need not be that of the trace
            found = jaxpr_as_fun(part)(jnp.asarray(j, jnp.int32))
            return [a + b for a, b in zip(sums, found, strict=True)]

        return jax.tree.unflatten(form, lax.fori_loop(0, -(-self.size // count), add, zeros))

    def all(self) -> Rows:
        """All of the client's rows, padded to `capacity` with rows that weigh 0."""
        return self.block(jnp.zeros((), jnp.int32), self.capacity)


class Columns(eqx.Module):
    """One client's columns of all rows, `count` of them, from `first` on in a pool of all columns.

    Its rows have `width` features, as many as the widest client's; those beyond its own are 0. It
    is read like a `Shard`. A client that does not hold the labels reads zeros, of groups too.

    >>> import jax, jax.numpy as jnp, numpy as np, fedmin
    >>> pool = jax.tree.map(jnp.asarray, fedmin.rows(np.arange(10).reshape(2, 5), [1, 2]))
    >>> number = jnp.int32
    >>> last = fedmin.Columns(pool, number(3), number(2), number(1), jnp.array(False), 3)
    >>> last.all().x.values.tolist(), last.all().y.tolist()
    ([[3.0, 4.0, 0.0], [8.0, 9.0, 0.0]], [0, 0])
    """

    pool: Rows
    first: Array  # i[]
    count: Array  # i[]
    client: Array  # i[] its number
    labeled: Array  # bool[] whether it holds the labels
    width: int = eqx.field(static=True)  # no client has more columns than this

    @property
    def capacity(self) -> int:
        """How many rows there are; all clients have the same."""
        return self.pool.count

    @property
    def size(self) -> Array:
        """The same, as what a `Shard` calls its size."""
        return jnp.int32(self.pool.count)

    def take(self, i: Array) -> Rows:
        """The client's part of the rows with these indices."""
        whole = self.pool
        x = whole.x.take_columns(i, self.first, self.count, self.width)
        y, weight, group = _beside(whole, i)
        return Rows(x, self._known(y), weight, self._known(group))

    def block(self, j: Array, count: int) -> Rows:
        """The client's part of the j-th `count` rows; those beyond the last weigh 0."""
        return self._own(Shard(self.pool, jnp.int32(0), self.size, self.capacity).block(j, count))

    def all(self) -> Rows:
        """The client's part of all rows."""
        return self._own(self.pool)

    def _own(self, rows: Rows) -> Rows:
        x = rows.x.columns(self.first, self.count, self.width)
        return Rows(x, self._known(rows.y), jnp.asarray(rows.weight), self._known(rows.group))

    def _known(self, beside: Any) -> Any:
        return jax.tree.map(lambda a: jnp.where(self.labeled, a, jnp.zeros_like(a)), beside)
