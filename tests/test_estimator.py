"""The classifier with scikit-learn's manners, by scikit-learn's own checks."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import check_estimator

import fedmin


def test_scikit_learns_own_checks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)  # pandas and array APIs are not here
        found = check_estimator(fedmin.FederatedClassifier(), on_fail=None)
    assert {r["check_name"]: repr(r["exception"]) for r in found if r["status"] == "failed"} == {}
    assert sum(r["status"] == "passed" for r in found) > 50


def test_clients_are_who_the_caller_says():
    wine = fedmin.data.load("wine").standardized()
    names = np.array(["red", "white"])[np.arange(wine.rows) % 2]
    words = np.array(["a", "b", "c"])[wine.y]
    model = fedmin.FederatedClassifier(fedmin.Scaffold(0.1, local_steps=2), rounds=30)
    model.fit(wine.x, words, clients=names)
    assert set(model.result_.ledger.counts) == {2}
    assert model.score(wine.test.x, np.array(["a", "b", "c"])[wine.test.y]) > 0.9
    np.testing.assert_allclose(model.predict_proba(wine.test.x).sum(axis=1), 1.0)
    with pytest.raises(ValueError, match="clients must be one id a row"):
        model.fit(wine.x, words, clients=names[:3])
