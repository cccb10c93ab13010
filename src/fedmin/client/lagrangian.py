"""A client's steps down its own Lagrangian, f_0 + sum nu_m f_m + r, and what it sees on the way.

A method that uses it has the fields `local_steps` (K), `local_step` and `batches`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.core.method import Now
from fedmin.core.problem import Problem, stacked
from fedmin.core.rows import Shard


def seen_on_the_way(
    method: Any,
    problem: Problem,
    rows: Shard,
    w: Array,
    nu: Array,
    now: Now,
    look: Callable[[Array, Array, Array], Any],
    like: Any,
) -> Any:
    """K steps from w, a batch each; the mean of look(values, slopes, w - y) over the K points y.

    `values` are the constraints' and `slopes` f[1 + M, d] the gradients of all losses on the
    batch, without the first if the objective has no data in it; `nu` are the multipliers, f[M];
    `like` is a tree of the arrays that `look` returns.
    """
    price = nu if problem.bare else jnp.concatenate([jnp.ones(1, nu.dtype), nu])

    def step(k, carry):
        y, total = carry
        batch = method.batches.read(rows, method.batches.draw(rows, now.secret, k))
        values, each = problem.linearize(y, batch)
        slopes = stacked(each)
        new = look(problem.limits_of(values), slopes, w - y)
        slope = price.astype(y.dtype) @ slopes + jax.grad(problem.regularizer)(y)
        return y - method.local_step * slope, jax.tree.map(jnp.add, total, new)

    start = (w, jax.tree.map(jnp.zeros_like, like))
    total = lax.fori_loop(0, method.local_steps, step, start)[1]
    return jax.tree.map(lambda a: a / method.local_steps, total)
