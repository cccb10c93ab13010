"""How a client draws the rows of its next step. One class each, one line in `BATCHES`.

Drawing and reading are apart: `draw(rows, key, k)` says which rows the k-th batch of a round has,
a few numbers that are computed for all steps at once before the first; `read(rows, drawn)` fetches
them. `per_epoch(rows)` says how many batches make a pass over the client's rows.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin import checks
from fedmin.local.shuffle import shuffled
from fedmin.rows import Rows, Shard


class Batches(eqx.Module):
    """How a client draws the rows of its next step.

    >>> import fedmin
    >>> fedmin.Blocks(32).per_epoch(size=100, capacity=100)
    4
    """

    @abstractmethod
    def draw(self, rows: Shard, key: Array, k: Array) -> Any:
        """Which rows the k-th batch of the round with this key has."""

    @abstractmethod
    def read(self, rows: Shard, drawn: Any) -> Rows:
        """The batch that was drawn."""

    @abstractmethod
    def per_epoch(self, size: Any, capacity: int) -> Any:
        """How many batches make a pass over `size` rows; no client has more than `capacity`."""


class Full(Batches):
    """All of the client's rows at every step.

    >>> import fedmin
    >>> fedmin.Full()
    Full()
    """

    def draw(self, rows, key, k):
        return ()

    def read(self, rows, drawn):
        return rows.all()

    def per_epoch(self, size, capacity):
        return 1


class WithReplacement(Batches):
    """`size` independent draws at every step.

    >>> import fedmin
    >>> fedmin.WithReplacement(32)
    WithReplacement(size=32)
    """

    size: int = eqx.field(static=True)

    def __check_init__(self):
        checks.at_least("size", self.size, 1)

    def draw(self, rows, key, k):
        return jax.random.randint(jax.random.fold_in(key, k), (self.size,), 0, rows.size, jnp.int32)

    def read(self, rows, drawn):
        return rows.take(drawn)

    def per_epoch(self, size, capacity):
        return -(-size // self.size)


class WithoutReplacement(Batches):
    """`size` different rows, drawn anew at every step; all rows where a client has no more.

    >>> import fedmin
    >>> fedmin.WithoutReplacement(32)
    WithoutReplacement(size=32)
    """

    size: int = eqx.field(static=True)

    def __check_init__(self):
        checks.at_least("size", self.size, 1)

    def draw(self, rows, key, k):
        places = jnp.arange(min(self.size, rows.capacity), dtype=jnp.int32)
        return _pick(rows, key, k, places)

    def read(self, rows, drawn):
        return _fetch(rows, drawn)

    def per_epoch(self, size, capacity):
        return -(-size // self.size)


class Shuffled(Batches):
    """A new random order at each pass, `size` rows at a time; the last batch may be shorter.

    >>> import fedmin
    >>> fedmin.Shuffled(32)
    Shuffled(size=32)
    """

    size: int = eqx.field(static=True)

    def __check_init__(self):
        checks.at_least("size", self.size, 1)

    def draw(self, rows, key, k):
        size = min(self.size, rows.capacity)
        turn, place = jnp.divmod(k, self.per_epoch(rows.size, rows.capacity))
        places = place * size + jnp.arange(size, dtype=jnp.int32)
        return _pick(rows, key, turn, places)

    def read(self, rows, drawn):
        return _fetch(rows, drawn)

    def per_epoch(self, size, capacity):
        return -(-size // min(self.size, capacity))


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

    def draw(self, rows, key, k):
        blocks = self.per_epoch(rows.size, rows.capacity)
        turn, place = jnp.divmod(k, blocks)
        return shuffled(key, turn, place, blocks)

    def read(self, rows, drawn):
        size = min(self.size, rows.capacity)
        return rows.block(drawn, size)

    def per_epoch(self, size, capacity):
        return -(-size // min(self.size, capacity))


def _pick(rows: Shard, key: Array, turn: Array, places: Array) -> tuple[Array, Array]:
    """Which rows stand at these places of a random order, and whether the client has as many."""
    there = places < rows.size
    return shuffled(key, turn, jnp.where(there, places, 0), rows.size), there


def _fetch(rows: Shard, drawn: tuple[Array, Array]) -> Rows:
    """The picked rows; those that are not there weigh 0."""
    batch = rows.take(drawn[0])
    return Rows(batch.x, batch.y, jnp.where(drawn[1], batch.weight, 0))


BATCHES = {
    "full": Full,
    "withreplacement": WithReplacement,
    "withoutreplacement": WithoutReplacement,
    "shuffled": Shuffled,
    "blocks": Blocks,
}
