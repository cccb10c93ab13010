"""The same work as plain NumPy loops over a single-threaded BLAS (scipy.sparse for W5).

No JAX here: what one core does when nothing but the arithmetic costs time.
"""

import time

import numpy as np
import scipy.sparse
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.workloads import CHANNELS, HIDDEN, KERNEL, WORKLOADS, dense, sparse, weights


def softmax_residual(logits, y):
    """Probabilities minus the one-hot labels, over the number of rows; in place."""
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    logits[np.arange(len(y)), y] -= 1
    logits /= len(y)
    return logits


def softmax_gradient(w, x, y):
    """Softmax regression; w is one tensor [classes, features]."""
    return [softmax_residual(x @ w[0].T, y).T @ x]


def mlp_gradient(w, x, y):
    """One hidden layer with swish, no biases."""
    h = x @ w[0].T
    gate = 1 / (1 + np.exp(-h))
    a = h * gate
    residual = softmax_residual(a @ w[1].T, y)
    back = (residual @ w[1]) * (gate + a * (1 - gate))
    return [back.T @ x, residual.T @ a]


def _patches(images):
    """[n, h, w, c] to [n * h * w, kernel * kernel * c], zeros around the image."""
    edge = KERNEL // 2
    wide = np.pad(images, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    view = sliding_window_view(wide, (KERNEL, KERNEL), axis=(1, 2))  # n, h, w, c, k, k
    return view.transpose(0, 1, 2, 4, 5, 3).reshape(-1, KERNEL**2 * images.shape[3])


def _images_back(patches, shape):
    """The transpose of `_patches`: add every patch back to its place."""
    n, h, w, c = shape
    edge = KERNEL // 2
    wide = np.zeros((n, h + 2 * edge, w + 2 * edge, c), patches.dtype)
    parts = patches.reshape(n, h, w, KERNEL, KERNEL, c)
    for i in range(KERNEL):
        for j in range(KERNEL):
            wide[:, i : i + h, j : j + w] += parts[:, :, :, i, j]
    return wide[:, edge : edge + h, edge : edge + w]


def _convolve(images, kernel, bias):
    """Convolution, 2 x 2 pooling, relu; and what the way back needs."""
    n, h, w, _ = images.shape
    patches = _patches(images)
    squares = (patches @ kernel.T + bias).reshape(n, h // 2, 2, w // 2, 2, -1)
    top = squares.max(axis=(2, 4), keepdims=True)
    return np.maximum(top[:, :, 0, :, 0], 0), (patches, squares, top, kernel, images.shape)


def _convolve_back(grad, kept, images_too):
    patches, squares, top, kernel, shape = kept
    grad = grad[:, :, None, :, None] * ((squares == top) & (top > 0))
    grad = grad.reshape(-1, kernel.shape[0])
    back = _images_back(grad @ kernel, shape) if images_too else None
    return [grad.T @ patches, grad.sum(axis=0)], back


def cnn_gradient(w, x, y):
    """Two convolutions with pooling, one hidden layer, biases everywhere."""
    first, kept1 = _convolve(x.reshape(-1, 28, 28, 1), w[0], w[1])
    second, kept2 = _convolve(first, w[2], w[3])
    flat = second.reshape(len(y), -1)
    h = np.maximum(flat @ w[4].T + w[5], 0)
    residual = softmax_residual(h @ w[6].T + w[7], y)
    back = (residual @ w[6]) * (h > 0)
    head = [back.T @ flat, back.sum(axis=0), residual.T @ h, residual.sum(axis=0)]
    grads2, back = _convolve_back((back @ w[4]).reshape(second.shape), kept2, True)
    grads1, _ = _convolve_back(back, kept1, False)
    return [*grads1, *grads2, *head]


def logistic_gradient(w, x, y):
    """Logistic regression on CSR rows."""
    residual = (1 / (1 + np.exp(-(x @ w[0]))) - y) / len(y)
    return [x.T @ residual.astype(np.float32)]


def cnn_shapes(classes: int = 10) -> list[tuple[int, ...]]:
    """The tensors of W4's network: weights [out, in] and biases."""
    a, b = CHANNELS
    area, flat = KERNEL**2, 7 * 7 * b
    return [
        (a, area), (a,), (b, area * a), (b,),
        (HIDDEN, flat), (HIDDEN,), (classes, HIDDEN), (classes,),
    ]  # fmt: skip


def _pieces(w):
    """Data, start and gradient of a workload."""
    if w.name == "W5":
        features, values, y = sparse(w)
        edges = np.arange(w.total + 1) * w.slots
        x = scipy.sparse.csr_matrix(
            (values.ravel(), features.ravel(), edges), shape=(w.total, w.features)
        )
        return x, y, [np.zeros(w.features, np.float32)], logistic_gradient
    x, y = dense(w)
    if w.name == "W2":
        return x, y, weights([(HIDDEN, w.features), (w.classes, HIDDEN)]), mlp_gradient
    if w.name == "W4":
        return x, y, weights(cnn_shapes()), cnn_gradient
    return x, y, [np.zeros((w.classes, w.features), np.float32)], softmax_gradient


def _round(w, x, y, model, gradient, generator):
    total = [np.zeros_like(a) for a in model]
    everyone = w.cohort == w.clients
    ids = range(w.clients) if everyone else generator.permutation(w.clients)[: w.cohort]
    for i in ids:
        local = [a.copy() for a in model]
        for k in range(w.steps):
            if k % w.blocks == 0:
                order = generator.permutation(w.blocks)
            at = i * w.rows + order[k % w.blocks] * w.batch
            for a, g in zip(
                local, gradient(local, *(b[at : at + w.batch] for b in (x, y))), strict=True
            ):
                a -= np.float32(w.step) * g
        for t, a, b in zip(total, local, model, strict=True):
            t += a - b
    return [a + t / np.float32(w.cohort) for a, t in zip(model, total, strict=True)]


def run(name: str, rounds: int, *, scale: float = 1.0, repeats: int = 2) -> dict:
    """Rounds a second of FedAvg on one workload."""
    import threadpoolctl

    w = WORKLOADS[name].scaled(scale)
    x, y, start, gradient = _pieces(w)
    generator = np.random.default_rng(0)
    with threadpoolctl.threadpool_limits(1):
        _round(w, x, y, start, gradient, generator)
        times = []
        for _ in range(repeats):
            model, clock = start, time.perf_counter()
            for _ in range(rounds):
                model = _round(w, x, y, model, gradient, generator)
            times.append(time.perf_counter() - clock)
    return {"rounds_per_second": rounds / min(times), "compile_seconds": 0.0, "seconds": times}
