"""CentralFW: Frank-Wolfe at the server, on the clients' mean gradient.   [frank1956algorithm]

    client i    g_i = grad f_i(x)
    server      s = lmo(mean g_i);   x <- (1 - eta_t) x + eta_t s
    bytes       down d, up d

What FedFW is compared with: no penalty and no x_i, but gradients travel.
"""

from typing import Any

import equinox as eqx
from jax import Array

from fedmin.local.atoms import check_atoms, check_steps, dense
from fedmin.method import Exchange, Method, starting_point
from fedmin.schedule import ConvexSteps


class CentralFW(Method):
    """The classic Frank-Wolfe method; gradients travel.

    >>> import fedmin
    >>> fedmin.CentralFW().steps
    ConvexSteps()
    """

    steps: eqx.Module = ConvexSteps()  # eta_t

    handles = frozenset({"rows", "domain"})
    citation = "frank1956algorithm"

    def __check_init__(self):
        check_steps(self.steps, "eta")

    def check(self, problem):
        check_atoms("CentralFW", problem)

    def init_server(self, problem, key: Array) -> Array:
        return starting_point(problem, key)  # x

    def exchanges(self, problem):
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, x, now):
        return {"model": x}

    def client(self, problem, rows, state, down, now):
        return {"gradient": problem.grad(down["model"], rows)}, state

    def server(self, problem, server_rows, x, aggregate, now):
        steps: Any = self.steps
        eta = steps.eta((now.round + 1).astype(float))
        return (1 - eta) * x + eta * dense((problem.domain.lmo(aggregate.mean["gradient"]),))

    def solution(self, x):
        return x
