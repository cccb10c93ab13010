"""Distributed-IHT: one step a round, projected at the server.   [tong2022federated] Algorithm A1

    client i    v = grad f_i(x) on a batch, or on all its rows;   y = x - gamma v
    server      x <- H(mean y)
    bytes       down 2 tau, up d

With full gradients this is the central iterative hard thresholding of [blumensath2009iterative].
"""

import equinox as eqx
import jax.numpy as jnp

from fedmin.client import Batches, Full
from fedmin.core import checks, schedule
from fedmin.methods.fedht import Thresholding, spread


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

    def client(self, problem, rows, state, down, now):
        x, step = spread(down["model"]), schedule.at(self.step, now.round)
        if isinstance(self.batches, Full):
            return {"update": -step * problem.grad(x, rows)}, state
        batches = self.batches.at(now.round)
        batch = batches.read(rows, batches.draw(rows, now.secret, jnp.int32(0)))
        return {"update": problem.step(x, batch, step) - x}, state
