"""A regressor with scikit-learn's manners."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from fedmin.core import checks
from fedmin.core.federation import Federation
from fedmin.problems import Huber, LeastSquares, Poisson
from fedmin.sklearn.shared import Federated

LOSSES: dict[str, Any] = {"leastsquares": LeastSquares, "huber": Huber, "poisson": Poisson}


class FederatedRegressor(RegressorMixin, Federated):
    """fit(X, y, clients=ids).predict(X): a linear model of numbers, by any method.

    loss            "leastsquares", "huber" (beyond `delta` a wild target counts less) or "poisson"
                    (y counts events, at the rate exp(z.x))
    limits          the most that the mean loss on some of the `groups` in fit may be

    The rest is as in `FederatedClassifier`.

    >>> import fedmin
    >>> table = fedmin.data.load("diabetes").standardized()
    >>> model = fedmin.FederatedRegressor(nonzeros=4).fit(table.x, table.y)
    >>> int((model.coef_ != 0).sum()), bool(model.score(table.test.x, table.test.y) > 0.3)
    (4, True)
    """

    def __init__(
        self,
        method: Any = None,
        loss: str = "leastsquares",
        *,
        delta: float = 1.0,
        rounds: int = 100,
        l2: float | None = None,
        split: int = 5,
        seed: int = 0,
        fit_intercept: bool = True,
        nonzeros: int | None = None,
        limits: Any = None,
        set: Any = None,
        channel: Any = None,
        engine: Any = None,
    ):
        self.method = method
        self.loss = loss
        self.delta = delta
        self.rounds = rounds
        self.l2 = l2
        self.split = split
        self.seed = seed
        self.fit_intercept = fit_intercept
        self.nonzeros = nonzeros
        self.limits = limits
        self.set = set
        self.channel = channel
        self.engine = engine

    def fit(
        self, X: Any, y: Any, clients: Any = None, groups: Any = None, sample_weight: Any = None
    ) -> "FederatedRegressor":
        """Train on rows X with targets y, held by `clients`, one id a row; `groups` and
        `sample_weight` have an entry a row too."""
        checks.known("loss", self.loss, LOSSES)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float32, y_numeric=True)
        X, y, clients, groups, weights = self._given(X, y, clients, groups, sample_weight)
        if self.limits is not None and groups is None:
            raise ValueError("limits are on groups of rows: give fit groups, one a row")
        federation = Federation.from_parts(
            X, y.astype(np.float32), self._parts(len(y), clients), row_weights=weights,
            groups=groups,
        )  # fmt: skip
        more = {"delta": self.delta} if self.loss == "huber" else {}
        problem = LOSSES[self.loss](X.shape[1], l2=self.l2, bias=self.fit_intercept, **more)
        self._carried_out(problem, federation, X, str)
        return self

    @property
    def coef_(self) -> np.ndarray:
        """f[features]."""
        return self._linear()[0][0]

    @property
    def intercept_(self) -> float:
        """0 where none was fitted."""
        return float(self._linear()[1][0])

    def _linear(self) -> tuple[np.ndarray, np.ndarray]:
        if "result_" not in vars(self):
            raise AttributeError("coef_ and intercept_ are of a model that was fitted")
        return self._weights(1)

    def predict(self, X: Any) -> np.ndarray:
        """The mean of each row: z.x, of "poisson" exp(z.x)."""
        found = self._predicted(X)
        return np.exp(found) if self.loss == "poisson" else found
