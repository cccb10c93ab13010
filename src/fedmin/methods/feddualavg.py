"""FedDualAvg: clients and server average in the dual, and project to look.   [yuan2021composite]

    client i    v <- z;  for k = 0..K-1  v <- v - eta grad f_i(P(v, t + eta k))
    server      z <- z + eta_s mean(v - z);   t <- t + eta_s eta K;   x = P(z, t)
    bytes       down d (with a penalty d + 1), up d

Algorithm 2 with the square as mirror. P is its map back to the primal: over a set the projection,
whatever t is; with a penalty the prox of t times it, since the dual has gone t far. Averages of v
are not projected, so that sparsity or low rank is not lost by averaging.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fedmin.client import LocalSteps
from fedmin.core import checks, schedule
from fedmin.core.method import Exchange, starting_point
from fedmin.methods.feddr import check_prox
from fedmin.methods.fedmid import length


class Server(NamedTuple):
    x: Array  # P(z, t)
    z: Array
    t: Array  # the sum of eta_s eta K over all rounds


class FedDualAvg(LocalSteps):
    """Federated dual averaging over a set that has a projection, or with a penalty.

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
        check_prox("FedDualAvg", problem, self.epochs)

    def init_server(self, problem, roster, key: Array) -> Server:
        x = starting_point(problem, key)
        return Server(x, jnp.array(x), jnp.zeros((), x.dtype))

    def exchanges(self, problem, roster):
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, server, now):
        return {"dual": server.z} | ({} if problem.domain.can_project else {"time": server.t})

    def client(self, problem, rows, state, down, now):
        z, step = down["dual"], schedule.at(self.step, now.round)

        def advance(at, batch):
            v, t = at
            return v - step * problem.grad(problem.domain.prox(v, t), batch), t + step

        v, _ = self.walk(rows, (z, down.get("time", jnp.zeros((), z.dtype))), now, advance)
        return {"update": v - z}, state

    def server(self, problem, server_rows, server, learnt, now):
        z = server.z + self.server_step * learnt.mean["update"]
        t = server.t + self.server_step * length(self, now, z)
        return Server(problem.domain.prox(z, t), z, t)

    def solution(self, server):
        return server.x
