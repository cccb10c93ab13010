"""What a client measures of its own part of the objective: its value, and how steep it is."""

import jax.numpy as jnp
from jax import Array, lax

from fedmin.core.problem import Problem
from fedmin.core.rows import Shard

TURNS = 10  # of the power method: within a few percent of the largest curvature, or below


def value(problem: Problem, x: Array, rows: Shard) -> Array:
    """f_i(x) over all rows of a client, the regularizer included."""

    def part(some):
        return problem.totals(x, some)[0], jnp.sum(some.weight)

    total, weight = rows.sum(part, problem.window)
    return total / weight + problem.regularizer(x)


def along_gradient(problem: Problem, x: Array, rows: Shard) -> Array:
    """g.H g/|g|^2 of f_i at x: how the gradient changes along itself.

    Where f_i bends down there, |H g|/|g|; where it does not bend at all, |g|, for a step of length
    1. So it is above 0 unless g is 0.
    """
    g = problem.grad(x, rows)
    Hg = problem.hvp(x, g, rows)
    length = jnp.linalg.norm(g)
    some = jnp.where(length > 0, length, 1)
    along, size = g @ Hg / some**2, jnp.linalg.norm(Hg) / some
    return jnp.where(along > 0, along, jnp.where(size > 0, size, length))


def steepest(problem: Problem, x: Array, rows: Shard) -> Array:
    """The largest |curvature| of f_i at x, from the gradient on by the power method."""
    tiny = jnp.finfo(x.dtype).tiny

    def unit(v):
        return v / jnp.maximum(jnp.linalg.norm(v), tiny)

    def times(v):
        return problem.hvp(x, v, rows)

    v = lax.fori_loop(0, TURNS, lambda _, v: unit(times(v)), unit(problem.grad(x, rows)))
    return jnp.linalg.norm(times(v))
