"""Metrics of predictions, from sums at the sites: against scikit-learn and statsmodels."""

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn import metrics

import fedmin
from fedmin.runs.config import Config


@pytest.fixture(scope="module")
def runs():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(300, 3))
    y = (rng.random(300) < 1 / (1 + np.exp(-2 * x[:, 0]))).astype(int)
    parts = [np.arange(60), np.arange(60, 140), np.arange(140, 220)]
    federation = fedmin.Federation.from_parts(
        x, y, parts, test=(x[220:], y[220:]), classes=2, seed=1
    )
    record = [
        kind(on=on)
        for on in ("train", "test")
        for kind in (fedmin.LogLoss, fedmin.Auc, fedmin.Confusion, fedmin.Calibration)
    ]
    options = {"rounds": 3, "record": [fedmin.Objective(), *record]}
    made = {}
    for name, problem in {
        "logistic": fedmin.Logistic(3, bias=True), "softmax": fedmin.Softmax(3, 2),
        "over": fedmin.over(fedmin.Logistic(3), fedmin.L2Ball(5.0)),
    }.items():  # fmt: skip
        method = fedmin.FedMid(1.0) if name == "over" else fedmin.FedSGD(1.0)
        made[name] = fedmin.minimize(problem, federation, method, **options)
    other = fedmin.minimize(
        made["logistic"].problem, federation, fedmin.FedSGD(1.0), engine=fedmin.Loopback(),
        **options,
    )  # fmt: skip
    return x, y, made, other


@pytest.mark.parametrize("name", ["logistic", "softmax", "over"])
@pytest.mark.parametrize("on", ["train_", ""])
def test_metrics_are_those_of_scikit_learn(runs, name, on):
    x, y, made, _ = runs
    result = made[name]
    some = slice(0, 220) if on else slice(220, 300)
    x, y = x[some], y[some]
    odds = result.model.predict_proba(x)
    got = lambda column: result.final(on + column)
    np.testing.assert_allclose(got("log_loss"), metrics.log_loss(y, odds), rtol=1e-9)
    assert abs(got("auc") - metrics.roc_auc_score(y, odds[:, 1])) <= got("auc_error") + 1e-12
    assert got("auc_error") < 0.01
    found = [[got(f"confusion_{i}_{j}") for j in range(2)] for i in range(2)]
    chosen = metrics.confusion_matrix(y, odds.argmax(axis=1), normalize="all")
    np.testing.assert_allclose(found, chosen, rtol=1e-9)
    score = np.log(odds[:, 1] / odds[:, 0])
    fit = sm.GLM(y, sm.add_constant(score), family=sm.families.Binomial()).fit()
    np.testing.assert_allclose(got("calibration_slope"), fit.params[1], rtol=1e-3)
    place = np.minimum((odds[:, 1] * 10).astype(int), 9)
    for k in np.unique(place):
        inside = place == k
        np.testing.assert_allclose(got(f"calibration_predicted_{k + 1}"), odds[inside, 1].mean())
        np.testing.assert_allclose(got(f"calibration_observed_{k + 1}"), y[inside].mean())
    assert on + "auc" in result.rising
    assert on + "log_loss" not in result.rising


def test_engines_measure_the_same_sums(runs):
    one, other = runs[2]["logistic"], runs[3]
    for column, values in one.history.items():
        if column != "seconds":
            np.testing.assert_allclose(values, other.history[column], rtol=1e-9, atol=1e-12)
    assert one.ledger.by_kind() == other.ledger.by_kind()


@pytest.mark.parametrize("problem", [fedmin.LeastSquares(3, bias=True), fedmin.Poisson(3)])
def test_r2_is_that_of_scikit_learn(problem, rng):
    x = rng.normal(size=(90, 3))
    y = rng.poisson(np.exp(x[:, 0])).astype(float)
    federation = fedmin.Federation.from_clients([(x[:30], y[:30]), (x[30:], y[30:])])
    result = fedmin.minimize(
        problem, federation, fedmin.FedSGD(0.05), rounds=3, record=[fedmin.R2(on="train")]
    )
    expected = metrics.r2_score(y, result.model.predict(x))
    np.testing.assert_allclose(result.final("train_r2"), expected, rtol=1e-9)


def test_what_does_not_fit_is_said_before_the_run(rng):
    x, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    federation = fedmin.Federation.from_clients([(x, y)])
    with pytest.raises(ValueError, match=r"Auc is of one of two labels or labels; .* numbers"):
        fedmin.minimize(fedmin.LeastSquares(2), federation, fedmin.FedSGD(0.1), rounds=1,
                        record=[fedmin.Auc(on="train")])  # fmt: skip


def test_a_file_names_them():
    text = """
[data]
name = "breast_cancer"
standardize = true
[partition]
name = "iid"
clients = 3
[problem]
name = "logistic"
[method]
name = "fedsgd"
[run]
rounds = 2
record = ["objective", {name = "auc", on = "train", bins = 64}, "logloss", "confusion",
          "calibration"]
"""
    config = Config(text)
    found = config.pieces(config.jobs()[0]).options["record"]
    assert found[1] == fedmin.Auc(on="train", bins=64)
    assert [type(each).__name__ for each in found[2:]] == ["LogLoss", "Confusion", "Calibration"]
