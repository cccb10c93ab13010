"""Several gradient steps at a client, the local work that most methods share.

A method that uses it has the fields `step` (a number or a schedule), `local_steps` (a number or
`Stages` of them), `epochs` (a number of passes instead of steps, or None) and `batches`, checked by
`check_local`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.client.batches import Batches
from fedmin.core import checks, schedule
from fedmin.core.method import Now
from fedmin.core.problem import Problem
from fedmin.core.rows import Rows, Shard
from fedmin.core.schedule import Stages


def check_local(method: Any) -> None:
    """Refuse local work that cannot be done."""
    checks.positive("step", method.step)
    staged = isinstance(method.local_steps, Stages)
    for count in method.local_steps.values if staged else [method.local_steps]:
        checks.at_least("local_steps", count, 1)
    if method.epochs is not None:
        checks.at_least("epochs", method.epochs, 1)
        if method.local_steps != 1:
            raise ValueError("give local_steps or epochs, not both")
    checks.is_a("batches", method.batches, Batches, "Blocks(100) or Full()")


def steps_of(method: Any, rows: Shard, round: Array) -> tuple[int, int | Array]:
    """The most local steps that any client takes in any round, and how many this one takes now."""
    if method.epochs is None:
        count = method.local_steps
        if isinstance(count, Stages):
            return int(max(count.values)), count(round)
        return count, count
    per_epoch = method.batches.per_epoch
    most = method.epochs * per_epoch(rows.capacity, rows.capacity)
    return most, method.epochs * jnp.int32(per_epoch(rows.size, rows.capacity))


def walk(
    method: Any, rows: Shard, start: Any, now: Now, advance: Callable[[Any, Rows], Any]
) -> Any:
    """state <- advance(state, batch), as many times as the method has local steps."""
    most, steps = steps_of(method, rows, now.round)
    batches = method.batches.at(now.round)
    # all draws before the first step: the loop is then nothing but reading and multiplying
    draw = partial(batches.draw, rows, now.secret)
    drawn = jax.vmap(draw)(jnp.arange(most, dtype=jnp.int32))

    def go(k, state):
        return advance(state, batches.read(rows, jax.tree.map(lambda a: a[k], drawn)))

    return lax.fori_loop(0, steps, go, start)


def descend(
    method: Any,
    problem: Problem,
    rows: Shard,
    x: Array,
    now: Now,
    also: Callable[[Array], Array] | None = None,
    after: Callable[[Array], Array] | None = None,
) -> tuple[Array, Array]:
    """y <- after(y - step * (gradient on a batch + also(y))), from y = x on; y and the steps taken.

    Without `also` nothing is added, without `after` nothing is done after a step.
    """
    step = schedule.at(method.step, now.round)

    def advance(y, batch):
        if also is None:
            y = problem.step(y, batch, step)
        else:
            y = y - step * (problem.grad(y, batch) + also(y))
        return y if after is None else after(y)

    return walk(method, rows, x, now, advance), jnp.int32(steps_of(method, rows, now.round)[1])
