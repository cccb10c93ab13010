"""SSCA where columns are split (Algorithms 3 and 4): the same run, whoever holds what."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedmin
import thorough
from agreement import ONE_BY_ONE
from fedmin import SSCA, Full, Power, WithoutReplacement
from parted import CLASSES, FLAGS, LABELS, ORDER, K, N, X, split

MLP = fedmin.MLP(K, CLASSES, hidden=(4,), l2=0.02)
SOFTMAX = fedmin.Softmax(K, CLASSES, l2=0.1, bias=True)
PROBLEMS = {
    "mlp, M = 0": MLP,
    "mlp, smallest": fedmin.smallest(MLP, loss_at_most=0.9, tolerance=100.0),
    "softmax, M = 4": fedmin.subject_to(
        SOFTMAX,
        fedmin.LossAtMost(1.0),
        fedmin.GroupLossAtMost((0.8, 1.0, 1.2)),
        tolerance=100.0,
    ),
}
METHOD = SSCA(Power(0.9, 0.3), Power(0.9, 0.35), tau=0.3, batches=WithoutReplacement(5))
ROUNDS = 6


def solve(problem, federation, method=METHOD, engine=ONE_BY_ONE):
    return fedmin.minimize(problem, federation, method, rounds=ROUNDS, engine=engine)


@cache
def alone(name):
    """One client with all columns."""
    return solve(PROBLEMS[name], split((K,)))


@pytest.mark.parametrize("name", thorough.first(PROBLEMS))
@settings(max_examples=2)  # each split is a program of its own
@given(edges=st.sets(st.integers(1, K - 1), min_size=1, max_size=K - 1))
def test_any_split_is_one_client(name, edges):
    """Random widths, 1 to 7 clients: the same model, multipliers and history, to rounding."""
    sizes = tuple(np.diff([0, *sorted(edges), K]))
    found, one = solve(PROBLEMS[name], split(sizes)), alone(name)
    np.testing.assert_allclose(found.solution, one.solution, rtol=1e-9, atol=1e-11)
    for column in one.history:
        if column != "seconds" and not column.startswith("bytes"):
            np.testing.assert_allclose(
                found.history[column], one.history[column], rtol=1e-8, atol=1e-10
            )


@pytest.mark.parametrize("name", PROBLEMS)
def test_columns_are_rows_of_one_client(name):
    """With all rows in every batch there is nothing to draw: Algorithm 3 is 1, and 4 is 2."""
    method = SSCA(Power(0.9, 0.3), Power(0.9, 0.35), tau=0.3, batches=Full())
    rows = fedmin.Federation.from_parts(X[:, ORDER], LABELS, [range(N)], classes=CLASSES)
    whole, parted = (
        solve(PROBLEMS[name], federation, method) for federation in (rows, split((2, 4, 1)))
    )
    np.testing.assert_allclose(parted.solution, whole.solution, rtol=1e-9, atol=1e-11)
    assert parted.certificate.constraints == pytest.approx(whole.certificate.constraints)


@pytest.mark.parametrize(
    ("name", "labels"),
    [("mlp, M = 0", "server"), ("mlp, smallest", "b"), ("softmax, M = 4", "everyone")],
)
def test_loopback_and_label_holders_agree(name, labels):
    federation = split((3, 1, 3), labels=labels)
    fast, honest = (
        solve(PROBLEMS[name], federation, engine=engine)
        for engine in (fedmin.Simulator(), fedmin.Loopback())
    )
    np.testing.assert_allclose(fast.solution, alone(name).solution, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(honest.solution, fast.solution, rtol=1e-9, atol=1e-11)
    assert honest.ledger.by_kind() == fast.ledger.by_kind()
    assert fast.history["bytes_up"][-1] == fast.ledger.bytes("up")


def test_an_objective_without_data_is_not_sent():
    """minimize |x|^2: one gradient a client, that of the constraint."""
    small, both = (
        solve(problem, split((2, 5))).ledger.by_kind()["up gradient"]
        for problem in (
            PROBLEMS["mlp, smallest"],
            fedmin.subject_to(MLP, fedmin.LossAtMost(0.9), tolerance=100.0),
        )
    )
    assert both == 2 * small


def test_ends_at_a_kkt_point():
    """Logistic regression on two parties under a loss limit below the free fit's loss."""
    free = fedmin.Logistic(K, l2=0.05)
    federation = split((3, 4), y=FLAGS)
    method = SSCA(1.0, 0.5, tau=0.5, batches=Full(), penalty=100.0)
    fit = fedmin.minimize(free, federation, method, rounds=200, every=200, engine=ONE_BY_ONE)
    limit = fit.certificate.objective - float(free.regularizer(fit.solution)) - 0.02
    bounded = fedmin.subject_to(free, fedmin.LossAtMost(limit), tolerance=1e-5)
    result = fedmin.minimize(bounded, federation, method, rounds=600, every=100, engine=ONE_BY_ONE)
    assert result.status == "done"
    assert result.certificate.violation <= 1e-5
    assert result.certificate.stationarity < 1e-4
    assert result.certificate.multipliers[0] > 0


def test_what_columns_cannot_do_is_refused():
    federation = split((3, 4), y=FLAGS)
    logistic = fedmin.Logistic(K)
    for limit in (
        fedmin.NormAtMost(1.0),
        fedmin.GroupLossAtMost((1.0,), column=2),
        fedmin.RowMean(lambda x, rows: rows.x @ x),
    ):
        with pytest.raises(ValueError, match="needs whole rows or the whole model"):
            solve(fedmin.subject_to(logistic, limit), federation)
    for method in (SSCA(local_steps=2), SSCA(tau=fedmin.Tuned())):
        with pytest.raises(ValueError, match="on rows only"):
            solve(logistic, federation, method)
    network = fedmin.CNN((1, 7, 1), 2, channels=(), hidden=())
    with pytest.raises((ValueError, TypeError), match="columns"):
        solve(network, federation)
