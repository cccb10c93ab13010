"""FedAvgM: FedAvg with momentum at the server.   [hsu2019measuring] section 4.3

client i    y <- x;  K times  y <- y - eta grad f_i(y)
server      v <- beta v + mean(y - x);   x <- x + eta_s v
bytes       down d, up d
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fedmin.client import LocalSteps
from fedmin.core import checks
from fedmin.core.method import Exchange, starting_point


class Server(NamedTuple):
    x: Array  # the model
    v: Array  # the velocity


class FedAvgM(LocalSteps):  # step (eta), local_steps (K), epochs and batches, with their checks
    """FedAvg with momentum at the server; beta = 0 is FedAvg.

    >>> import fedmin
    >>> fedmin.FedAvgM(step=0.1, local_steps=5, beta=0.9).server_step
    1.0
    """

    server_step: float = 1.0  # eta_s; a float is a leaf: a new value never recompiles
    beta: float = 0.9  # of the velocity, below 1: a step counts 1/(1 - beta) times in the end

    citation = "hsu2019measuring"

    def __check_init__(self):  # refuse bad numbers before any work
        checks.positive("server_step", self.server_step)
        checks.between("beta", self.beta, 0.0, 1.0, open_high=True)

    def init_server(self, problem, roster, key: Array) -> Server:
        x = starting_point(problem, key)
        return Server(x, jnp.zeros_like(x))

    def exchanges(self, problem, roster):  # one trip a round; a method may have several
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, server, now):
        return {"model": server.x}  # the names are the kinds in the ledger

    def client(self, problem, rows, state, down, now):
        x = down["model"]
        y, _ = self.descend(problem, rows, x, now)
        return {"update": y - x}, state  # what is sent, and what the client keeps

    def server(self, problem, server_rows, server, learnt, now):
        v = self.beta * server.v + learnt.mean["update"]
        return Server(server.x + self.server_step * v, v)

    def solution(self, server):
        return server.x
