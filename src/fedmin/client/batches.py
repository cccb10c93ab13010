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

from fedmin.client.shuffle import shuffled
from fedmin.core import checks
from fedmin.core.rows import Rows, Shard


class Batches(eqx.Module):
    """How a client draws the rows of its next step.

    >>> import fedmin
    >>> fedmin.Blocks(32).per_epoch(size=100, capacity=100)
    4
    """

    def at(self, round: Array) -> "Batches":
        """The batches of this round; the same in all rounds, unless they grow."""
        return self

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


class Growing(Batches):
    """first * factor^round different rows, drawn anew at every step, and no more than `most`.

    The theorems of Fed-HT ask for it: noise must fall as fast as the distance to the solution.
    Every step costs what `most` rows cost, since shapes are fixed; rows not drawn weigh 0. For
    methods with `local_steps`.

    >>> import fedmin, jax.numpy as jnp
    >>> int(fedmin.Growing(10, 1.5, most=100).at(jnp.int32(2)).size)
    22
    """

    first: float
    factor: float
    most: int = eqx.field(static=True)

    def __check_init__(self):
        checks.between("first", self.first, 1.0)
        checks.between("factor", self.factor, 1.0)
        checks.at_least("most", self.most, 1)

    def at(self, round):
        # the exponent is cut, so that late rounds do not overflow; a touch more, or 3.0 may be 2
        first, factor = (jnp.asarray(a, float) for a in (self.first, self.factor))
        turns = jnp.log(self.most / first) / jnp.log(jnp.maximum(factor, 1 + 1e-6))
        grown = first * factor ** jnp.clip(turns, 0, jnp.asarray(round, float))
        return Sized(jnp.clip(grown * (1 + 1e-6), 1, self.most).astype(jnp.int32), self.most)

    def draw(self, rows, key, k):
        raise TypeError(f"{self} goes with methods that have local_steps, such as FedAvg or FedHT")

    def read(self, rows, drawn):
        return _fetch(rows, drawn)

    def per_epoch(self, size, capacity):
        raise TypeError(f"{self} goes with local_steps, not with epochs")


class Sized(Batches):
    """`size` different rows, a number that may change, of at most `most`; made by `Growing`."""

    size: Array  # i[]
    most: int = eqx.field(static=True)

    def draw(self, rows, key, k):
        places = jnp.arange(min(self.most, rows.capacity), dtype=jnp.int32)
        i, there = _pick(rows, key, k, places)
        return i, there & (places < self.size)

    def read(self, rows, drawn):
        return _fetch(rows, drawn)

    def per_epoch(self, size, capacity):
        raise TypeError("growing batches go with local_steps, not with epochs")


def _pick(rows: Shard, key: Array, turn: Array, places: Array) -> tuple[Array, Array]:
    """Which rows stand at these places of a random order, and whether the client has as many."""
    there = places < rows.size
    return shuffled(key, turn, jnp.where(there, places, 0), rows.size), there


def _fetch(rows: Shard, drawn: tuple[Array, Array]) -> Rows:
    """The picked rows; those that are not there weigh 0."""
    batch = rows.take(drawn[0])
    return batch.weighing(jnp.where(drawn[1], batch.weight, 0))


BATCHES = {
    "full": Full,
    "withreplacement": WithReplacement,
    "withoutreplacement": WithoutReplacement,
    "shuffled": Shuffled,
    "blocks": Blocks,
    "growing": Growing,
}
