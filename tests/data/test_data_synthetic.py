"""Synthetic sets: is the truth true? Checked by closed forms, SciPy and scikit-learn."""

import inspect

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from sklearn.linear_model import LogisticRegression, OrthogonalMatchingPursuit

from fedmin.data import (
    SYNTHETIC,
    fedprox,
    load,
    logistic_margin,
    quadratics,
    simulation_one,
    simulation_two,
    softmax_fedfw,
    sparse_regression,
)


def client_terms(made):
    """f_i and its gradient in float64, by the convention of the module."""
    for part in made.parts:
        x, y = made.x[part].astype(np.float64), made.y[part].astype(np.float64)
        yield (
            lambda w, x=x, y=y: 0.5 * np.mean((x @ w - y) ** 2),
            lambda w, x=x, y=y: x.T @ (x @ w - y) / len(y),
            x.T @ x / len(y),
        )


@settings(max_examples=15, deadline=None)
@given(
    clients=st.integers(1, 6),
    dim=st.integers(1, 8),
    condition=st.floats(1, 1e4),
    heterogeneity=st.floats(0, 10),
    seed=st.integers(0, 1000),
)
def test_quadratics_truth(clients, dim, condition, heterogeneity, seed):
    made = quadratics(clients, dim, condition, heterogeneity, rows=dim + 3, seed=seed)
    terms, truth = list(client_terms(made)), made.truth
    hessian = np.mean([h for _, _, h in terms], axis=0)
    if dim > 1:
        assert np.linalg.cond(hessian) == pytest.approx(condition, rel=1e-2)
        assert truth["condition"] == pytest.approx(np.linalg.cond(hessian), rel=1e-6)
    at = truth["solution"]
    gradients = np.array([grad(at) for _, grad, _ in terms])
    assert np.linalg.norm(gradients.mean(axis=0)) < 1e-9 * (1 + np.abs(gradients).max())
    assert truth["optimum"] == pytest.approx(np.mean([f(at) for f, _, _ in terms]))
    if clients > 1:
        apart = truth["client_solutions"] - at
        spread = np.sqrt((apart**2).sum(axis=1).mean())
        assert spread == pytest.approx(heterogeneity, rel=1e-2, abs=1e-2)
    for (f, grad, _), own in zip(terms, truth["client_solutions"], strict=True):
        assert np.linalg.norm(grad(own)) < 1e-6 * (1 + np.linalg.norm(own))
        assert f(own) < 1e-8 * (1 + own @ own)  # each client can fit its own data exactly


def test_quadratics_minimizer_by_scipy():
    made = quadratics(clients=4, dim=5, condition=30.0, heterogeneity=2.0, seed=1)
    terms = list(client_terms(made))
    found = optimize.minimize(
        lambda w: np.mean([f(w) for f, _, _ in terms]),
        np.zeros(5),
        jac=lambda w: np.mean([g(w) for _, g, _ in terms], axis=0),
        options={"gtol": 1e-9},
    )
    np.testing.assert_allclose(found.x, made.truth["solution"], atol=1e-6)
    assert found.fun == pytest.approx(made.truth["optimum"], rel=1e-9)


def test_quadratics_without_heterogeneity_share_one_optimum():
    truth = quadratics(clients=3, dim=4, heterogeneity=0.0).truth
    own = truth["client_solutions"]
    np.testing.assert_allclose(own, np.broadcast_to(truth["solution"], own.shape), atol=1e-4)


def test_sparse_regression_support_is_found_by_orthogonal_matching_pursuit():
    for nonzeros in (None, 40):
        made = sparse_regression(400, 80, support=6, nonzeros=nonzeros, noise=0.01, clients=7)
        x = made.x.toarray() if sp.issparse(made.x) else made.x
        pursuit = OrthogonalMatchingPursuit(n_nonzero_coefs=6, fit_intercept=False)
        coefficients = pursuit.fit(x.astype(np.float64), made.y.astype(np.float64)).coef_
        np.testing.assert_array_equal(np.flatnonzero(coefficients), made.truth["support"])
        np.testing.assert_allclose(coefficients, made.truth["solution"], atol=1e-8)
        residual = x.astype(np.float64) @ made.truth["solution"] - made.y
        assert made.truth["optimum"] == pytest.approx(0.5 * np.mean(residual**2), rel=1e-9)


def test_sparse_regression_of_e2006s_width_stays_sparse():
    made = sparse_regression(60, 150360, support=200, nonzeros=1240, clients=3)
    assert sp.issparse(made.x)
    assert made.x.nnz == 60 * 1240
    assert made.x.has_sorted_indices
    assert (np.diff(made.x.indices.reshape(60, -1), axis=1) > 0).all()  # no column twice
    np.testing.assert_allclose(sp.linalg.norm(made.x, axis=1), 1.0, rtol=1e-5)


def test_logistic_margin_separates():
    made = logistic_margin(rows=300, dim=6, margin=0.7, clients=5)
    signs = 2.0 * made.y - 1.0
    assert (signs * (made.x @ made.truth["direction"])).min() >= 0.7 - 1e-5
    assert made.truth["margin"] == pytest.approx(0.7, abs=0.1)
    model = LogisticRegression(C=1e4, max_iter=1000, fit_intercept=False).fit(made.x, made.y)
    assert model.score(made.x, made.y) == 1.0


def test_fedprox_labels_and_features():
    made = fedprox(0.5, 0.5, clients=8, max_rows=400, seed=2)
    for client, part in enumerate(made.parts):
        weights = made.truth["client_weights"][client]
        scores = made.x[part] @ weights.T + made.truth["client_biases"][client]
        np.testing.assert_array_equal(scores.argmax(axis=1), made.y[part])
    sizes = [len(part) for part in made.parts]
    assert min(sizes) >= 45
    assert sum(sizes) == made.rows
    largest = made.x[max(made.parts, key=len)]
    n = len(largest)
    for j in (1, 2, 10, 60):  # (n-1) s^2 / sigma^2 is chi-squared
        statistic = (n - 1) * largest[:, j - 1].var(ddof=1) / j**-1.2
        assert 1e-4 < stats.chi2(n - 1).cdf(statistic) < 1 - 1e-4


def test_fedprox_iid_shares_one_model():
    made = fedprox(clients=3, iid=True, max_rows=60)
    assert (made.truth["client_weights"] == made.truth["client_weights"][0]).all()
    assert abs(made.x.mean()) < 0.1


def test_softmax_fedfw():
    made = softmax_fedfw(rows=500, clients=7)
    for table in (made.table, made.test):
        scores = table.x @ made.truth["weights"].T + made.truth["biases"]
        np.testing.assert_array_equal(scores.argmax(axis=1), table.y)
    assert (made.rows, made.test.rows) == (400, 100)


def test_simulation_one_residuals_are_normal():
    made = simulation_one(0.5, 0.5, clients=6, rows=300, features=40, support=10)
    models = made.truth["client_models"]
    assert (models[:, 10:] == 0).all()
    assert (models[:, :10] != 0).all()
    for client, part in enumerate(made.parts):
        rest = made.y[part] - made.x[part] @ models[client]
        law = stats.norm(made.truth["client_offsets"][client], 1.0)
        assert stats.kstest(rest, law.cdf).pvalue > 1e-4
        centered = made.x[part] - made.x[part].mean(axis=0)
        wanted = np.arange(1, 41) ** -1.2
        np.testing.assert_allclose(centered.var(axis=0), wanted, rtol=0.35)


def test_simulation_two_labels_the_largest_scores():
    one = simulation_one(1, 1, clients=4, rows=50, features=30, support=5, seed=3)
    two = simulation_two(1, 1, clients=4, rows=50, features=30, support=5, positives=8, seed=3)
    np.testing.assert_array_equal(one.x, two.x)
    for part in two.parts:
        assert set(np.flatnonzero(two.y[part])) == set(np.argsort(-one.y[part])[:8])


@pytest.mark.parametrize("name", sorted(SYNTHETIC))
def test_same_seed_same_data(name):
    small = {
        "fedprox": {"clients": 3, "max_rows": 60},
        "simulation_one": {"clients": 3, "rows": 10},
        "simulation_two": {"clients": 3, "rows": 110},
    }.get(name, {})
    first, again = load(name, seed=4, **small), load(name, seed=4, **small)
    other = load(name, seed=5, **small)
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.y, again.y)
    assert first.x.shape != other.x.shape or not np.array_equal(first.x, other.x)
    assert sorted(np.concatenate(first.parts)) == list(range(first.rows))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: quadratics(clients=0), "quadratics: clients=0; it must be at least 1"),
        (lambda: quadratics(dim=4, rows=3), "rows=3; it must be at least dim=4"),
        (lambda: quadratics(condition=0.5), "condition=0.5"),
        (lambda: sparse_regression(rows=5, clients=6), r"clients=6; it must be in 1..rows=5"),
        (lambda: sparse_regression(features=5, support=6), "support=6"),
        (lambda: sparse_regression(features=5, support=2, nonzeros=6), "nonzeros=6"),
        (lambda: logistic_margin(margin=-1.0), "margin=-1.0"),
        (lambda: fedprox(alpha=-1.0), "alpha=-1.0"),
        (lambda: simulation_one(support=2000), "support=2000"),
        (lambda: simulation_two(rows=10, positives=11), "positives=11"),
        (lambda: softmax_fedfw(rows=10, clients=9), "clients=9"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", SYNTHETIC)
def test_sets_that_no_computer_has_room_for_are_refused_before_they_are_made(name):
    arguments = inspect.signature(SYNTHETIC[name]).parameters
    large = {key: 2**20 for key in ("rows", "columns", "dim", "features") if key in arguments}
    with pytest.raises(ValueError, match=rf"^{name}: .* numbers; more than 1,073,741,824 are not"):
        load(name, **large)
