"""W2 by hand: an MLP, one step a round, everybody takes part."""

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.floors import spread
from benchmarks.workloads import HIDDEN, W2, dense, weights


def loss(w, x, y):
    """Mean cross-entropy of a swish network without biases; weights are [out, in]."""
    first, second = w
    logits = second @ jax.nn.swish(first @ x.T)
    chosen = jnp.sum(logits * jax.nn.one_hot(y, logits.shape[0], axis=0), axis=0)
    return jnp.mean(jax.nn.logsumexp(logits, axis=0) - chosen)


def local_step(workload, pool):
    """client(w, id, order): the one step of one client."""
    x, y = pool

    def client(w, i, order):
        at = i * workload.rows + order[0] * workload.batch
        batch = (lax.dynamic_slice_in_dim(a, at, workload.batch) for a in (x, y))
        return jax.tree.map(lambda a, g: a - workload.step * g, w, jax.grad(loss)(w, *batch))

    return client


def prepare(scale: float = 1.0):
    """The round, where it starts, and the data."""
    workload = W2.scaled(scale)

    def round(w, pool, key):
        ids = spread.my_share(jnp.arange(workload.clients, dtype=jnp.int32))
        order = spread.orders(key, ids, workload.blocks, workload.steps)
        update = spread.mean_update(local_step(workload, pool), w, ids, order, workload.cohort)
        return jax.tree.map(jnp.add, w, update)

    start = tuple(weights([(HIDDEN, workload.features), (workload.classes, HIDDEN)]))
    return round, start, dense(workload)


def run(rounds: int = W2.rounds, *, scale: float = 1.0) -> dict:
    """Rounds a second of FedAvg on W2."""
    return spread.timed(prepare, rounds, scale)
