"""The estimators with scikit-learn's manners, by its own checks and against its models."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import SkipTestWarning
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.estimator_checks import check_estimator

import fedmin

# the clients of rows that are not named are drawn by chance, and sums in single precision end
# otherwise with other clients: to the ninth digit the same weights are not the same model
WEIGHTS = {
    f"check_sample_weight_equivalence_on_{kind}_data": "rows are dealt out by chance"
    for kind in ("dense", "sparse")
}


def checked(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)  # pandas and array APIs are not here
        found = check_estimator(estimator, on_fail=None, expected_failed_checks=WEIGHTS)
    assert {r["check_name"]: repr(r["exception"]) for r in found if r["status"] == "failed"} == {}
    assert sum(r["status"] == "passed" for r in found) > 45


@pytest.mark.thorough
def test_scikit_learns_own_checks():
    checked(fedmin.FederatedClassifier())


@pytest.mark.thorough
def test_scikit_learns_own_checks_of_the_regressor():
    checked(fedmin.FederatedRegressor())


def test_clients_are_who_the_caller_says():
    wine = fedmin.data.load("wine").standardized()
    names = np.array(["red", "white"])[np.arange(wine.rows) % 2]
    words = np.array(["a", "b", "c"])[wine.y]
    model = fedmin.FederatedClassifier(fedmin.Scaffold(0.1, local_steps=2), rounds=30)
    model.fit(wine.x, words, clients=names)
    assert set(model.result_.ledger.counts) == {2}
    assert model.score(wine.test.x, np.array(["a", "b", "c"])[wine.test.y]) > 0.9
    np.testing.assert_allclose(model.predict_proba(wine.test.x).sum(axis=1), 1.0)
    assert model.coef_.shape == (3, 13)
    assert model.intercept_.shape == (3,)
    with pytest.raises(ValueError, match="clients must be one id a row"):
        model.fit(wine.x, words, clients=names[:3])


@pytest.fixture(scope="module")
def rows():
    """Rows of five columns, one of which counts twice, and who holds them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 5))
    score = x @ np.array([1.0, -0.7, 0, 0, 0.3]) + 0.4
    return x, score, rng, np.arange(120) % 3


def test_regressors_are_scikit_learns(rows):
    x, score, rng, clients = rows
    weights = rng.uniform(0.5, 2.0, 120) * (np.arange(120) % 10 > 0)
    y = score + 0.1 * rng.normal(size=120)
    options = {"clients": clients, "sample_weight": weights}
    ours = fedmin.FederatedRegressor(rounds=40).fit(x, y, **options)
    theirs = LinearRegression().fit(x, y, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-4)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), atol=1e-4)

    counts = rng.poisson(np.exp(0.5 * score)).astype(float)
    ours = fedmin.FederatedRegressor(loss="poisson", rounds=60).fit(x, counts, **options)
    theirs = PoissonRegressor(alpha=0.0, tol=1e-8).fit(x, counts, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-3)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), rtol=1e-2)

    wild = y.copy()
    wild[1] += 500.0
    options["sample_weight"] = None
    ours = fedmin.FederatedRegressor(loss="huber", delta=0.3, rounds=60).fit(x, wild, **options)
    residual = wild - ours.predict(x)  # at its minimum clipped residuals have no slope left
    slope = np.clip(residual, -0.3, 0.3) @ np.c_[x, np.ones(120)] / 120
    np.testing.assert_allclose(slope, 0, atol=1e-4)


def test_few_weights_a_set_and_names(rows):
    pandas = pytest.importorskip("pandas")
    x, score, rng, clients = rows
    frame = pandas.DataFrame(x, columns=list("abcde"))
    y = score + 0.1 * rng.normal(size=120)
    few = fedmin.FederatedRegressor(nonzeros=2, rounds=20).fit(frame, y, clients)
    assert np.flatnonzero(few.coef_).tolist() == [0, 1]
    assert few.feature_names_in_.tolist() == list("abcde")
    assert abs(few.intercept_) > 0.1  # which is not counted
    ball = fedmin.FederatedRegressor(set=fedmin.L2Ball(0.5), rounds=40).fit(x, y)
    assert np.linalg.norm(ball.coef_) == pytest.approx(0.5, rel=1e-4)
    assert ball.intercept_ == pytest.approx(np.mean(y - x @ ball.coef_), abs=1e-4)  # it is free
    with pytest.raises(ValueError, match="give nonzeros or set, not both"):
        fedmin.FederatedRegressor(nonzeros=2, set=fedmin.L2Ball(1.0)).fit(x, y)
    with pytest.raises(ValueError, match="limits are on groups of rows"):
        fedmin.FederatedRegressor(limits={"a": 1.0}).fit(x, y)
    with pytest.raises(ValueError, match=r"unknown loss|loss: unknown|did you mean 'huber'"):
        fedmin.FederatedRegressor(loss="hubert").fit(x, y)
    with pytest.raises(ValueError, match="at least one non-zero"):
        fedmin.FederatedRegressor().fit(x, y, sample_weight=np.zeros(120))


def test_classes_weigh_as_scikit_learns(rows):
    """Balanced: from the clients' counts, added up; against the same weights by scikit-learn."""
    x, score, rng, clients = rows
    words = np.where(score + rng.normal(size=120) > 1.4, "yes", "no")
    newton = fedmin.FedNL()
    options = {"method": newton, "rounds": 40, "l2": 0.1}
    ours = fedmin.FederatedClassifier(class_weight="balanced", **options).fit(x, words, clients)
    # theirs has the sum of the losses, not their mean
    theirs = LogisticRegression(class_weight="balanced", C=1 / (0.1 * 120), tol=1e-8).fit(x, words)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    each = compute_class_weight("balanced", classes=ours.classes_, y=words)
    named = dict(zip(ours.classes_.tolist(), each, strict=True))
    again = fedmin.FederatedClassifier(class_weight=named, **options).fit(x, words, clients)
    np.testing.assert_allclose(again.coef_, ours.coef_, atol=1e-6)
    with pytest.raises(ValueError, match="class_weight must be"):
        fedmin.FederatedClassifier(class_weight="equal").fit(x, words)
    with pytest.raises(ValueError, match="label"):
        fedmin.FederatedClassifier(class_weight={"maybe": 2.0}).fit(x, words)


def test_limits_on_a_label_and_few_weights_together(rows):
    x, score, rng, clients = rows
    words = np.where(score + rng.normal(size=120) > 1.0, "yes", "no")
    model = fedmin.FederatedClassifier(limits={"yes": 0.5}, nonzeros=2, rounds=60)
    model.fit(x, words, clients)
    assert (model.coef_ != 0).sum() == 2
    certain = model.predict_proba(x)[words == "yes", list(model.classes_).index("yes")]
    assert -np.log(certain).mean() < 0.5 + 2e-3
    assert model.result_.certificate.feasible


def test_tab_completion_finds_them():
    assert {"FederatedClassifier", "FederatedRegressor", "path", "Path"} <= set(dir(fedmin))
