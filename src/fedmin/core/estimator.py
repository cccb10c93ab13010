"""A model with scikit-learn's manners: for pipelines, scorers and whoever expects an estimator."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin


class _Fitted(BaseEstimator):
    """What both share; X is what `Model.predict` takes."""

    def __init__(self, model: Any = None):
        self.model = model

    def fit(self, X: Any, y: Any = None) -> Any:
        """It was fitted over the sites: another fit is refused."""
        raise ValueError("this model was fitted by a federated run; fit another one by minimize")

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def feature_names_in_(self) -> np.ndarray:
        """The raw columns."""
        return np.array(self.model.inputs, object)

    @property
    def n_features_in_(self) -> int:
        """How many raw columns there are."""
        return len(self.model.inputs)

    def get_feature_names_out(self) -> np.ndarray:
        """What the coefficients belong to."""
        return np.array(self.model.features, object)

    def predict(self, X: Any) -> np.ndarray:
        """As `Model.predict`."""
        return self.model.predict(X)


class ModelRegressor(RegressorMixin, _Fitted):
    """A model of numbers; made by `Model.estimator`."""

    @property
    def coef_(self) -> np.ndarray:
        """f64[features] on the original scale."""
        return self.model.coefficients[0]

    @property
    def intercept_(self) -> float:
        """On the original scale."""
        return float(self.model.intercept[0])


class ModelClassifier(ClassifierMixin, _Fitted):
    """A model of labels; made by `Model.estimator`."""

    @property
    def classes_(self) -> np.ndarray:
        """The labels."""
        return np.array(self.model.classes)

    @property
    def coef_(self) -> np.ndarray:
        """f64[1 or classes, features] on the original scale."""
        return self.model.coefficients

    @property
    def intercept_(self) -> np.ndarray:
        """f64[1 or classes] on the original scale."""
        return self.model.intercept

    def predict_proba(self, X: Any) -> np.ndarray:
        """As `Model.predict_proba`."""
        return self.model.predict_proba(X)

    def decision_function(self, X: Any) -> np.ndarray:
        """f64[n] for two classes, f64[n, classes] for more."""
        scores = self.model.scores(X)
        two = scores.ndim == 2 and scores.shape[1] == 2
        return scores[:, 1] - scores[:, 0] if two else scores


def estimator_of(model: Any) -> ModelClassifier | ModelRegressor:
    """The estimator of a model.

    >>> import fedmin
    >>> from fedmin.core.estimator import estimator_of
    >>> table = fedmin.data.load("wine").standardized()
    >>> federation = fedmin.data.partition(table, fedmin.data.IID(3))
    >>> result = fedmin.minimize(fedmin.Softmax(13, 3), federation, fedmin.FedSGD(0.5), rounds=9)
    >>> bool(estimator_of(result.model).score(table.x, table.y) > 0.9)
    True
    """
    return ModelRegressor(model) if model.classes is None else ModelClassifier(model)
