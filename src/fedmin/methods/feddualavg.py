"""FedDualAvg: clients and server average in the dual, and project to look.   [yuan2021composite]

    client i    v <- z;  K times  v <- v - eta grad f_i(P(v))
    server      z <- z + eta_s mean(v - z);   x = P(z)
    bytes       down d, up d

Algorithm 2 with the square as mirror and a set's indicator as regularizer: its map back to the
primal is then the projection, whatever the weight of the regularizer. Averages of v are not
projected, so that sparsity or low rank is not lost by averaging.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fedmin.client import LocalSteps
from fedmin.core import checks, schedule
from fedmin.core.method import Exchange, starting_point
from fedmin.methods.feddr import check_projection


class Server(NamedTuple):
    x: Array  # P(z)
    z: Array


class FedDualAvg(LocalSteps):
    """Federated dual averaging over a set that has a projection.

    >>> import fedmin
    >>> fedmin.FedDualAvg(step=0.1, local_steps=5).server_step
    1.0
    """

    server_step: float = 1.0  # eta_s

    handles = frozenset({"rows", "domain"})
    citation = "yuan2021composite"

    def __check_init__(self):
        checks.positive("server_step", self.server_step)

    def check(self, problem):
        check_projection("FedDualAvg", problem)

    def init_server(self, problem, roster, key: Array) -> Server:
        x = starting_point(problem, key)
        return Server(x, jnp.array(x))

    def exchanges(self, problem, roster):
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, server, now):
        return {"dual": server.z}

    def client(self, problem, rows, state, down, now):
        z, step = down["dual"], schedule.at(self.step, now.round)

        def advance(v, batch):
            return v - step * problem.grad(problem.domain.project(v), batch)

        return {"update": self.walk(rows, z, now, advance) - z}, state

    def server(self, problem, server_rows, server, learnt, now):
        z = server.z + self.server_step * learnt.mean["update"]
        return Server(problem.domain.project(z), z)

    def solution(self, server):
        return server.x
