"""FedDANE: local problems corrected by the mean gradient.   [li2019feddane] Algorithm 2

    client i    g_i = grad f_i(x)
    server      g = mean g_i
    client i    y <- nearly the least of f_i(y) + (g - g_i).(y - x) + mu/2 |y - x|^2:
                y <- x;  K times  y <- y - eta (grad f_i(y) + g - g_i + mu (y - x))
    server      x <- x + mean(y - x)
    bytes       down 2d, up 2d

Two exchanges a round. The paper draws other clients for the second; here the round's clients do
both, and each keeps its g_i from the first to the second. If they solve exactly, a quadratic
becomes x - mean((H_i + mu)^-1) g: a Newton step with the mean of the inverses.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fedmin.client import LocalSteps
from fedmin.core.method import Exchange, starting_point
from fedmin.methods.fedprox import Pulled


class Server(NamedTuple):
    x: Array  # the model
    g: Array  # the mean gradient there


class FedDANE(LocalSteps, Pulled):
    """Inexact DANE: clients minimise f_i corrected to have the mean gradient at x.

    >>> import fedmin
    >>> fedmin.FedDANE(step=0.1, mu=0.01, local_steps=20).mu
    0.01
    """

    citation = "li2019feddane"

    def init_server(self, problem, roster, key: Array) -> Server:
        x = starting_point(problem, key)
        return Server(x, jnp.zeros_like(x))

    def init_client(self, problem, roster, rows, key: Array) -> Array:
        return jnp.zeros_like(starting_point(problem, key))  # g_i

    def exchanges(self, problem, roster):
        return (
            Exchange(self.tell_model, self.measure, self.collect),
            Exchange(self.tell_gradient, self.solve, self.move),
        )

    def tell_model(self, problem, server, now):
        return {"model": server.x}

    def measure(self, problem, rows, g_i, down, now):
        g_i = problem.grad(down["model"], rows)
        return {"gradient": g_i}, g_i

    def collect(self, problem, server_rows, server, learnt, now):
        return Server(server.x, learnt.mean["gradient"])

    def tell_gradient(self, problem, server, now):
        return {"gradient": server.g}

    def solve(self, problem, rows, g_i, down, now):
        x, correction = down["model"], down["gradient"] - g_i
        also = lambda y: correction + self.mu * (y - x)
        y, _ = self.descend(problem, rows, x, now, also)
        return {"update": y - x}, g_i

    def move(self, problem, server_rows, server, learnt, now):
        return Server(server.x + learnt.mean["update"], server.g)

    def solution(self, server):
        return server.x
