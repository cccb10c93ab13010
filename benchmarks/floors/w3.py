"""W3 by hand: softmax regression, a tenth of 1,000 small clients a round.

The clients of a round are cut evenly over the devices, which all read the same memory. (With half
of the clients' data on each device the larger half decides: 8 % slower.)
"""

import jax
import numpy as np

from benchmarks.floors import spread
from benchmarks.floors.w1 import local_steps
from benchmarks.workloads import W3, dense


def prepare(scale: float = 1.0):
    """The round, where it starts, and the data."""
    workload = W3.scaled(scale)

    def round(w, pool, key):
        chance = jax.random.uniform(jax.random.fold_in(key, workload.clients), (workload.clients,))
        ids = spread.my_share(jax.lax.top_k(chance, workload.cohort)[1])
        order = spread.orders(key, ids, workload.blocks, workload.steps)
        client = local_steps(workload, pool)
        return w + spread.mean_update(client, w, ids, order, workload.cohort)

    start = np.zeros((workload.classes, workload.features), np.float32)
    return round, start, dense(workload)


def run(rounds: int = W3.rounds, *, scale: float = 1.0) -> dict:
    """Rounds a second of FedAvg on W3."""
    return spread.timed(prepare, rounds, scale)
