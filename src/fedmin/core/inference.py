"""What sites add up, in double precision, so that a statistician can judge a linear model.

With rows z (a 1 after them for the bias), weights v, scores s = z.x, means mu(s), variances w(s):

    slope          sum v z (y - mu)              of the log-likelihood
    information    sum v w z z'                  Fisher's
    meat           g g', g the site's own slope  for errors that are alike within a site
    totals         sum v, the log-likelihood, the deviance

The server sends x, takes Newton steps with the sums of slopes and information until x is the
maximum of the likelihood to the last digits, and asks for all sums there once. Where a set or
constraints hold the model it stays where it is, and only its entries that are not 0 count.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedmin.core.domain import Free
from fedmin.core.matrix import Dense
from fedmin.core.model_origin import unwrapped
from fedmin.core.problem import Problem

STEPS = 4  # of Newton's: from a model with six digits to one with all of them, and one more
AT_ONCE = 4096  # rows
MOST = 1000  # parameters: sums of their products leave every site several times
FAMILIES = ("LeastSquares", "Logistic", "Poisson")


class Inference(NamedTuple):
    """What is known of a model's parameters, on the scale of the prepared columns."""

    estimate: np.ndarray  # f64[p]
    fisher: np.ndarray  # f64[a, a]: the covariance of the entries that count
    clustered: np.ndarray | None  # the same, of rows that are alike within a site; of 2 sites on
    active: np.ndarray  # i[a]: the entries that count
    link: str
    bias: bool
    rows: float  # the sum of their weights
    sites: int
    log_likelihood: float
    deviance: float
    distance: float  # of the run's model from the estimate, in standard errors, at most
    notes: tuple[str, ...] = ()


def free(problem: Problem) -> bool:
    """Whether nothing holds a model back from the maximum of the likelihood."""
    return isinstance(problem.domain, Free) and not problem.num_constraints


def check_inference(problem: Problem, roster: Any, channel: Any, noisy: bool) -> None:
    """Refuse statistics that there are none of, or that would go around the channel."""
    inner: Any = unwrapped(problem)
    name, own = type(inner).__name__, type(inner).__module__.startswith("fedmin.")
    why = ""
    if name not in FAMILIES or not own:
        why = f"statistics are of {', '.join(FAMILIES)}; the problem is {name}"
    elif roster.owners is not None:
        why = "statistics take sums over whole rows, and nobody has one where columns are split"
    elif inner.l2:
        why = (
            f"statistics are of the maximum of the likelihood; {name} has l2 = {inner.l2:g}, which "
            f"moves the model away from it: leave l2 out"
        )
    elif inner.size() > MOST:
        why = f"statistics are of at most {MOST} parameters; the model has {inner.size()}"
    elif noisy or channel.hides or channel.for_evaluation() is not None:
        why = (
            f"statistics are sums in double precision that the server sees of each site, without "
            f"noise; {channel} does not carry them: give Plain(), or leave statistics out"
        )
    if why:
        raise ValueError(why)


def site_sums(problem: Any, x: np.ndarray, rows: Any, all_of_them: bool) -> dict[str, np.ndarray]:
    """A site's part, f64: `slope` and `information`; with all of them also `meat` and `totals`."""
    inner, size = unwrapped(problem), len(x)
    slope, information, totals = np.zeros(size), np.zeros((size, size)), np.zeros(3)
    for z, y, v in _blocks(rows, bool(inner.bias)):
        mean, variance, likelihood, deviance = _family(inner.link, z @ x, y)
        slope += z.T @ (v * (y - mean))
        information += (z * (v * variance)[:, None]).T @ z
        totals += [v.sum(), v @ likelihood, v @ deviance]
    if not all_of_them:
        return {"slope": slope, "information": information}
    meat = np.outer(slope, slope)
    return {"slope": slope, "information": information, "meat": meat, "totals": totals}


def _blocks(rows: Any, bias: bool) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    y, v = np.asarray(rows.y, float), np.asarray(rows.weight, float)
    for first in range(0, len(y), AT_ONCE):
        some = slice(first, first + AT_ONCE)
        z = _dense(rows.x, some)
        yield (np.hstack([z, np.ones((len(z), 1))]) if bias else z), y[some], v[some]


def _dense(x: Any, some: slice) -> np.ndarray:
    if isinstance(x, Dense):
        return np.asarray(x.values[some], float)
    values, indices = np.asarray(x.values[some], float), np.asarray(x.features[some])
    found = np.zeros((len(values), x.shape[1]))
    np.add.at(found, (np.arange(len(values))[:, None], indices), values)
    return found


def _family(link: str, s: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Of each row: mean, variance, log-likelihood (of numbers: but for the variance), deviance."""
    from scipy.special import gammaln, xlogy

    if link == "logit":
        odds = np.logaddexp(0, s)
        mean = np.exp(s - odds)
        likelihood = y * s - odds
        return mean, mean * (1 - mean), likelihood, -2 * likelihood
    if link == "log":
        mean = np.exp(np.minimum(s, 700.0))
        deviance = 2 * (xlogy(y, y) - y * s - (y - mean))
        return mean, mean, y * s - mean - gammaln(y + 1), deviance
    return s, np.ones_like(s), np.zeros_like(s), (y - s) ** 2


class Fit:
    """The server's part: where it asks, and what it has found when there is no more to ask."""

    def __init__(self, problem: Problem, solution: Any, sites: int, by_rows: bool):
        self.problem, self.sites, self.by_rows = problem, sites, by_rows
        self.x = np.asarray(solution, float).copy()
        self.began, self.free = self.x.copy(), free(problem)
        inner: Any = unwrapped(problem)
        self.link, self.bias = inner.link, bool(inner.bias)
        counts = np.ones(len(self.x), bool) if self.free else self.x != 0
        if self.bias:
            counts[-1] = True
        self.active = np.flatnonzero(counts)
        self.found: Inference | None = None

    @staticmethod
    def steps(problem: Problem) -> int:
        """How often the sites are asked for slopes before they are asked for all."""
        return STEPS if free(problem) else 0

    def took(self, parts: Sequence[Mapping[str, np.ndarray]]) -> None:
        """What all sites sent, in their order."""
        total: dict[str, Any] = {
            name: sum(np.asarray(each[name]) for each in parts) for name in parts[0]
        }
        a = self.active
        information, slope = total["information"][np.ix_(a, a)], total["slope"][a]
        if "meat" not in total:
            self.x[a] += np.linalg.solve(_regular(information), slope)
            return
        self.found = self._judged(information, slope, total["meat"][np.ix_(a, a)], total["totals"])

    def _judged(self, information: Any, slope: Any, meat: Any, totals: Any) -> Inference:
        rows, likelihood, deviance = (float(t) for t in totals)
        count = len(self.active)
        if rows <= count:
            raise SingularError(f"{rows:g} rows are too few for {count} parameters")
        inverse = np.linalg.inv(_regular(information))
        left = float(np.sqrt(max(slope @ inverse @ slope, 0.0)))  # in standard errors
        spread = 1.0
        if self.link == "identity":
            spread = deviance / (rows - count)
            likelihood = -0.5 * rows * (np.log(2 * np.pi * deviance / rows) + 1)
            left /= np.sqrt(spread) if spread > 0 else 1.0
        clustered = None
        if self.sites > 1 and self.free:
            small = self.sites / (self.sites - 1) * (rows - 1) / (rows - count)
            clustered = small * inverse @ meat @ inverse
        fisher = spread * inverse
        errors = np.sqrt(np.diag(fisher))
        moved = np.abs(self.x - self.began)[self.active] / np.where(errors > 0, errors, 1.0)
        distance = float(moved.max(initial=0.0))
        notes = self._notes(left, distance)
        return Inference(
            self.x, fisher, clustered, self.active, self.link, self.bias, rows, self.sites,
            likelihood, deviance, distance, notes,
        )  # fmt: skip

    def _notes(self, left: float, distance: float) -> tuple[str, ...]:
        said = []
        if self.free and left > 1e-6:
            raise SingularError(
                f"the likelihood has no maximum near the run's model ({left:.2g} standard errors "
                f"away after {STEPS} steps): labels may be separable, or the run was too short"
            )
        if self.free and distance > 0.1:
            said.append(
                f"the run's model is up to {distance:.2g} standard errors from the maximum of the "
                f"likelihood, which the estimates are of: more rounds bring it closer"
            )
        if self.free and not self.by_rows:
            said.append("the run weighs sites otherwise than by their rows; estimates count every "
                        "row once")  # fmt: skip
        if not self.free:
            what = "the constraints" if self.problem.num_constraints else f"{self.problem.domain}"
            said.append(
                f"the model is held by {what}: these are errors as if its "
                f"{len(self.active)} entries that are not 0 had been chosen before, and as if it "
                f"were the maximum of the likelihood in them. They do not count that the same data "
                f"chose the entries, nor how far they were held back: intervals are too narrow "
                f"and off center, p-values too small"
            )
        return tuple(said)


class SingularError(ValueError):
    """There are no statistics: says why."""


def _regular(information: np.ndarray) -> np.ndarray:
    scale = np.sqrt(np.diag(information))
    if not (np.isfinite(information).all() and (scale > 0).all()):
        raise SingularError("the information of a parameter is 0 or not finite: a column is "
                            "constant, or labels are separable")  # fmt: skip
    if np.linalg.cond(information / np.outer(scale, scale)) > 1e13:
        raise SingularError("the information is singular: columns follow from each other, or "
                            "labels are separable")  # fmt: skip
    return information
