"""The convex problem of SSCA's server, solved in its dual.   [ye2022sample] Problem 4

    minimize over w and s >= 0    g.w + q |w|^2 + c sum_m s_m
    subject to                    a_m + v_m.w + tau |w|^2 <= s_m,     m = 1..M

Every quadratic part is a multiple of the identity. For multipliers nu in [0, c]^M the best w is

    w(nu) = -(g + sum_m nu_m v_m) / (2 k),     k = q + tau sum_m nu_m

and the dual D(nu) = a.nu - |g + sum nu_m v_m|^2 / (4 k) is concave, with the constraints' values at
w(nu) as its gradient and -u_m.u_n / (2 k), u_m = v_m + 2 tau w, as its Hessian. All of it follows
from the products of g and the v_m with each other, so that the search is in M numbers whatever the
length of w. For one multiplier with the others fixed the best value has a closed form; for M = 1
that is the answer, for more it alternates with Newton's step.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

MOST = 100  # turns; a handful is the rule
FEW = 8  # vectors of which a product by pairs is faster than one of matrices


class Solution(NamedTuple):
    """Where the minimum is, and what proves it."""

    w: Array  # f[d]
    multipliers: Array  # f[M], each in [0, c]
    slack: Array  # f[M], by how much the constraints do not hold


class _Dual(NamedTuple):
    """The problem as M numbers see it."""

    products: Array  # f[1 + M, 1 + M] of g, v_1, .., v_M
    q: Array
    a: Array  # f[M]
    tau: Array
    c: Array


def solve(vectors: Array, q: Any, a: Array, tau: Any, c: Any) -> Solution:
    """The minimum for the vectors g, v_1, .., v_M f[1 + M, d], a f[M] and positive q, tau, c.

    >>> import jax.numpy as jnp
    >>> from fedmin.server.qcqp import solve
    >>> vectors = jnp.array([[0.0], [-4.0]])  # |w|^2 with (w - 2)^2 <= 1, which is 4 - 4w + w^2
    >>> answer = solve(vectors, 1.0, jnp.array([3.0]), 1.0, 100.0)
    >>> print(answer.w.round(5), answer.multipliers.round(5))
    [1.] [1.]
    """
    q, tau, c = (jnp.asarray(number, vectors.dtype) for number in (q, tau, c))
    if not len(a):
        return Solution(vectors[0] / (-2 * q), a, a)
    dual = _Dual(_products(vectors), q, a, tau, c)
    nu = _best(dual, a * 0, 0)[None] if len(a) == 1 else _search(dual)
    scale = jnp.concatenate([jnp.ones(1, nu.dtype), nu]) / (-2 * _k(dual, nu))
    return Solution(_combination(scale, vectors), nu, jnp.maximum(_gradient(dual, nu)[0], 0))


def _products(vectors: Array) -> Array:
    """All products with each other, a few long vectors one pair after the other."""
    count = len(vectors)
    if count > FEW:
        return vectors @ vectors.T
    pairs = [(i, j) for i in range(count) for j in range(i, count)]
    at = np.zeros((count, count), int)
    for place, (i, j) in enumerate(pairs):
        at[i, j] = at[j, i] = place
    return jnp.stack([jnp.dot(vectors[i], vectors[j]) for i, j in pairs])[at]


def _combination(scale: Array, vectors: Array) -> Array:
    if len(vectors) > FEW:
        return scale @ vectors
    return sum((scale[m] * vectors[m] for m in range(1, len(vectors))), scale[0] * vectors[0])


def _k(dual: _Dual, nu: Array) -> Array:
    return dual.q + dual.tau * jnp.sum(nu)


def _value(dual: _Dual, nu: Array) -> Array:
    one = jnp.concatenate([jnp.ones(1, nu.dtype), nu])
    return dual.a @ nu - one @ dual.products @ one / (4 * _k(dual, nu))


def _gradient(dual: _Dual, nu: Array) -> tuple[Array, Array]:
    """f[M]: the constraints at w(nu); and f[M, M]: minus the Hessian of the dual."""
    k = _k(dual, nu)
    w = jnp.concatenate([jnp.ones(1, nu.dtype), nu]) / (-2 * k)  # in terms of g, v_1, .., v_M
    along = (dual.products @ w)[1:]  # v_m . w
    square = w @ dual.products @ w
    tau = dual.tau
    inner = dual.products[1:, 1:] + 2 * tau * (along[:, None] + along) + 4 * tau**2 * square
    return dual.a + along + tau * square, inner / (2 * k)


def _best(dual: _Dual, nu: Array, m: Array | int) -> Array:
    """The best nu_m in [0, c], the others as they are.

    With e = g' - (q'/tau) v_m, where g' and q' have the others' part in them, constraint m at w(nu)
    is a_m - |v_m|^2 / (4 tau) + tau |e|^2 / (4 k^2): zero at one k, or positive for all of them.
    """
    others = nu.at[m].set(0)
    q = _k(dual, others)
    e = jnp.concatenate([jnp.ones(1, nu.dtype), others]).at[m + 1].add(-q / dual.tau)
    length = e @ dual.products @ e
    room = dual.products[m + 1, m + 1] - 4 * dual.tau * dual.a[m]
    k = dual.tau * jnp.sqrt(jnp.maximum(length, 0) / jnp.where(room > 0, room, 1))
    return jnp.where(room > 0, jnp.clip((k - q) / dual.tau, 0, dual.c), dual.c)


def _search(dual: _Dual) -> Array:
    """The best multipliers: one after the other, then all by Newton's step, until nothing moves."""
    count = len(dual.a)
    tiny = jnp.finfo(dual.a.dtype).eps
    steps = jnp.asarray([2.0**-j for j in range(-4, 12)], dual.a.dtype)
    ridges = jnp.asarray([tiny, tiny**0.75, tiny**0.5, tiny**0.25, 1.0], dual.a.dtype)
    # what rounding makes of a constraint's value
    noise = 16 * tiny * (jnp.abs(dual.a) + jnp.diagonal(dual.products)[1:] / (4 * dual.tau))

    def free(nu, slope):
        return ~(((nu <= 0) & (slope <= 0)) | ((nu >= dual.c) & (slope >= 0)))

    def off(nu):
        slope, _ = _gradient(dual, nu)
        return jnp.max(jnp.where(free(nu, slope), jnp.abs(slope) - noise, 0))

    def less(nu, than):
        level = _value(dual, than)
        return _value(dual, nu) < level - 16 * tiny * jnp.abs(level)

    def newton(nu, before):
        slope, curve = _gradient(dual, nu)
        moves = free(nu, slope)
        slope = jnp.where(moves, slope, 0)
        curve = jnp.where(moves[:, None] & moves, curve, 0)
        scale = jnp.trace(curve) + jnp.finfo(nu.dtype).tiny

        def toward(ridge):
            solid = curve + jnp.diag(jnp.where(moves, ridge * scale, 1))
            return jnp.where(moves, jnp.linalg.solve(solid, slope), 0)

        # where there is no minimum to step to (the dual grows along a ray): on the way we came
        ways = jnp.concatenate([jax.vmap(toward)(ridges), (nu - before)[None]])
        # as far as the first bound on the way; and with every number stopped at its own bound
        room = jnp.where(ways > 0, dual.c - nu, nu) / jnp.where(ways == 0, 1, jnp.abs(ways))
        most = jnp.min(jnp.where((ways == 0) | (room <= 0), jnp.inf, room), axis=1)
        most = jnp.where(jnp.isfinite(most), most, 0)
        ends = jnp.concatenate([steps[:, None] * most, steps[:, None] * jnp.ones_like(most)])
        there = jnp.clip(nu + ends[..., None] * ways, 0, dual.c).reshape(-1, count)
        best = there[jnp.argmax(jax.vmap(partial(_value, dual))(there))]
        whole = jnp.clip(nu + ways[0], 0, dual.c)
        # close to the end values no longer tell points apart, slopes still do
        best = jnp.where(~less(whole, best) & (off(whole) < off(best)), whole, best)
        return jnp.where(less(best, nu), nu, best)

    def turn(carry):
        nu, before, i, _ = carry
        new = lax.fori_loop(0, count, lambda m, u: u.at[m].set(_best(dual, u, m)), nu)
        new = newton(new, before)
        still = ~less(nu, new) & (off(new) >= 0.5 * off(nu))
        return new, nu, i + 1, still | (off(new) <= 0)

    def going(carry):
        return (carry[2] < MOST) & ~carry[3]

    zeros = jnp.zeros_like(dual.a)
    start = (zeros, zeros, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    return lax.while_loop(going, turn, start)[0]
