"""Models that are linear in the features: least squares, logistic and softmax regression.

The weights of a class lie together ([classes, features], measured 1.6 times faster than the other
way round); the biases, if any, come last. l2 spares the biases.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin import checks
from fedmin.problem import Problem
from fedmin.rows import Rows


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
    """f[n]: 1 where the largest logit is the label's."""
    return (jnp.argmax(logits, axis=1).astype(y.dtype) == y).astype(logits.dtype)


class Classifier(Problem):
    """Cross-entropy of labels 0..classes-1 from logits; what softmax models and networks share."""

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


class LeastSquares(Problem):
    """mean of (z.x - y)^2 / 2  +  l2/2 |x|^2.

    >>> import fedmin
    >>> fedmin.LeastSquares(10, l2=0.1).size()
    10
    """

    features: int = eqx.field(static=True)
    l2: float = 0.0
    bias: bool = eqx.field(default=False, static=True)

    def __check_init__(self):
        checks.at_least("features", self.features, 1)
        checks.between("l2", self.l2, 0.0)

    def init(self, key):
        return jnp.zeros(self.features + self.bias)

    def predict(self, x: Array, rows: Rows) -> Array:
        """f[n]: the model's value on each row."""
        return linear(x, rows, self.features, self.bias)

    def losses(self, x, rows):
        return 0.5 * (self.predict(x, rows) - rows.y.astype(x.dtype))[:, None] ** 2

    def regularizer(self, x):
        return 0.5 * self.l2 * jnp.sum(x[: self.features] ** 2)

    def check(self, features, classes, y):
        check_features(self, features)
        if np.ndim(y) != 1:
            raise ValueError(f"LeastSquares needs one number a row, got y of shape {np.shape(y)}")


class Logistic(Problem):
    """mean of log(1 + exp(z.x)) - y z.x  +  l2/2 |x|^2, labels 0 and 1.

    >>> import fedmin
    >>> fedmin.Logistic(30, l2=1e-3, bias=True).size()
    31
    """

    features: int = eqx.field(static=True)
    l2: float = 0.0
    bias: bool = eqx.field(default=False, static=True)

    def __check_init__(self):
        checks.at_least("features", self.features, 1)
        checks.between("l2", self.l2, 0.0)

    def init(self, key):
        return jnp.zeros(self.features + self.bias)

    def predict(self, x: Array, rows: Rows) -> Array:
        """f[n]: the log-odds of label 1."""
        return linear(x, rows, self.features, self.bias)

    def losses(self, x, rows):
        odds = self.predict(x, rows)
        return (jax.nn.softplus(odds) - rows.y.astype(x.dtype) * odds)[:, None]

    def regularizer(self, x):
        return 0.5 * self.l2 * jnp.sum(x[: self.features] ** 2)

    def scores(self, x, rows):
        return {"accuracy": ((self.predict(x, rows) > 0) == (rows.y > 0)).astype(x.dtype)}

    def check(self, features, classes, y):
        check_features(self, features)
        check_labels(self, y, 2)


class Softmax(Classifier):
    """mean cross-entropy of softmax(W z)  +  l2/2 |W|^2, labels 0..classes-1.

    >>> import fedmin
    >>> fedmin.Softmax(784, 10).size()
    7840
    """

    features: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    l2: float = 0.0
    bias: bool = eqx.field(default=False, static=True)

    def __check_init__(self):
        checks.at_least("features", self.features, 1)
        checks.at_least("classes", self.classes, 2)
        checks.between("l2", self.l2, 0.0)

    def init(self, key):
        return jnp.zeros(self.classes * (self.features + self.bias))

    def predict(self, x: Array, rows: Rows) -> Array:
        """f[n, classes]: logits."""
        weights = x[: self.classes * self.features].reshape(self.classes, self.features)
        logits = rows.x @ weights.T
        return logits + x[self.classes * self.features :] if self.bias else logits

    def regularizer(self, x):
        return 0.5 * self.l2 * jnp.sum(x[: self.classes * self.features] ** 2)


def linear(x: Array, rows: Rows, features: int, bias: bool) -> Array:
    """f[n]: z.x, plus the last entry of x if there is a bias."""
    return rows.x @ x[:features] + x[-1] if bias else rows.x @ x
