"""Convex penalties in place of sets: what they add to the objective, and their proximal maps.

    penalty           adds        prox(x, t), the u of least |u - x|^2/2 + t times the penalty
    L1Penalty         w |x|_1     entries shortened by w t, those that are shorter become 0
    NuclearPenalty    w |X|_*     the same of the singular values

`over(problem, L1Penalty(0.01))` is the composite problem F(x) + w |x|_1. Methods by proximal steps
take it (FedMid, FedDualAvg, FedDR); those that project or need atoms refuse it. Why a penalty is a
domain is in docs/decisions/0090.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from fedmin.core import checks
from fedmin.core.domain import Domain
from fedmin.domains.nuclear import NuclearBall


def shrunk(x: Array, by: Array | float) -> Array:
    """Every entry nearer to 0 by `by`, or 0.

    >>> import jax.numpy as jnp
    >>> shrunk(jnp.array([3.0, -0.5, -2.0]), 1.0).tolist()
    [2.0, 0.0, -1.0]
    """
    return jnp.maximum(x - by, 0) - jnp.maximum(-x - by, 0)


class L1Penalty(Domain):
    """w |x|_1 is added to the objective: few entries are not 0, fewer with a larger w.

    >>> import jax.numpy as jnp, fedmin
    >>> penalty = fedmin.L1Penalty(0.5)
    >>> penalty.prox(jnp.array([2.0, -0.1]), 1.0).tolist(), float(penalty.value(jnp.ones(4)))
    ([1.5, 0.0], 2.0)
    """

    weight: float  # w

    bounded = False
    convex = True

    def __check_init__(self):
        checks.positive("weight", self.weight)

    def contains(self, x, tolerance=1e-6):
        return jnp.all(jnp.isfinite(x))

    def value(self, x):
        return self.weight * jnp.sum(jnp.abs(x))

    def prox(self, x, t):
        return shrunk(x, self.weight * t)


class NuclearPenalty(Domain):
    """w times the sum of singular values is added: a matrix of low rank, lower with a larger w.

    The problem's x must be one matrix, or of a given `shape`; `Product` takes tensors apart.

    >>> import jax.numpy as jnp, fedmin
    >>> penalty = fedmin.NuclearPenalty(1.0, shape=(2, 2))
    >>> penalty.prox(jnp.array([3.0, 0.0, 0.0, 0.5]), 1.0).round(3).tolist()
    [2.0, 0.0, 0.0, 0.0]
    """

    weight: float  # w
    shape: tuple[int, int] | None = eqx.field(default=None, static=True)

    bounded = False
    convex = True

    def __check_init__(self):
        checks.positive("weight", self.weight)

    def fitted(self, parts):
        return NuclearPenalty(self.weight, NuclearBall(1.0, self.shape).fitted(parts).shape)

    def contains(self, x, tolerance=1e-6):
        return jnp.all(jnp.isfinite(x))

    def value(self, x):
        return self.weight * NuclearBall(1.0, self.shape).norm(x)

    def prox(self, x, t):
        u, values, v = jnp.linalg.svd(x.reshape(self._shape), full_matrices=False)
        return ((u * shrunk(values, self.weight * t)) @ v).ravel()

    @property
    def _shape(self) -> tuple[int, int]:
        if self.shape is None:
            raise ValueError("NuclearPenalty has no shape yet; give one, or over(problem, domain)")
        return self.shape
