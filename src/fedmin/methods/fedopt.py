"""FedOpt: an adaptive optimizer at the server.   [reddi2021fedopt] Algorithm 2

    client i    y <- x;  K times  y <- y - eta grad f_i(y)
    server      D = mean(y - x);   m <- beta1 m + (1 - beta1) D
                Adagrad  v <- v + D^2
                Adam     v <- beta2 v + (1 - beta2) D^2
                Yogi     v <- v - (1 - beta2) D^2 sign(v - D^2)
                x <- x + eta_s m / (sqrt(v) + tau)
    bytes       down d, up d

m starts at 0, v at tau^2, and there is no bias correction, as in the paper. Its FedAdagrad has
beta1 = 0; with 0.9, the default here for all three, it is faster, and so the stronger rival.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from fedmin.core import checks
from fedmin.core.method import starting_point
from fedmin.methods.guarded import Guarded


class Adagrad(eqx.Module):
    """v <- v + D^2.

    >>> import fedmin
    >>> fedmin.Adagrad()(1.0, 3.0)
    4.0
    """

    def __call__(self, v, square):
        return v + square


class Adam(eqx.Module):
    """v <- beta2 v + (1 - beta2) D^2.

    >>> import fedmin
    >>> fedmin.Adam(beta2=0.5)(1.0, 3.0)
    2.0
    """

    beta2: float = 0.99

    def __call__(self, v, square):
        return self.beta2 * v + (1 - self.beta2) * square


class Yogi(eqx.Module):
    """v <- v - (1 - beta2) D^2 sign(v - D^2).

    >>> import fedmin
    >>> float(fedmin.Yogi(beta2=0.5)(1.0, 3.0))
    2.5
    """

    beta2: float = 0.99

    def __call__(self, v, square):
        return v - (1 - self.beta2) * square * jnp.sign(v - square)


class Server(NamedTuple):
    x: Array  # the model
    m: Array  # running mean of the updates
    v: Array  # running size of their squares


class FedOpt(Guarded):
    """FedAdagrad, FedAdam or FedYogi, by the `second` moment rule.

    >>> import fedmin
    >>> fedmin.FedOpt(step=0.1, server_step=0.01, second=fedmin.Yogi(0.9)).second
    Yogi(beta2=0.9)
    """

    server_step: float = 0.01  # eta_s
    beta1: float = 0.9  # of the first moment
    tau: float = 1e-3  # added to the root of the second
    second: Adagrad | Adam | Yogi = Adam()  # the second moment: adam, adagrad or yogi

    citation = "reddi2021fedopt"

    def __check_init__(self):
        checks.positive("server_step", self.server_step)
        checks.between("beta1", self.beta1, 0.0, 1.0, open_high=True)  # 1: m would stay 0
        checks.positive("tau", self.tau)
        checks.is_a("second", self.second, (Adagrad, Adam, Yogi), "Adam(), Yogi() or Adagrad()")
        if not isinstance(self.second, Adagrad):
            checks.between("beta2", self.second.beta2, 0.0, 1.0)

    def start(self, problem, roster, key: Array) -> Server:
        x = starting_point(problem, key)
        return Server(x, jnp.zeros_like(x), jnp.full_like(x, self.tau) ** 2)

    def broadcast(self, problem, server, now):
        return {"model": server.x}

    def client(self, problem, rows, state, down, now):
        x = down["model"]
        y, _ = self.descend(problem, rows, x, now)
        return {"update": y - x}, state

    def server(self, problem, server_rows, server, learnt, now):
        D = learnt.mean["update"]
        m = self.beta1 * server.m + (1 - self.beta1) * D
        v = self.second(server.v, D**2)
        return Server(server.x + self.server_step * m / (jnp.sqrt(v) + self.tau), m, v)

    def at_pace(self, eta, scale):
        # what clients send is divided by its own size: their step hardly counts, the server's does
        return self.having(step=eta, server_step=self.server_step * scale)
