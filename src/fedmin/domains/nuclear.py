"""Matrices of small nuclear norm: the leading singular pair, never a full decomposition.

    atom        -r u v^T,  (u, v) the leading singular pair of the matrix g     a rank-one pair
    found by    Golub-Kahan (Lanczos) bidiagonalization, `krylov` steps a cycle, begun anew from the
                best pair so far until |g v - s u| <= tolerance s (g^T u = s v holds by itself), or
                `cycles` are over

A cycle costs 2 krylov + 2 products with g. A start near the answer, the last round's atom, saves
cycles.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.core import checks
from fedmin.core.payload import LowRank
from fedmin.domains.balls import Ball, length, onto_l1_ball


def leading_pair(
    g: Array, start: Array, tolerance: Any, krylov: int, cycles: int
) -> tuple[Array, Array, Array, Array]:
    """s, u, v with g v = s u for the largest singular value s; and how many cycles it took."""
    krylov = min(krylov, *g.shape)

    def again(carry):
        cycle, _, _, _, error = carry
        return (cycle < cycles) & (error > tolerance)

    def search(carry):
        cycle, _, _, v, _ = carry
        U, B, _ = _bidiagonalize(g, v, krylov)
        u = U @ jnp.linalg.svd(B)[0][:, 0]
        v = u @ g  # a power step on top: the next cycle then begins better, however few its steps
        s = jnp.linalg.norm(v)
        v = v / jnp.where(s > 0, s, 1.0)
        wrong = jnp.linalg.norm(g @ v - s * u)
        return cycle + 1, s, u, v, jnp.where(s > 0, wrong / s, 0.0)

    first = start / jnp.linalg.norm(start)
    ready = (jnp.int32(0), jnp.zeros((), g.dtype), jnp.zeros(g.shape[0], g.dtype), first)
    cycle, s, u, v, _ = lax.while_loop(again, search, (*ready, jnp.full((), jnp.inf, g.dtype)))
    return s, u, v, cycle


def _bidiagonalize(g: Array, v: Array, steps: int) -> tuple[Array, Array, Array]:
    """g V = U B with orthonormal columns of U and V, the first of V being v; B upper bidiagonal."""

    def unit(a, basis):
        for _ in range(2):  # once more: what rounding left of the others
            a = a - basis @ (a @ basis)
        size = jnp.linalg.norm(a)
        return a / jnp.where(size > 0, size, 1.0), size

    def step(k, carry):
        U, B, V, v = carry
        V = V.at[:, k].set(v)
        product = g @ v
        u, alpha = unit(product, U)
        # the column of B in full, not its two entries only: exact also where a basis broke down
        B = B.at[:, k].set(product @ U).at[k, k].set(alpha)
        U = U.at[:, k].set(u)
        v, _ = unit(u @ g, V)
        return U, B, V, v

    m, n = g.shape
    zeros = (jnp.zeros((m, steps), g.dtype), jnp.zeros((steps, steps), g.dtype))
    U, B, V, _ = lax.fori_loop(0, steps, step, (*zeros, jnp.zeros((n, steps), g.dtype), v))
    return U, B, V


class NuclearBall(Ball):
    """Matrices whose singular values add up to at most radius: of low rank, or nearly so.

    The problem's x must be one matrix, or of a given `shape`; `Product` takes tensors apart.

    >>> import jax.numpy as jnp, fedmin
    >>> ball = fedmin.NuclearBall(2.0, shape=(2, 2))
    >>> g = jnp.array([3.0, 0.0, 0.0, 1.0])
    >>> round(float(ball.lmo(g).inner(g)), 3)
    -6.0
    """

    radius: float
    shape: tuple[int, int] | None = eqx.field(default=None, static=True)
    tolerance: float = 1e-3  # of the leading pair
    krylov: int = eqx.field(default=10, static=True)
    cycles: int = eqx.field(default=20, static=True)

    searches = True
    pairs = True

    def __check_init__(self):
        checks.positive("tolerance", self.tolerance)
        checks.at_least("krylov", self.krylov, 2)
        checks.at_least("cycles", self.cycles, 1)

    def fitted(self, parts):
        shapes = list(parts.values())
        if self.shape is not None:
            if self.shape[0] * self.shape[1] != length(parts):
                raise ValueError(f"x has {length(parts)} entries, no matrix of shape {self.shape}")
            return self
        if len(shapes) != 1 or len(shapes[0]) != 2:
            raise ValueError(
                f"NuclearBall needs an x that is one matrix, got the parts {parts}; take them "
                f"apart by Product, or give shape=(rows, columns)"
            )
        return replace(self, shape=shapes[0])

    def matrix(self, x: Array) -> Array:
        """x as a matrix."""
        if self.shape is None:
            raise ValueError("NuclearBall has no shape yet; give one, or over(problem, domain)")
        return x.reshape(self.shape)

    def norm(self, x):
        return jnp.sum(jnp.linalg.svd(self.matrix(x), compute_uv=False))

    def lmo(self, g, near=None):
        matrix = self.matrix(g)
        start = jax.random.normal(jax.random.key(0), (matrix.shape[1],), g.dtype)
        if near is not None:  # a little of chance stays, in case the answer is at a right angle
            start = near.right[:, 0] + 1e-3 * start / jnp.linalg.norm(start)
        _, u, v, _ = leading_pair(matrix, start, self.tolerance, self.krylov, self.cycles)
        return LowRank((-self.radius * u)[:, None], v[:, None])

    def gap(self, x, g):
        """With what the search for the atom may have missed: no less than the true gap.

        Some singular value is within |g v - s u| of s, and the search ends once that is at most
        `tolerance` s.
        """
        found = self.lmo(g)
        u, v = found.left[:, 0] / -self.radius, found.right[:, 0]
        matrix = self.matrix(g)
        s = u @ matrix @ v
        missed = jnp.maximum(jnp.linalg.norm(matrix @ v - s * u), self.tolerance * s)
        return g @ x + self.radius * (s + missed)

    def project(self, x):
        u, values, v = jnp.linalg.svd(self.matrix(x), full_matrices=False)
        return ((u * onto_l1_ball(values, self.radius)) @ v).ravel()
