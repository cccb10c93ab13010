"""A client's steps down its own Lagrangian, and what it sees on the way.

    L(y) = (f_0(y) + r(y) + sum nu_m f_m(y)) / (1 + sum nu_m)

Divided so it is a mean of the functions, with weights that add up to one: its gradient and its
curvature are no larger than the largest among theirs, whatever the multipliers. A step that suits
each of the functions suits their Lagrangian too, and where the constraints cannot be met and the
multipliers stand at their price of 1e5 it goes down the constraints and stays finite. The server's
own step is divided in the same way: argmin of sum nu_m (g_m.v + tau |v|^2), nu_0 = 1, is
-(sum nu_m g_m) / (2 tau sum nu_m).

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
    whole = 1 + jnp.sum(nu)
    price = (nu if problem.bare else jnp.concatenate([jnp.ones(1, nu.dtype), nu])) / whole

    def step(k, carry):
        y, total = carry
        batch = method.batches.read(rows, method.batches.draw(rows, now.secret, k))
        values, each = problem.linearize(y, batch)
        slopes = stacked(each)
        new = look(problem.limits_of(values), slopes, w - y)
        own = jax.grad(problem.regularizer)(y) / whole.astype(y.dtype)
        slope = price.astype(y.dtype) @ slopes + own
        return y - method.local_step * slope, jax.tree.map(jnp.add, total, new)

    start = (w, jax.tree.map(jnp.zeros_like, like))
    total = lax.fori_loop(0, method.local_steps, step, start)[1]
    return jax.tree.map(lambda a: a / method.local_steps, total)
