"""SSCA against the paper's pseudo-code in NumPy, against SciPy, and what it promises."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import fedmin
import known
from agreement import run
from fedmin import SSCA, Full, Power
from fedmin.core.kkt import reach
from fedmin.core.problem import stacked
from fedmin.runs.config import Config
from fedmin.runs.registries import KINDS
from fedmin.runs.values import make
from test_oracles import batch_rows
from test_qcqp import clarabel_solve, solve

ROUNDS = 5


@pytest.fixture
def world() -> known.World:
    return known.logistic()


def schedules(t: int) -> tuple[float, float]:
    """rho and gamma of round t = 0, 1, .., the paper's t being one more."""
    return 0.6 / (t + 1) ** 0.3, 0.9 / (t + 1) ** 0.35


RHO, GAMMA = Power(0.6, 0.3), Power(0.9, 0.35)


def estimates(world, batches, t, w):
    """sum_i N_i/(B N) times the batch sums of the loss and of its gradient: the paper's (7)."""
    value, slope = 0.0, np.zeros(world.dim)
    for i, p in enumerate(world.shares):
        z, y = world.clients[i]
        if not isinstance(batches, Full):
            ((z, y),) = batch_rows(world, batches, 0, t, i, 1)
        value += p * np.mean(known.row_loss(world.problem, z @ w, y))
        slope += p * known.residual(world.problem, z @ w, y) @ z / len(y)
    return value, slope


BATCHES = [Full(), fedmin.WithoutReplacement(2)]


@pytest.mark.parametrize("batches", BATCHES, ids=["full", "two rows"])
@pytest.mark.parametrize("kept", ["linear", "exact"])
def test_algorithm_1(world, kept, batches):
    """F + lambda |w|^2 with lambda = l2/2, the regularizer as printed (beta) or kept."""
    tau, lam = 0.3, world.l2 / 2
    w, fhat, beta = np.zeros(world.dim), np.zeros(world.dim), np.zeros(world.dim)
    for t in range(ROUNDS):
        rho, gamma = schedules(t)
        fhat = (1 - rho) * fhat + rho * (estimates(world, batches, t, w)[1] - 2 * tau * w)
        beta = (1 - rho) * beta + rho * w
        paper, better = -(fhat + 2 * lam * beta) / (2 * tau), -fhat / (2 * (tau + lam))
        w = (1 - gamma) * w + gamma * (paper if kept == "linear" else better)
    method = SSCA(RHO, GAMMA, tau, batches, regularizer=kept)
    result = run(world, method, rounds=ROUNDS)
    np.testing.assert_allclose(result.solution, w, rtol=1e-9)


@pytest.mark.parametrize(
    ("batches", "limit", "limits"),
    [
        (BATCHES[0], 0.2, "averaged"),
        (BATCHES[0], 0.9, "averaged"),
        (BATCHES[1], 0.6, "averaged"),
        (BATCHES[0], 0.6, "whole"),
        (BATCHES[1], 0.6, "whole"),
    ],
    ids=["full, tight", "full, loose", "two rows", "full, as printed", "two rows, as printed"],
)
def test_algorithm_2_with_the_papers_closed_form(world, batches, limit, limits):
    """minimize |w|^2 subject to F(w) <= U: section V of the paper, eq. (37)-(42).

    As printed A is the running mean of F and U is subtracted whole, (38) and (39); Algorithm 2
    taken by its word has F - U as its function, and U is averaged from 0 like everything else.
    """
    tau, c = 0.3, 40.0
    w, A, U, slope = np.zeros(world.dim), 0.0, 0.0, np.zeros(world.dim)
    for t in range(ROUNDS):
        rho, gamma = schedules(t)
        f, g = estimates(world, batches, t, w)
        A = (1 - rho) * A + rho * (f - g @ w + tau * w @ w)  # (39), with the sign of (32) repaired
        U = limit if limits == "whole" else (1 - rho) * U + rho * limit
        slope = (1 - rho) * slope + rho * (g - 2 * tau * w)  # (30), (31)
        b = slope @ slope
        room = b + 4 * tau * (U - A)
        nu = np.clip((np.sqrt(b / room) - 1) / tau, 0, c) if room > 0 else c  # (42)
        w = (1 - gamma) * w + gamma * (-nu * slope / (2 * (1 + nu * tau)))  # (40), (41)
    problem = fedmin.smallest(world.problem, loss_at_most=limit, tolerance=100.0)
    result = run(
        dataclasses.replace(world, problem=problem),
        SSCA(RHO, GAMMA, tau, batches, penalty=c, limits=limits),
        rounds=ROUNDS,
    )
    np.testing.assert_allclose(result.solution, w, rtol=1e-8)
    np.testing.assert_allclose(result.final("multiplier"), nu, rtol=1e-7, atol=1e-10)
    assert (limit == 0.9) == (nu == 0)


def test_algorithm_2_with_two_constraints(world):
    """The loss under a norm budget and a loss limit, the inner problem by Clarabel."""
    tau, c, radius, limit = 0.3, 5.0, 0.5, 0.64
    w, levels, slopes = np.zeros(world.dim), np.zeros(2), np.zeros((3, world.dim))
    for t in range(ROUNDS):
        rho, gamma = schedules(t)
        f, g = estimates(world, Full(), t, w)
        values = np.array([f - limit, w @ w - radius**2])
        new = np.stack([g + world.l2 * w, g, 2 * w])
        levels = (1 - rho) * levels + rho * (values - new[1:] @ w + tau * w @ w)
        slopes = (1 - rho) * slopes + rho * (new - 2 * tau * w)
        wbar = clarabel_solve(slopes[0], tau, slopes[1:], levels, tau, c)
        w = (1 - gamma) * w + gamma * wbar
    limits = fedmin.LossAtMost(limit), fedmin.NormAtMost(radius)
    problem = fedmin.subject_to(world.problem, *limits, tolerance=100.0)
    method = SSCA(RHO, GAMMA, tau, Full(), penalty=c)
    result = run(dataclasses.replace(world, problem=problem), method, rounds=ROUNDS)
    np.testing.assert_allclose(result.solution, w, rtol=1e-5)


def test_several_local_steps(world):
    """A client's surrogate is the mean of those at the K points of its own walk."""
    tau, eta, K, c, limit = 0.3, 0.4, 3, 40.0, 0.6
    problem = fedmin.subject_to(world.problem, fedmin.LossAtMost(limit), tolerance=100.0)
    w, nu = np.zeros(world.dim), 0.0
    level, slopes = 0.0, np.zeros((2, world.dim))
    for t in range(ROUNDS):
        rho, gamma = schedules(t)
        new_level, new_slopes = 0.0, np.zeros((2, world.dim))
        for i, p in enumerate(world.shares):
            z, labels = world.clients[i]
            y = w
            for _ in range(K):
                f = np.mean(known.row_loss(world.problem, z @ y, labels)) - limit
                g = known.residual(world.problem, z @ y, labels) @ z / len(labels)
                new_level += p / K * (f - g @ y + tau * y @ y)
                # the regularizer is linearized at w, which the server knows
                new_slopes += p / K * np.stack([g + world.l2 * w - 2 * tau * y, g - 2 * tau * y])
                y = y - eta * ((1 + nu) * g + world.l2 * y) / (1 + nu)
        level = (1 - rho) * level + rho * new_level
        slopes = (1 - rho) * slopes + rho * new_slopes
        answer = solve(slopes[0], tau, slopes[1:], np.array([level]), tau, c)
        nu = float(answer.multipliers[0])
        w = (1 - gamma) * w + gamma * np.asarray(answer.w)
    method = SSCA(RHO, GAMMA, tau, Full(), penalty=c, local_steps=K, local_step=eta)
    result = run(dataclasses.replace(world, problem=problem), method, rounds=ROUNDS)
    np.testing.assert_allclose(result.solution, w, rtol=1e-9)
    assert nu > 0


def test_local_steps_stay_finite_where_the_multipliers_are_at_their_price(world):
    """A limit that nobody can meet: nu is 1e5, and a client still takes steps of its own size."""
    problem = fedmin.smallest(world.problem, loss_at_most=-1.0, tolerance=100.0)
    method = SSCA(RHO, GAMMA, 0.3, Full(), local_steps=3, local_step=0.4)
    result = run(dataclasses.replace(world, problem=problem), method, rounds=100, every=100)
    assert result.final("multiplier") == pytest.approx(1e5)
    loss = lambda x: world.objective(x) - 0.5 * world.l2 * x @ x
    best = scipy.optimize.minimize(loss, np.zeros(world.dim)).fun
    assert loss(result.solution) < best + 0.05


def test_a_tuned_tau_is_the_curvature():
    """Least squares: along the last step v the curvature is v.H v / 2, whatever the point."""
    world = known.apart()
    pairs = zip(world.shares, world.clients, strict=True)
    H = sum(p * z.T @ z / len(y) for p, (z, y) in pairs)
    method = SSCA(1.0, 0.5, fedmin.Tuned(3.0, factor=2.0, slowly=0.01), Full())
    for rounds in range(1, 5):
        before = run(world, method, rounds=rounds)
        v = np.asarray(before.server.tau.toward)
        after = run(world, method, rounds=rounds + 1)
        assert np.linalg.norm(v) == pytest.approx(1.0)
        assert after.final("tau") == pytest.approx(2.0 * v @ H @ v / 2, rel=1e-9)
    slow = dataclasses.replace(method, tau=fedmin.Tuned(3.0, slowly=0.9))
    assert run(world, slow, rounds=3).final("tau") == pytest.approx(3.0 * 0.9**2)


RULES = """
[data]
name = "wine"
[problem]
name = "softmax"
[method]
name = "ssca"
tau = {name = "tuned", start = 0.2}
penalty = {name = "penalty", start = 10.0, growth = 2.0}
[run]
rounds = 1
"""


def test_rules_are_given_in_a_file_by_their_names():
    config = Config(RULES)
    made = make(config, "method", config.words["method"], KINDS["methods"])
    assert made == SSCA(tau=fedmin.Tuned(0.2), penalty=fedmin.Penalty(10.0, growth=2.0))


def test_numbers_are_swept(world):
    """Many runs of one program: each is the run with these numbers."""
    problem = fedmin.subject_to(world.problem, fedmin.LossAtMost(0.6), tolerance=100.0)
    over = {"tau": [0.2, 0.5], "penalty": [1.0, 100.0]}
    apart = dataclasses.replace(world, problem=problem)
    runs = fedmin.sweep(problem, world.federation, SSCA(batches=Full()), rounds=3, over=over)
    assert len(runs) == 4
    for each in runs:
        one = run(apart, each.method, rounds=3)
        np.testing.assert_allclose(each.solution, one.solution, rtol=1e-9)


def test_estimates_are_unbiased_for_unequal_clients(world):
    """The mean of many rounds' gradients, one row a client, is the gradient of F."""
    x = jnp.full(world.dim, 0.3)
    rows = [fedmin.rows(z, y) for z, y in world.clients]
    method = SSCA(batches=fedmin.WithoutReplacement(1))

    @jax.jit
    def once(key):
        total = jnp.zeros(world.dim)
        for i, p in enumerate(world.shares):
            own = jax.tree.map(jnp.asarray, rows[i])
            shard = fedmin.Shard(own, jnp.int32(0), jnp.int32(own.count), own.count)
            now = fedmin.Now(jnp.int32(0), key, jax.random.fold_in(key, i))
            up, _ = method.client(world.problem, shard, (), {"model": x}, now)
            total = total + p * stacked(up["gradients"])[0]
        return total

    draws = np.asarray(jax.vmap(once)(jax.random.split(jax.random.key(0), 4000)))
    true = sum(p * (world.gradient(i, x) - world.l2 * x) for i, p in enumerate(world.shares))
    off = (draws.mean(0) - true) / (draws.std(0) / np.sqrt(len(draws)))
    assert np.all(np.abs(off) < 4.5)
    assert np.all(draws.std(0) > 0)


# ---------------------------------------------------------------- where it ends


def constrained_optimum(world, limits, start) -> np.ndarray:
    """SciPy's SLSQP on the NumPy functions."""
    found = scipy.optimize.minimize(
        world.objective, start, method="SLSQP", options={"ftol": 1e-14, "maxiter": 500},
        constraints=[{"type": "ineq", "fun": lambda x, f=f: -f(x)} for f in limits],
    )  # fmt: skip
    return found.x


@pytest.mark.parametrize("radius", [0.3, 0.6, 10.0])
def test_ends_where_scipy_does(world, radius):
    """Active and inactive norm budgets: the same point, and multipliers that prove it."""
    problem = fedmin.subject_to(world.problem, fedmin.NormAtMost(radius))
    method = SSCA(Power(1.0, 0.0), Power(0.5, 0.0), tau=0.5, batches=Full(), penalty=100.0)
    result = run(dataclasses.replace(world, problem=problem), method, rounds=400, every=50)
    limit = lambda x: x @ x - radius**2
    expected = constrained_optimum(world, [limit], np.full(world.dim, 0.01))
    np.testing.assert_allclose(result.solution, expected, atol=2e-6)
    found = result.certificate
    assert found.feasible
    assert found.stationarity < 1e-6
    assert found.complementarity < 1e-6
    np.testing.assert_allclose(found.multipliers, found.best_multipliers, atol=1e-5)
    assert (found.multipliers[0] > 1e-3) == (radius < 5)
    assert result.final("stationarity") == pytest.approx(found.stationarity, abs=1e-9)


def test_group_limits_bind(world):
    """The loss on each label below a bound that the free fit breaks on one of them."""
    free = world.minimizer
    z, y = (np.concatenate(part) for part in zip(*world.clients, strict=True))
    loss = lambda x, g: np.mean(known.row_loss(world.problem, z @ x, y)[y == g])
    bounds = (loss(free, 0) + 1.0, loss(free, 1) - 0.01)
    problem = fedmin.subject_to(world.problem, fedmin.GroupLossAtMost(bounds), tolerance=1e-5)
    method = SSCA(1.0, 0.5, tau=0.5, batches=Full(), penalty=100.0)
    result = run(dataclasses.replace(world, problem=problem), method, rounds=600, every=100)
    x = result.solution
    assert loss(free, 1) > bounds[1] + 0.009
    assert loss(x, 1) == pytest.approx(bounds[1], abs=1e-5)
    assert loss(x, 0) < bounds[0]
    assert result.status == "done"
    expected = constrained_optimum(
        world, [lambda u, g=g: loss(u, g) - bounds[g] for g in (0, 1)], free
    )
    np.testing.assert_allclose(x, expected, atol=1e-4)
    assert result.certificate.multipliers[0] == 0 < result.certificate.multipliers[1]


def test_the_best_feasible_model_is_kept(world):
    """The lowest recorded objective among the models that met the constraint."""
    problem = fedmin.smallest(world.problem, loss_at_most=0.66, tolerance=1e-2)
    method = SSCA(RHO, GAMMA, 0.3, fedmin.WithoutReplacement(2), penalty=40.0)
    apart = dataclasses.replace(world, problem=problem)
    result = run(apart, method, rounds=60)
    fits = result.history["violation"] <= 1e-2
    assert 0 < fits.sum() < 61
    low = np.where(fits, result.history["objective"], np.inf)
    assert result.best.round == np.argmin(low)
    assert result.best.objective == low.min()
    again = run(apart, method, rounds=int(result.best.round))
    np.testing.assert_allclose(result.best_feasible, again.solution, rtol=1e-12)
    loop = run(apart, method, rounds=60, engine=fedmin.Loopback())
    assert loop.best.round == result.best.round


def test_the_status_is_that_of_the_last_model(world):
    """A run that met its limit on the way and ends above it is not done; the best is named."""
    problem = fedmin.smallest(world.problem, loss_at_most=0.66, tolerance=1e-2)
    method = SSCA(RHO, GAMMA, 0.3, fedmin.WithoutReplacement(2), penalty=40.0)
    apart = dataclasses.replace(world, problem=problem)
    history = run(apart, method, rounds=60).history["violation"]
    over, under = (int(np.flatnonzero(where)[-1]) for where in (history > 1e-2, history <= 1e-2))
    assert (history[:over] <= 1e-2).any()
    with pytest.warns(RuntimeWarning, match="the last model exceeds a constraint by") as said:
        ended = run(apart, method, rounds=over)
    assert ended.status == "infeasible"
    best = ended.best
    assert f"round {best.round}, with objective {best.objective:.6g}" in str(said[0].message)
    assert ended.best_feasible is not None
    assert run(apart, method, rounds=under).status == "done"
    with pytest.warns(RuntimeWarning, match="stopping rule held .*; the last model exceeds"):
        stopped = run(apart, method, rounds=60, stop=fedmin.Stop("violation", above=1e-2))
    assert stopped.status == "infeasible"


def test_constraints_that_nobody_recorded_are_measured_or_said_not_to_be(world):
    problem = fedmin.smallest(world.problem, loss_at_most=0.3)
    apart, options = dataclasses.replace(world, problem=problem), {"record": [fedmin.Objective()]}
    with pytest.warns(RuntimeWarning, match="need more rounds"):
        assert run(apart, SSCA(), rounds=1, **options).status == "infeasible"
    alone = run(apart, SSCA(), rounds=1, certificate=False, **options)
    assert "the constraints were not measured" in alone.reason


def test_infeasible_says_so(world):
    problem = fedmin.smallest(world.problem, loss_at_most=-1.0)
    with pytest.warns(RuntimeWarning, match="no recorded model met the constraints.*cannot be met"):
        result = run(
            dataclasses.replace(world, problem=problem), SSCA(penalty=10.0, tau=1.0), rounds=200
        )
    assert result.status == "infeasible"
    assert "a stationary point of the infeasibility" in str(result.certificate)
    assert np.isfinite(result.solution).all()
    assert result.best_feasible is None
    smallest = result.history["violation"].min()
    assert f"{smallest:.4g}" in result.reason
    assert result.final("multiplier") == 10.0  # at its limit: more slack is not paid for


def test_the_penalty_grows_until_there_is_no_slack(world):
    limit = world.objective(world.minimizer) + 0.02
    problem = fedmin.smallest(world.problem, loss_at_most=limit, tolerance=1e-2)
    rule = fedmin.Penalty(0.1, growth=10.0, every=40, slack=1e-4)
    apart = dataclasses.replace(world, problem=problem)
    result = run(apart, SSCA(1.0, 0.3, 0.3, Full(), penalty=rule), rounds=400)
    prices = result.history["penalty"]
    assert prices[0] == prices[39] == pytest.approx(0.1)
    assert prices[40] == pytest.approx(1.0)
    assert prices[-1] > 1.0
    assert result.final("slack") < 1e-3
    assert result.certificate.feasible
    low = run(apart, SSCA(1.0, 0.3, 0.3, Full(), penalty=1e9), rounds=400)
    np.testing.assert_allclose(result.solution, low.solution, atol=1e-3)


def test_stops_at_a_kkt_point(world):
    problem = fedmin.subject_to(world.problem, fedmin.NormAtMost(0.3))
    method = SSCA(1.0, 0.5, tau=0.5, batches=Full(), penalty=100.0)
    result = run(
        dataclasses.replace(world, problem=problem), method, rounds=500, stop=fedmin.KKT(1e-3)
    )
    assert result.status == "stopped"
    assert result.rounds < 400
    for column in ("violation", "stationarity", "complementarity"):
        assert result.final(column) <= 1e-3
        assert result.history[column].max() > 1e-3 or column == "violation"


# ---------------------------------------------------------------- certificates


@pytest.fixture(scope="module")
def certified():
    world = known.logistic()
    problem = fedmin.subject_to(world.problem, fedmin.NormAtMost(0.3))
    method = SSCA(0.9, 0.5, tau=0.5, batches=Full(), penalty=100.0)
    return problem, world, run(dataclasses.replace(world, problem=problem), method, rounds=50)


def test_a_certificate_can_be_checked_by_others(certified, tmp_path):
    problem, world, result = certified
    result.certificate.save(tmp_path / "certificate.json")
    read = fedmin.Certificate.load(tmp_path / "certificate.json")
    assert read == result.certificate
    assert read.check(problem, world.federation) == []
    moved = dataclasses.replace(read, solution=tuple(2 * v for v in read.solution))
    assert any("constraints" in wrong for wrong in moved.check(problem, world.federation))
    other = known.logistic().with_weights("uniform").federation
    assert any("data" in wrong for wrong in read.check(problem, other))
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="not a certificate"):
        fedmin.Certificate.load(tmp_path / "other.json")


def test_the_reach_is_the_shortest_step_to_first_order(rng):
    """Against SciPy on random half-spaces; infinite where two of them are opposed."""
    for count in (1, 2, 4):
        values, slopes = rng.normal(size=count) + 1.0, rng.normal(size=(count, 6))
        meets = {"type": "ineq", "fun": lambda v, a=values, b=slopes: -(a + b @ v)}
        shortest = scipy.optimize.minimize(
            lambda v: v @ v, np.zeros(6), constraints=[meets], options={"ftol": 1e-14}
        )
        assert reach(values, slopes) == pytest.approx(np.sqrt(shortest.fun), rel=1e-5)
    one = rng.normal(size=6)
    assert reach(np.array([1.0, 1.0]), np.stack([one, -one])) == np.inf
    assert reach(np.array([1.0, -1.0]), np.stack([0 * one, one])) == np.inf
    assert reach(np.array([1.0, -5.0]), np.stack([2 * one, 0 * one])) == pytest.approx(
        0.5 / np.linalg.norm(one)
    )


def test_certificates_of_0_2_are_read(certified, tmp_path):
    words = dataclasses.asdict(certified[2].certificate)
    (tmp_path / "old.json").write_text(json.dumps({k: v for k, v in words.items() if k != "reach"}))
    assert fedmin.Certificate.load(tmp_path / "old.json") == certified[2].certificate


def test_a_certificate_prints_as_a_table(certified):
    shown = str(certified[2].certificate)
    assert "stationarity" in shown
    assert "note: outside the theorem: gamma does not tend to 0" in shown


@pytest.mark.parametrize(
    ("rho", "gamma", "said"),
    [
        (Power(0.9, 0.3), Power(0.9, 0.35), ("the sum of gamma^2 is infinite",)),  # the paper's
        (Power(0.9, 0.6), Power(0.9, 0.9), ()),
        (Power(0.9, 0.9), Power(0.9, 0.6), ("gamma/rho does not tend to 0",)),
        (Power(1.0, 1.2), Power(1.0, 1.5), ("sum of rho is finite", "sum of gamma is finite")),
        (1.0, Power(1.0, 0.6), ("rho does not tend to 0",)),
        (lambda t: 0.5, Power(1.0, 0.6), ("not checked",)),
    ],
)
def test_schedules_outside_the_theorem_are_named(rho, gamma, said):
    notes = SSCA(rho, gamma).notes()
    assert len(notes) == len(said)
    for note, words in zip(notes, said, strict=True):
        assert words in note


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SSCA(tau=0.0), "tau must be more than 0"),
        (lambda: SSCA(penalty=-1.0), "penalty must be more than 0"),
        (lambda: SSCA(tau=fedmin.Penalty()), r"tau must be like 0.1 or Tuned\(\)"),
        (lambda: SSCA(penalty=fedmin.Tuned()), r"penalty must be like 0.1 or Penalty\(\)"),
        (lambda: SSCA(rho=1.5), "rho must be more than 0 and at most 1, got 1.5"),
        (lambda: SSCA(rho=Power(2.0, 0.5)), "rho in round 0 must be"),
        (lambda: SSCA(gamma=lambda t: 0.0), "gamma in round 0 must be more than 0"),
        (lambda: SSCA(regularizer="none"), "regularizer"),
        (lambda: SSCA(limits="printed"), "unknown limits 'printed'; there is 'averaged', 'whole'"),
        (lambda: fedmin.Penalty(growth=0.5), "growth must be at least 1"),
        (lambda: fedmin.subject_to(fedmin.Logistic(3)), "at least one constraint"),
        (lambda: fedmin.NormAtMost(0.0), "radius must be more than 0"),
        (lambda: fedmin.LossAtMost(np.inf), "limit must be .* finite, got inf"),
        (lambda: fedmin.GroupLossAtMost((0.1, np.nan)), "limit must be .* finite, got nan"),
        (lambda: fedmin.KKT(0.0), "tol must be more than 0"),
        (
            lambda: fedmin.smallest(
                fedmin.smallest(fedmin.Logistic(3), loss_at_most=1.0), loss_at_most=1.0
            ),
            "has constraints already",
        ),
    ],
)
def test_bad_settings_are_refused(make, said):
    with pytest.raises((ValueError, TypeError), match=said):
        make()


def test_what_does_not_fit_is_refused(world):
    exact = SSCA(regularizer="exact")
    biased = fedmin.Logistic(world.dim, l2=0.1, bias=True)
    with pytest.raises(ValueError, match="needs a regularizer of the form"):
        run(dataclasses.replace(world, problem=biased), exact, rounds=1)
    limited = fedmin.subject_to(world.problem, fedmin.LossAtMost(1.0))
    with pytest.raises(ValueError, match="FedAvg does not handle constraints"):
        run(dataclasses.replace(world, problem=limited), fedmin.FedAvg(), rounds=1)
    with pytest.raises(ValueError, match="KKT needs Optimality"):
        run(world, SSCA(), rounds=1, stop=fedmin.KKT(1e-3))
    far = fedmin.subject_to(world.problem, fedmin.GroupLossAtMost((1.0, 1.0), column=99))
    with pytest.raises(ValueError, match="column must be below"):
        run(dataclasses.replace(world, problem=far), SSCA(), rounds=1)
