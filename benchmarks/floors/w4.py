"""W4 by hand: a small CNN.

A convolution is patches times a matrix. The patches of the four pixels that are pooled together are
built apart, so that pooling is the larger of four arrays (no strided reads, a cheap way back), and
a batch is worked through ten images at a time, so that its patches stay in the cache.
"""

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.floors import spread
from benchmarks.floors.blas import cnn_shapes
from benchmarks.workloads import KERNEL, W4, dense, weights

SOME = 10  # images at a time


def pooled_patches(images):
    """Four arrays [n, h/2, w/2, kernel * kernel * c]: windows around each corner of a square."""
    n, size, _, c = images.shape
    half, edge = size // 2, KERNEL // 2
    wide = jnp.pad(images, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    wide = wide.reshape(n, half + edge, 2, half + edge, 2, c)

    def window(i, j):
        return wide[:, i // 2 : i // 2 + half, i % 2, j // 2 : j // 2 + half, j % 2]

    around = [(i, j) for i in range(KERNEL) for j in range(KERNEL)]
    corners = [(a, b) for a in (0, 1) for b in (0, 1)]
    return [jnp.concatenate([window(a + i, b + j) for i, j in around], 3) for a, b in corners]


def convolve(images, kernel, bias):
    """Convolution, 2 x 2 pooling, relu."""
    a, b, c, d = (patches @ kernel.T for patches in pooled_patches(images))
    return jax.nn.relu(jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d)) + bias)


def loss(w, x, y):
    """Mean cross-entropy; logits are [classes, batch]."""
    h = convolve(convolve(x.reshape(-1, 28, 28, 1), w[0], w[1]), w[2], w[3])
    h = jax.nn.relu(w[4] @ h.reshape(len(y), -1).T + w[5][:, None])
    logits = w[6] @ h + w[7][:, None]
    chosen = jnp.sum(logits * jax.nn.one_hot(y, logits.shape[0], axis=0), axis=0)
    return jnp.mean(jax.nn.logsumexp(logits, axis=0) - chosen)


def gradient(w, x, y):
    """The gradient on a batch, `SOME` images at a time."""
    parts = len(y) // SOME

    def add(total, part):
        return jax.tree.map(jnp.add, total, jax.grad(loss)(w, *part)), None

    split = (x.reshape(parts, SOME, -1), y.reshape(parts, SOME))
    total = lax.scan(add, jax.tree.map(jnp.zeros_like, w), split)[0]
    return jax.tree.map(lambda a: a / parts, total)


def local_steps(workload, pool):
    """client(w, id, order): the steps of one client."""
    x, y = pool

    def client(w, i, order):
        def step(w, block):
            at = i * workload.rows + block * workload.batch
            batch = (lax.dynamic_slice_in_dim(a, at, workload.batch) for a in (x, y))
            return jax.tree.map(lambda a, g: a - workload.step * g, w, gradient(w, *batch)), None

        return lax.scan(step, w, order)[0]

    return client


def prepare(scale: float = 1.0):
    """The round, where it starts, and the data."""
    workload = W4.scaled(scale)

    def round(w, pool, key):
        ids = spread.my_share(jnp.arange(workload.clients, dtype=jnp.int32))
        order = spread.orders(key, ids, workload.blocks, workload.steps)
        client = local_steps(workload, pool)
        update = spread.mean_update(client, w, ids, order, workload.cohort)
        return jax.tree.map(jnp.add, w, update)

    return round, weights(cnn_shapes()), dense(workload)


def run(rounds: int = W4.rounds, *, scale: float = 1.0) -> dict:
    """Rounds a second of FedAvg on W4."""
    return spread.timed(prepare, rounds, scale)
