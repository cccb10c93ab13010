"""How a client draws the rows of its next step. One class each, one line in `BATCHES`.

`batch(rows, key, k)` is the k-th batch of a round (k = 0, 1, ...), a function of the round's key;
`per_epoch(rows)` says how many make a pass over the client's rows.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin import checks
from fedmin.local.shuffle import shuffled
from fedmin.rows import Rows, Shard


class Batches(eqx.Module):
    """How a client draws the rows of its next step."""

    @abstractmethod
    def batch(self, rows: Shard, key: Array, k: Array) -> Rows:
        """The k-th batch of the round with this key."""

    @abstractmethod
    def per_epoch(self, rows: Shard) -> Array:
        """How many batches make one pass over the client's rows."""


class Full(Batches):
    """All of the client's rows at every step.

    >>> import fedmin
    >>> fedmin.Full()
    Full()
    """

    def batch(self, rows, key, k):
        return rows.all()

    def per_epoch(self, rows):
        return jnp.ones((), jnp.int32)


class WithReplacement(Batches):
    """`size` independent draws at every step.

    >>> import fedmin
    >>> fedmin.WithReplacement(32)
    WithReplacement(size=32)
    """

    size: int = eqx.field(static=True)

    def __check_init__(self):
        checks.at_least("size", self.size, 1)

    def batch(self, rows, key, k):
        key = jax.random.fold_in(key, k)
        return rows.take(jax.random.randint(key, (self.size,), 0, rows.size, jnp.int32))

    def per_epoch(self, rows):
        return _ceil(rows.size, self.size)


class WithoutReplacement(Batches):
    """`size` different rows, drawn anew at every step; all rows where a client has no more.

    >>> import fedmin
    >>> fedmin.WithoutReplacement(32)
    WithoutReplacement(size=32)
    """

    size: int = eqx.field(static=True)

    def __check_init__(self):
        checks.at_least("size", self.size, 1)

    def batch(self, rows, key, k):
        return _pick(
            rows,
            jax.random.fold_in(key, k),
            jnp.arange(min(self.size, rows.capacity), dtype=jnp.int32),
        )

    def per_epoch(self, rows):
        return _ceil(rows.size, self.size)


class Shuffled(Batches):
    """A new random order at each pass, `size` rows at a time; the last batch may be shorter.

    >>> import fedmin
    >>> fedmin.Shuffled(32)
    Shuffled(size=32)
    """

    size: int = eqx.field(static=True)

    def __check_init__(self):
        checks.at_least("size", self.size, 1)

    def batch(self, rows, key, k):
        size = min(self.size, rows.capacity)
        turn, place = jnp.divmod(jnp.asarray(k, jnp.int32), self.per_epoch(rows))
        return _pick(
            rows, jax.random.fold_in(key, turn), place * size + jnp.arange(size, dtype=jnp.int32)
        )

    def per_epoch(self, rows):
        return _ceil(rows.size, min(self.size, rows.capacity))


class Blocks(Batches):
    """Like `Shuffled`, but rows stay with their neighbours: blocks of `size` rows in random order.

    Rows were shuffled once, when the federation was made, so a block is a random batch; reading it
    is one copy instead of a gather. The fastest choice, and the default.

    >>> import fedmin
    >>> fedmin.Blocks(32)
    Blocks(size=32)
    """

    size: int = eqx.field(static=True)

    def __check_init__(self):
        checks.at_least("size", self.size, 1)

    def batch(self, rows, key, k):
        size = min(self.size, rows.capacity)
        blocks = self.per_epoch(rows)
        turn, place = jnp.divmod(jnp.asarray(k, jnp.int32), blocks)
        block = shuffled(jax.random.fold_in(key, turn), place, blocks)
        return rows.window(block * size, size)

    def per_epoch(self, rows):
        return _ceil(rows.size, min(self.size, rows.capacity))


def _ceil(count: Array, size: int) -> Array:
    return -(-count // size)


def _pick(rows: Shard, key: Array, places: Array) -> Rows:
    """The rows at these places of a random order; places beyond the client's rows weigh 0."""
    there = places < rows.size
    batch = rows.take(shuffled(key, jnp.where(there, places, 0), rows.size))
    return Rows(batch.x, batch.y, jnp.where(there, batch.weight, 0))


BATCHES = {
    "full": Full,
    "withreplacement": WithReplacement,
    "withoutreplacement": WithoutReplacement,
    "shuffled": Shuffled,
    "blocks": Blocks,
}
