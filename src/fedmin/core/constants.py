"""How steep the objective and the clients' parts of it are, measured; step sizes follow.

    L      the largest curvature of F at x, by the power method
    l_i    that of f_i, client i's part
    L_s    the same over vectors of s entries, by the truncated power method: a lower bound

Distributed-IHT may take steps of 1/L_s; local steps, as in Fed-HT, must suit the steepest client,
and the theorems of [tong2022federated] ask for 1/(6 l). Where max l_i is far above L, local steps
are short, and several of them do not make up for one of Distributed-IHT's.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedmin.core import checks
from fedmin.core.federation import Federation
from fedmin.core.problem import Problem
from fedmin.core.rows import Rows, Shard


@dataclass(frozen=True)
class Constants:
    """What `constants` measured.

    >>> import fedmin, numpy as np
    >>> fedmin.Constants(2.0, np.array([3.0, 8.0])).local_step
    0.125
    """

    smoothness: float  # L
    client_smoothness: np.ndarray  # l_i

    @property
    def step(self) -> float:
        """1/L: for one step a round (DistributedIHT, FedSGD)."""
        return 1 / self.smoothness

    @property
    def local_step(self) -> float:
        """1/max l_i: for local steps; the theorems of Fed-HT ask for a sixth of it."""
        return 1 / float(np.max(self.client_smoothness))

    @property
    def ratio(self) -> float:
        """max l_i / L: at most one local step in so many is worth a step on F."""
        return float(np.max(self.client_smoothness)) / self.smoothness


def constants(
    problem: Problem,
    federation: Federation,
    x: Any = None,
    *,
    entries: int | None = None,
    iterations: int = 30,
) -> Constants:
    """Measure the curvature of F and of each client's part, at x or at the problem's start.

    `entries` looks at vectors of so many entries only. It is a look at all data, for the simulator;
    each iteration would be a round of d numbers up and down in a real federation.

    >>> import fedmin
    >>> sample = fedmin.data.quadratics(clients=3, dim=4, condition=10.0)
    >>> found = fedmin.constants(fedmin.LeastSquares(4), fedmin.data.partition(sample))
    >>> round(found.smoothness, 3), round(sample.truth["smoothness"], 3)
    (1.0, 1.0)
    """
    checks.at_least("iterations", iterations, 1)
    size = problem.size()
    kept = size if entries is None else entries
    checks.at_least("entries", kept, 1)
    pool = jax.tree.map(jnp.asarray, federation.pool)
    x = problem.init(jax.random.key(0)) if x is None else jnp.asarray(x, pool.x.dtype)
    everyone = pool.weighing(jnp.asarray(federation.measuring_weights()))
    kept = min(kept, size)
    whole = _largest(problem, x, Shard.whole(everyone), kept, iterations)
    starts, sizes = (jnp.asarray(a, jnp.int32) for a in (federation.starts, federation.sizes))
    each = _each(problem, x, pool, starts, sizes, federation.capacity, kept, iterations)
    return Constants(float(whole), np.asarray(each))


@eqx.filter_jit
def _each(problem, x, pool: Rows, starts, sizes, capacity: int, kept: int, iterations: int) -> Any:
    def one(place):
        start, size = place
        return _largest(problem, x, Shard(pool, start, size, capacity), kept, iterations)

    return lax.map(one, (starts, sizes))


@eqx.filter_jit
def _largest(problem, x, rows: Shard, kept: int, iterations: int) -> Array:
    def cut(v):
        if kept < v.shape[0]:
            i = lax.top_k(jnp.abs(v), kept)[1]
            v = jnp.zeros_like(v).at[i].set(v[i])
        return v / jnp.maximum(jnp.linalg.norm(v), jnp.finfo(v.dtype).tiny)

    def times(v):
        return problem.hvp(x, v, rows)

    start = jax.random.normal(jax.random.key(0), x.shape, x.dtype)
    v = lax.fori_loop(0, iterations, lambda _, v: cut(times(v)), cut(start))
    return v @ times(v)
