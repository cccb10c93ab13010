"""A classifier with scikit-learn's manners."""

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from fedmin.client import Full
from fedmin.core import checks
from fedmin.core.federation import Federation
from fedmin.methods import FedAvg
from fedmin.problems import Logistic, Softmax
from fedmin.sklearn.shared import Federated


class FederatedClassifier(ClassifierMixin, Federated):
    """fit(X, y, clients=ids).predict(X): logistic or softmax regression, or any classifier.

    `clients` says who holds each row; without it the rows are dealt out at random to `split`
    clients. `problem` is a classifier for `features` and `classes` (such as fedmin.MLP) or None for
    Logistic with two labels and Softmax with more. The run behind it is kept as `result_`.

    nonzeros        at most so many weights are not 0, intercepts not counted
    limits          the most that the mean loss on some labels may be, {"died": 0.2}; with `groups`
                    in fit, on some groups
    set             where the weights may lie, such as fedmin.L1Ball(3.0)
    class_weight    "balanced", by the clients' counts added up, or {label: weight}
    method          None for one that handles all this with nothing to set
    channel, engine as in `minimize`

    >>> import fedmin
    >>> digits = fedmin.data.load("digits")
    >>> model = fedmin.FederatedClassifier(rounds=30).fit(digits.x, digits.y)
    >>> bool(model.score(digits.test.x, digits.test.y) > 0.8)
    True
    """

    def __init__(
        self,
        method: Any = None,
        problem: Any = None,
        *,
        rounds: int = 100,
        l2: float = 1e-4,
        split: int = 5,
        seed: int = 0,
        fit_intercept: bool = True,
        nonzeros: int | None = None,
        limits: Any = None,
        set: Any = None,
        class_weight: Any = None,
        channel: Any = None,
        engine: Any = None,
    ):
        self.method = method
        self.problem = problem
        self.rounds = rounds
        self.l2 = l2
        self.split = split
        self.seed = seed
        self.fit_intercept = fit_intercept
        self.nonzeros = nonzeros
        self.limits = limits
        self.set = set
        self.class_weight = class_weight
        self.channel = channel
        self.engine = engine

    def fit(
        self, X: Any, y: Any, clients: Any = None, groups: Any = None, sample_weight: Any = None
    ) -> "FederatedClassifier":
        """Train on rows X with labels y, held by `clients`, one id a row; `groups` and
        `sample_weight` have an entry a row too."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float32)
        check_classification_targets(y)
        X, y, clients, groups, weights = self._given(X, y, clients, groups, sample_weight)
        self.classes_, labels = np.unique(y, return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            only = self.classes_[0]
            raise ValueError(f"a classifier needs two classes or more, got one class: {only}")
        parts, labels = self._parts(len(y), clients), labels.astype(np.int32)
        options = {"classes": count, "groups": groups}
        federation = Federation.from_parts(X, labels, parts, row_weights=weights, **options)
        if self.class_weight is not None:
            each = self._class_weights(federation)[labels]
            weights = each if weights is None else each * weights
            federation = Federation.from_parts(X, labels, parts, row_weights=weights, **options)
        named = str if groups is not None else self._number
        self._carried_out(self._problem(X.shape[1], count), federation, X, named)
        return self

    def _problem(self, features: int, classes: int) -> Any:
        if self.problem is not None:
            return self.problem(features, classes, l2=self.l2)
        if classes == 2:
            return Logistic(features, l2=self.l2, bias=self.fit_intercept)
        return Softmax(features, classes, l2=self.l2, bias=self.fit_intercept)

    def _number(self, label: Any) -> str:
        """What the groups of limits by labels are called: the label's number."""
        checks.known("limits: label", label, list(self.classes_))
        return str(int(np.flatnonzero(self.classes_ == label)[0]))

    def _class_weights(self, federation: Federation) -> np.ndarray:
        """f[classes]: how much a row of each label counts."""
        counts: Any = federation.label_counts()
        if self.class_weight == "balanced":
            # each client counts its own labels; the weights follow from the sum alone
            total = counts.sum(axis=0)
            return total.sum() / (len(total) * total)
        if not isinstance(self.class_weight, dict):
            raise ValueError(
                f'class_weight must be "balanced" or {{label: weight}}, got {self.class_weight!r}'
            )
        weights = np.ones(len(self.classes_))
        for label, weight in self.class_weight.items():
            weights[int(self._number(label))] = weight
        return weights

    def _free(self, X: Any) -> FedAvg:
        """Full gradient steps of a size that is safe for these features: 2 / mean |row|^2."""
        squares = np.asarray(X.multiply(X).sum() if hasattr(X, "multiply") else (X**2).sum())
        size = float(squares) / X.shape[0] + self.fit_intercept
        return FedAvg(2.0 / max(size, 1e-12), local_steps=3, batches=Full())

    def _first(self, problem: Any, federation: Federation) -> Any:
        """No weights, and the intercepts that fit how much each label weighs, by sums of the
        clients: beside wide columns gradient steps would be long in finding them."""
        if self.problem is not None or not self.fit_intercept:
            return None
        pool, count = federation.pool, len(self.classes_)
        held = np.bincount(np.asarray(pool.y), np.asarray(pool.weight), count)
        logs = np.log(np.maximum(held, 1e-9 * held.sum()))  # a class may weigh 0
        bias = logs[1:] - logs[0] if count == 2 else logs - logs.mean()
        return np.concatenate([np.zeros(problem.size() - len(bias)), bias])

    @property
    def coef_(self) -> np.ndarray:
        """f[1 or classes, features] of a linear model: two labels have one row."""
        return self._linear()[0]

    @property
    def intercept_(self) -> np.ndarray:
        """f[1 or classes] of a linear model."""
        return self._linear()[1]

    def _linear(self) -> tuple[np.ndarray, np.ndarray]:
        if self.problem is not None or "result_" not in vars(self):
            raise AttributeError("coef_ and intercept_ are of a linear model that was fitted")
        classes = len(self.classes_)
        return self._weights(1 if classes == 2 else classes)

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits, [rows, classes]; with two classes the second's minus the first's."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities, [rows, classes]."""
        logits = self._logits(X).astype(np.float64)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row."""
        logits = self._logits(X)
        return self.classes_[np.argmax(logits, axis=1)]

    def _logits(self, X: Any) -> np.ndarray:
        found = self._predicted(X)
        return np.stack([np.zeros_like(found), found], axis=1) if found.ndim == 1 else found
