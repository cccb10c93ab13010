"""Any JAX loss with a pytree of parameters, as a problem in one flat vector."""

import math
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from fedmin.core import checks
from fedmin.core.problem import Problem
from fedmin.core.rows import Rows
from fedmin.problems.network import dense_rows
from fedmin.problems.shared import check_features, check_ridge, ridge, ridge_curvature


class Loss(Problem):
    """What `from_loss` returns: the user's function of the user's parameters."""

    start: Array  # f[d]
    l2: float | None
    loss: Callable = eqx.field(static=True)
    unravel: Callable = eqx.field(static=True)  # f[d] -> the user's parameters
    score: Callable | None = eqx.field(static=True)
    row_shape: tuple[int, ...] | None = eqx.field(static=True)
    named: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)
    declared_convex: bool = eqx.field(static=True)

    @property
    def convex(self):
        return self.declared_convex

    @property
    def parts(self):
        return dict(self.named)

    def tensors(self, x):
        return [x]  # it is the user's function that cuts it

    def init(self, key):
        return self.start

    def params(self, x: Array) -> Any:
        """The user's parameters at x."""
        return self.unravel(x)

    def _shaped(self, rows: Rows) -> Array:
        """The rows as the user's functions want them."""
        values = dense_rows(self, rows)
        return values if self.row_shape is None else values.reshape(-1, *self.row_shape)

    def _each(self, function: Callable, x: Array, rows: Rows) -> Array:
        params = self.unravel(x)
        return jax.vmap(lambda z, y: function(params, z, y))(self._shaped(rows), rows.y)

    def losses(self, x, rows):
        each = self._each(self.loss, x, rows)
        if each.ndim != 1:
            raise ValueError(f"loss must return one number a row, got shape {each.shape[1:]}")
        return each[:, None]

    def regularizer(self, x):
        return ridge(self.l2, x)

    def ridge_weight(self):
        return ridge_curvature(self.l2)

    def scores(self, x, rows):
        if self.score is None:
            return {}
        each = self._each(self.score, x, rows)
        return {"accuracy": each if each.dtype == bool else each.astype(x.dtype)}


class PredictingLoss(Loss):
    """The same with the user's own prediction: what `from_loss(..., predict=...)` returns."""

    features: int = eqx.field(static=True)
    prediction: Callable = eqx.field(static=True)
    declared_link: str = eqx.field(static=True)

    @property
    def link(self) -> str:  # type: ignore[override]
        return self.declared_link

    @property
    def classes(self) -> int:
        """How many logits there are."""
        row = jnp.zeros(self.row_shape or (self.features,), self.start.dtype)
        shape = jax.eval_shape(lambda z: self.prediction(self.unravel(self.start), z), row).shape
        if len(shape) != 1:
            raise ValueError(
                f"link='softmax' needs a logit a class from predict, got an array of shape {shape}"
            )
        return shape[0]

    def check(self, features, classes, y):
        check_features(self, features)

    def predict(self, x: Array, rows: Rows) -> Array:
        """f[n] or f[n, classes]: the user's prediction for each row."""
        params = self.unravel(x)
        return jax.vmap(lambda z: self.prediction(params, z))(self._shaped(rows))


def from_loss(
    loss: Callable[[Any, Array, Array], Array],
    params: Any,
    *,
    l2: float | None = None,
    score: Callable[[Any, Array, Array], Array] | None = None,
    row_shape: tuple[int, ...] | None = None,
    predict: Callable[[Any, Array], Array] | None = None,
    link: Literal["identity", "log", "logit", "softmax"] = "identity",
    features: int | None = None,
    convex: bool = False,
) -> Loss:
    """A problem from `loss(params, z, y)`, the loss on ONE row z with target y.

    `params` is any pytree, an equinox model included; training starts from it. `score` is recorded
    as the accuracy, in the same form. `row_shape` is the shape in which the functions want a row.
    `predict(params, z)` is what the model says of one row, for `result.model`: a number, or with
    link="softmax" a logit a class; `link` says of what ("logit": of two classes, "log": of a mean).
    It needs `features`, the length of a row, unless `row_shape` tells.
    `convex` declares the loss convex in params: certificates then say how far the minimum can be.

    >>> import jax.numpy as jnp, fedmin
    >>> problem = fedmin.from_loss(lambda p, z, y: (p["w"] @ z - y) ** 2, {"w": jnp.zeros(3)})
    >>> problem.size()
    3
    """
    if not callable(loss):
        raise TypeError(f"loss must be a function of (params, row, target), got {loss!r}")
    if predict is not None and not callable(predict):
        raise TypeError(f"predict must be a function of (params, row), got {predict!r}")
    checks.known("link", link, ("identity", "log", "logit", "softmax"))
    checks.is_a("convex", convex, bool, "True")
    check_ridge(l2)
    arrays, rest = eqx.partition(params, eqx.is_inexact_array)
    if not jax.tree.leaves(arrays):
        raise ValueError("params has no array of floating-point numbers to train")
    flat, back = ravel_pytree(arrays)
    paths = jax.tree_util.tree_leaves_with_path(arrays)
    named = tuple((jax.tree_util.keystr(p, simple=True, separator="."), a.shape) for p, a in paths)
    whole = lambda x: eqx.combine(back(x), rest)
    made = (flat, l2, loss, whole, score, row_shape, named, convex)
    if predict is None:
        return Loss(*made)
    if features is None and row_shape is None:
        raise ValueError("predict needs the length of a row: give features=30, or a row_shape")
    wide = math.prod(row_shape) if features is None else features  # type: ignore[arg-type]
    return PredictingLoss(*made, wide, predict, link)
