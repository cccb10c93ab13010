"""L-BFGS: the inverse of the curvature from the last m pairs (s, y).   [nocedal1980updating]

    s = a step, y = the change of the gradient along it, rho = 1/(y.s)
    H g         q <- g;         newest to oldest   a_i = rho_i s_i.q;   q <- q - a_i y_i
                r <- gamma q;   oldest to newest   b_i = rho_i y_i.r;   r <- r + (a_i - b_i) s_i
    memory      2 m d numbers; a product reads them twice

A slot that holds nothing has rho = 0 and takes no part, so that shapes are fixed and nothing is
compiled anew as pairs come in. All pairs have y.s > 0, and so H is positive definite.
"""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

Gamma = Literal["newest", "all"]


class Pairs(NamedTuple):
    """The last m pairs, the oldest overwritten first."""

    s: Array  # f[m, d]
    y: Array  # f[m, d]
    rho: Array  # f[m], 1/(y.s), or 0 where there is no pair yet
    taken: Array  # i[], pairs so far; the newest is at (taken - 1) mod m


def empty(memory: int, x: Array) -> Pairs:
    """Room for so many pairs of vectors like x.

    >>> import jax.numpy as jnp
    >>> empty(3, jnp.zeros(5)).s.shape
    (3, 5)
    """
    room = jnp.zeros((memory, *x.shape), x.dtype)
    return Pairs(room, jnp.copy(room), jnp.zeros(memory, x.dtype), jnp.zeros((), jnp.int32))


def push(pairs: Pairs, s: Array, y: Array, when: Array | bool = True) -> Pairs:
    """The pairs with one more; unchanged if not `when`, or if y.s is not a number above 0.

    >>> import jax.numpy as jnp
    >>> one = push(empty(3, jnp.zeros(2)), jnp.ones(2), jnp.array([1.0, 3.0]))
    >>> one.rho.tolist(), int(one.taken), int(push(one, jnp.ones(2), -jnp.ones(2)).taken)
    ([0.25, 0.0, 0.0], 1, 1)
    """
    curvature = jnp.dot(y, s)
    rho = 1 / jnp.where(curvature > 0, curvature, 1)
    fits = (curvature > 0) & jnp.isfinite(curvature) & jnp.isfinite(rho) & when
    slot = pairs.taken % len(pairs.rho)

    def put(held, new):
        return held.at[slot].set(jnp.where(fits, new, held[slot]))

    taken = pairs.taken + fits.astype(jnp.int32)
    return Pairs(put(pairs.s, s), put(pairs.y, y), put(pairs.rho, rho), taken)


def cleared(pairs: Pairs, when: Array | bool = True) -> Pairs:
    """No pairs, or the same pairs if not `when`.

    >>> import jax.numpy as jnp
    >>> one = push(empty(3, jnp.zeros(2)), jnp.ones(2), jnp.ones(2))
    >>> direction(cleared(one), jnp.array([5.0, 7.0])).tolist()
    [5.0, 7.0]
    """
    rho, taken = (jnp.where(when, 0, a) for a in (pairs.rho, pairs.taken))
    return Pairs(pairs.s, pairs.y, rho, taken)  # what rho = 0 leaves out need not be overwritten


def direction(
    pairs: Pairs,
    g: Array,
    scaled: bool = True,
    start: Array | float = 1.0,
    over: Gamma = "newest",
) -> Array:
    """H g, by two loops over the pairs; a step is x - H g.

    H is built on gamma I, with gamma of the newest pair or of all pairs if `scaled` (see `scale`);
    else, and where there is no pair, gamma is `start`.

    >>> import jax.numpy as jnp
    >>> curvature = jnp.array([4.0, 1.0])  # of a quadratic; two pairs tell all of it
    >>> pairs = empty(3, curvature)
    >>> for s in jnp.eye(2):
    ...     pairs = push(pairs, s, curvature * s)
    >>> direction(pairs, jnp.ones(2)).tolist()
    [0.25, 1.0]
    """
    m = len(pairs.rho)

    def back(j, carry):
        q, a = carry
        i = (pairs.taken - 1 - j) % m
        weight = pairs.rho[i] * jnp.dot(pairs.s[i], q)
        return q - weight * pairs.y[i], a.at[i].set(weight)

    def forth(j, r):
        i = (pairs.taken + j) % m
        return r + (a[i] - pairs.rho[i] * jnp.dot(pairs.y[i], r)) * pairs.s[i]

    q, a = lax.fori_loop(0, m, back, (g, jnp.zeros_like(pairs.rho)))
    return lax.fori_loop(0, m, forth, (scale(pairs, start, over) if scaled else start) * q)


def scale(pairs: Pairs, start: Array | float = 1.0, over: Gamma = "newest") -> Array:
    """gamma = y.s/|y|^2 of the newest pair, or sum |s|^2 / sum y.s over all pairs; `start` where
    there is none.

    Noise in y adds to |y|^2 and, on the mean, not to y.s: on batches the second is the better one.

    >>> import jax.numpy as jnp
    >>> two = push(empty(3, jnp.zeros(2)), jnp.ones(2), 4 * jnp.ones(2))
    >>> two = push(two, jnp.array([3.0, 0.0]), jnp.array([3.0, 9.0]))
    >>> round(float(scale(two)), 3), round(float(scale(two, over="all")), 3)  # 9/90, 11/17
    (0.1, 0.647)
    """
    if over == "all":
        held = pairs.rho > 0
        squares = jnp.sum(jnp.where(held, jnp.sum(pairs.s**2, axis=1), 0))
        curves = jnp.sum(jnp.where(held, 1 / jnp.where(held, pairs.rho, 1), 0))
        return jnp.where(curves > 0, squares / jnp.where(curves > 0, curves, 1), start)
    newest = (pairs.taken - 1) % len(pairs.rho)
    rho, y = pairs.rho[newest], pairs.y[newest]
    size = rho * jnp.dot(y, y)
    return jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1), start)
