"""FedSGM and PrimalDualAvg under two constraints: their pseudo-code in NumPy, their ends."""

import dataclasses

import numpy as np
import pytest

import fedmin
import known
from agreement import run
from fedmin import Full
from test_oracles import averaged, local_steps

ROUNDS, STEP, K = 6, 0.4, 3
LIMIT, RADIUS = 0.62, 0.25


@pytest.fixture
def world() -> known.World:
    return known.logistic()


def solved(world, method, **options):
    limits = fedmin.LossAtMost(LIMIT), fedmin.NormAtMost(RADIUS)
    problem = fedmin.subject_to(world.problem, *limits, tolerance=100.0)
    return run(dataclasses.replace(world, problem=problem), method, **options)


def values(world, x):
    loss = world.objective(x) - world.l2 / 2 * x @ x
    return np.array([loss - LIMIT, x @ x - RADIUS**2])


def slopes(world, i, y):
    """Of client i's f_0 + r, and of its two constraints."""
    whole = world.gradient(i, y)
    return np.stack([whole, whole - world.l2 * y, 2 * y])


def walked(world, x, price):
    local = local_steps(lambda i, y, _: price @ slopes(world, i, y), STEP, K)
    return x + averaged(world, local, x, list(range(5)))


@pytest.mark.parametrize("sharp", [None, 5.0], ids=["hard", "soft"])
def test_fedsgm(world, sharp):
    """[upadhyay2026fedsgm] Algorithm 1 without compression, hard and soft switch; its answer."""
    within, x, met, shares = 0.01, np.zeros(world.dim), [], []
    for _ in range(ROUNDS):
        f = values(world, x)
        over, worst = f.max() - within, f.argmax()
        share = float(over > 0) if sharp is None else np.clip(1 + sharp * over, 0, 1)
        met += [x] if over <= 0 else []
        price = np.array([1 - share, 0, 0])
        price[1 + worst] = share
        x = walked(world, x, price)
        shares.append((share > 0.5, int(worst)))
    method = fedmin.FedSGM(STEP, K, batches=Full(), within=within, sharp=sharp)
    result = solved(world, method, rounds=ROUNDS)
    np.testing.assert_allclose(result.solution, x, rtol=1e-9)
    assert result.final("feasible_rounds") == len(met)
    assert len(set(shares)) > 1  # it did switch
    if met and sharp is None:
        best = solved(world, dataclasses.replace(method, best=True), rounds=ROUNDS)
        np.testing.assert_allclose(best.solution, np.mean(met, axis=0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("divided", [True, False])
def test_primal_dual_avg(world, divided):
    """[sohrabi2024pi] Algorithm 1: xi, then nu by e and by the change of xi, within nu >= 0."""
    ki, kp, a = 0.7, 1.3, 0.4
    x, nu, xi = np.zeros(world.dim), np.zeros(2), np.zeros(2)
    for _ in range(ROUNDS):
        price = np.array([1.0, *nu])
        e = values(world, x)
        x = walked(world, x, price / price.sum() if divided else price)
        new = a * xi + (1 - a) * e
        nu, xi = np.maximum(nu + ki * e + kp * (new - xi), 0), new
    method = fedmin.PrimalDualAvg(
        STEP, K, batches=Full(), integral=ki, proportional=kp, smoothing=a, divided=divided
    )
    result = solved(world, method, rounds=ROUNDS)
    np.testing.assert_allclose(result.solution, x, rtol=1e-9)
    np.testing.assert_allclose(result.server.multipliers, nu, rtol=1e-9, atol=1e-12)
    assert nu.max() > 0


def test_a_pi_rule_ends_at_the_optimum(world):
    """As SSCA does: the model of SciPy's answer to a norm that binds."""
    radius = 0.6 * np.linalg.norm(world.minimizer)
    problem = fedmin.subject_to(world.problem, fedmin.NormAtMost(radius))
    method = fedmin.PrimalDualAvg(0.5, batches=Full(), integral=1.0)
    result = run(dataclasses.replace(world, problem=problem), method, rounds=800, every=400)
    assert np.linalg.norm(result.solution) == pytest.approx(radius, rel=1e-4)
    assert result.certificate.stationarity < 1e-4


def test_settings_that_make_no_sense_are_refused():
    for make, said in (
        (lambda: fedmin.FedSGM(within=-1.0), "within must be"),
        (lambda: fedmin.FedSGM(sharp=0.0), "sharp must be more than 0"),
        (lambda: fedmin.PrimalDualAvg(integral=0.0), "integral must be more than 0"),
        (lambda: fedmin.PrimalDualAvg(proportional=-1.0), "proportional must be"),
        (lambda: fedmin.PrimalDualAvg(smoothing=1.0), "smoothing must be"),
    ):
        with pytest.raises(ValueError, match=said):
            make()
