"""W5 by hand: logistic regression on padded sparse rows.

x @ w is a gather; the step is scattered straight into w, so that no dense gradient is ever made.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.floors import spread
from benchmarks.workloads import W5, sparse

IN_BOUNDS = "promise_in_bounds"


def step(w, features, values, y, size):
    """w after one step on a batch of padded rows."""
    odds = jnp.sum(values * w.at[features].get(mode=IN_BOUNDS), axis=1)
    residual = (jax.nn.sigmoid(odds) - y) * (-size / len(y))
    return w.at[features].add(values * residual[:, None], mode=IN_BOUNDS)


def local_steps(workload, pool):
    """client(w, id, order): the steps of one client."""

    def client(w, i, order):
        def one(w, block):
            at = i * workload.rows + block * workload.batch
            batch = (lax.dynamic_slice_in_dim(a, at, workload.batch) for a in pool)
            return step(w, *batch, workload.step), None

        return lax.scan(one, w, order)[0]

    return client


def prepare(scale: float = 1.0):
    """The round, where it starts, and the data."""
    workload = W5.scaled(scale)

    def round(w, pool, key):
        ids = spread.my_share(jnp.arange(workload.clients, dtype=jnp.int32))
        order = spread.orders(key, ids, workload.blocks, workload.steps)
        client = local_steps(workload, pool)
        return w + spread.mean_update(client, w, ids, order, workload.cohort)

    start = np.zeros(workload.features, np.float32)
    return round, start, sparse(workload)


def run(rounds: int = W5.rounds, *, scale: float = 1.0) -> dict:
    """Rounds a second of FedAvg on W5."""
    return spread.timed(prepare, rounds, scale)
