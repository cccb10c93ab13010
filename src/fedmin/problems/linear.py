"""Models that are linear in the features: least squares, Huber, Poisson, logistic, softmax.

The weights of a class lie together ([classes, features], measured 1.6 times faster than the other
way round); the biases, if any, come last. l2 spares the biases.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin.core import checks
from fedmin.core.column_problem import FirstLayer
from fedmin.core.layers import Affine, Layer
from fedmin.core.matrix import SparseRows
from fedmin.core.private import Withheld
from fedmin.core.rows import Rows
from fedmin.problems.shared import (
    Classifier,
    check_features,
    check_labels,
    check_ridge,
    correct,
    cross_entropy,
    ridge,
    ridge_curvature,
)

FAR = 80.0  # exp(80) is still far from float32's largest number


class Linear(FirstLayer):
    """A loss of z.x and the target; what regressions with one number a row share."""

    embedding = 1  # on columns a client sends its part of z.x

    features: int = eqx.field(static=True)
    l2: float | None = None
    bias: bool = eqx.field(default=False, static=True)

    def __check_init__(self):
        checks.at_least("features", self.features, 1)
        check_ridge(self.l2)

    @abstractmethod
    def loss(self, prediction: Array, y: Array) -> Array:
        """f[n]: the loss of each row."""

    def init(self, key):
        return jnp.zeros(self.features + self.bias)

    @property
    def parts(self):
        return {"weights": (self.features,), **({"bias": (1,)} if self.bias else {})}

    def predict(self, x: Array, rows: Rows) -> Array:
        """f[n]: z.x, plus the bias if there is one."""
        return rows.x @ x[: self.features] + x[-1] if self.bias else rows.x @ x

    def layers(self, x) -> list[Layer]:
        """The same for other programs."""
        return [Affine(x[None, : self.features], x[self.features :] if self.bias else None)]

    def losses(self, x, rows):
        return self.loss(self.predict(x, rows), rows.y.astype(x.dtype))[:, None]

    def head(self, params, h, rows):
        return self.loss(self._from_parts(params, h), rows.y.astype(h.dtype))[:, None]

    def _from_parts(self, params: Array, h: Array) -> Array:
        """`predict` from the sum of the clients' parts."""
        return h[:, 0] + params[0] if self.bias else h[:, 0]

    def regularizer(self, x):
        return ridge(self.l2, x[: self.features])

    def ridge_weight(self):
        return None if self.bias and self.l2 is not None else ridge_curvature(self.l2)

    def step(self, x, rows, size):
        """Sparse rows add their part straight to x: no gradient of all features is made."""
        if isinstance(rows, Withheld) or not isinstance(rows.x, SparseRows):
            return super().step(x, rows, size)

        def mean(prediction):
            return jnp.dot(rows.weight, self.loss(prediction, rows.y.astype(x.dtype)))

        slope = jax.grad(mean)(self.predict(x, rows)) * (-size / jnp.sum(rows.weight))
        if self.l2 is not None:
            x = x - size * jax.grad(self.regularizer)(x)
        x = rows.x.scatter(slope, x)
        return x.at[-1].add(jnp.sum(slope)) if self.bias else x

    def check(self, features, classes, y):
        check_features(self, features)


class Regression(Linear):
    """A convex loss of z.x and a number; a subclass says which."""

    @property
    def convex(self):
        return True

    def check(self, features, classes, y):
        super().check(features, classes, y)
        if np.ndim(y) != 1:
            raise ValueError(
                f"{type(self).__name__} needs one number a row, got y of shape {np.shape(y)}"
            )


class LeastSquares(Regression):
    """mean of (z.x - y)^2 / 2  +  l2/2 |x|^2.

    >>> import fedmin
    >>> fedmin.LeastSquares(10, l2=0.1).size()
    10
    """

    def loss(self, prediction, y):
        return 0.5 * (prediction - y) ** 2


class Huber(Regression):
    """mean of h(z.x - y)  +  l2/2 |x|^2, h(r) = r^2/2 up to |r| = delta and straight beyond: wild
    targets count less than in least squares.

    >>> import fedmin
    >>> fedmin.Huber(10, delta=0.5).delta
    0.5
    """

    delta: float = 1.0

    def __check_init__(self):
        checks.positive("delta", self.delta)

    def loss(self, prediction, y):
        r = jnp.abs(prediction - y)
        return jnp.where(r <= self.delta, 0.5 * r**2, self.delta * (r - 0.5 * self.delta))


class Poisson(Regression):
    """mean of exp(z.x) - y z.x  +  l2/2 |x|^2: y >= 0 counts events at the rate exp(z.x).

    >>> import fedmin
    >>> fedmin.Poisson(10, bias=True).size()
    11
    """

    link = "log"

    def loss(self, prediction, y):
        # far out, at a rate of 10^34, by the tangent: a wild row has a large loss, not Inf
        near = jnp.minimum(prediction, FAR)
        return jnp.exp(near) * (1 + prediction - near) - y * prediction

    def check(self, features, classes, y):
        super().check(features, classes, y)
        if len(y) and np.min(y) < 0:
            row = int(np.argmin(y))
            raise ValueError(f"Poisson counts events, y >= 0; row {row} has {np.asarray(y)[row]}")


class Logistic(Linear):
    """mean of log(1 + exp(z.x)) - y z.x  +  l2/2 |x|^2, labels 0 and 1.

    >>> import fedmin
    >>> fedmin.Logistic(30, l2=1e-3, bias=True).size()
    31
    """

    link = "logit"

    @property
    def convex(self):
        return True

    def loss(self, prediction, y):
        return jax.nn.softplus(prediction) - y * prediction

    def scores(self, x, rows):
        return _agrees(self.predict(x, rows), rows.y)

    def head_scores(self, params, h, rows):
        return _agrees(self._from_parts(params, h), rows.y)

    def check(self, features, classes, y):
        super().check(features, classes, y)
        check_labels(self, y, 2)


def _agrees(prediction: Array, y: Array) -> dict[str, Array]:
    return {"accuracy": (prediction > 0) == (y > 0)}


class Softmax(FirstLayer, Classifier):
    """mean cross-entropy of softmax(W z)  +  l2/2 |W|^2, labels 0..classes-1.

    >>> import fedmin
    >>> fedmin.Softmax(784, 10).size()
    7840
    """

    features: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    l2: float | None = None
    bias: bool = eqx.field(default=False, static=True)

    @property
    def convex(self):
        return True

    def __check_init__(self):
        checks.at_least("features", self.features, 1)
        checks.at_least("classes", self.classes, 2)
        check_ridge(self.l2)

    def init(self, key):
        return jnp.zeros(self.classes * (self.features + self.bias))

    @property
    def parts(self):
        bias = {"bias": (self.classes,)} if self.bias else {}
        return {"weights": (self.classes, self.features), **bias}

    def predict(self, x: Array, rows: Rows) -> Array:
        """f[n, classes]: logits."""
        weights = x[: self.classes * self.features].reshape(self.classes, self.features)
        logits = rows.x @ weights.T
        return logits + x[self.classes * self.features :] if self.bias else logits

    def layers(self, x) -> list[Layer]:
        """The same for other programs."""
        count = self.classes * self.features
        weights = x[:count].reshape(self.classes, self.features)
        return [Affine(weights, x[count:] if self.bias else None)]

    @property
    def embedding(self) -> int:
        """On columns a client sends its part of the logits."""
        return self.classes

    def head(self, params, h, rows):
        return cross_entropy(h + params if self.bias else h, rows.y)[:, None]

    def head_scores(self, params, h, rows):
        return {"accuracy": correct(h + params if self.bias else h, rows.y)}

    def regularizer(self, x):
        return ridge(self.l2, x[: self.classes * self.features])

    def ridge_weight(self):
        return None if self.bias and self.l2 is not None else ridge_curvature(self.l2)
