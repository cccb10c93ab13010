"""A classifier with scikit-learn's manners, trained over clients."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fedmin.client import Full
from fedmin.core.federation import Federation
from fedmin.core.rows import rows
from fedmin.data import IID
from fedmin.methods import FedAvg
from fedmin.minimizing import minimize
from fedmin.problems import Softmax


class FederatedClassifier(ClassifierMixin, BaseEstimator):
    """fit(X, y, clients=ids).predict(X): softmax regression, or any classifier, by any method.

    `clients` says who holds each row; without it the rows are dealt out at random to `split`
    clients. `problem` is a classifier for `features` and `classes` (such as fedmin.MLP) or None for
    Softmax; `method` is None for FedAvg. Everything else is as in `minimize`, whose result is kept
    as `result_`.

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
    ):
        self.method = method
        self.problem = problem
        self.rounds = rounds
        self.l2 = l2
        self.split = split
        self.seed = seed

    def fit(self, X: Any, y: Any, clients: Any = None) -> "FederatedClassifier":
        """Train on rows X with labels y, held by `clients`, one id a row."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float32)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            only = self.classes_[0]
            raise ValueError(f"a classifier needs two classes or more, got one class: {only}")
        federation = Federation.from_parts(
            X, labels.astype(np.int32), self._parts(len(y), clients), classes=len(self.classes_)
        )
        make = Softmax if self.problem is None else self.problem
        problem = make(X.shape[1], len(self.classes_), l2=self.l2)
        method = self._default(X) if self.method is None else self.method
        self.result_ = minimize(
            problem, federation, method, rounds=self.rounds, seed=self.seed, every=self.rounds,
            progress=False,
        )  # fmt: skip
        self.n_iter_ = self.result_.rounds
        return self

    def _default(self, X: Any) -> FedAvg:
        """Full gradient steps of a size that is safe for these features: 2 / mean |row|^2."""
        squares = np.asarray(X.multiply(X).sum() if hasattr(X, "multiply") else (X**2).sum())
        return FedAvg(2.0 / max(float(squares) / X.shape[0], 1e-12), local_steps=3, batches=Full())

    def _parts(self, count: int, clients: Any) -> list[np.ndarray]:
        if clients is None:
            order = np.zeros(count, np.int32)
            return IID(max(1, min(self.split, count)))(order, self.seed)
        ids = np.asarray(clients)
        if ids.shape != (count,):
            raise ValueError(f"clients must be one id a row, {count} of them, got {ids.shape}")
        return [np.flatnonzero(ids == one) for one in np.unique(ids)]

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
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=False)
        problem: Any = self.result_.problem
        found = problem.predict(jnp.asarray(self.result_.solution), rows(X, np.zeros(X.shape[0])))
        return np.asarray(found)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
