"""W1 by hand: softmax regression, everybody takes part.

Logits as [classes, batch] (W @ x.T), so that the long axis is the one that vectorizes; the gradient
is written out; a batch is a slice of the pool.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.floors import spread
from benchmarks.workloads import W1, dense


def gradient(w, x, y):
    """Of the mean cross-entropy; w is [classes, features]."""
    residual = jax.nn.softmax(w @ x.T, axis=0) - jax.nn.one_hot(y, w.shape[0], axis=0)
    return residual @ x / x.shape[0]


def local_steps(workload, pool):
    """client(w, id, order): the steps of one client."""
    x, y = pool

    def client(w, i, order):
        def step(w, block):
            at = i * workload.rows + block * workload.batch
            batch = (lax.dynamic_slice_in_dim(a, at, workload.batch) for a in (x, y))
            return w - workload.step * gradient(w, *batch), None

        return lax.scan(step, w, order)[0]

    return client


def prepare(scale: float = 1.0):
    """The round, where it starts, and the data."""
    workload = W1.scaled(scale)

    def round(w, pool, key):
        ids = spread.my_share(jnp.arange(workload.clients, dtype=jnp.int32))
        order = spread.orders(key, ids, workload.blocks, workload.steps)
        client = local_steps(workload, pool)
        return w + spread.mean_update(client, w, ids, order, workload.cohort)

    start = np.zeros((workload.classes, workload.features), np.float32)
    return round, start, dense(workload)


def run(rounds: int = W1.rounds, *, scale: float = 1.0) -> dict:
    """Rounds a second of FedAvg on W1."""
    return spread.timed(prepare, rounds, scale)
