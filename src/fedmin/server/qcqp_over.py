"""The convex problem of SSCA's server over a set, solved in its dual.

    minimize over w in D and s >= 0    g.w + q |w|^2 + c sum_m s_m
    subject to                         a_m + v_m.w + tau |w|^2 <= s_m,     m = 1..M

A convex set D (`solve`). Every quadratic part is a multiple of the identity, so that for
multipliers nu in [0, c]^M the best w of the set is the projection of the best w of all:

    w(nu) = P_D(z(nu)),   z(nu) = -(g + sum_m nu_m v_m) / (2 k),   k = q + tau sum_m nu_m

It is the only one, so that the dual D(nu) = a.nu + (g + sum nu_m v_m).w(nu) + k |w(nu)|^2 is
concave and smooth, with the constraints' values at w(nu) as its gradient; slack makes every
problem feasible, and there is no gap to the dual. For one multiplier with the others fixed the
slope only falls, and its zero is bracketed; for several this alternates with Newton's step, whose
Hessian is that of qcqp.py with the derivative of the projection in it.

At most so many entries (`solve_sparse`). The set is not convex, and there may be a gap. H(z(nu)),
the entries that the projection keeps, minimizes the Lagrangian of given multipliers over the set;
with the entries chosen the problem is that of qcqp.py in those entries, and is solved exactly.
The supports that are tried come from the multipliers of the whole problem, then from those of the
last fit; and there is the support that w has now. The best of them is the answer: a heuristic,
exact on its own support.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.server import qcqp
from fedmin.server.qcqp import Solution

MOST = 50  # turns, where there are several multipliers
LOOKS = 100  # at one multiplier's slope; about ten are the rule
STEPS = (1.0, 0.5, 0.25, 0.0625, 0.015625)  # lengths of Newton's step that are tried
SUPPORTS = 3  # that are tried besides the one there is


class _Dual(NamedTuple):
    """The problem, and the nearest point of its set."""

    vectors: Array  # f[1 + M, d]
    q: Array
    a: Array
    tau: Array
    c: Array
    nearest: Callable[[Array], Array]


def solve(
    vectors: Array, q: Any, a: Array, tau: Any, c: Any, nearest: Callable[[Array], Array]
) -> Solution:
    """The minimum over a convex set, given by its projection `nearest`; else as in qcqp.py.

    >>> import jax.numpy as jnp
    >>> from fedmin.server.qcqp_over import solve
    >>> vectors = jnp.array([[-4.0, -2.0], [1.0, 0.0]])  # (w - (2, 1))^2 with w_1 + |w|^2 <= 3
    >>> answer = solve(vectors, 1.0, jnp.array([-3.0]), 1.0, 100.0, lambda z: jnp.clip(z, 0, 1))
    >>> print(answer.w.round(5), answer.multipliers.round(5))
    [1. 1.] [0.]
    """
    q, tau, c = (jnp.asarray(number, vectors.dtype) for number in (q, tau, c))
    if not len(a):
        return Solution(nearest(vectors[0] / (-2 * q)), a, a)
    dual = _Dual(vectors, q, a, tau, c, nearest)
    nu = qcqp.solve(vectors, q, a, tau, c).multipliers  # right where the set is not in the way
    nu = _best(dual, nu, 0)[None] if len(a) == 1 else _search(dual, nu)
    w, slope, _ = _at(dual, nu)
    return Solution(w, nu, jnp.maximum(slope, 0))


def _lagrangian(dual: _Dual, nu: Array) -> tuple[Array, Array, Array]:
    """k, the vector that its linear part has, and where it is least in all of space."""
    k = dual.q + dual.tau * jnp.sum(nu)
    b = dual.vectors[0] + nu @ dual.vectors[1:]
    return k, b, b / (-2 * k)


def _at(dual: _Dual, nu: Array) -> tuple[Array, Array, Array]:
    """w(nu), the constraints there, and the dual's value."""
    k, b, z = _lagrangian(dual, nu)
    w = dual.nearest(z)
    square = w @ w
    return w, dual.a + dual.vectors[1:] @ w + dual.tau * square, dual.a @ nu + b @ w + k * square


def _noise(dual: _Dual, w: Array) -> Array:
    """f[M]: what rounding makes of the constraints' values at w."""
    sizes = jnp.abs(dual.a) + jnp.abs(dual.vectors[1:]) @ jnp.abs(w) + dual.tau * (w @ w)
    return 4 * jnp.finfo(w.dtype).eps * sizes


def _best(dual: _Dual, nu: Array, m: Array | int) -> Array:
    """The best nu_m in [0, c], the others as they are: where constraint m's value is 0.

    By false position in 1/k, in which the value is close to a parabola, with a halving of k now and
    then: `low` is where the value is above 0 and `high` where it is not.
    """
    h = (dual.q + dual.tau * (jnp.sum(nu) - nu[m])) / dual.tau

    def look(t):
        w, slope, _ = _at(dual, nu.at[m].set(t))
        return slope[m], jnp.abs(slope[m]) <= _noise(dual, w)[m]

    def going(carry):
        i, low, high, *_, done = carry
        wide = high - low > 4 * jnp.finfo(nu.dtype).eps * (h + high)
        return (i < LOOKS) & wide & ~done

    def narrower(carry):
        i, low, high, above, below, _, _ = carry
        share = below / (below - above)
        left, right = share / (low + h), (1 - share) / (high + h)
        guess = (left * low + right * high) / (left + right)
        middle = jnp.sqrt(low + h) * jnp.sqrt(high + h) - h
        t = jnp.clip(jnp.where(i % 3 == 2, middle, guess), low, high)
        value, done = look(t)
        up = value > 0
        # the end that stays a second time counts half: else it would stay for ever
        above = jnp.where(up, value, jnp.where(carry[5], above, above / 2))
        below = jnp.where(up, jnp.where(carry[5], below / 2, below), value)
        low, high = jnp.where(up, t, low), jnp.where(up, high, t)
        return i + 1, low, high, above, below, up, done

    zero = jnp.zeros_like(h)
    (above, _), (below, _) = look(zero), look(dual.c)
    near = nu[m]  # where it is already, if that is right
    _, good = look(near)
    ends = (jnp.int32(0), zero, dual.c, above, below, above > 0, good)
    inside = (above > 0) & (below < 0)
    _, low, high, above, below, up, _ = lax.while_loop(
        lambda carry: inside & going(carry), narrower, ends
    )
    found = jnp.where(good, near, jnp.where(up, low, high))
    return jnp.where(inside, found, jnp.where(above > 0, dual.c, zero))


def _search(dual: _Dual, start: Array) -> Array:
    """The best multipliers: all by Newton's step, then one after the other, until nothing moves."""
    tiny = jnp.finfo(dual.a.dtype).eps
    # more active constraints than ways within a face of the set: the Hessian is singular
    ridges = jnp.asarray([tiny, tiny**0.5, tiny**0.25], dual.a.dtype)
    lengths = jnp.asarray(STEPS, dual.a.dtype)

    def free(nu, slope):
        return ~(((nu <= 0) & (slope <= 0)) | ((nu >= dual.c) & (slope >= 0)))

    def judged(nu):
        w, slope, value = _at(dual, nu)
        off = jnp.where(free(nu, slope), jnp.maximum(jnp.abs(slope) - _noise(dual, w), 0), 0)
        return value, jnp.max(off)

    def better(one, other):
        """By value; close to the end values no longer tell points apart, slopes still do."""
        noise = 16 * tiny * (jnp.abs(one[0]) + jnp.abs(other[0]))
        return (one[0] > other[0] + noise) | ((one[0] >= other[0] - noise) & (one[1] < other[1]))

    def pick(one, other):
        first = better(one[1], other[1])
        return jax.tree.map(lambda a, b: jnp.where(first, a, b), one, other)

    def newton(nu, known):
        _, slope, _ = _at(dual, nu)
        moves = free(nu, slope)
        slope = jnp.where(moves, slope, 0)
        curve = jnp.where(moves[:, None] & moves, _curve(dual, nu), 0)
        scale = jnp.trace(curve) + jnp.finfo(nu.dtype).tiny

        def tried(i, best):
            ridge, length = ridges[i // len(STEPS)], lengths[i % len(STEPS)]
            solid = curve + jnp.diag(jnp.where(moves, ridge * scale, 1))
            way = jnp.where(moves, jnp.nan_to_num(jnp.linalg.solve(solid, slope)), 0)
            # where the dual grows along a ray the step is too long: up to the first bound on it
            room = jnp.where(way > 0, dual.c - nu, nu) / jnp.where(way == 0, 1, jnp.abs(way))
            most = jnp.min(jnp.where(way == 0, jnp.inf, room))
            for far in (length, length * jnp.where(jnp.isfinite(most), most, 0)):
                there = jnp.clip(nu + far * way, 0, dual.c)
                best = pick((there, judged(there)), best)
            return best

        return lax.fori_loop(0, len(STEPS) * len(ridges), tried, (nu, known))[0]

    def turn(carry):
        nu, known, i, _ = carry
        new = newton(nu, known)
        new = lax.fori_loop(0, len(new), lambda m, u: u.at[m].set(_best(dual, u, m)), new)
        new, found = pick((new, judged(new)), (nu, known))
        return new, found, i + 1, (found[1] <= 0) | ~better(found, known)

    def going(carry):
        return (carry[2] < MOST) & ~carry[3]

    first = judged(start)
    begin = (start, first, jnp.int32(0), first[1] <= 0)
    return lax.while_loop(going, turn, begin)[0]


def _curve(dual: _Dual, nu: Array) -> Array:
    """f[M, M]: minus the Hessian of the dual, where the projection has a derivative."""
    k, _, z = _lagrangian(dual, nu)
    w = dual.nearest(z)
    limits = dual.vectors[1:]
    ways = (limits + 2 * dual.tau * z) / (2 * k)
    pushed = jax.vmap(lambda way: jax.jvp(dual.nearest, (z,), (way,))[1])(ways)
    curve = jnp.nan_to_num((limits + 2 * dual.tau * w) @ pushed.T)
    return (curve + curve.T) / 2


def solve_sparse(
    vectors: Array, q: Any, a: Array, tau: Any, c: Any, w: Array, keep: Callable[[Array], Array]
) -> Solution:
    """The way from w to a low point of the set whose projection `keep` keeps some entries.

    >>> import jax.numpy as jnp
    >>> from fedmin.server.qcqp_over import solve_sparse
    >>> keep = lambda x: jnp.where(jnp.abs(x) == jnp.max(jnp.abs(x)), x, 0)  # the largest
    >>> vectors = jnp.array([[-2.0, -4.0], [0.0, 1.0]])  # |w - (1, 2)|^2 with w_2 + |w|^2 <= 2
    >>> answer = solve_sparse(vectors, 1.0, jnp.array([-2.0]), 1.0, 100.0, jnp.zeros(2), keep)
    >>> print(jnp.abs(answer.w).round(4), f"{answer.multipliers[0]:.4f}")
    [0. 1.] 0.6667
    """
    q, tau, c = (jnp.asarray(number, vectors.dtype) for number in (q, tau, c))
    dual = _Dual(vectors, q, a, tau, c, keep)

    def on(kept: Array) -> tuple[Array, Solution]:
        """The minimum on a support, and how low it is."""
        out = jnp.where(kept, 0, -w)  # what leaves the support goes to 0
        moved = dual.a + vectors[1:] @ out + dual.tau * (out @ out)
        inside = qcqp.solve(jnp.where(kept, vectors, 0), dual.q, moved, dual.tau, dual.c)
        way = out + inside.w
        value = vectors[0] @ way + dual.q * (way @ way) + dual.c * jnp.sum(inside.slack)
        return value, inside._replace(w=way)

    def other(i, carry):
        nu, best = carry
        kept = jnp.where(i == 0, w, keep(w + _lagrangian(dual, nu)[2])) != 0
        found = on(kept)
        lower = found[0] < best[0]
        best = jax.tree.map(lambda new, old: jnp.where(lower, new, old), found, best)
        return jnp.where(i == 0, nu, found[1].multipliers), best

    nu = qcqp.solve(vectors, dual.q, dual.a, dual.tau, dual.c).multipliers
    none = (jnp.full((), jnp.inf, w.dtype), Solution(w, nu, nu))
    return lax.fori_loop(0, 1 + SUPPORTS, other, (nu, none))[1][1]
