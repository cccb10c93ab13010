"""How far the clients' gradients at the start are from their mean, from two numbers a round.

    V = sum p_i |g_i - g|^2 = E[ sum p_i a_i^2 - (sum p_i a_i)^2 ],   a_i = <r, g_i>,
        r of random signs, the same at all clients

so that nobody sends g_i: a client keeps its a_i for DIRECTIONS vectors r, and sends one of them a
round, and its square. The mean over the directions is right to within sqrt(2/DIRECTIONS) at worst,
where all differences lie on one line; its root, which is used, to half of that.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.core.problem import Problem
from fedmin.core.rows import Shard

DIRECTIONS = 16
ALIKE = 1e-2  # clients count as different by at least this share of their gradients


class Seen(NamedTuple):
    """What a server has added up, a number a direction."""

    sums: Array  # of p_i a_i
    squares: Array  # of p_i a_i^2
    weight: Array  # of p_i


def sketch(problem: Problem, x: Array, rows: Shard) -> Array:
    """a_i for every direction: f[DIRECTIONS]."""
    g = problem.grad(x, rows)

    def along(j):
        signs = jax.random.rademacher(jax.random.fold_in(jax.random.key(0), j), g.shape, g.dtype)
        return signs @ g

    return lax.map(along, jnp.arange(DIRECTIONS, dtype=jnp.int32))


def turn(round: Array, chance: Array | float) -> Array:
    """Whose turn it is: a direction's turn is as long as it takes most clients to come once."""
    return jnp.floor(round.astype(float) * chance).astype(jnp.int32) % DIRECTIONS


def told(own: Array, at: Array) -> Array:
    """What a client sends: a_i and a_i^2."""
    return jnp.stack([own[at], own[at] ** 2])


def nothing(x: Array) -> Seen:
    """Before the first round."""
    return Seen(*(jnp.zeros(DIRECTIONS, x.dtype) for _ in Seen._fields))


def added(seen: Seen, at: Array, total: Array, weight: Array) -> Seen:
    """With a round's sums over those present."""
    each = zip(seen, (total[0], total[1], weight.astype(total.dtype)), strict=True)
    return Seen(*(a.at[at].add(more) for a, more in each))


def rms(seen: Seen) -> Array:
    """sqrt(V), as far as it is known, and at least ALIKE times the gradients' own length.

    >>> import jax.numpy as jnp
    >>> both = added(nothing(jnp.zeros(1)), jnp.int32(0), jnp.array([0.0, 9.0]), jnp.float32(1.0))
    >>> float(rms(both)), float(rms(nothing(jnp.zeros(1))))
    (3.0, 0.0)
    """
    there = seen.weight > 0
    weight = jnp.where(there, seen.weight, 1)
    square = seen.squares / weight
    apart = jnp.maximum(square - (seen.sums / weight) ** 2, 0)
    count = jnp.maximum(jnp.sum(there), 1).astype(square.dtype)
    V, all = (jnp.sum(jnp.where(there, a, 0)) / count for a in (apart, square))
    return jnp.sqrt(jnp.maximum(V, ALIKE**2 * all))
