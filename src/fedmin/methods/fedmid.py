"""FedMid: FedAvg whose steps are projected onto a set, at the clients too.   [yuan2021composite]

    client i    y <- x;  K times  y <- P(y - eta grad f_i(y), eta)
    server      x <- P(x + eta_s mean(y - x), eta_s eta K)
    bytes       down d, up d

The paper's federated mirror descent (Algorithm 1) with the square as mirror: P(x, t) is the
projection onto the set, or prox of t times a penalty. With `locally=False` clients do neither,
which is projected FedAvg, or FedAvg with a proximal step at the server.

A projection may be made twice, a prox may not: as printed the penalty counts at the clients and
again at the server; with one client, K = 1 and eta_s = 1 the fixed point is that of twice the
penalty. With a penalty prefer `locally=False`, or FedDualAvg.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from fedmin.client import LocalSteps
from fedmin.core import checks, schedule
from fedmin.core.method import Exchange, starting_point
from fedmin.methods.feddr import check_prox


class FedMid(LocalSteps):
    """FedAvg over a set by projections, or with a penalty; everywhere or at the server only.

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
        check_prox(type(self).__name__, problem, self.epochs)

    def init_server(self, problem, roster, key: Array) -> Array:
        return starting_point(problem, key)  # x

    def exchanges(self, problem, roster):
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, x, now):
        return {"model": x}

    def client(self, problem, rows, state, down, now):
        x, eta = down["model"], schedule.at(self.step, now.round)
        after = (lambda y: problem.domain.prox(y, eta)) if self.locally else None
        y, _ = self.descend(problem, rows, x, now, after=after)
        return {"update": y - x}, state

    def server(self, problem, server_rows, x, learnt, now):
        t = self.server_step * length(self, now, x)
        return problem.domain.prox(x + self.server_step * learnt.mean["update"], t)

    def solution(self, x):
        return x


def length(method: LocalSteps, now, x: Array) -> Array:
    """eta K, how far the steps of a round go; no more than eta with `epochs`, which only sets take:
    a projection does not depend on it."""
    steps = 1 if method.epochs is not None else schedule.at(method.local_steps, now.round)
    eta = jnp.asarray(schedule.at(method.step, now.round), x.dtype)
    return eta * jnp.asarray(steps, x.dtype)
