"""Two small methods that only prove that the contract fits: gather, addressed."""

import jax
import jax.numpy as jnp

from fedmin.core.method import Exchange, Method, starting_point


class Median(Method):
    """The server sees every gradient and steps along their coordinate-wise median."""

    step: float = 0.3

    def init_server(self, problem, roster, key):
        return starting_point(problem, key)

    def exchanges(self, problem, roster):
        down = lambda problem, x, now: {"model": x}
        return (Exchange(down, self.client, self.server, reduce="gather"),)

    def client(self, problem, rows, state, down, now):
        return {"gradient": problem.grad(down["model"], rows)}, state

    def server(self, problem, server_rows, x, learnt, now):
        there = learnt.shares[:, None] > 0
        replies = jnp.where(there, learnt.replies["gradient"], jnp.nan)
        return x - self.step * jnp.nanmedian(replies, axis=0)

    def solution(self, x):
        return x


class Addressed(Method):
    """Gradient descent in which every client is sent its own step size."""

    steps: jax.Array  # f[N]

    def init_server(self, problem, roster, key):
        return starting_point(problem, key)

    def exchanges(self, problem, roster):
        return (Exchange(self.broadcast, self.client, self.server, addressed=True),)

    def broadcast(self, problem, x, now):
        return {"model": jnp.tile(x, (len(self.steps), 1)), "step": self.steps}

    def client(self, problem, rows, state, down, now):
        return {"update": -down["step"] * problem.grad(down["model"], rows)}, state

    def server(self, problem, server_rows, x, learnt, now):
        return x + learnt.mean["update"]

    def solution(self, x):
        return x
