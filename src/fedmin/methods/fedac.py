"""FedAC: accelerated steps at the clients, both sequences averaged.   [yuan2020fedac] Algorithm 1

    client i    K times   w_md = w / beta + (1 - 1/beta) w_ag;   g = grad f_i(w_md)
                          w_ag <- w_md - eta g
                          w    <- (1 - 1/alpha) w + w_md / alpha - gamma g
    server      w <- mean w;   w_ag <- mean w_ag
    I and II    gamma = max(sqrt(eta / (mu K)), eta)
        I       alpha = 1 / (gamma mu);                 beta = alpha + 1
        II      alpha = 3 / (2 gamma mu) - 1/2;         beta = (2 alpha^2 - 1) / (alpha - 1)
    bytes       down 2d, up 2d

The model is w_ag. mu is the strong convexity that is counted on, eta at most 1/L; then eta mu < 1,
without which 1/alpha is no weight of a mean. One client, one step, I: Nesterov's method of constant
momentum. The authors' code has beta = 2 alpha^2 / (alpha - 1) in II; with the formula above the
potential F(w_ag) - F* + |w - w*|^2 / (4 alpha gamma) falls by 1 - 1/(2 alpha) a step.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin.client import LocalSteps, Stepping
from fedmin.core import checks, schedule
from fedmin.core.method import Exchange, starting_point


class Server(NamedTuple):
    w: Array  # the sequence that carries the momentum
    w_ag: Array  # the model


class StronglyConvex(Stepping):
    """Steps that count on strong convexity; apart from FedAC so that `mu` stands after `step`."""

    mu: float = 0.01  # the strong convexity counted on


class FedAC(LocalSteps, StronglyConvex):
    """Federated accelerated SGD, `version` 1 or 2 of the paper's coupling.

    >>> import fedmin
    >>> fedmin.FedAC(step=0.5, mu=0.01, local_steps=10, version=2).version
    2
    """

    version: int = eqx.field(default=1, static=True)  # FedAC-I or FedAC-II

    citation = "yuan2020fedac"

    def __check_init__(self):
        if self.version not in (1, 2):
            raise ValueError(f"version must be 1 (FedAC-I) or 2 (FedAC-II), got {self.version}")
        for name in ("step", "mu"):  # the base classes' checks are called after this one
            checks.positive(name, getattr(self, name))
        first = np.asarray(schedule.at(self.step, jnp.int32(0)))
        product = np.max(first * np.asarray(self.mu))
        if product >= 1:
            raise ValueError(
                f"step * mu must be below 1, as it is with step <= 1/L; got {product:g}"
            )

    def coupling(self, eta: Array, K: Array) -> tuple[Array, Array, Array]:
        """gamma, alpha and beta of K steps of size eta."""
        gamma = jnp.maximum(jnp.sqrt(eta / (self.mu * K)), eta)
        if self.version == 1:
            alpha = 1 / (gamma * self.mu)
            return gamma, alpha, alpha + 1
        alpha = 1.5 / (gamma * self.mu) - 0.5
        return gamma, alpha, (2 * alpha**2 - 1) / (alpha - 1)

    def init_server(self, problem, roster, key: Array) -> Server:
        x = starting_point(problem, key)
        return Server(x, jnp.array(x))

    def exchanges(self, problem, roster):
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, server, now):
        return {"model": server.w_ag, "momentum": server.w}

    def client(self, problem, rows, state, down, now):
        start = Server(down["momentum"], down["model"])
        eta = jnp.asarray(schedule.at(self.step, now.round), start.w.dtype)
        K = jnp.asarray(self.steps(rows, now), eta.dtype)
        gamma, alpha, beta = self.coupling(eta, K)

        def advance(at, batch):
            w_md = at.w / beta + (1 - 1 / beta) * at.w_ag
            g = problem.grad(w_md, batch)
            w = (1 - 1 / alpha) * at.w + w_md / alpha - gamma * g
            return Server(w, w_md - eta * g)

        end = self.walk(rows, start, now, advance)
        return {"model": end.w_ag - start.w_ag, "momentum": end.w - start.w}, state

    def server(self, problem, server_rows, server, learnt, now):
        change = learnt.mean
        return Server(server.w + change["momentum"], server.w_ag + change["model"])

    def solution(self, server):
        return server.w_ag
