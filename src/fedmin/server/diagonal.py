"""The convex problem of SSCA's server where every surrogate has a curvature a coordinate.

    minimize over v and s >= 0    g.v + sum_j q_j v_j^2 + c sum_m s_m
    subject to                    a_m + G_m.v + sum_j D_mj v_j^2 <= s_m,     m = 1..M

For multipliers nu in [0, c]^M the best v is known entry by entry,

    v(nu) = -(g + nu G) / (2 K),     K = q + nu D     (vectors; the division is by entries)

and the dual a.nu - sum_j (g + nu G)_j^2 / (4 K_j) is concave, with the constraints' values at v(nu)
as its gradient and -sum_j u_mj u_nj / (2 K_j), u_m = G_m + 2 D_m v, as its Hessian. A look at value
and slopes takes O(M d), one at the Hessian O(M^2 d); the search is in M numbers.

For one multiplier with the others fixed the slope only falls: its zero is found by Newton's step in
log(1 + nu_m), kept within a bracket that is halved where the step is slow. For M = 1 that is the
answer. For more, this is done for one after the other, and then Newton's step is taken in all that
are free, until the slopes are zero to rounding.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from fedmin.server.qcqp import Solution

MOST = 60  # turns, where there are several multipliers
LOOKS = 100  # at one multiplier's slope; about six are the rule
HALVINGS = 10  # of Newton's step


class _Dual(NamedTuple):
    """The problem as it was given."""

    g: Array  # f[d]
    q: Array  # f[d]
    a: Array  # f[M]
    slopes: Array  # f[M, d]
    curves: Array  # f[M, d]
    c: Array


class _Look(NamedTuple):
    """What is seen at some multipliers."""

    v: Array
    k: Array
    slope: Array  # f[M]: the constraints at v
    value: Array  # of the dual


def solve(
    g: Array, q: Array, a: Array, slopes: Array, curves: Array, c: Any, near: Any = None
) -> Solution:
    """The minimum, for g and q > 0 f[d], a f[M], slopes and curves >= 0 f[M, d].

    `near` are multipliers to begin at, such as those of the last round.

    >>> import jax.numpy as jnp
    >>> from fedmin.server.diagonal import solve
    >>> one, slope = jnp.ones(1), jnp.array([[-4.0]])  # v^2 with (v - 2)^2 <= 1: 4 - 4v + v^2
    >>> answer = solve(0 * one, one, jnp.array([3.0]), slope, jnp.ones((1, 1)), 100.0)
    >>> print(answer.w.round(4), answer.multipliers.round(4))
    [1.] [1.]
    """
    dual = _Dual(g, q, a, slopes, curves, jnp.asarray(c, g.dtype))
    if not len(a):
        return Solution(g / (-2 * q), a, a)
    nu = jnp.zeros_like(a) if near is None else jnp.clip(near, 0, dual.c)
    nu = _best(dual, nu, 0) if len(a) == 1 else _search(dual, nu)
    found = _look(dual, nu)
    return Solution(found.v, nu, jnp.maximum(found.slope, 0))


def _look(dual: _Dual, nu: Array) -> _Look:
    b, k = dual.g + nu @ dual.slopes, dual.q + nu @ dual.curves
    v = b / (-2 * k)
    slope = dual.a + dual.slopes @ v + dual.curves @ v**2
    return _Look(v, k, slope, dual.a @ nu + b @ v / 2)


def _noise(dual: _Dual, v: Array) -> Array:
    """f[M]: what rounding makes of the constraints' values at v."""
    sizes = jnp.abs(dual.a) + jnp.abs(dual.slopes) @ jnp.abs(v) + dual.curves @ v**2
    return 4 * jnp.finfo(v.dtype).eps * sizes


def _best(dual: _Dual, nu: Array, m: Array | int) -> Array:
    """These multipliers with the best nu_m in [0, c]: where constraint m's value is 0."""

    def at(z):
        seen = _look(dual, nu.at[m].set(jnp.expm1(z)))
        u = dual.slopes[m] + 2 * dual.curves[m] * seen.v
        fall = jnp.exp(z) * jnp.sum(u**2 / seen.k) / 2  # minus the slope's derivative by z
        return seen.slope[m], fall, _noise(dual, seen.v)[m]

    def step(carry):
        low, high, z, before, i, _ = carry
        h, fall, noise = at(z)
        low, high = jnp.where(h > 0, z, low), jnp.where(h > 0, high, z)
        newton = z + h / jnp.where(fall > 0, fall, 1)
        fast = (fall > 0) & (newton > low) & (newton < high) & (jnp.abs(h) < before / 2)
        near = jnp.abs(h) <= noise
        to = jnp.where(near, z, jnp.where(fast, newton, (low + high) / 2))
        # half of what there was, or a halving of the bracket every other time
        return low, high, to, jnp.where(fast, jnp.abs(h), jnp.inf), i + 1, near

    def wide(carry):
        low, high, _, _, i, near = carry
        return ~near & (high - low > jnp.finfo(low.dtype).eps * (1 + high)) & (i < LOOKS)

    zero, top = jnp.zeros((), nu.dtype), jnp.log1p(dual.c)
    at_zero, at_top = at(zero)[0] <= 0, at(top)[0] > 0
    begin = jnp.clip(jnp.log1p(nu[m]), zero, top)
    count = jnp.zeros((), jnp.int32)
    start = (zero, top, begin, jnp.asarray(jnp.inf, nu.dtype), count, at_zero | at_top)
    z = lax.while_loop(wide, step, start)[2]
    inside = jnp.clip(jnp.expm1(z), 0, dual.c)
    return nu.at[m].set(jnp.where(at_zero, 0, jnp.where(at_top, dual.c, inside)))


def _search(dual: _Dual, nu: Array) -> Array:
    """The best multipliers: one after the other, then all that are free by Newton's step."""
    count, tiny = len(dual.a), jnp.finfo(dual.a.dtype).eps

    def free(nu, slope):
        return ~(((nu <= 0) & (slope <= 0)) | ((nu >= dual.c) & (slope >= 0)))

    def off(nu, seen):
        return jnp.max(jnp.where(free(nu, seen.slope), jnp.abs(seen.slope), 0))

    def way(nu, seen):
        u = dual.slopes + 2 * dual.curves * seen.v
        curve = (u / seen.k) @ u.T / 2
        moves = free(nu, seen.slope)
        curve = jnp.where(moves[:, None] & moves, curve, 0)
        ridge = jnp.where(moves, 4 * tiny * jnp.trace(curve) + jnp.finfo(nu.dtype).tiny, 1)
        return jnp.where(moves, jnp.linalg.solve(curve + jnp.diag(ridge), seen.slope), 0)

    def newton(nu):
        seen = _look(dual, nu)
        toward, level = way(nu, seen), 16 * tiny * jnp.abs(seen.value)

        def there(size):
            to = jnp.clip(nu + size * toward, 0, dual.c)
            new = _look(dual, to)
            # close to the end values no longer tell points apart, slopes still do
            flat = jnp.abs(new.value - seen.value) <= level
            good = (new.value > seen.value + level) | (flat & (off(to, new) < off(nu, seen)))
            return to, good

        def shorter(carry):
            i, size, _, _ = carry
            return i + 1, size / 4, *there(size)

        begin = (jnp.zeros((), jnp.int32), jnp.ones((), nu.dtype), nu, jnp.array(False))
        _, _, to, good = lax.while_loop(lambda c: ~c[3] & (c[0] < HALVINGS), shorter, begin)
        return jnp.where(good & jnp.all(jnp.isfinite(to)), to, nu)

    def turn(carry):
        nu, i, _ = carry
        new = newton(lax.fori_loop(0, count, lambda m, u: _best(dual, u, m), nu))
        seen = _look(dual, new)
        settled = off(new, seen) <= jnp.max(_noise(dual, seen.v))
        return new, i + 1, settled | jnp.all(new == nu)

    start = (nu, jnp.zeros((), jnp.int32), jnp.array(False))
    return lax.while_loop(lambda c: (c[1] < MOST) & ~c[2], turn, start)[0]
