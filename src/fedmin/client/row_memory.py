"""A client's memory of its rows' constraint values: the mean over all rows from a batch's.

client i    c_j   f_m of row j at the model where it was last drawn, 0 before
            sent  mean_B f_m(w) - theta (mean_B c - mean c),   theta = cov_B(f, c) / var_B(c)
            c_j <- f_m(w) for the rows of the batch

The batch's mean is corrected by how far the batch was from the mean in what is remembered: the
regression estimator of survey sampling, of which SAGA [defazio2014saga] has theta = 1. This theta
makes the variance least. It is 0, and nothing is changed, while c says nothing of f, and tends to 1
as the model settles; the noise of a limit then tends to 0 although batches stay as they are. Its
bias is O(1/B). It costs M numbers a row in the client's memory and no byte on the way.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from fedmin.client.batches import Batches, Full
from fedmin.client.private_choices import PrivateChoices
from fedmin.client.private_rows import PrivateRows
from fedmin.core.problem import Problem
from fedmin.core.rows import Rows, Shard


def helps(problem: Problem, batches: Batches) -> bool:
    """Whether there is something to remember, and rows may be read for it."""
    whole = isinstance(batches, Full | PrivateRows | PrivateChoices)
    return problem.num_constraints > 0 and not whole


def none(problem: Problem, rows: Shard, dtype: Any) -> Array:
    """Nothing remembered, f[capacity, M]."""
    return jnp.zeros((rows.capacity, problem.num_constraints), dtype)


def places(rows: Shard, read: Callable[[Shard], Rows]) -> tuple[Array, Array]:
    """Which of the client's rows are read, i[B], the capacity where a row is none; and weights."""
    numbers = jnp.arange(rows.pool.count, dtype=jnp.int32)
    found = read(eqx.tree_at(lambda shard: shard.pool.y, rows, numbers))
    weight = jnp.asarray(found.weight)
    return jnp.where(weight > 0, found.y - rows.start, rows.capacity), weight


def mean(
    problem: Problem, batches: Batches, rows: Shard, drawn: Any, batch: Rows, w: Array, held: Array
) -> tuple[Array, Array]:
    """An estimate f[M] of the constraints' means over all of a client's rows, and the memory."""
    remembered = lambda at: held.at[at].get(mode="fill", fill_value=0)
    at, weight = places(rows, lambda shard: batches.read(shard, drawn))
    everyone, all_of = places(rows, lambda shard: shard.all())  # not in order, at a pool's end
    share, whole = weight / jnp.sum(weight), all_of / jnp.sum(all_of)
    new, old = problem.losses(w, batch)[:, 1:], remembered(at)
    f, c = share @ new, share @ old
    spread, along = share @ (old - c) ** 2, share @ ((old - c) * (new - f))
    known = spread > 0
    theta = jnp.where(known, jnp.clip(along / jnp.where(known, spread, 1), 0, 1), 0)
    return f - theta * (c - whole @ remembered(everyone)), held.at[at].set(new, mode="drop")
