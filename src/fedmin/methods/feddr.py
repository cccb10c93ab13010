"""FedDR: Douglas-Rachford splitting with inexact local proxes.   [trandinh2021feddr] Algorithm 1

    client i    y_i <- y_i + alpha (xbar - x_i);   x_i <- prox of eta f_i at y_i, by gradient steps
                z_i <- 2 x_i - y_i;   send what changed in z_i
    server      z <- z + sum over present of p_i (change);   xbar <- prox of eta g at z
    bytes       down d, up d

g is the set's indicator, and its prox the projection; or a penalty (domains/penalties.py). The prox
of f_i is the minimizer of f_i(x) + |x - y_i|^2 / (2 eta). Its gradient is brought below
`accuracy` in length, or `local_steps` steps are taken from the last x_i; history has `residual`,
the mean length where clients stopped. All begin at the same x, as their own first prox.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax

from fedmin.client import Batches, Full
from fedmin.core import checks, schedule
from fedmin.core.method import Exchange, Method, common_start


class Server(NamedTuple):
    x: Array  # xbar
    z: Array  # sum p_i z_i
    residual: Array


class Client(NamedTuple):
    x: Array  # x_i
    y: Array  # y_i
    z: Array  # z_i


class FedDR(Method):
    """Randomized Douglas-Rachford splitting: over a set with a projection, a penalty, or neither.

    A relaxation `alpha` near 2 often needs the fewest rounds; its authors use 1.95.

    >>> import fedmin
    >>> fedmin.FedDR(eta=1.0, step=0.1, local_steps=20, accuracy=1e-4).alpha
    1.0
    """

    eta: float = 1.0  # of the prox
    alpha: float = 1.0  # relaxation, in (0, 2)
    step: float | eqx.Module = 0.1  # of a gradient step towards the prox
    local_steps: int = eqx.field(default=10, static=True)  # at most
    accuracy: float = 0.0  # epsilon_i: stop where the prox's gradient is no longer than this
    batches: Batches = Full()

    handles = frozenset({"rows", "domain"})
    citation = "trandinh2021feddr"

    def __check_init__(self):
        checks.positive("eta", self.eta)
        checks.between("alpha", self.alpha, 0.0, 2.0, open_low=True, open_high=True)
        checks.positive("step", self.step)
        checks.at_least("local_steps", self.local_steps, 1)
        checks.between("accuracy", self.accuracy, 0.0)
        checks.is_a("batches", self.batches, Batches, "Blocks(64) or Full()")

    def check(self, problem):
        check_prox("FedDR", problem)

    def init_server(self, problem, roster, key: Array) -> Server:
        x = common_start(problem)
        return Server(x, jnp.array(x), jnp.zeros((), x.dtype))

    def init_client(self, problem, roster, rows, key: Array) -> Client:
        x = common_start(problem)
        return Client(x, jnp.array(x), jnp.array(x))

    def exchanges(self, problem, roster):
        # z is the sum of p_i z_i only if all that is sent arrives
        return (Exchange(self.broadcast, self.client, self.server, entire=True),)

    def broadcast(self, problem, server, now):
        return {"model": server.x}

    def client(self, problem, rows, own, down, now):
        y = own.y + self.alpha * (down["model"] - own.x)
        x, residual = self.prox(problem, rows, own.x, y, now)
        z = 2 * x - y
        return {"change": z - own.z, "residual": residual}, Client(x, y, z)

    def prox(self, problem, rows, x, y, now):
        """x near the minimizer of f_i(x) + |x - y|^2/(2 eta), and its gradient's length before
        the last step."""
        step = schedule.at(self.step, now.round)

        def slope(k, x):
            batch = rows
            if not isinstance(self.batches, Full):
                batch = self.batches.read(rows, self.batches.draw(rows, now.secret, k))
            return problem.grad(x, batch) + (x - y) / self.eta

        def far(carry):
            k, _, length = carry
            return (k < self.local_steps) & (length > self.accuracy)

        def advance(carry):
            k, x, _ = carry
            g = slope(k, x)
            return k + 1, x - step * g, jnp.linalg.norm(g)

        first = (jnp.int32(0), x, jnp.full((), jnp.inf, x.dtype))
        _, x, length = lax.while_loop(far, advance, first)
        return x, length

    def server(self, problem, server_rows, server, learnt, now):
        total = learnt.total
        z = server.z + total["change"]
        x = problem.domain.prox(z, self.eta)
        return Server(x, z, total["residual"] / learnt.weight)

    def solution(self, server):
        return server.x

    def report(self, server):
        return {"residual": server.residual}


def check_prox(name: str, problem, epochs: int | None = None) -> None:
    """Refuse a set without a projection; and epochs where a penalty counts steps."""
    if not problem.domain.can_prox:
        raise ValueError(
            f"{name} needs a set with a projection, or a penalty, got {problem.domain}; "
            f"over(problem, L2Ball(10.0)) or over(problem, L1Penalty(0.01)) gives it one"
        )
    if epochs is not None and not problem.domain.can_project:
        raise ValueError(
            f"{name} with {problem.domain} must know how many steps a client takes; give "
            f"local_steps, not epochs"
        )
