"""The curvature B itself from L-BFGS pairs, and B^-1 on some entries.   [byrd1994representations]

    B = sigma (I - W^T K^-1 W),   W = [S; Y/sigma],   K = [S S^T, L; L^T, -D]

with pairs (s, y) in the rows of S and Y, oldest first, and S Y^T/sigma = L + D + an upper triangle,
L strictly lower, D diagonal. On entries T of a vector, B_TT = sigma (I - W_T^T K^-1 W_T) and so

    B_TT^-1 r = (r + W_T^T (K - W_T W_T^T)^-1 W_T r) / sigma

which the inverse form of `lbfgs` cannot give: (B_TT)^-1 is not (B^-1)_TT. B is positive definite
where all pairs have y.s > 0, and then so is B_TT.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fedmin.server.quasi_newton.lbfgs import Pairs


class Curvature(NamedTuple):
    """B, by its parts; rows of W have length 1."""

    sigma: Array
    W: Array  # f[2m, d]
    K: Array  # f[2m, 2m]


def curvature(pairs: Pairs, sigma: Array) -> Curvature:
    """B from the pairs, on sigma I; a slot that holds no pair takes no part.

    >>> import jax.numpy as jnp
    >>> from fedmin.server.quasi_newton import lbfgs
    >>> pairs = lbfgs.push(lbfgs.empty(3, jnp.zeros(2)), jnp.ones(2), jnp.array([4.0, 1.0]))
    >>> times(curvature(pairs, jnp.float32(2.0)), jnp.ones(2)).round(4).tolist()  # B s = y
    [4.0, 1.0]
    """
    m = len(pairs.rho)
    order = (pairs.taken + jnp.arange(m, dtype=jnp.int32)) % m  # oldest first
    there = pairs.rho[order] > 0
    S, Y = (jnp.where(there[:, None], a[order], 0) for a in (pairs.s, pairs.y / sigma))
    products = S @ Y.T
    lower, diagonal = jnp.tril(products, -1), jnp.diag(jnp.diag(products))
    blank = jnp.diag((~there).astype(sigma.dtype))
    K = jnp.block([[S @ S.T + blank, lower], [lower.T, -diagonal - blank]])
    W = jnp.concatenate([S, Y])
    # rows of one length: S and Y differ by orders of magnitude, and single precision would notice
    length = jnp.linalg.norm(W, axis=1)
    size = 1 / jnp.where(length > 0, length, 1)
    return Curvature(sigma, W * size[:, None], K * size[:, None] * size)


def times(B: Curvature, v: Array) -> Array:
    """B v."""
    return B.sigma * (v - B.W.T @ jnp.linalg.solve(B.K, B.W @ v))


def solve_on(B: Curvature, i: Array, r: Array, kept: Array | None = None) -> Array:
    """B_TT^-1 r on the entries T with these indices; where `kept` is False an index is not in T,
    and what is returned there is 0.

    >>> import jax.numpy as jnp
    >>> from fedmin.server.quasi_newton import lbfgs
    >>> nothing = curvature(lbfgs.empty(3, jnp.zeros(2)), jnp.float32(2.0))
    >>> solve_on(nothing, jnp.array([1]), jnp.array([6.0]))  # B = 2 I
    Array([3.], dtype=float32)
    """
    W = B.W[:, i]
    if kept is not None:
        W, r = jnp.where(kept, W, 0), jnp.where(kept, r, 0)
    return (r + W.T @ jnp.linalg.solve(B.K - W @ W.T, W @ r)) / B.sigma
