"""Several gradient steps at a client, the local work that most methods share.

A method that does it is a `LocalSteps`: it has the fields below, checked, and calls

    self.descend(problem, rows, x, now)     for gradient steps, with a term or a projection added
    self.walk(rows, start, now, advance)    for steps of another kind, on the same batches

in its client's part. The fields that a method adds come after these. Why fields are inherited here
is in docs/decisions/0017.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.client.batches import Batches, Blocks
from fedmin.core import checks, schedule
from fedmin.core.method import Method, Now
from fedmin.core.private import repeated
from fedmin.core.problem import Problem
from fedmin.core.rows import Rows, Shard
from fedmin.core.schedule import Auto, Stages

Step = float | eqx.Module | Literal["auto"]


class Stepping(Method):
    """A method with a step size, the first of its fields.

    It is a class of its own for the order of the fields: what a subclass of it adds stands before
    the other fields of `LocalSteps` in a class that inherits from both, such as FedProx's `mu`.
    """

    guarded: ClassVar[bool] = False  # whether it takes step="auto"

    step: Step = eqx.field(default=0.1, converter=schedule.step)  # eta: number, schedule or "auto"

    def __check_init__(self):
        if not isinstance(self.step, Auto):
            checks.positive("step", self.step)
        elif not self.guarded:
            raise ValueError(
                f'{type(self).__name__} takes no step="auto"; give a number: '
                f"fedmin.constants(problem, federation) measures one"
            )


class LocalSteps(Stepping):
    """A method whose clients take steps of their own, K of them or as many as `epochs` need.

    A method whose paper has other letters than eta and K declares those fields again.
    """

    local_steps: int | Stages = eqx.field(default=1, static=True)  # K, a number or Stages of them
    epochs: int | None = eqx.field(default=None, static=True)  # K as passes over the rows
    batches: Batches = Blocks(32)  # the rows of a step; `fedmin list batches` has the others

    def __check_init__(self):
        given = self.local_steps
        for count in given.values if isinstance(given, Stages) else [given]:
            checks.at_least("local_steps", count, 1)
        if self.epochs is not None:
            checks.at_least("epochs", self.epochs, 1)
            if self.local_steps != 1:
                raise ValueError("give local_steps or epochs, not both")
        checks.is_a("batches", self.batches, Batches, "Blocks(100) or Full()")

    def most_steps(self, rows: Shard) -> int:
        """The most local steps that any client takes in any round."""
        if self.epochs is not None:
            return self.epochs * self.batches.per_epoch(rows.capacity, rows.capacity)
        count = self.local_steps
        return int(max(count.values)) if isinstance(count, Stages) else count

    def steps(self, rows: Shard, now: Now) -> int | Array:
        """How many local steps the client with these rows takes in this round."""
        if self.epochs is not None:
            return self.epochs * jnp.int32(self.batches.per_epoch(rows.size, rows.capacity))
        return schedule.at(self.local_steps, now.round)

    def walk(self, rows: Shard, start: Any, now: Now, advance: Callable[[Any, Rows], Any]) -> Any:
        """state <- advance(state, batch), once for every local step, from state = start on."""
        most, steps = self.most_steps(rows), self.steps(rows, now)
        batches = self.batches.at(now.round)
        # all draws before the first step: the loop is then nothing but reading and multiplying
        draw = partial(batches.draw, rows, now.secret)
        drawn = jax.vmap(draw)(jnp.arange(most, dtype=jnp.int32))

        def go(k, state):
            return advance(state, batches.read(rows, jax.tree.map(lambda a: a[k], drawn)))

        with repeated(most):
            return lax.fori_loop(0, steps, go, start)

    def descend(
        self,
        problem: Problem,
        rows: Shard,
        x: Array,
        now: Now,
        also: Callable[[Array], Array] | None = None,
        after: Callable[[Array], Array] | None = None,
    ) -> tuple[Array, Array]:
        """y <- after(y - step * (gradient on a batch + also(y))), from y = x on.

        Returns y and the number of steps taken. Without `also` nothing is added, without `after`
        nothing is done after a step.
        """
        step = schedule.at(self.step, now.round)

        def advance(y, batch):
            if also is None:
                y = problem.step(y, batch, step)
            else:
                y = y - step * (problem.grad(y, batch) + also(y))
            return y if after is None else after(y)

        return self.walk(rows, x, now, advance), jnp.int32(self.steps(rows, now))
