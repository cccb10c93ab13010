"""What is recorded of a run.

A metric's `measure` is a sum over rows, so that it can be taken a window, a device or a site at a
time; `finish` turns the sums into one number. Where columns are split nobody has a whole row, and
the sums come from an estimate of the losses (`of_estimate`).
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin.core.payload import Tally
from fedmin.core.problem import Problem, stacked
from fedmin.core.rows import Rows


class Metric(eqx.Module):
    """Something measured of a model on rows, weighted so that the weights sum to one.

    >>> import fedmin
    >>> isinstance(fedmin.Objective(), fedmin.Metric)
    True
    """

    on: eqx.AbstractVar[Literal["train", "test"]]
    # what it needs where columns are split: "values", "gradients", "scores"; "rows": it cannot be
    needs: ClassVar[frozenset[str]] = frozenset({"rows"})
    by_site: ClassVar[bool] = False  # whether it has a number for each site

    def fitted(self, problem: Problem, roster: Any) -> "Metric":
        """The same, as a run with this roster takes it; refuses what the roster does not have."""
        return self

    @abstractmethod
    def names(self, problem: Problem, rows: Rows) -> tuple[str, ...]:
        """The history's columns."""

    def rising(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those of its columns that are better the higher they are."""
        return ()

    @abstractmethod
    def measure(self, problem: Problem, x: Array, rows: Rows) -> Any:
        """A weighted sum over the rows."""

    @abstractmethod
    def finish(
        self, problem: Problem, x: Array, sums: Any, reported: dict[str, Any]
    ) -> tuple[Array, ...]:
        """One number a column, from the means over all rows and what the method reports.

        A `Tally` is not divided by anything: it comes as the two counts f[2].
        """

    def of_estimate(self, problem: Problem, estimate: Any) -> Any:
        """What `measure` sums to, from `values` f[1 + M], `gradients` f[1 + M, d] and `scores`."""
        raise TypeError(f"{self} cannot be measured where columns are split")


class Objective(Metric):
    """F(x) = sum_i p_i f_i(x) + r(x) on the clients' rows; with a penalty where there is one.

    >>> import fedmin
    >>> fedmin.Objective()
    Objective()
    """

    on: Literal["train", "test"] = eqx.field(default="train", static=True)

    needs = frozenset({"values"})

    def names(self, problem, rows):
        return ("objective" if self.on == "train" else "test_objective",)

    def measure(self, problem, x, rows):
        return problem.totals(x, rows)[0]

    def finish(self, problem, x, sums, reported):
        return (sums + problem.regularizer(x) + problem.domain.value(x),)

    def of_estimate(self, problem, estimate):
        return jnp.zeros((), estimate.values.dtype) if problem.bare else estimate.values[0]


class OfGradient(Metric):
    """What follows from g = grad F(x): a subclass has its name and number(problem, x, g)."""

    on: Literal["train", "test"] = eqx.field(default="train", static=True)
    number: eqx.AbstractClassVar[Any]
    needs = frozenset({"gradients"})

    def measure(self, problem, x, rows):
        return jax.grad(lambda u: problem.totals(u, rows)[0])(x)

    def finish(self, problem, x, sums, reported):
        return (self.number(problem, x, sums + jax.grad(problem.regularizer)(x)),)

    def of_estimate(self, problem, estimate):
        slopes = estimate.gradients
        return jnp.zeros(slopes.shape[1], slopes.dtype) if problem.bare else slopes[0]


class GradientNorm(OfGradient):
    """|grad F(x)| on the clients' rows.

    >>> import fedmin
    >>> fedmin.GradientNorm()
    GradientNorm()
    """

    def names(self, problem, rows):
        return ("gradient_norm" if self.on == "train" else "test_gradient_norm",)

    def number(self, problem, x, g):
        return jnp.linalg.norm(g)


class Optimality(Metric):
    """How far a model is from a KKT point, on the clients' rows.

    constraint         F_m(x), one column a constraint
    violation          the largest of them, or 0
    stationarity       |g|, g = grad F_0(x) + sum nu_m grad F_m(x), nu the method's multipliers;
                       over a convex set |x - P(x - g)|, over an L0Ball |g| on its support
    complementarity    the largest |nu_m F_m(x)|

    Without constraints only stationarity is left. On test rows the
    names begin with test_: which model meets the constraints is a matter of the clients' rows.

    >>> import fedmin
    >>> problem = fedmin.subject_to(fedmin.Logistic(2), fedmin.NormAtMost(1.0))
    >>> fedmin.Optimality().names(problem, None)
    ('constraint', 'violation', 'stationarity', 'complementarity')
    """

    on: Literal["train", "test"] = eqx.field(default="train", static=True)
    needs = frozenset({"gradients"})

    def names(self, problem, rows):
        found: tuple[str, ...] = ("stationarity",)
        if problem.num_constraints:
            each = numbered("constraint", problem.num_constraints)
            found = (*each, "violation", "stationarity", "complementarity")
        return found if self.on == "train" else tuple(f"test_{name}" for name in found)

    def measure(self, problem, x, rows):
        values, slopes, _ = problem.sums(x, rows)
        return values, stacked(slopes)

    def of_estimate(self, problem, estimate):
        return estimate.values, estimate.gradients

    def finish(self, problem, x, sums, reported):
        values, slopes = sums
        slope = jax.grad(problem.regularizer)(x)
        if not problem.bare:
            slope = slope + slopes[0]
        if not problem.num_constraints:
            return (problem.domain.residual(x, slope),)
        limits, nu = problem.limits_of(values), reported["multiplier"]
        slope = slope + nu @ problem.limits_of(slopes)
        worst = jnp.maximum(jnp.max(limits), 0)
        stationarity = problem.domain.residual(x, slope)
        return (*limits, worst, stationarity, jnp.max(jnp.abs(nu * limits)))


class WolfeGap(OfGradient):
    """The most that <grad F(x), x - u> can be over u in the problem's set, on the clients' rows.

    Of the true F at the server's x, whatever the method minimizes. It is 0 at a stationary point
    only, and for a convex F no less than F(x) - min F.

    >>> import fedmin
    >>> fedmin.WolfeGap().names(None, None)
    ('gap',)
    """

    def names(self, problem, rows):
        return ("gap" if self.on == "train" else "test_gap",)

    def number(self, problem, x, g):
        return problem.domain.gap(x, g)


class Scores(Metric):
    """The problem's own scores (accuracy), on the test rows or the clients' rows.

    >>> import fedmin
    >>> fedmin.Scores(on="train")
    Scores(on='train')
    """

    on: Literal["train", "test"] = eqx.field(default="test", static=True)
    needs = frozenset({"scores"})

    def names(self, problem, rows):
        x = jax.eval_shape(problem.init, jax.random.key(0))
        found = jax.eval_shape(problem.scores, x, rows)
        prefix = "" if self.on == "test" else "train_"
        return tuple(prefix + name for name in sorted(found))

    def rising(self, names):
        return names

    def measure(self, problem, x, rows):
        scores = problem.scores(x, rows)
        return tuple(summed(scores[name], rows.weight) for name in sorted(scores))

    def of_estimate(self, problem, estimate):
        return tuple(estimate.scores[name] for name in sorted(estimate.scores))

    def finish(self, problem, x, sums, reported):
        return tuple(each[0] / (each[0] + each[1]) if each.ndim else each for each in sums)


def summed(score: Array, weight: Any) -> Any:
    """The weighted sum of a score; what is right or wrong is counted."""
    return Tally.of(score, weight) if score.dtype == bool else weight @ score


class Support(Metric):
    """Which entries of the model are not 0: how many, and how well they fit the true ones.

    precision    of the model's entries, the share that are true
    recall       of the true entries, the share that the model has
    f1           2 precision recall / (precision + recall)

    `truth` has the indices of the true entries in x; without it there is only the number.

    >>> import fedmin, jax.numpy as jnp
    >>> metric = fedmin.Support([0, 1, 2, 3])
    >>> found = metric.finish(None, jnp.array([5.0, 1.0, 0.0, 0.0, 2.0, 0.0]), (), {})
    >>> [round(float(a), 3) for a in found]
    [3.0, 0.667, 0.5, 0.571]
    """

    truth: np.ndarray | None = eqx.field(
        default=None, converter=lambda a: None if a is None else np.asarray(a)
    )
    on: Literal["train", "test"] = eqx.field(default="train", static=True)
    needs = frozenset()  # of the model alone

    def __check_init__(self):
        t = self.truth
        if t is not None and (t.ndim != 1 or t.dtype.kind not in "iu" or not t.size):
            raise ValueError(f"truth must have the indices of the true entries, got {t!r}")

    def names(self, problem, rows):
        return ("nonzeros", *(() if self.truth is None else ("precision", "recall", "f1")))

    def rising(self, names):
        return names[1:]  # all but the number of entries

    def measure(self, problem, x, rows):
        return ()

    def finish(self, problem, x, sums, reported):
        kept = (x != 0).astype(x.dtype)
        count = jnp.sum(kept)
        if self.truth is None:
            return (count,)
        hits = jnp.sum(kept[jnp.asarray(self.truth)])
        true = len(self.truth)
        return count, hits / jnp.maximum(count, 1), hits / true, 2 * hits / (count + true)


class Measure(Metric):
    """A function of the problem and the model, under a name of your own.

    >>> import fedmin, jax.numpy as jnp
    >>> fedmin.Measure("size", lambda problem, x: jnp.linalg.norm(x)).name
    'size'
    """

    name: str = eqx.field(static=True)  # type: ignore[misc]
    function: Callable[[Problem, Array], Array] = eqx.field(static=True)  # type: ignore[misc]
    on: Literal["train", "test"] = eqx.field(default="train", static=True)
    higher: bool = eqx.field(default=False, static=True)  # whether higher is better
    needs = frozenset()  # of the model alone

    def names(self, problem, rows):
        return (self.name,)

    def rising(self, names):
        return names if self.higher else ()

    def measure(self, problem, x, rows):
        return ()

    def finish(self, problem, x, sums, reported):
        return (jnp.asarray(self.function(problem, x), x.dtype),)


def numbered(name: str, count: int) -> tuple[str, ...]:
    """A column each: name, or name_1, name_2, ..."""
    return (name,) if count == 1 else tuple(f"{name}_{m + 1}" for m in range(count))


# by the names they have in a file; Measure takes a function, which a file cannot hold
METRICS: dict[str, type[Metric]] = {
    kind.__name__.lower(): kind
    for kind in (Objective, Scores, GradientNorm, WolfeGap, Optimality, Support)
}
