"""FedProx: FedAvg with a pull towards the server's model.   [li2020fedprox] Algorithm 2

client i    y <- x;  K_i times  y <- y - eta (grad f_i(y) + mu (y - x))
server      x <- x + mean(y - x)
bytes       down d, up d

K_i = K; or, as in the paper's section 5.2, a client is slow in a round with the chance
`stragglers`, and K_i is then drawn from 1..K: steps, or passes over its rows if `epochs` are given.
FedAvg would have to wait for the slow ones or leave them out; here what they did counts.
"""

import jax
import jax.numpy as jnp
from jax import Array

from fedmin.client import Stepping
from fedmin.core import checks
from fedmin.core.method import starting_point
from fedmin.methods.guarded import Guarded

STRAGGLING = 0x57A6  # what a client's secret is folded with, apart from its batches


class Pulled(Stepping):
    """Steps on f_i(y) + mu/2 |y - x|^2, with x the server's model: FedProx's and FedDANE's."""

    mu: float = 0.1  # the pull towards x

    def __check_init__(self):
        checks.between("mu", self.mu, 0.0)


class FedProx(Guarded, Pulled):
    """FedAvg whose clients minimise f_i(y) + mu/2 |y - x|^2; mu = 0 is FedAvg.

    >>> import fedmin
    >>> fedmin.FedProx(step=0.1, mu=0.01, local_steps=5).mu
    0.01
    """

    stragglers: float | None = None  # the chance that a client does a part of its steps only

    citation = "li2020fedprox"

    def __check_init__(self):
        if self.stragglers is not None:
            checks.between("stragglers", self.stragglers, 0.0, 1.0)

    def steps(self, rows, now):
        whole = super().steps(rows, now)
        if self.stragglers is None:
            return whole
        slow, part = jax.random.split(jax.random.fold_in(now.secret, STRAGGLING))
        unit = jnp.int32(1)  # what is counted: a step, or a pass over the rows
        if self.epochs is not None:
            unit = jnp.int32(self.batches.per_epoch(rows.size, rows.capacity))
        some = unit * jax.random.randint(part, (), 1, whole // unit + 1, jnp.int32)
        return jnp.where(jax.random.bernoulli(slow, self.stragglers), some, whole)

    def start(self, problem, roster, key: Array) -> Array:
        return starting_point(problem, key)  # x

    def broadcast(self, problem, x, now):
        return {"model": x}

    def client(self, problem, rows, state, down, now):
        x = down["model"]
        y, _ = self.descend(problem, rows, x, now, lambda y: self.mu * (y - x))
        return {"update": y - x}, state

    def server(self, problem, server_rows, x, learnt, now):
        return x + learnt.mean["update"]
