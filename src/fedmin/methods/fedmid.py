"""FedMid: FedAvg whose steps are projected onto a set, at the clients too.   [yuan2021composite]

    client i    y <- x;  K times  y <- P(y - eta grad f_i(y))
    server      x <- P(x + eta_s mean(y - x))
    bytes       down d, up d

The paper's federated mirror descent with the square as mirror and a set's indicator as regularizer.
With `locally=False` clients do not project, which is projected FedAvg.
"""

import equinox as eqx
from jax import Array

from fedmin.client import LocalSteps
from fedmin.core import checks
from fedmin.core.method import Exchange, starting_point
from fedmin.methods.feddr import check_projection


class FedMid(LocalSteps):
    """FedAvg over a set by projections, everywhere or at the server only.

    >>> import fedmin
    >>> fedmin.FedMid(step=0.1, local_steps=5, locally=False).server_step
    1.0
    """

    server_step: float = 1.0  # eta_s
    locally: bool = eqx.field(default=True, static=True)  # clients project too

    handles = frozenset({"rows", "domain"})
    citation = "yuan2021composite"

    def __check_init__(self):
        checks.positive("server_step", self.server_step)

    def check(self, problem):
        check_projection(type(self).__name__, problem)

    def init_server(self, problem, roster, key: Array) -> Array:
        return starting_point(problem, key)  # x

    def exchanges(self, problem, roster):
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, x, now):
        return {"model": x}

    def client(self, problem, rows, state, down, now):
        x = down["model"]
        after = problem.domain.project if self.locally else None
        y, _ = self.descend(problem, rows, x, now, after=after)
        return {"update": y - x}, state

    def server(self, problem, server_rows, x, learnt, now):
        return problem.domain.project(x + self.server_step * learnt.mean["update"])

    def solution(self, x):
        return x
