"""CentralFW: Frank-Wolfe at the server, on the clients' mean gradient.   [frank1956algorithm]

    client i    g_i = grad f_i(x)
    server      s = lmo(mean g_i);   x <- (1 - eta_t) x + eta_t s
                pairwise  x <- x + gamma (s - v),  v the worst atom of x   [lacoste2015global]
    bytes       down d, up d

What FedFW is compared with: no penalty and no x_i, but gradients travel.
"""

from typing import Any

import equinox as eqx
from jax import Array

from fedmin.client.atoms import check_atoms, check_steps, check_swaps, dense, short_step, swap
from fedmin.core import checks
from fedmin.core.method import Exchange, Method, starting_point
from fedmin.core.schedule import ConvexSteps


class CentralFW(Method):
    """The classic Frank-Wolfe method; gradients travel.

    `smoothness`, an L of F, lets the gap choose the step; `pairwise` steps, for L1Ball and Simplex,
    need it.

    >>> import fedmin
    >>> fedmin.CentralFW().steps
    ConvexSteps()
    """

    steps: eqx.Module = ConvexSteps()  # eta_t
    smoothness: float | None = None  # L
    pairwise: bool = eqx.field(default=False, static=True)  # swap atoms

    handles = frozenset({"rows", "domain"})
    citation = "frank1956algorithm"

    def __check_init__(self):
        check_steps(self.steps, "eta")
        if self.smoothness is not None:
            checks.positive("smoothness", self.smoothness)

    def check(self, problem):
        check_atoms("CentralFW", problem)
        if self.pairwise:
            check_swaps("CentralFW", problem, self.smoothness)

    def init_server(self, problem, roster, key: Array) -> Array:
        return starting_point(problem, key)  # x

    def exchanges(self, problem, roster):
        # a late gradient gives another atom, and a gap that proves nothing
        return (Exchange(self.broadcast, self.client, self.server, prompt=True),)

    def broadcast(self, problem, x, now):
        return {"model": x}

    def client(self, problem, rows, state, down, now):
        return {"gradient": problem.grad(down["model"], rows)}, state

    def server(self, problem, server_rows, x, learnt, now):
        g = learnt.mean["gradient"]
        if self.pairwise:
            return x + swap(problem.domain, x, g, self.smoothness).dense()
        steps: Any = self.steps
        s = dense((problem.domain.lmo(g),))
        eta = steps.eta((now.round + 1).astype(float))
        if self.smoothness is not None:
            eta = short_step(x, s, g, self.smoothness)
        return (1 - eta) * x + eta * s

    def solution(self, x):
        return x
