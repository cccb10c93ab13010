"""Matrices of low rank: the nearest one by a truncated SVD.   [halko2011finding]

    Q <- orthonormal basis of (A A^T)^q A Omega, with k = r + 8 random columns Omega
    A_r = the best approximation of rank r in that basis: U U^T A, U the r leading directions of
          Q Q^T A, from the k x k matrix (Q^T A)(Q^T A)^T
    cost        2 (q + 1) products of A with k columns; never an SVD of A if r is small

Omega is the same at every call, so that the same x has the same projection. Only matrices are in
the budget, each by itself; vectors among the parts of x (biases) are left as they are, and so are
parts that are named `free`. The set is not convex. A point of it travels as two factors a matrix.
"""

import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.core import checks
from fedmin.core.domain import Truncation
from fedmin.core.payload import Concatenated, LowRank
from fedmin.domains.sparse import names

MORE = 8  # columns beyond r


def truncated(matrix: Array, rank: int, iterations: int) -> tuple[Array, Array]:
    """Factors [m, r] and [n, r] of the nearest matrix of this rank.

    >>> import jax.numpy as jnp
    >>> left, right = truncated(jnp.diag(jnp.array([3.0, 2.0, 1.0])), 1, 8)
    >>> (left @ right.T).diagonal().round().tolist()
    [3.0, 0.0, 0.0]
    """
    m, n = matrix.shape
    width = rank + MORE
    if 2 * width >= min(m, n):  # then the matrix is small, or r is not
        u, s, vt = jnp.linalg.svd(matrix, full_matrices=False)
        return u[:, :rank] * s[:rank], vt[:rank].T
    omega = jax.random.normal(jax.random.key(0), (n, width), matrix.dtype)

    def sharpen(_, q):
        back = jnp.linalg.qr(matrix.T @ q)[0]
        return jnp.linalg.qr(matrix @ back)[0]

    q = lax.fori_loop(0, iterations, sharpen, jnp.linalg.qr(matrix @ omega)[0])
    rest = q.T @ matrix  # [k, n]
    _, turn = jnp.linalg.eigh(rest @ rest.T)
    lead = turn[:, -rank:]  # the largest come last
    return q @ lead, rest.T @ lead


class RankBall(Truncation):
    """Matrices of rank at most `rank`.

    >>> import jax.numpy as jnp, fedmin
    >>> problem = fedmin.over(fedmin.Softmax(2, 2), fedmin.RankBall(1))
    >>> problem.domain.project(jnp.array([2.0, 0.0, 0.0, 1.0])).round(3).tolist()
    [2.0, 0.0, 0.0, 0.0]
    """

    rank: int = eqx.field(static=True)  # r
    free: tuple[str, ...] = eqx.field(default=(), static=True, converter=names)
    iterations: int = eqx.field(default=8, static=True)  # q
    parts: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(default=(), static=True)

    def __check_init__(self):
        checks.at_least("rank", self.rank, 1)
        checks.at_least("iterations", self.iterations, 1)

    def fitted(self, parts):
        for name in self.free:
            checks.known("part", name, parts)
        sides = [min(shape) for name, shape in parts.items() if self._inside(name, shape)]
        if not sides:
            raise ValueError(f"RankBall is for matrices; the parts of x are {dict(parts)}")
        if self.rank > min(sides):
            raise ValueError(
                f"rank must be at most {min(sides)}, a matrix's shorter side, got {self.rank}"
            )
        return replace(self, parts=tuple(parts.items()))

    def compact(self, x):
        if not self.parts:
            raise ValueError("RankBall must know the matrices in x: use over(problem, RankBall(r))")
        done, found = 0, []
        for name, shape in self.parts:
            part = x[done : done + math.prod(shape)]
            done += math.prod(shape)
            if self._inside(name, shape):
                factors = truncated(part.reshape(shape), self.rank, self.iterations)
                found.append(LowRank(*factors))
            else:
                found.append(part)
        return found[0] if len(found) == 1 else Concatenated(tuple(found))

    def _inside(self, name: str, shape: tuple[int, ...]) -> bool:
        return len(shape) == 2 and name not in self.free
