"""FedSGD: one gradient step a round, on the mean of the clients' gradients.   [mcmahan2017fedavg]

client i    g_i = grad f_i(x) on a batch, or on all its rows
server      x <- x - eta mean g_i
bytes       down d, up d
"""

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from fedmin.client import Batches, Full
from fedmin.core import checks, schedule
from fedmin.core.method import Exchange, Method, starting_point


class FedSGD(Method):
    """Distributed (stochastic) gradient descent.

    >>> import fedmin
    >>> fedmin.FedSGD(step=0.5)
    FedSGD(step=0.5)
    """

    step: float | eqx.Module = 0.1  # eta
    batches: Batches = Full()

    citation = "mcmahan2017fedavg"

    def __check_init__(self):
        checks.positive("step", self.step)
        checks.is_a("batches", self.batches, Batches, "Blocks(100) or Full()")

    def init_server(self, problem, roster, key: Array) -> Array:
        return starting_point(problem, key)  # x

    def exchanges(self, problem, roster):
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, x, now):
        return {"model": x}

    def client(self, problem, rows, state, down, now):
        x = down["model"]
        if isinstance(self.batches, Full):
            return {"gradient": problem.grad(x, rows)}, state
        batch = self.batches.read(rows, self.batches.draw(rows, now.secret, jnp.int32(0)))
        return {"gradient": problem.grad(x, batch)}, state

    def server(self, problem, server_rows, x, learnt, now):
        return x - schedule.at(self.step, now.round) * learnt.mean["gradient"]

    def solution(self, x):
        return x
