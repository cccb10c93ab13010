"""What the estimators share: rows that clients hold, sets and limits, and the run behind a fit."""

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedmin.channels import Plain
from fedmin.client import Full
from fedmin.core import checks
from fedmin.core.domain import Free
from fedmin.core.federation import Federation
from fedmin.core.rows import rows
from fedmin.data import IID
from fedmin.domains import L0Ball, Product
from fedmin.methods import SSCA, FedNL, FedSSO, SparseNewton, Tuned
from fedmin.minimizing import minimize
from fedmin.problems import GroupLossAtMost, over, subject_to

NARROW = 100  # numbers of a model up to which every client keeps a Hessian


class Federated(BaseEstimator):
    """What both share: rows that clients hold, sets and limits, and the run behind a fit."""

    method: Any
    rounds: int
    split: int
    seed: int
    nonzeros: Any
    limits: Any
    set: Any
    channel: Any
    engine: Any

    def _given(self, X: Any, y: Any, clients: Any, groups: Any, weights: Any) -> tuple[Any, ...]:
        """The rows that count, and what stands beside them: those of weight 0 are left out."""
        clients, groups = _beside("clients", clients, len(y)), _beside("groups", groups, len(y))
        if weights is None:
            return X, y, clients, groups, None
        weights = _check_sample_weight(weights, X, ensure_non_negative=True)
        counts = weights > 0
        kept = (None if a is None else a[counts] for a in (clients, groups))
        return X[counts], y[counts], *kept, weights[counts]

    def _parts(self, count: int, clients: Any) -> list[np.ndarray]:
        if clients is None:
            order = np.zeros(count, np.int32)
            return IID(max(1, min(self.split, count)))(order, self.seed)
        return [np.flatnonzero(clients == one) for one in np.unique(clients)]

    def _carried_out(self, problem: Any, federation: Federation, X: Any, names: Any) -> None:
        """Run, and keep what came out."""
        if self.limits is not None:
            by: Literal["labels", "groups"] = "groups" if federation.groups else "labels"
            limits = {names(key): float(limit) for key, limit in dict(self.limits).items()}
            problem = subject_to(problem, GroupLossAtMost(limits, by=by))
        within = self._within(problem)
        whole = problem if within is None else over(problem, within)
        method = self._usual(whole, X) if self.method is None else self.method
        options = {
            "rounds": self.rounds, "seed": self.seed, "progress": False, "engine": self.engine,
            "channel": Plain() if self.channel is None else self.channel,
        }  # fmt: skip
        free = whole is problem and not problem.num_constraints
        start = self._first(problem, federation) if free else None
        if self.method is None and self.limits is not None and isinstance(within, L0Ball):
            # the support is chosen by a heuristic: it begins with that of the model without limits
            few = over(problem.inner, within)
            start = minimize(few, federation, SparseNewton(), **options).solution
        every = max(1, self.rounds // 10) if self.limits is not None else self.rounds
        self.result_ = minimize(whole, federation, method, every=every, start=start, **options)
        self.n_iter_ = self.result_.rounds

    def _within(self, problem: Any) -> Any:
        if self.nonzeros is None:
            free = self.set is None or isinstance(self.set, Product) or "bias" not in problem.parts
            if free:
                return self.set
            return Product({n: Free() if n == "bias" else self.set for n in problem.parts})
        if self.set is not None:
            raise ValueError("give nonzeros or set, not both")
        checks.at_least("nonzeros", self.nonzeros, 1)
        return L0Ball(int(self.nonzeros), free=("bias",) if "bias" in problem.parts else ())

    def _usual(self, problem: Any, X: Any) -> Any:
        """A method that handles the problem, with nothing to set."""
        if problem.num_constraints or self.set is not None:
            return SSCA(rho=1.0, gamma=1.0, tau=Tuned(), batches=Full())
        return SparseNewton() if self.nonzeros is not None else self._free(X)

    def _free(self, X: Any) -> Any:
        """The same where nothing is limited."""
        return FedNL() if X.shape[1] <= NARROW else FedSSO("auto", batches=Full())

    def _first(self, problem: Any, federation: Federation) -> Any:
        """Where a run without sets and limits begins; None for the problem's own start."""
        return None

    def _predicted(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=False)
        problem: Any = self.result_.problem
        found = problem.predict(jnp.asarray(self.result_.solution), rows(X, np.zeros(X.shape[0])))
        return np.asarray(found)

    def _weights(self, classes: int) -> tuple[np.ndarray, np.ndarray]:
        """A linear model's weights, f[classes, features], and its intercepts."""
        x, features = np.asarray(self.result_.solution), self.n_features_in_
        weights, bias = np.split(x, [classes * features])
        return weights.reshape(classes, features), bias if len(bias) else np.zeros(classes)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _beside(name: str, given: Any, count: int) -> Any:
    if given is None:
        return None
    given = np.asarray(given)
    if given.shape != (count,):
        what = "id" if name == "clients" else "group"
        raise ValueError(f"{name} must be one {what} a row, {count} of them, got {given.shape}")
    return given
