"""Several gradient steps at a client, the local work that most methods share.

A method that uses it has the fields `step` (a number or a schedule), `local_steps`, `epochs` (a
number of passes instead of steps, or None) and `batches`, checked by `check_local`.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from fedmin import checks, schedule
from fedmin.local.batches import Batches
from fedmin.method import Now
from fedmin.rows import Rows, Shard


def check_local(method: Any) -> None:
    """Refuse local work that cannot be done."""
    checks.positive("step", method.step)
    checks.at_least("local_steps", method.local_steps, 1)
    if method.epochs is not None:
        checks.at_least("epochs", method.epochs, 1)
        if method.local_steps != 1:
            raise ValueError("give local_steps or epochs, not both")
    checks.is_a("batches", method.batches, Batches, "Blocks(100) or Full()")


def descend(
    method: Any, rows: Shard, x: Array, now: Now, gradient: Callable[[Array, Rows], Array]
) -> tuple[Array, Array]:
    """y <- y - step * gradient(y, batch), from y = x on; returns y and the steps taken."""
    step = schedule.at(method.step, now.round)

    def advance(k, y):
        return y - step * gradient(y, method.batches.batch(rows, now.key, k))

    if method.epochs is None:
        steps = jnp.asarray(method.local_steps, jnp.int32)
        return lax.fori_loop(0, method.local_steps, advance, x), steps
    steps = method.epochs * method.batches.per_epoch(rows)
    return lax.fori_loop(0, steps, advance, x), steps
