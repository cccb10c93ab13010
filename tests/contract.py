"""Three small methods that only prove that the contract fits: two exchanges, gather, addressed."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from fedmin.method import Exchange, Method, starting_point


class Point(NamedTuple):
    x: jax.Array  # the model
    g: jax.Array  # the exact gradient there


class TwoExchanges(Method):
    """First the exact gradient g of F, then K steps along grad f_i(y) - grad f_i(x) + g."""

    step: float = 0.3
    local_steps: int = eqx.field(default=3, static=True)

    def init_server(self, problem, key):
        x = starting_point(problem, key)
        return Point(x, jnp.zeros_like(x))

    def init_client(self, problem, rows, key):
        return jnp.zeros_like(starting_point(problem, key))  # grad f_i(x), kept between exchanges

    def exchanges(self, problem):
        return (
            Exchange(lambda p, s, now: {"model": s.x}, self.measure, self.collect),
            Exchange(lambda p, s, now: {"model": s.x, "gradient": s.g}, self.walk, self.move),
        )

    def measure(self, problem, rows, state, down, now):
        own = problem.grad(down["model"], rows)
        return {"gradient": own}, own

    def collect(self, problem, server_rows, server, aggregate, now):
        return Point(server.x, aggregate.mean["gradient"])

    def walk(self, problem, rows, own, down, now):
        x, drift = down["model"], down["gradient"] - own

        def advance(_, y):
            return y - self.step * (problem.grad(y, rows) + drift)

        return {"update": jax.lax.fori_loop(0, self.local_steps, advance, x) - x}, own

    def move(self, problem, server_rows, server, aggregate, now):
        return Point(server.x + aggregate.mean["update"], server.g)

    def solution(self, server):
        return server.x


class Median(Method):
    """The server sees every gradient and steps along their coordinate-wise median."""

    step: float = 0.3

    def init_server(self, problem, key):
        return starting_point(problem, key)

    def exchanges(self, problem):
        down = lambda problem, x, now: {"model": x}
        return (Exchange(down, self.client, self.server, reduce="gather"),)

    def client(self, problem, rows, state, down, now):
        return {"gradient": problem.grad(down["model"], rows)}, state

    def server(self, problem, server_rows, x, aggregate, now):
        there = aggregate.shares[:, None] > 0
        replies = jnp.where(there, aggregate.replies["gradient"], jnp.nan)
        return x - self.step * jnp.nanmedian(replies, axis=0)

    def solution(self, x):
        return x


class Addressed(Method):
    """Gradient descent in which every client is sent its own step size."""

    steps: jax.Array  # f[N]

    def init_server(self, problem, key):
        return starting_point(problem, key)

    def exchanges(self, problem):
        return (Exchange(self.broadcast, self.client, self.server, addressed=True),)

    def broadcast(self, problem, x, now):
        return {"model": jnp.tile(x, (len(self.steps), 1)), "step": self.steps}

    def client(self, problem, rows, state, down, now):
        return {"update": -down["step"] * problem.grad(down["model"], rows)}, state

    def server(self, problem, server_rows, x, aggregate, now):
        return x + aggregate.mean["update"]

    def solution(self, x):
        return x
