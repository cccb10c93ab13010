"""DONE: local Newton directions by Richardson's steps.   [dinh2022done] Algorithm 1

    client i    g_i = grad f_i(x)
    server      g = mean g_i
    client i    v <- 0 or -g;  R times  v <- v - alpha (H_i v + g),   H_i = grad^2 f_i(x)
    server      x <- x + eta mean v
    bytes       down 2d, up 2d

v tends to -H_i^-1 g if alpha < 2/L, from any start; only products H_i v are computed, so it needs
no d x d matrix: it is the Newton method for sizes at which FedNL is refused. LocalNewton, the other
candidate, has no common g and so, like FedAvg, a wrong fixed point where clients differ: it is not
here.
"""

from typing import Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax

from fedmin.client import Batches, Full
from fedmin.core import checks, schedule
from fedmin.core.method import Exchange, Method, starting_point


class Server(NamedTuple):
    x: Array  # the model
    g: Array  # the mean gradient there


class DONE(Method):
    """Newton's method with the mean of the clients' inverses, by products with their Hessians.

    >>> import fedmin
    >>> fedmin.DONE(alpha=0.05, local_steps=40).step
    1.0
    """

    step: float | eqx.Module = 1.0  # eta
    alpha: float = 0.1  # Richardson's step, below 2/L
    local_steps: int = eqx.field(default=20, static=True)  # R
    batches: Batches = Full()  # the rows of H_i, one batch a round; gradients are of all rows
    first: Literal["zero", "gradient"] = eqx.field(default="zero", static=True)  # v: 0 or -g

    citation = "dinh2022done"

    def __check_init__(self):
        checks.positive("step", self.step)
        checks.positive("alpha", self.alpha)
        checks.at_least("local_steps", self.local_steps, 1)
        checks.is_a("batches", self.batches, Batches, "Blocks(100) or Full()")
        checks.known("first v", self.first, ("zero", "gradient"))

    def init_server(self, problem, roster, key: Array) -> Server:
        x = starting_point(problem, key)
        return Server(x, jnp.zeros_like(x))

    def exchanges(self, problem, roster):
        return (
            Exchange(self.tell_model, self.measure, self.collect),
            Exchange(self.tell_gradient, self.direction, self.move),
        )

    def tell_model(self, problem, server, now):
        return {"model": server.x}

    def measure(self, problem, rows, state, down, now):
        return {"gradient": problem.grad(down["model"], rows)}, state

    def collect(self, problem, server_rows, server, learnt, now):
        return Server(server.x, learnt.mean["gradient"])

    def tell_gradient(self, problem, server, now):
        return {"gradient": server.g}

    def direction(self, problem, rows, state, down, now):
        x, g = down["model"], down["gradient"]
        if not isinstance(self.batches, Full):
            rows = self.batches.read(rows, self.batches.draw(rows, now.secret, jnp.int32(0)))

        def advance(_, v):
            return v - self.alpha * (problem.hvp(x, v, rows) + g)

        first = jnp.zeros_like(x) if self.first == "zero" else -g
        return {"direction": lax.fori_loop(0, self.local_steps, advance, first)}, state

    def move(self, problem, server_rows, server, learnt, now):
        eta = schedule.at(self.step, now.round)
        return Server(server.x + eta * learnt.mean["direction"], server.g)

    def solution(self, server):
        return server.x
