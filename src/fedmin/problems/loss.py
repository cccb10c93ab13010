"""Any JAX loss with a pytree of parameters, as a problem in one flat vector."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax import Array
from jax.flatten_util import ravel_pytree

from fedmin.core.problem import Problem
from fedmin.core.rows import Rows
from fedmin.problems.network import dense_rows
from fedmin.problems.shared import check_ridge, ridge, ridge_curvature


class Loss(Problem):
    """What `from_loss` returns: the user's function of the user's parameters."""

    start: Array  # f[d]
    l2: float | None
    loss: Callable = eqx.field(static=True)
    unravel: Callable = eqx.field(static=True)  # f[d] -> the user's parameters
    score: Callable | None = eqx.field(static=True)
    row_shape: tuple[int, ...] | None = eqx.field(static=True)
    named: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)

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

    def _each(self, function: Callable, x: Array, rows: Rows) -> Array:
        values = dense_rows(self, rows)
        if self.row_shape is not None:
            values = values.reshape(-1, *self.row_shape)
        params = self.unravel(x)
        return jax.vmap(lambda z, y: function(params, z, y))(values, rows.y)

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


def from_loss(
    loss: Callable[[Any, Array, Array], Array],
    params: Any,
    *,
    l2: float | None = None,
    score: Callable[[Any, Array, Array], Array] | None = None,
    row_shape: tuple[int, ...] | None = None,
) -> Loss:
    """A problem from `loss(params, z, y)`, the loss on ONE row z with target y.

    `params` is any pytree, an equinox model included; training starts from it. `score` is recorded
    as the accuracy, in the same form. `row_shape` is the shape in which the functions want a row.

    >>> import jax.numpy as jnp, fedmin
    >>> problem = fedmin.from_loss(lambda p, z, y: (p["w"] @ z - y) ** 2, {"w": jnp.zeros(3)})
    >>> problem.size()
    3
    """
    if not callable(loss):
        raise TypeError(f"loss must be a function of (params, row, target), got {loss!r}")
    check_ridge(l2)
    arrays, rest = eqx.partition(params, eqx.is_inexact_array)
    if not jax.tree.leaves(arrays):
        raise ValueError("params has no array of floating-point numbers to train")
    flat, back = ravel_pytree(arrays)
    paths = jax.tree_util.tree_leaves_with_path(arrays)
    named = tuple((jax.tree_util.keystr(p, simple=True, separator="."), a.shape) for p, a in paths)
    whole = lambda x: eqx.combine(back(x), rest)
    return Loss(flat, l2, loss, whole, score, row_shape, named)
