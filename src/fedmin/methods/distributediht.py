"""Distributed-IHT: one step a round, projected at the server.   [tong2022federated] Algorithm A1

    client i    v = grad f_i(x) on a batch, or on all its rows;   y = x - gamma v
    server      x <- H(mean y)
    bytes       down 2 tau, up d

With full gradients this is the central iterative hard thresholding of [blumensath2009iterative].
With `batches=PrivateChoices(...)` a client sends H(y), drawn with noise (core/choices.py), 2 tau.
"""

import equinox as eqx
import jax.numpy as jnp

from fedmin.client import Batches, Full, PrivateChoices
from fedmin.core import checks, schedule
from fedmin.core.choices import ChoiceBatch
from fedmin.core.method import Exchange
from fedmin.methods.fedht import Thresholding, cut, spread


class DistributedIHT(Thresholding):
    """Iterative hard thresholding over clients: Fed-HT with one local step.

    >>> import fedmin
    >>> fedmin.DistributedIHT(step=0.03)
    DistributedIHT(step=0.03)
    """

    step: float | eqx.Module = 0.1  # gamma
    batches: Batches = Full()

    def __check_init__(self):
        checks.positive("step", self.step)
        checks.is_a("batches", self.batches, Batches, "Blocks(100) or Full()")

    def exchanges(self, problem, roster):
        # replies are models where their entries are drawn, else updates
        drawn = isinstance(self.batches, PrivateChoices)
        return (Exchange(self.broadcast, self.client, self.server, entire=drawn),)

    def client(self, problem, rows, state, down, now):
        x, step = spread(down["model"]), schedule.at(self.step, now.round)
        if isinstance(self.batches, Full):
            return {"update": -step * problem.grad(x, rows)}, state
        batches = self.batches.at(now.round)
        batch = batches.read(rows, batches.draw(rows, now.secret, jnp.int32(0)))
        y = problem.step(x, batch, step)
        if isinstance(batch, ChoiceBatch):
            return {"model": problem.domain.compact(cut(problem, batch, y, step))}, state
        return {"update": y - x}, state
