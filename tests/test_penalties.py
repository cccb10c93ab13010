"""Composite problems: proximal maps against SciPy, methods against NumPy and scikit-learn."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from sklearn.linear_model import Lasso

import fedmin
import known
from agreement import run
from fedmin import FedDR, FedDualAvg, FedMid, Full, L1Penalty, NuclearPenalty

ROUNDS, WEIGHT = 5, 0.05


def composite(**options) -> known.World:
    world = known.apart(**options)
    return dataclasses.replace(world, problem=fedmin.over(world.problem, L1Penalty(WEIGHT)))


def shrunk(x: np.ndarray, by: float) -> np.ndarray:
    return np.sign(x) * np.maximum(np.abs(x) - by, 0)


def lowest(world: known.World, weight: float = WEIGHT) -> np.ndarray:
    """The minimizer of F + w |x|_1, with x = u - v, u, v >= 0, by SciPy."""
    d = world.dim

    def value(both):
        u, v = both[:d], both[d:]
        return world.objective(u - v) + weight * np.sum(both)

    found = scipy.optimize.minimize(
        value, np.full(2 * d, 0.1), bounds=[(0, None)] * (2 * d), options={"ftol": 1e-15}
    )
    return found.x[:d] - found.x[d:]


@pytest.mark.parametrize(
    "penalty",
    [
        L1Penalty(0.3),
        NuclearPenalty(0.3, (2, 3)),
        fedmin.Product({"a": L1Penalty(0.3), "b": fedmin.Free()}).fitted({"a": (4,), "b": (2,)}),
    ],
    ids=["l1", "nuclear", "product"],
)
def test_a_prox_is_the_minimizer(penalty, rng):
    """No point near it is lower, and it is where a search without derivatives ends too."""
    x, t = jnp.asarray(rng.standard_normal(6)), 0.7

    def value(u):
        return float(jnp.sum((u - x) ** 2) / 2 + t * penalty.value(jnp.asarray(u)))

    found = np.asarray(penalty.prox(x, t))
    for _ in range(200):
        assert value(found + 1e-3 * rng.standard_normal(6)) > value(found)
    search = scipy.optimize.minimize(
        value, found + 0.1, method="Powell", options={"xtol": 1e-9, "ftol": 1e-14, "maxiter": 20000}
    )
    assert value(found) <= search.fun + 1e-12
    # far from the others' start Powell ends near too; a prox of half the length would not pass
    np.testing.assert_allclose(search.fun, value(found), rtol=1e-3)


def test_fedmid():
    """[yuan2021composite] Algorithm 1: prox of eta at the clients, of eta_s eta K at the server."""
    world, x = composite(), np.zeros(known.FEATURES)
    for _ in range(ROUNDS):
        total = np.zeros(world.dim)
        for i, p in enumerate(world.shares):
            y = x
            for _ in range(2):
                y = shrunk(y - 0.4 * world.gradient(i, y), 0.4 * WEIGHT)
            total += p * (y - x)
        x = shrunk(x + 0.9 * total, 0.9 * 0.4 * 2 * WEIGHT)
    method = FedMid(0.4, local_steps=2, batches=Full(), server_step=0.9)
    np.testing.assert_allclose(run(world, method, rounds=ROUNDS).solution, x, rtol=1e-10)


def test_feddualavg():
    """[yuan2021composite] Algorithm 2: the prox of eta_s eta r K + eta k in round r, step k."""
    world, z = composite(), np.zeros(known.FEATURES)
    for r in range(ROUNDS):
        total = np.zeros_like(z)
        for i, p in enumerate(world.shares):
            v = z
            for k in range(2):
                far = 0.9 * 0.4 * r * 2 + 0.4 * k
                v = v - 0.4 * world.gradient(i, shrunk(v, far * WEIGHT))
            total += p * (v - z)
        z = z + 0.9 * total
    method = FedDualAvg(0.4, local_steps=2, batches=Full(), server_step=0.9)
    result = run(world, method, rounds=ROUNDS)
    expected = shrunk(z, 0.9 * 0.4 * 2 * ROUNDS * WEIGHT)
    np.testing.assert_allclose(result.solution, expected, rtol=1e-10)
    assert result.ledger.by_kind()["down time"] == ROUNDS * 5 * 8


def test_feddr():
    """[trandinh2021feddr] Algorithm 1 with the prox of eta w |.|_1 at the server, alpha = 1.5."""
    world = composite()
    x, y = np.zeros((5, world.dim)), np.zeros((5, world.dim))
    mean = np.zeros(world.dim)
    for _ in range(ROUNDS):
        for i in range(5):
            y[i] = y[i] + 1.5 * (mean - x[i])
            for _ in range(3):
                x[i] = x[i] - 0.3 * (world.gradient(i, x[i]) + (x[i] - y[i]) / 2.0)
        mean = shrunk(world.shares @ (2 * x - y), 2.0 * WEIGHT)
    method = FedDR(eta=2.0, alpha=1.5, step=0.3, local_steps=3)
    np.testing.assert_allclose(run(world, method, rounds=ROUNDS).solution, mean, rtol=1e-10)


@pytest.mark.parametrize(
    "method",
    [
        FedMid(0.8, batches=Full(), locally=False),
        FedDualAvg(0.8, batches=Full()),
        FedDR(eta=1.0, alpha=1.5, step=0.4, local_steps=30),
    ],
    ids=lambda m: type(m).__name__,
)
def test_all_reach_the_minimizer(method):
    world = composite()
    best = lowest(world)
    result = run(world, method, rounds=400, every=400)
    np.testing.assert_allclose(result.solution, best, atol=2e-5)
    # the recorded objective has the penalty in it
    expected = world.objective(best) + WEIGHT * np.abs(best).sum()
    np.testing.assert_allclose(result.final("objective"), expected, rtol=1e-8)


def test_fedmid_as_printed_counts_the_penalty_twice():
    """One client, K = 1, eta_s = 1: two proxes of eta are one of 2 eta: it solves F + 2 w |x|_1."""
    world = composite(sizes=(20,))
    result = run(world, FedMid(0.8, batches=Full()), rounds=400, every=400)
    np.testing.assert_allclose(result.solution, lowest(world, 2 * WEIGHT), atol=2e-5)
    assert np.linalg.norm(result.solution - lowest(world)) > 0.05


def test_a_path_of_weights_is_scikit_learns():
    """The lasso at several weights, each from the last one's end, as scikit-learn's Lasso."""
    sample = fedmin.data.sparse_regression(120, 20, support=4, noise=1.0, clients=3)
    federation = fedmin.data.partition(sample)
    z, y = np.asarray(federation.pool.x.values), np.asarray(federation.pool.y)
    core, start, sizes = fedmin.LeastSquares(20), None, []
    step = fedmin.constants(core, federation).step
    for weight in (1.0, 0.3, 0.1):
        problem = fedmin.over(core, L1Penalty(weight))
        method = FedMid(step, batches=Full(), locally=False)
        result = fedmin.minimize(
            problem, federation, method, rounds=600, every=600, start=start, progress=False
        )
        expected = Lasso(alpha=weight, fit_intercept=False, tol=1e-12, max_iter=100000).fit(z, y)
        np.testing.assert_allclose(result.solution, expected.coef_, atol=1e-5)
        start = result.solution
        sizes.append(np.count_nonzero(start))
    assert sizes[0] < sizes[-1] < 20


def test_relaxation_near_two_needs_fewer_rounds():
    """alpha = 1.9 against 1: the rounds to a distance of 1e-6, the prox solved well."""
    world = composite()
    best, rounds = lowest(world), []
    for alpha in (1.0, 1.9):
        method = FedDR(eta=0.5, alpha=alpha, step=0.3, local_steps=60)
        far = [
            np.linalg.norm(run(world, method, rounds=r, every=r).solution - best)
            for r in range(5, 80, 5)
        ]
        rounds.append(5 + 5 * int(np.argmax(np.array(far) < 1e-4)))
    assert rounds[1] < 0.7 * rounds[0]


def test_those_that_need_a_set_refuse_a_penalty():
    world = composite()
    for method, words in (
        (fedmin.FedFW(), "to be bounded"),
        (fedmin.FedHT(), "projection"),
        (fedmin.FedAvg(), "does not handle a domain"),
        (FedMid(epochs=1), "give local_steps, not epochs"),
    ):
        with pytest.raises(ValueError, match=words):
            run(world, method)
    with pytest.raises(ValueError, match="weight must be more than 0"):
        L1Penalty(0.0)
    with pytest.raises(ValueError, match="NuclearPenalty has no shape yet"):
        NuclearPenalty(1.0).prox(jnp.ones(4), 1.0)
