"""PrimalDualAvg: FedAvg on the Lagrangian, its multipliers by a PI rule.   [sohrabi2024pi] Alg. 1

    client i    y <- x;  K times  y <- y - eta grad (f_0 + r + sum_m nu_m f_m)(y) / (1 + sum nu)
                e = f_m(x) on a batch
    server      x <- x + mean(y - x);   e = mean e
                xi' = a xi + (1 - a) e;   nu <- max(0, nu + k_i e + k_p (xi' - xi))
    bytes       down d + M, up d + M

k_p = 0 is gradient ascent of the dual, which goes round in circles; k_p damps it. In round 1 the
difference is e itself, as the paper begins: xi = 0 before. Divided by 1 + sum nu the fixed points
are the same, and a step that suits each function suits the Lagrangian too; `divided=False` is the
rule as the paper has it.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from fedmin.client import LocalSteps, priced
from fedmin.core import checks, schedule
from fedmin.core.method import Exchange, starting_point


class Server(NamedTuple):
    x: Array  # the model
    multipliers: Array  # nu, f[M]
    smooth: Array  # xi, f[M]


class PrimalDualAvg(LocalSteps):
    """Local steps down the Lagrangian; the server's multipliers follow the constraints' values.

    >>> import fedmin
    >>> fedmin.PrimalDualAvg(step=0.1, integral=0.1, proportional=1.0).smoothing
    0.0
    """

    integral: float = 0.1  # k_i: of the constraints' values
    proportional: float = 1.0  # k_p: of their change
    smoothing: float = 0.0  # a: of the values whose change is taken
    divided: bool = eqx.field(default=True, static=True)  # slopes by 1 + sum nu

    citation = "sohrabi2024pi"
    handles = frozenset({"rows", "constraints"})

    def __check_init__(self):
        checks.positive("integral", self.integral)
        checks.between("proportional", self.proportional, 0.0)
        checks.between("smoothing", self.smoothing, 0.0, 1.0, open_high=True)

    def init_server(self, problem, roster, key: Array) -> Server:
        x = starting_point(problem, key)
        zeros = jnp.zeros(problem.num_constraints, x.dtype)
        return Server(x, zeros, zeros)

    def exchanges(self, problem, roster):
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, server, now):
        limits = {"multipliers": server.multipliers} if len(server.multipliers) else {}
        return {"model": server.x} | limits

    def client(self, problem, rows, state, down, now):
        x, step = down["model"], schedule.at(self.step, now.round)
        nu = down.get("multipliers", jnp.zeros(0, x.dtype))
        price = jnp.concatenate([jnp.ones(1, x.dtype), nu])
        if self.divided:
            price = price / jnp.sum(price)
        y = self.walk(rows, x, now, lambda y, b: y - step * priced.slope(problem, y, b, price))
        if not len(nu):
            return {"update": y - x}, state
        batches = self.batches.at(now.round)
        batch = batches.read(rows, batches.draw(rows, now.secret, jnp.int32(0)))
        return {"update": y - x, "values": problem.constraints(x, batch)}, state

    def server(self, problem, server_rows, server, learnt, now):
        x = server.x + learnt.mean["update"]
        if not len(server.multipliers):
            return server._replace(x=x)
        e = learnt.mean["values"]
        smooth = self.smoothing * server.smooth + (1 - self.smoothing) * e
        change = self.integral * e + self.proportional * (smooth - server.smooth)
        return Server(x, jnp.maximum(server.multipliers + change, 0), smooth)

    def solution(self, server):
        return server.x

    def report(self, server) -> dict[str, Any]:
        return {"multiplier": server.multipliers} if len(server.multipliers) else {}
