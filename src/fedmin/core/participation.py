"""Who takes part in a round: a function of the key, the round and the number of clients.

`cohort` returns client ids and which of them are present. Its length is fixed, so that it can be
compiled; ids may repeat only where they are absent.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.core import checks


class Participation(eqx.Module):
    """Who takes part in a round.

    >>> import jax, fedmin
    >>> ids, present = fedmin.Cyclic(2).cohort(jax.random.key(0), 3, 5)
    >>> ids.tolist(), present.tolist()
    ([1, 2], [True, True])
    """

    everyone: ClassVar[bool] = False  # every round has all clients in it

    def most(self, population: int) -> int:
        """How many clients a round may have."""
        key = jax.random.key(0)
        ids, _ = jax.eval_shape(lambda k: self.cohort(k, jnp.int32(0), population), key)
        return ids.shape[0]

    def least(self, population: int) -> int:
        """How many clients a round that is not passed by has at least."""
        return 1

    def chance(self, population: int) -> float:
        """The share of the rounds that a client takes part in, on average."""
        return self.most(population) / population

    @abstractmethod
    def cohort(self, key: Array, round: Array, population: int) -> tuple[Array, Array]:
        """Ids i[k] and present bool[k]; k depends on the population only."""

    def check(self, population: int) -> None:
        """Refuse what this many clients cannot do."""


class Everyone(Participation):
    """All clients, every round.

    >>> import fedmin
    >>> fedmin.Everyone()
    Everyone()
    """

    everyone = True

    def least(self, population):
        return population

    def cohort(self, key, round, population):
        return jnp.arange(population, dtype=jnp.int32), jnp.ones(population, bool)


class Uniform(Participation):
    """`count` different clients, drawn anew every round, all sets equally likely.

    >>> import fedmin
    >>> fedmin.Uniform(10)
    Uniform(count=10)
    """

    count: int = eqx.field(static=True)

    def __check_init__(self):
        checks.at_least("count", self.count, 1)

    def least(self, population):
        return self.count

    def cohort(self, key, round, population):
        ids = jax.random.permutation(key, jnp.arange(population, dtype=jnp.int32))[: self.count]
        return jnp.sort(ids), jnp.ones(self.count, bool)

    def check(self, population):
        _no_more_than(self.count, population)


class Bernoulli(Participation):
    """Each client independently with this probability; a round may find nobody and then passes.

    >>> import fedmin
    >>> fedmin.Bernoulli(0.3)
    Bernoulli(probability=0.3)
    """

    probability: float

    def __check_init__(self):
        checks.between("probability", self.probability, 0.0, 1.0, open_low=True)

    def chance(self, population):
        return float(self.probability)

    def cohort(self, key, round, population):
        return jnp.arange(population, dtype=jnp.int32), jax.random.bernoulli(
            key, self.probability, (population,)
        )


class Cyclic(Participation):
    """`count` clients a round, in turn: 0..count-1, then the next ones, around and around.

    >>> import fedmin
    >>> fedmin.Cyclic(2)
    Cyclic(count=2)
    """

    count: int = eqx.field(static=True)

    def __check_init__(self):
        checks.at_least("count", self.count, 1)

    def least(self, population):
        return self.count

    def cohort(self, key, round, population):
        first = (round * self.count) % population
        return (first + jnp.arange(self.count, dtype=jnp.int32)) % population, jnp.ones(
            self.count, bool
        )

    def check(self, population):
        _no_more_than(self.count, population)


def _no_more_than(count: int, population: int) -> None:
    if count > population:
        raise ValueError(f"count must be at most the number of clients, {population}, got {count}")


PARTICIPATIONS = {
    "everyone": Everyone,
    "uniform": Uniform,
    "bernoulli": Bernoulli,
    "cyclic": Cyclic,
}
