"""What is recorded of predictions: log loss, R2, AUC, calibration and the confusion matrix.

All are sums over rows, taken at the sites and finished at the server. Ranks are no sums: an AUC and
a calibration come from histograms of the predicted probability, with their error stated.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.core import checks
from fedmin.core.metrics import Metric
from fedmin.core.problem import Problem
from fedmin.core.rows import Rows

MOST_CLASSES = 20  # of a confusion matrix: a column of the history for each entry


class OfPredictions(Metric):
    """What follows from a problem's `predict`; a subclass says of which links."""

    on: Literal["train", "test"] = eqx.field(default="test", static=True)
    links: eqx.AbstractClassVar[tuple[str, ...]]

    def scores_of(self, problem: Any, x: Array, rows: Rows) -> Array:
        """What the problem predicts before its link, f[n] or f[n, classes]."""
        if problem.link not in self.links or not hasattr(problem, "predict"):
            raise ValueError(
                f"{type(self).__name__} is of {' or '.join(map(KINDS.get, self.links))}; "
                f"{type(problem).__name__} predicts {KINDS.get(problem.link, 'nothing')}"
            )
        return problem.predict(x, rows)

    def columns_of(self, *names: str) -> tuple[str, ...]:
        """Columns of the history; those of the clients' rows begin with train_."""
        return names if self.on == "test" else tuple(f"train_{name}" for name in names)


KINDS: Any = {
    "identity": "numbers", "log": "counts", "logit": "one of two labels", "softmax": "labels",
}  # fmt: skip


def log_odds(scores: Array) -> Array:
    """f[n, classes] of both forms of scores."""
    return jnp.stack([jnp.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores


class LogLoss(OfPredictions):
    """Minus the mean log-probability of the rows' labels, without any regularizer.

    >>> import fedmin
    >>> fedmin.LogLoss().names(None, None)
    ('log_loss',)
    """

    links = ("logit", "softmax")

    def names(self, problem: Problem, rows: Rows) -> tuple[str, ...]:
        return self.columns_of("log_loss")

    def measure(self, problem, x, rows):
        logs = jax.nn.log_softmax(log_odds(self.scores_of(problem, x, rows)), axis=1)
        return -jnp.dot(rows.weight, jnp.take_along_axis(logs, rows.y[:, None], axis=1)[:, 0])

    def finish(self, problem, x, sums, reported):
        return (sums,)


class R2(OfPredictions):
    """1 - (mean squared error) / (variance of the targets), as scikit-learn's r2_score.

    >>> import fedmin
    >>> fedmin.R2(on="train").names(None, None)
    ('train_r2',)
    """

    links = ("identity", "log")

    def names(self, problem, rows):
        return self.columns_of("r2")

    def rising(self, names):
        return names

    def measure(self, problem, x, rows):
        found = self.scores_of(problem, x, rows)
        y = rows.y.astype(found.dtype)
        mean = jnp.exp(found) if problem.link == "log" else found
        return rows.weight @ jnp.stack([(y - mean) ** 2, y, y**2], axis=1)

    def finish(self, problem, x, sums, reported):
        error, mean, square = sums
        return (1 - error / (square - mean**2),)


class Auc(OfPredictions):
    """The area under the ROC curve of two labels, from histograms of the predicted probability.

    auc          the chance that a row of label 1 is above one of label 0, ties counting half
    auc_error    by how much that can be wrong: half the chance that both fall into one bin

    >>> import fedmin
    >>> fedmin.Auc().names(None, None)
    ('auc', 'auc_error')
    """

    bins: int = eqx.field(default=512, static=True)
    label: int | None = eqx.field(default=None, static=True)  # against all others; None: of two
    links = ("logit", "softmax")

    def __check_init__(self):
        checks.at_least("bins", self.bins, 2)

    def names(self, problem, rows):
        return self.columns_of("auc", "auc_error")

    def rising(self, names):
        return names[:1]

    def measure(self, problem, x, rows):
        return binned(*against(self, problem, x, rows), rows.weight, self.bins)

    def finish(self, problem, x, sums, reported):
        negative, positive = sums
        pairs = jnp.sum(negative) * jnp.sum(positive)
        above = jnp.sum(positive) - jnp.cumsum(positive)
        tied = jnp.sum(negative * positive)
        return (jnp.sum(negative * above) + tied / 2) / pairs, tied / (2 * pairs)


class Roc(OfPredictions):
    """The ROC curve of two labels: of the rows of label 1, which share is found.

    roc_k    that share where k of `points` parts of the rows of label 0 are taken for 1 too, from
             histograms of the predicted probability (`Auc` has the error of such)

    >>> import fedmin
    >>> fedmin.Roc(points=3).names(None, None)
    ('roc_1', 'roc_2', 'roc_3')
    """

    points: int = eqx.field(default=20, static=True)
    bins: int = eqx.field(default=512, static=True)
    label: int | None = eqx.field(default=None, static=True)  # against all others; None: of two
    links = ("logit", "softmax")

    def __check_init__(self):
        checks.at_least("points", self.points, 2)
        checks.at_least("bins", self.bins, 2)

    def names(self, problem, rows):
        return self.columns_of(*(f"roc_{k + 1}" for k in range(self.points)))

    def rising(self, names):
        return names

    def measure(self, problem, x, rows):
        return binned(*against(self, problem, x, rows), rows.weight, self.bins)

    def finish(self, problem, x, sums, reported):
        # from the boldest bin on: how much of each label is at least so probable
        wrong, found = jnp.cumsum(sums[:, ::-1] / jnp.sum(sums, axis=1, keepdims=True), axis=1)
        at = jnp.arange(1, self.points + 1, dtype=found.dtype) / self.points
        zero = jnp.zeros(1, found.dtype)
        curve = jnp.interp(at, jnp.append(zero, wrong), jnp.append(zero, found))
        return tuple(curve)


def against(metric: Any, problem: Any, x: Array, rows: Rows) -> tuple[Array, Array]:
    """The log-odds of one label against the others, and which rows have it."""
    scores = log_odds(metric.scores_of(problem, x, rows))
    label = metric.label
    if label is None and scores.shape[1] != 2:
        name = type(metric).__name__
        raise ValueError(
            f"{name} is of two labels; the problem has {scores.shape[1]}: ByClass({name}()), "
            f'{{name = "byclass", of = {{name = "{name.lower()}"}}}} in a file, takes each '
            f"against all others"
        )
    k = 1 if label is None else label
    others = jnp.delete(scores, k, axis=1, assume_unique_indices=True)
    return scores[:, k] - jax.nn.logsumexp(others, axis=1), rows.y == k


def binned(score: Array, positive: Array, weight: Array, bins: int) -> Array:
    """f[2, bins]: the weight of the rows of each label, by bins of the predicted probability."""
    at = jnp.clip((jax.nn.sigmoid(score) * bins).astype(jnp.int32), 0, bins - 1)
    return jnp.zeros((2, bins), weight.dtype).at[positive.astype(jnp.int32), at].add(weight)


class Confusion(OfPredictions):
    """How often each label is predicted for each: shares of all rows, a column an entry.

    >>> import fedmin
    >>> fedmin.Confusion().names(fedmin.Logistic(3), None)
    ('confusion_0_0', 'confusion_0_1', 'confusion_1_0', 'confusion_1_1')
    """

    links = ("logit", "softmax")

    def names(self, problem, rows):
        count = classes_of(problem)
        if count > MOST_CLASSES:
            raise ValueError(f"Confusion is of at most {MOST_CLASSES} labels, got {count}")
        each = [(i, j) for i in range(count) for j in range(count)]
        return self.columns_of(*(f"confusion_{i}_{j}" for i, j in each))

    def measure(self, problem, x, rows):
        scores = log_odds(self.scores_of(problem, x, rows))
        count = scores.shape[1]
        chosen = jnp.argmax(scores, axis=1).astype(jnp.int32)
        empty = jnp.zeros((count, count), rows.weight.dtype)
        return empty.at[rows.y.astype(jnp.int32), chosen].add(rows.weight)

    def finish(self, problem, x, sums, reported):
        return tuple(sums.ravel())


class Calibration(OfPredictions):
    """Whether of rows with a predicted probability p the share p has label 1.

    calibration_error        sum over bins of |mean predicted - share of label 1| times their weight
    calibration_predicted_k  the curve: in bin k of the predicted probability its mean,
    calibration_observed_k   and the share of label 1; both are 0 where a bin is empty
    calibration_slope        of a logistic regression of the label on the predicted log-odds: 1
                             where predictions are neither too bold (below 1) nor too timid

    The slope is found from `fine` bins of the probability, each at its mean log-odds.

    >>> import fedmin
    >>> fedmin.Calibration(bins=2).names(None, None)[:2]
    ('calibration_error', 'calibration_slope')
    """

    bins: int = eqx.field(default=10, static=True)
    fine: int = eqx.field(default=512, static=True)
    label: int | None = eqx.field(default=None, static=True)  # against all others; None: of two
    links = ("logit", "softmax")

    def __check_init__(self):
        checks.at_least("bins", self.bins, 2)
        checks.at_least("fine", self.fine, self.bins)

    def names(self, problem, rows):
        curve = [f"calibration_{w}_{k + 1}" for w in ("predicted", "observed")
                 for k in range(self.bins)]  # fmt: skip
        return self.columns_of("calibration_error", "calibration_slope", *curve)

    def measure(self, problem, x, rows):
        score, positive = against(self, problem, x, rows)
        odds, w = jax.nn.sigmoid(score), rows.weight
        coarse = jnp.clip((odds * self.bins).astype(jnp.int32), 0, self.bins - 1)
        at = jnp.clip((odds * self.fine).astype(jnp.int32), 0, self.fine - 1)
        label = positive.astype(w.dtype)
        sums = lambda place, size, value: jnp.zeros(size, w.dtype).at[place].add(w * value)
        return (
            [sums(coarse, self.bins, v) for v in (jnp.ones_like(odds), odds, label)],
            [sums(at, self.fine, v) for v in (jnp.ones_like(odds), score, label)],
        )

    def finish(self, problem, x, sums, reported):
        (weight, odds, label), fine = sums
        whole = jnp.where(weight > 0, weight, 1)
        error = jnp.sum(jnp.abs(odds - label))
        return (error, _slope(*fine), *(odds / whole), *(label / whole))


def _slope(weight: Array, score: Array, label: Array) -> Array:
    """The slope of label 1's log-odds on the score, by Newton's method on a line and a level."""
    s = score / jnp.where(weight > 0, weight, 1)
    z = jnp.stack([jnp.ones_like(s), s])

    def step(_, ab):
        odds = jax.nn.sigmoid(ab @ z)
        slope = z @ (label - weight * odds)
        curve = (z * (weight * odds * (1 - odds))) @ z.T
        return ab + jnp.linalg.solve(curve + 1e-9 * jnp.eye(2, dtype=s.dtype), slope)

    return jax.lax.fori_loop(0, 25, step, jnp.array([0.0, 1.0], s.dtype))[1]


def classes_of(problem: Any) -> int:
    """How many labels a problem has."""
    while hasattr(problem, "inner"):
        problem = problem.inner
    return getattr(problem, "classes", 2)


PREDICTION_METRICS = {
    "logloss": LogLoss, "r2": R2, "auc": Auc, "roc": Roc, "confusion": Confusion,
    "calibration": Calibration,
}  # fmt: skip
