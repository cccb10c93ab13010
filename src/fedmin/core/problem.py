"""A problem: what is lost on a row of data, as a function of one flat vector.

A problem gives `losses`; values, gradients and products with the Hessian follow, once for all.
Column 0 of `losses` is the objective, columns 1..M are constraints, each a mean that must be <= 0.
"""

import inspect
import math
from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin.core.domain import Domain, Free
from fedmin.core.private import Withheld, refuse_private
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows, Shard


class Problem(eqx.Module):
    """minimise  mean of losses(x, row)[0] + regularizer(x)  over x in `domain`.

    With rows z_1..z_n of weight v_1..v_n, a mean is sum_j v_j losses(x, z_j) / sum_j v_j.

    >>> import jax.numpy as jnp, numpy as np, fedmin
    >>> class Distance(fedmin.Problem):
    ...     def init(self, key):
    ...         return jnp.zeros(1)
    ...     def losses(self, x, rows):
    ...         return jnp.abs(x - rows.y)[:, None]
    >>> float(Distance().value(jnp.ones(1), fedmin.rows(np.zeros((2, 1)), [2.0, 4.0])))
    2.0
    """

    window: ClassVar[int] = 512  # rows that are computed at a time, where there are more
    # what `predict`, where a problem has it, gives: "identity", "log" of a mean, "logit", "softmax"
    link: ClassVar[str] = "identity"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # it would never be called, and the surrogates would miss the regularizer
        if "curvature" in vars(cls) and "curvature" not in inspect.get_annotations(cls):
            raise TypeError(f"{cls.__name__}.curvature is called ridge_weight now: rename it")

    @abstractmethod
    def init(self, key: Array) -> Array:
        """A first x, f[d]."""

    @abstractmethod
    def losses(self, x: Array, rows: Rows) -> Array:
        """f[n, 1 + M]: the objective's and the constraints' loss on each row."""

    @property
    def domain(self) -> Domain:
        """Where x may lie."""
        return Free()

    @property
    def num_constraints(self) -> int:
        """M."""
        return 0

    @property
    def tolerance(self) -> float:
        """By how much a constraint may be above 0 and still count as met."""
        return 1e-3

    @property
    def convex(self) -> bool:
        """Whether the objective is known to be convex."""
        return False

    @property
    def limits_convex(self) -> bool:
        """Whether all constraints are known to be convex."""
        return not self.num_constraints

    @property
    def bare(self) -> bool:
        """Whether the objective is the regularizer alone, without any data in it."""
        return False

    def bounds(self) -> tuple[Any, ...]:
        """U_1..U_M: what constraint m's mean is compared with, where it is a mean minus U_m."""
        return (0.0,) * self.num_constraints

    def regularizer(self, x: Array) -> Array:
        """What is added to the objective's mean."""
        return jnp.zeros((), x.dtype)

    def ridge_weight(self) -> Any:
        """The number q with regularizer(x) = q |x|^2, or None if it is of another form."""
        return 0.0 if type(self).regularizer is Problem.regularizer else None

    @property
    def parts(self) -> dict[str, tuple[int, ...]]:
        """The tensors that x is made of, one after the other: their names and shapes."""
        return {"x": (self.size(),)}

    def tensors(self, x: Array) -> list[Array]:
        """What x is made of, one after the other."""
        return cut(x, tuple(self.parts.values()))

    def scores(self, x: Array, rows: Rows) -> dict[str, Array]:
        """What else can be said of each row, by name: its mean over the rows is recorded.

        f[n]; or bool[n], what is right of a row: these are counted, and 100 of 100 are 1 exactly.
        """
        return {}

    def check(self, features: int, classes: int | None, y: Any) -> None:
        """Refuse data that do not fit, before any work."""

    def tally(self, rows: Rows, roster: Roster) -> np.ndarray:
        """f[2, k]: weights and numbers of rows that must be known before round 0, summed over a
        client's own rows; such as those of each group. Most problems need none."""
        return np.zeros((2, 0))

    def fitted(self, counts: np.ndarray, roster: Roster) -> "Problem":
        """The same, told what `tally` comes to over all rows: shares of the whole, numbers of rows.

        Refuses counts that it cannot work with, such as a group without rows.
        """
        return self

    def limit_names(self) -> tuple[str, ...]:
        """What each constraint is on, in a word or two."""
        return tuple(f"F_{m + 1}" for m in range(self.num_constraints))

    def limit_sizes(self) -> tuple[int | None, ...]:
        """How many rows each constraint is on, None where it is on all of them."""
        return (None,) * self.num_constraints

    # derived, once for all problems

    def totals(self, x: Array, rows: Rows) -> Array:
        """f[1 + M]: the weighted sums of the losses, without the regularizer."""
        return jnp.dot(rows.weight, self.losses(x, rows))

    def value(self, x: Array, rows: Rows) -> Array:
        """The objective on these rows."""
        return self.totals(x, rows)[0] / jnp.sum(rows.weight) + self.regularizer(x)

    def constraints(self, x: Array, rows: Rows) -> Array:
        """f[M]: the constraints on these rows; each should be <= 0."""
        return self.totals(x, rows)[1:] / jnp.sum(rows.weight)

    def grad(self, x: Array, rows: Rows | Shard | Withheld) -> Array:
        """The gradient of `value`, on some rows or on all of a client's."""
        if isinstance(rows, Withheld):
            return rows.gradient(self, x) + jax.grad(self.regularizer)(x)
        if isinstance(rows, Rows):
            if rows.count <= self.window:
                return jax.grad(self.value)(x, rows)
            rows = Shard.whole(rows)

        # by the tensors, joined once after the loop: within it a cut of x costs as much as the work
        def total(tensors, some):
            return self.totals(_join(tensors), some)[0]

        def part(some):
            return jax.grad(total)(self.tensors(x), some), jnp.sum(some.weight)

        sums, weight = rows.sum(part, self.window)
        return _join(sums) / weight + jax.grad(self.regularizer)(x)

    def sums(self, x: Array, rows: Rows) -> tuple[Array, list[list[Array]], Array]:
        """The weighted sums f[1 + M] of all losses, their 1 + M gradients, and the weight.

        Without the regularizer; and without the objective where it is `bare`. Gradients are by the
        tensors of x, for the caller to join once and not for every batch: see `stacked`.
        """

        def total(k, tensors):
            return jnp.dot(rows.weight, self.losses(_join(tensors), rows)[:, k])

        # a function each, not rows of one: the compiler then sees where two gradients are the same
        first = int(self.bare)
        wanted = range(first, first + self.num_sums)
        found = [jax.value_and_grad(partial(total, k))(self.tensors(x)) for k in wanted]
        sums, slopes = zip(*found, strict=True)
        flat = [[tensor.ravel() for tensor in slope] for slope in slopes]
        return jnp.stack(sums), flat, jnp.sum(rows.weight)

    @property
    def num_sums(self) -> int:
        """How many functions `sums` has: 1 + M, or M without the objective."""
        return 1 + self.num_constraints - self.bare

    def limits_of(self, sums: Any) -> Any:
        """The constraints' part of what `sums` gives, values or gradients."""
        return sums[self.num_sums - self.num_constraints :]

    def linearize(self, x: Array, rows: Rows | Withheld) -> tuple[Array, list[list[Array]]]:
        """`sums` as means: values f[1 + M] and 1 + M gradients by the tensors of x."""
        if isinstance(rows, Withheld):
            return rows.linearized(self, x)
        if rows.count <= self.window:
            # weights that add up to one: the gradients then need not be divided
            shares = rows.weighing(rows.weight / jnp.sum(rows.weight))
            return self.sums(x, shares)[:2]
        sums, slopes, weight = Shard.whole(rows).sum(partial(self.sums, x), self.window)
        return sums / weight, jax.tree.map(lambda a: a / weight, slopes)

    def step(self, x: Array, rows: Rows | Withheld, size: Array) -> Array:
        """x - size * grad(x, rows); a problem may have a cheaper way than by the gradient."""
        return x - size * self.grad(x, rows)

    def hvp(self, x: Array, v: Array, rows: Rows | Shard) -> Array:
        """The Hessian of `value` times v."""
        refuse_private("products with the Hessian", rows)
        return jax.jvp(lambda u: self.grad(u, rows), (x,), (v,))[1]

    def hessian(self, x: Array, rows: Rows | Shard) -> Array:
        """f[d, d]: the Hessian of `value`, on some rows or on all of a client's."""

        def part(some):
            slope = jax.grad(lambda u: self.totals(u, some)[0])
            return jax.jacfwd(slope)(x), jnp.sum(some.weight)

        rows = Shard.whole(rows) if isinstance(rows, Rows) else rows
        sums, weight = rows.sum(part, self.window)
        return sums / weight + jax.jacfwd(jax.grad(self.regularizer))(x)

    def jacobian(self, x: Array, rows: Rows) -> Array:
        """f[M, d]: the gradients of the constraints."""
        return jax.jacrev(self.constraints)(x, rows)

    def size(self) -> int:
        """d, the length of x."""
        return jax.eval_shape(self.init, jax.random.key(0)).shape[0]


def cut(x: Array, shapes: tuple[tuple[int, ...], ...]) -> list[Array]:
    """x as tensors of these shapes, one after the other."""
    # one split, not a slice each: its derivative is one concatenation
    parts = jax.lax.split(x, [math.prod(shape) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def stacked(gradients: list[list[Array]]) -> Array:
    """Gradients by the tensors of x, as rows f[count, d]."""
    return jnp.stack([_join(tensors) for tensors in gradients])


def _join(tensors: list[Array]) -> Array:
    return jnp.concatenate([tensor.ravel() for tensor in tensors])
