"""Constraints on any problem: means over all rows that must be <= 0.

    fedmin.subject_to(problem, fedmin.GroupLossAtMost((0.4, 0.4), by="groups"))
    fedmin.smallest(problem, loss_at_most=0.13)

A constraint says what each row adds to its mean; it sees the model, the rows and the problem's own
loss on each of them.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin.core import checks
from fedmin.core.column_problem import SplitProblem
from fedmin.core.problem import Problem
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows
from fedmin.core.wrapped import Wrapped


class Constraint(eqx.Module):
    """One or several means over all rows, each of which must be <= 0.

    >>> import fedmin
    >>> isinstance(fedmin.LossAtMost(0.1), fedmin.Constraint), fedmin.LossAtMost(0.1).count
    (True, 1)
    """

    @property
    def given(self) -> "Constraint":
        """As a person gave it: what it was before rows were counted."""
        return self

    @property
    def count(self) -> int:
        """How many they are."""
        return 1

    @property
    def of_loss(self) -> bool:
        """Whether the loss and the label say all: then it works on columns too."""
        return False

    def convex(self, problem: Problem) -> bool:
        """Whether its means are known to be convex, for a problem with this loss."""
        return False

    def bounds(self) -> tuple[Any, ...]:
        """The numbers U that are subtracted from its means, 0 where there is no such number."""
        return (0.0,) * self.count

    @property
    def names(self) -> tuple[str, ...]:
        """What each of them is on, in a word or two."""
        return (type(self).__name__,) * self.count

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """How many rows each of them is on, None where it is on all of them."""
        return (None,) * self.count

    def counted(self, roster: Roster) -> int:
        """k: how many kinds of rows it must know the number of before round 0."""
        return 0

    def tally(self, rows: Rows, roster: Roster) -> np.ndarray:
        """f[2, k]: the weights of a client's rows of each kind, and how many they are."""
        return np.zeros((2, 0))

    def fitted(self, counts: np.ndarray, roster: Roster) -> "Constraint":
        """The same, told what `tally` comes to over all rows; refuses what it cannot work with."""
        return self

    def check(self, features: int) -> None:
        """Refuse rows of so many features, if they do not fit."""

    @abstractmethod
    def values(self, x: Array, rows: Rows, loss: Array) -> Array:
        """f[n, count]: what each row adds, given the problem's loss f[n] on it."""


class LossAtMost(Constraint):
    """The mean loss is at most `limit`.

    >>> import fedmin
    >>> fedmin.LossAtMost(0.13)
    LossAtMost(limit=0.13)
    """

    limit: float

    def __check_init__(self):
        checks.between("limit", self.limit, -np.inf)

    @property
    def of_loss(self) -> bool:
        return True

    def convex(self, problem):
        return problem.convex

    @property
    def names(self):
        return ("loss",)

    def bounds(self):
        return (self.limit,)

    def values(self, x, rows, loss):
        return (loss - self.limit)[:, None]


class NormAtMost(Constraint):
    """|x|^2 <= radius^2, as a constraint among others (not a domain).

    >>> import fedmin
    >>> fedmin.NormAtMost(2.0).radius
    2.0
    """

    radius: float

    def __check_init__(self):
        checks.positive("radius", self.radius)

    def convex(self, problem):
        return True

    @property
    def names(self):
        return ("|x|^2",)

    def bounds(self):
        return (self.radius**2,)

    def values(self, x, rows, loss):
        return jnp.broadcast_to(jnp.sum(x**2) - self.radius**2, loss.shape)[:, None]


class RowMean(Constraint):
    """A function of your own, f[n] = function(x, rows), whose mean must be <= 0.

    >>> import fedmin
    >>> fedmin.RowMean(lambda x, rows: rows.x @ x - 1.0).count
    1
    """

    function: Callable[[Array, Rows], Array] = eqx.field(static=True)

    def values(self, x, rows, loss):
        each = self.function(x, rows)
        if each.shape != loss.shape:
            raise ValueError(
                f"a constraint's function must return one number a row, got shape {each.shape}"
            )
        return each[:, None]


class Constrained(Wrapped):
    """A problem under constraints; made by `subject_to` and `smallest`."""

    limits: tuple[Constraint, ...]
    goal: Literal["loss", "norm"] = eqx.field(default="loss", static=True)
    within: float = eqx.field(default=1e-3, static=True)

    def __check_init__(self):
        checks.is_a("problem", self.inner, Problem, "Logistic(30)")
        if not self.limits:
            raise ValueError("give at least one constraint, such as LossAtMost(0.1)")
        for limit in self.limits:
            checks.is_a("constraint", limit, Constraint, "LossAtMost(0.1)")
        if self.inner.num_constraints:
            raise ValueError(
                f"{type(self.inner).__name__} has constraints already; give all of them at once"
            )
        checks.positive("tolerance", self.within)

    @property
    def num_constraints(self) -> int:
        return sum(limit.count for limit in self.limits)

    @property
    def limits_convex(self) -> bool:
        return all(limit.convex(self.inner) for limit in self.limits)

    @property
    def tolerance(self) -> float:
        return self.within

    @property
    def bare(self) -> bool:
        return self.goal == "norm"

    def losses(self, x, rows):
        return self._with_limits(x, rows, self.inner.losses(x, rows)[:, 0])

    def bounds(self):
        return tuple(bound for limit in self.limits for bound in limit.bounds())

    def limit_names(self):
        return tuple(name for limit in self.limits for name in limit.names)

    def limit_sizes(self):
        return tuple(size for limit in self.limits for size in limit.sizes)

    def tally(self, rows, roster):
        return np.concatenate([limit.tally(rows, roster) for limit in self.limits], axis=1)

    def fitted(self, counts, roster):
        edges = np.cumsum([limit.counted(roster) for limit in self.limits])
        parts = np.split(counts, edges[:-1], axis=1)
        each = [limit.fitted(part, roster) for limit, part in zip(self.limits, parts, strict=True)]
        return dataclasses.replace(self, limits=tuple(each))

    def _with_limits(self, x: Any, rows: Rows, loss: Array) -> Array:
        first = jnp.zeros_like(loss) if self.bare else loss
        limits = [limit.values(x, rows, loss) for limit in self.limits]
        return jnp.concatenate([first[:, None], *limits], axis=1)

    def regularizer(self, x):
        return jnp.sum(x**2) if self.bare else self.inner.regularizer(x)

    def ridge_weight(self):
        return 1.0 if self.bare else self.inner.ridge_weight()

    def check(self, features, classes, y):
        super().check(features, classes, y)
        for limit in self.limits:
            limit.check(features)


class SplitConstrained(Constrained, SplitProblem):
    """The same on columns: a client that knows the embeddings and the labels knows the loss."""

    @property
    def _split(self) -> SplitProblem:
        return cast(SplitProblem, self.inner)

    @property
    def additive(self) -> bool:  # type: ignore[override]
        return self._split.additive

    def cut(self, x, starts, sizes, width):
        return self._split.cut(x, starts, sizes, width)

    def join(self, head, blocks, starts, sizes):
        return self._split.join(head, blocks, starts, sizes)

    def embed(self, block, rows):
        return self._split.embed(block, rows)

    def head(self, params, h, rows):
        return self._with_limits(None, rows, self._split.head(params, h, rows)[:, 0])

    def head_scores(self, params, h, rows):
        return self._split.head_scores(params, h, rows)

    def check_split(self):
        for limit in self.limits:
            if not limit.of_loss:
                raise ValueError(
                    f"{limit} needs whole rows or the whole model, which no client has where "
                    f"columns are split; LossAtMost and GroupLossAtMost of labels do not"
                )


def _constrained(problem, limits, goal, tolerance) -> Constrained:
    kind = SplitConstrained if isinstance(problem, SplitProblem) else Constrained
    return kind(problem, limits, goal, tolerance)


def subject_to(problem: Problem, *limits: Constraint, tolerance: float = 1e-3) -> Constrained:
    """The same objective, under constraints; one is met if its mean is at most `tolerance`.

    >>> import fedmin
    >>> fedmin.subject_to(fedmin.Logistic(4), fedmin.NormAtMost(1.0)).num_constraints
    1
    """
    return _constrained(problem, limits, "loss", tolerance)


def smallest(problem: Problem, *, loss_at_most: float, tolerance: float = 1e-3) -> Constrained:
    """minimize |x|^2 subject to the problem's mean loss being at most a limit.

    The problem's own regularizer plays no part.

    >>> import fedmin
    >>> fedmin.smallest(fedmin.MLP(784, 10), loss_at_most=0.13).bare
    True
    """
    return _constrained(problem, (LossAtMost(loss_at_most),), "norm", tolerance)
