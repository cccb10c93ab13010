"""SCAFFOLD: control variates cancel client drift.   [karimireddy2020scaffold] Algorithm 1 (II)

    client i    y <- x;  K times  y <- y - eta (grad f_i(y) - c_i + c)
                c_i+ <- c_i - c + (x - y)/(K eta)
    server      x <- x + eta_s mean(y - x);   c <- c + sum over present of p_i (c_i+ - c_i)
    bytes       down 2d, up 2d

With equal weights p_i = 1/N the last line is the paper's c + |S|/N mean(c_i+ - c_i); with any
weights it keeps c = sum p_i c_i, which is what makes the corrections cancel.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fedmin.core import checks, schedule
from fedmin.core.method import Exchange, starting_point
from fedmin.methods.guarded import Guarded


class Server(NamedTuple):
    x: Array  # the model
    c: Array  # sum of p_i c_i


class Scaffold(Guarded):
    """FedAvg with drift correction; clients keep c_i, which starts at 0.

    >>> import fedmin
    >>> fedmin.Scaffold(step=0.1, local_steps=10).server_step
    1.0
    """

    server_step: float = 1.0  # eta_s

    citation = "karimireddy2020scaffold"

    def __check_init__(self):
        checks.positive("server_step", self.server_step)

    def start(self, problem, roster, key: Array) -> Server:
        x = starting_point(problem, key)
        return Server(x, jnp.zeros_like(x))

    def memory(self, problem, roster, rows, key: Array) -> Array:
        return jnp.zeros_like(starting_point(problem, key))  # c_i

    def trip(self) -> Exchange:
        # c is the sum of p_i c_i only if all that is sent arrives
        return Exchange(self.broadcast, self.client, self.server, entire=True)

    def broadcast(self, problem, server, now):
        return {"model": server.x, "control": server.c}

    def client(self, problem, rows, c_i, down, now):
        x, c = down["model"], down["control"]
        drift = c - c_i
        y, steps = self.descend(problem, rows, x, now, lambda y: drift)
        eta = schedule.at(self.step, now.round)
        c_new = (x - y) / (steps.astype(x.dtype) * eta) - drift
        return {"update": y - x, "control": c_new - c_i}, c_new

    def server(self, problem, server_rows, server, learnt, now):
        x = server.x + self.server_step * learnt.mean["update"]
        return Server(x, server.c + learnt.total["control"])
