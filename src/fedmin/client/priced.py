"""A client's part of a Lagrangian: slopes of f_0 + r and the constraints, each at a price."""

import jax
import jax.numpy as jnp
from jax import Array

from fedmin.core.problem import Problem
from fedmin.core.rows import Rows


def slope(problem: Problem, x: Array, rows: Rows, price: Array) -> Array:
    """The gradient of price_0 (f_0 + r) + sum_m price_m f_m on some rows, price f[1 + M]."""

    def mixed(u):
        means = problem.totals(u, rows) / jnp.sum(rows.weight)
        return price @ means + price[0] * problem.regularizer(u)

    return jax.grad(mixed)(x)


def first(count: int, dtype) -> Array:
    """The price of the objective alone, f[1 + M]."""
    return jnp.zeros(1 + count, dtype).at[0].set(1)
