"""Sums over all rows of a client or a federation, a window at a time.

Windows keep the work in proportion to the rows that are really there, and in the processor's cache.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.problem import Problem
from fedmin.rows import Rows, Shard

WINDOW = 512


def sum_over(rows: Shard, function: Callable[[Rows], Any]) -> Any:
    """The sum of function(window) over windows that cover the rows; function must be additive."""
    width = min(WINDOW, rows.capacity)
    like = jax.eval_shape(lambda: function(rows.window(jnp.zeros((), jnp.int32), width)))
    zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)

    def add(j, sums):
        return jax.tree.map(jnp.add, sums, function(rows.window(j * width, width)))

    return lax.fori_loop(0, -(-rows.size // width), add, zeros)


def full_gradient(problem: Problem, x: Array, rows: Shard) -> Array:
    """The gradient of the objective on all of a client's rows."""

    def part(window):
        return jax.grad(lambda u: problem.totals(u, window)[0])(x), jnp.sum(window.weight)

    total, weight = sum_over(rows, part)
    return total / weight + jax.grad(problem.regularizer)(x)
