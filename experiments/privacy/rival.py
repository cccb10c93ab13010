"""DP-SGD in plain NumPy, for softmax regression at one place: written apart from fedmin.

Poisson batches, gradients of rows clipped to a length, Gaussian noise [abadi2016deep]; its noise is
found by dp-accounting's own search. A row's gradient is the outer product of p - e_y and (z, 1), so
its length is known without it. A logistic regression is a softmax of two classes, one of them 0.
"""

from functools import lru_cache
from typing import NamedTuple

import dp_accounting as dp
import numpy as np
from dp_accounting import pld


class Recipe(NamedTuple):
    """What DP-SGD is told."""

    step: float
    rate: float
    clip: float
    rounds: int


@lru_cache
def multiplier_of(recipe: Recipe, epsilon: float, delta: float) -> float:
    """The noise that has this epsilon after all steps."""

    def event(sigma: float) -> dp.DpEvent:
        one = dp.PoissonSampledDpEvent(recipe.rate, dp.GaussianDpEvent(sigma))
        return dp.SelfComposedDpEvent(one, recipe.rounds)

    return float(dp.calibrate_dp_mechanism(
        lambda: pld.PLDAccountant(value_discretization_interval=1e-3), event, epsilon, delta,
        tol=0.002,
    ))  # fmt: skip


def dp_sgd(
    x: np.ndarray, y: np.ndarray, classes: int, recipe: Recipe, multiplier: float, seed: int
) -> np.ndarray:
    """f[classes, features + 1], the bias last; of two classes the first row stays 0."""
    rng = np.random.default_rng(seed)
    z = np.hstack([x, np.ones((len(x), 1), x.dtype)])
    lengths = np.linalg.norm(z, axis=1)
    w = np.zeros((classes, z.shape[1]))
    free = np.arange(classes) >= (classes == 2)  # a logistic regression has one row
    for _ in range(recipe.rounds):
        drawn = np.flatnonzero(rng.random(len(z)) < recipe.rate)
        scores = z[drawn] @ w.T
        error = np.exp(scores - scores.max(axis=1, keepdims=True))
        error /= error.sum(axis=1, keepdims=True)
        error[np.arange(len(drawn)), y[drawn]] -= 1
        error *= free
        size = np.linalg.norm(error, axis=1) * lengths[drawn]
        error *= np.minimum(1, recipe.clip / np.maximum(size, 1e-30))[:, None]
        noise = multiplier * recipe.clip * rng.standard_normal(w.shape) * free[:, None]
        w -= recipe.step * (error.T @ z[drawn] + noise) / (recipe.rate * len(z))
    return w
