"""SSCA() without a number: its rule in NumPy, where it ends, on rows, sets and columns."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import fedmin
import known
from agreement import ONE_BY_ONE, run
from fedmin import SSCA, Full, WithoutReplacement
from fedmin.client import row_memory
from parted import CLASSES, LABELS, ORDER, K, N, X, split
from test_ssca import constrained_optimum, estimates

RADIUS = 0.004  # what descent alone leaves within a few rounds


@pytest.fixture
def world() -> known.World:
    return known.logistic()


def limited(world, **options):
    limits = fedmin.NormAtMost(RADIUS)
    problem = fedmin.subject_to(world.problem, limits, tolerance=100.0)
    apart = dataclasses.replace(world, problem=problem)
    return run(apart, SSCA(batches=Full()), **options)


def rms(a):
    return np.sqrt(np.mean(a**2))


def way(G, D, nu):
    return -(G[0] + nu * G[1]) / (2 * (D[0] + nu * D[1]))


def multiplier(v, level, slope, curve) -> float:
    """Where the constraint's surrogate is 0 at the way of a multiplier, within [0, 1e5]."""
    value = lambda nu: level + slope @ v(nu) + curve @ v(nu) ** 2
    if value(0) <= 0 or value(1e5) > 0:
        return 0.0 if value(0) <= 0 else 1e5
    return scipy.optimize.brentq(value, 0, 1e5, xtol=1e-13, rtol=1e-14)


def by_the_page(world, rounds):
    """The rule of server/adaptive.py from its docstring, M = 1; its inner problem by a root."""
    w = x = v = np.zeros(world.dim)
    G, V, K, step, nu = 0.0, 0.0, np.ones(world.dim), 0.1 * 0.01, 0.0
    A = u = d = before = spread = 0.0
    for k in range(1, rounds + 1):
        mix = lambda old, new, weight, k=k: old + max(weight, 1 / k) * (new - old)
        slope = estimates(world, Full(), k - 1, w)[1]
        f, g = w @ w - RADIUS**2, np.stack([slope + world.l2 * w, 2 * w])
        L = g[0] + nu * g[1]
        if v.any():
            step *= np.exp(-0.2 * (L @ v) / np.sqrt((L**2 / K).sum() * (v**2 * K).sum()))
        G, V = mix(G, g, 0.1), mix(V, g**2, 0.01)
        D = (np.sqrt(V) + 0.1 * np.sqrt(V.mean(axis=1, keepdims=True))) / (2 * step)
        beta = max(0.2 * (1 + k / 100) ** -0.75, 1 / k)
        pred = f if k == 1 else A + u + d
        inn = f - pred
        A = pred + beta * inn
        d += beta**2 / 4 * inn if k > 10 else 0
        if k > 2:
            spread += max(0.05, 1 / (k - 1)) * ((inn - before) ** 2 / 2 - spread)
        before = inn
        needed = 0.2 * (A + np.sqrt(spread * beta / (2 - beta))) + d
        nu = multiplier(lambda m: way(G, D, m), needed, G[1], D[1])
        v = way(G, D, nu)
        w = w + v
        K, u = D[0] + nu * D[1], G[1] @ v + D[1] @ v**2
        x = mix(x, w, 0.1 * (1 + k / 100) ** -0.5)
    return x, nu


def test_the_rule_as_it_is_written(world):
    """Fourteen rounds to a limit that binds, the drift's first moves among them."""
    x, nu = by_the_page(world, 14)
    result = limited(world, rounds=14)
    np.testing.assert_allclose(result.solution, x, rtol=1e-6)
    np.testing.assert_allclose(result.final("multiplier"), nu, rtol=1e-5)
    assert nu > 0


@pytest.mark.filterwarnings("ignore:SSCA:RuntimeWarning")
def test_ends_where_scipy_does(world):
    """A limit that binds: the same point, whatever step there was in the beginning."""
    mean_loss = lambda x: world.objective(x) - 0.5 * world.l2 * x @ x
    free = world.minimizer
    problem = fedmin.subject_to(
        world.problem, fedmin.NormAtMost(0.8 * np.linalg.norm(free)), fedmin.LossAtMost(2.0)
    )
    result = run(
        dataclasses.replace(world, problem=problem), SSCA(batches=Full()), rounds=500, every=250
    )
    limits = [lambda x: x @ x - 0.64 * free @ free, lambda x: mean_loss(x) - 2.0]
    expected = constrained_optimum(world, limits, 0.1 * free)
    np.testing.assert_allclose(result.solution, expected, atol=1e-4)
    assert result.final("multiplier_1") > 0 == result.final("multiplier_2")
    assert result.status == "done"
    assert result.final("step") > 0


def test_a_set_and_a_limit_at_once(world):
    """Over an l1 ball that is in the way: inside of it, and no higher than SciPy's answer."""
    radius = 0.5 * np.abs(world.minimizer).sum()
    inner = fedmin.over(world.problem, fedmin.L1Ball(radius))
    problem = fedmin.subject_to(inner, fedmin.NormAtMost(0.4 * np.linalg.norm(world.minimizer)))
    result = run(
        dataclasses.replace(world, problem=problem), SSCA(batches=Full()), rounds=500, every=250
    )
    size = lambda x: x @ x - 0.16 * world.minimizer @ world.minimizer
    ball = lambda x: np.abs(x).sum() - radius
    expected = constrained_optimum(world, [size, ball], 0.1 * world.minimizer)
    assert np.abs(result.solution).sum() <= radius * (1 + 1e-9)
    assert size(result.solution) <= 1e-6
    assert world.objective(result.solution) <= world.objective(expected) + 1e-6


def test_over_a_sparse_set(world):
    problem = fedmin.over(world.problem, fedmin.L0Ball(2))
    result = run(dataclasses.replace(world, problem=problem), SSCA(batches=Full()), rounds=300)
    assert np.count_nonzero(result.solution) <= 2
    assert world.objective(result.solution) < world.objective(np.zeros(world.dim))


# ---------------------------------------------------------------- what clients remember


def test_a_limits_noise_dies_out_where_the_model_stands_still(world):
    """Every row was seen at this w: the estimate from any batch is the mean over all rows."""
    problem = fedmin.subject_to(world.problem, fedmin.LossAtMost(0.3), fedmin.NormAtMost(0.1))
    z, y = max(world.clients, key=lambda rows: len(rows[1]))
    weight = np.linspace(0.5, 2.0, len(y))
    pool = jax.tree.map(
        jnp.asarray, fedmin.rows(np.vstack([z, z]), np.append(y, y), np.append(weight, weight))
    )
    shard = fedmin.Shard(pool, jnp.int32(len(y)), jnp.int32(len(y)), len(y) + 2)
    w, batches = jnp.full(world.dim, 0.4), WithoutReplacement(2)
    loss = known.row_loss(world.problem, z @ np.asarray(w), y)
    true = np.average(loss, weights=weight) - 0.3, np.asarray(w) @ np.asarray(w) - 0.01

    @jax.jit
    def look(key, held):
        drawn = batches.draw(shard, key, jnp.int32(0))
        batch = batches.read(shard, drawn)
        return row_memory.mean(problem, batches, shard, drawn, batch, w, held)

    held, found = row_memory.none(problem, shard, w.dtype), []
    assert held.shape == (len(y) + 2, 2)
    for key in jax.random.split(jax.random.key(1), 12 * len(y)):
        value, held = look(key, held)
        found.append(np.asarray(value))
    np.testing.assert_allclose(held[: len(y), 0], loss - 0.3, rtol=1e-9)
    assert not held[len(y) :].any()  # padding is no row
    np.testing.assert_allclose(found[-1], true, rtol=1e-9)
    assert np.std(found[: len(y) // 2], axis=0)[0] > 1e-3


def test_nothing_is_remembered_of_whole_or_private_batches(world):
    problem = fedmin.subject_to(world.problem, fedmin.LossAtMost(0.3))
    private = fedmin.PrivateRows(0.5, multiplier=1.0)
    kinds = (Full(), private, WithoutReplacement(2))
    assert [row_memory.helps(problem, kind) for kind in kinds] == [False, False, True]
    assert not row_memory.helps(world.problem, WithoutReplacement(2))


# ---------------------------------------------------------------- which rule it is


def test_the_printed_rule_by_its_name():
    """As the papers have it for their three batches; and what makes a rule automatic."""
    for size, (a1, a2, alpha) in {
        1: (0.4, 0.4, 0.4),
        10: (0.6, 0.9, 0.3),
        100: (0.9, 0.9, 0.3),
    }.items():
        rho, gamma = fedmin.Power(a1, alpha), fedmin.Power(a2, alpha + 0.05)
        same = SSCA(rho, gamma, 0.1, WithoutReplacement(size), 1e5)
        assert SSCA.printed(batch=size) == same
        assert not same.automatic
    assert SSCA.printed(batch=10, batches=Full()).batches == Full()
    with pytest.raises(ValueError, match="unknown batch '7'; there is '1', '10', '100'"):
        SSCA.printed(batch=7)
    assert SSCA().automatic
    assert SSCA(batches=Full(), penalty=10.0, regularizer="exact").automatic
    own = ({"rho": 0.5}, {"gamma": 0.5}, {"tau": 0.1}, {"limits": "whole"}, {"local_steps": 2})
    for given in (*own, {"penalty": fedmin.Penalty(10.0)}):
        assert not SSCA(**given).automatic
    assert "outside" in SSCA().notes()[0]


def test_without_constraints_the_printed_rule_is_heavy_ball_descent(world):
    """G <- (1 - rho)(1 - gamma) G + rho g, w <- w - gamma/(2 tau) G."""
    rho, gamma, tau = 0.3, 0.2, 0.4
    w, G = np.zeros(world.dim), np.zeros(world.dim)
    # before round 1 the surrogate is tau |u|^2, whose slope at w = 0 is 0
    for _ in range(6):
        slope = sum(p * world.gradient(i, w) for i, p in enumerate(world.shares))
        G = (1 - rho) * (1 - gamma) * G + rho * slope
        w = w - gamma / (2 * tau) * G
    result = run(world, SSCA(rho, gamma, tau, Full()), rounds=6)
    np.testing.assert_allclose(result.solution, w, rtol=1e-9)


def test_theorem_5_a_weight_and_a_limit_are_the_same_model(world):
    """The minimum of F + lambda |w|^2 is the smallest w with F <= U = F there; xi = 1/lambda."""
    weighted, lam = world.minimizer, world.l2 / 2
    U = world.objective(weighted) - lam * weighted @ weighted
    problem = fedmin.smallest(world.problem, loss_at_most=U, tolerance=1e-5)
    result = run(dataclasses.replace(world, problem=problem), SSCA(batches=Full()), rounds=600)
    np.testing.assert_allclose(result.solution, weighted, atol=1e-4)
    assert result.final("multiplier") == pytest.approx(1 / lam, rel=1e-3)


# ---------------------------------------------------------------- columns


def test_columns_are_rows_of_one_client():
    """With all rows in every batch: the same model, multipliers and step."""
    softmax = fedmin.Softmax(K, CLASSES, l2=0.1, bias=True)
    problem = fedmin.subject_to(softmax, fedmin.LossAtMost(1.0), tolerance=100.0)
    rows = fedmin.Federation.from_parts(X[:, ORDER], LABELS, [range(N)], classes=CLASSES)
    whole, parted = (
        fedmin.minimize(
            problem, each, SSCA(batches=Full()), rounds=8, every=8, engine=ONE_BY_ONE,
            certificate=False,
        )
        for each in (rows, split((2, 4, 1)))
    )  # fmt: skip
    np.testing.assert_allclose(parted.solution, whole.solution, rtol=1e-7, atol=1e-9)
    for column in ("multiplier", "step", "violation"):
        assert parted.final(column) == pytest.approx(whole.final(column), rel=1e-6)
