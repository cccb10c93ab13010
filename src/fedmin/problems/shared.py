"""What losses share: cross-entropy, the ridge, and the checks of features and labels."""

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin.core import checks
from fedmin.core.problem import Problem
from fedmin.core.rows import Rows


def check_features(problem: Any, features: int) -> None:
    """Refuse data of another width than the problem was made for."""
    if features != problem.features:
        raise ValueError(
            f"{type(problem).__name__}(features={problem.features}) does not fit data with "
            f"{features} features"
        )


def check_labels(problem: Any, y: Any, classes: int) -> None:
    """Refuse labels that the problem does not know."""
    y = np.asarray(y)
    if y.dtype.kind not in "iub" or y.ndim != 1:
        raise ValueError(
            f"{type(problem).__name__} needs one whole label 0..{classes - 1} a row, "
            f"got {y.dtype} of shape {y.shape}"
        )
    outside = np.flatnonzero((y < 0) | (y >= classes))
    if len(outside):
        raise ValueError(
            f"{type(problem).__name__} knows labels 0..{classes - 1}; "
            f"row {outside[0]} has label {y[outside[0]]}"
        )


def check_ridge(l2: float | None) -> None:
    """Refuse a negative l2."""
    if l2 is not None:
        checks.between("l2", l2, 0.0)


def ridge(l2: float | None, x: Array) -> Array:
    """l2/2 |x|^2; nothing at all without l2, so that a sparse step stays sparse."""
    return jnp.zeros((), x.dtype) if l2 is None else 0.5 * l2 * jnp.sum(x**2)


def ridge_curvature(l2: float | None) -> Any:
    """The q of `Problem.ridge_weight`."""
    return 0.0 if l2 is None else 0.5 * l2


def cross_entropy(logits: Array, y: Array) -> Array:
    """f[n]: minus the log-probability of each row's label."""
    # classes first: the long axis is then the one that vectorizes, in the product before this too
    return _cross_entropy(logits.T, y)


@jax.custom_jvp
def _cross_entropy(z: Array, y: Array) -> Array:
    return jax.nn.logsumexp(z, axis=0) - jnp.sum(z * _one_hot(z, y), axis=0)


@_cross_entropy.defjvp
def _cross_entropy_jvp(primals, tangents):
    """The derivative by hand, softmax minus one-hot: fewer loops than what follows by itself."""
    (z, y), dz = primals, tangents[0]
    slope = jax.nn.softmax(z, axis=0) - _one_hot(z, y)
    return _cross_entropy(z, y), jnp.sum(slope * dz, axis=0)


def _one_hot(z: Array, y: Array) -> Array:
    return jax.nn.one_hot(y, z.shape[0], dtype=z.dtype, axis=0)


def correct(logits: Array, y: Array) -> Array:
    """bool[n]: whether the largest logit is the label's."""
    return jnp.argmax(logits, axis=1).astype(y.dtype) == y


class Classifier(Problem):
    """Cross-entropy of labels 0..classes-1 from logits; what softmax models and networks share."""

    link = "softmax"

    @abstractmethod
    def predict(self, x: Array, rows: Rows) -> Array:
        """f[n, classes]: logits."""

    def losses(self, x, rows):
        return cross_entropy(self.predict(x, rows), rows.y)[:, None]

    def scores(self, x, rows):
        return {"accuracy": correct(self.predict(x, rows), rows.y)}

    def check(self: Any, features, classes, y):  # subclasses have `features` and `classes`
        check_features(self, features)
        check_labels(self, y, self.classes)
