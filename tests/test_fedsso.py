"""FedSSO against SciPy's quasi-Newton matrices, the paper in NumPy, and what must always hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from jax import lax

import fedmin
import known
from agreement import ONE_BY_ONE, run
from fedmin import DFP, LBFGS, DenseInverse, DenseSolve, FedSSO, Full
from fedmin.assembling import assemble
from fedmin.server.quasi_newton import bfgs, lbfgs
from fedmin.server.quasi_newton.forms import Start, downhill
from test_oracles import cohorts

FORMS = {"inverse": DenseInverse(), "solve": DenseSolve(), "dfp": DFP(), "lbfgs": LBFGS(9)}
PLAIN = {"batches": Full(), "scaled": False, "bad_pairs": "skip", "reach": 1e9}


def bowl(d: int = 6) -> known.World:
    """Least squares with one client, curvatures from 0.2 to 2, turned."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    z = np.sqrt(d * np.linspace(0.2, 2.0, d))[:, None] * turn
    return known.World(fedmin.LeastSquares(d), ((z, z @ rng.standard_normal(d)),))


@pytest.mark.parametrize("form", ["inverse", "solve", "lbfgs"])
def test_directions_are_scipys(form):
    """SciPy's BFGS matrix, fed with the same steps; L-BFGS with enough memory is the same."""
    world, theirs = bowl(), scipy.optimize.BFGS(init_scale=1.0)
    theirs.initialize(6, "inv_hess")
    x = np.zeros(6)
    g = world.gradient(0, x)
    for _ in range(8):
        last, x = (x, g), x - 0.7 * theirs.dot(g)
        g = world.gradient(0, x)
        theirs.update(x - last[0], g - last[1])
    method = FedSSO(0.1, curvature=FORMS[form], server_step=0.7, **PLAIN)
    result = run(world, method, rounds=8)
    np.testing.assert_allclose(result.solution, x, rtol=1e-8)
    counts = [result.final(f"pairs_{word}") for word in ("accepted", "repaired", "skipped")]
    assert counts == [7, 0, 0]


def test_about_d_rounds_on_a_quadratic():
    """Steps of length 1 and no line search: d rounds to know the curvature, a few to use it."""
    world = bowl(12)
    result = run(world, FedSSO(0.1, batches=Full()), rounds=36)
    assert np.linalg.norm(result.solution - world.minimizer) < 1e-7


def test_one_local_step_is_the_stochastic_method():
    """With tau = 1 g is the gradient on the drawn rows, and the size of the local step cancels."""
    world = known.logistic()
    ends = [
        run(world, FedSSO(step, batches=fedmin.Blocks(2), scaled=False), rounds=8, seed=5).solution
        for step in (0.01, 0.8)
    ]
    np.testing.assert_allclose(*ends, rtol=1e-9)
    other = run(world, FedSSO(0.8, batches=fedmin.Blocks(2), scaled=False), rounds=8, seed=6)
    assert not np.allclose(ends[0], other.solution)  # the rows were drawn


# ---------------------------------------------------------------- the paper in NumPy


def fedsso_in_numpy(
    world, drawn, alpha, eta, tau, rounds_between, least, most, pairs="rounds", remember=False
):
    """[ma2023fedsso] Algorithm 1 and its BFGS updating, with B and a solve.

    `pairs`: whose gradients y is the change of; `remember`: g of all clients' last gradients.
    """
    x, B, last, kept, cohort_before = np.zeros(world.dim), None, None, {}, []

    def local(i, x):
        z = x
        for _ in range(tau):
            z = z - alpha * world.gradient(i, z)
        return (x - z) / (alpha * tau)

    def mean(each):
        return sum(world.shares[i] * g for i, g in each.items()) / sum(world.shares[list(each)])

    for k, cohort in enumerate(drawn):
        before, now = kept, {i: local(i, x) for i in cohort}
        kept = kept | now
        g = mean(kept if remember else now)
        pair = None
        if last is not None:
            both = [i for i in cohort if i in cohort_before]
            y = {
                "rounds": lambda: g - last[1],
                "same clients": lambda: mean({i: now[i] - before[i] for i in both}),
                "both points": lambda: mean({i: now[i] - local(i, last[0]) for i in cohort}),
            }
            if pairs != "same clients" or both:
                pair = x - last[0], y[pairs]()
        last, cohort_before = (x, g), cohort
        if k % rounds_between == 0:
            B = np.eye(world.dim)
        elif pair is not None:
            s, y = pair
            cur = y @ s
            if not least < y @ y / cur < most:
                cur = 2 / (least + most) * y @ y
            B = B + np.outer(y, y) / cur - np.outer(B @ s, B @ s) / (s @ B @ s)
        x = x - eta * np.linalg.solve(B, g)
    return x


@pytest.mark.parametrize("form", ["inverse", "solve"])
def test_the_paper(form):
    """As printed, with a bound that some pairs of this run are beyond, and resets."""
    world = known.logistic().with_weights([1.0, 4.0, 2.0, 0.5, 3.0])
    drawn = cohorts(fedmin.Uniform(3), 0, 5)
    x = fedsso_in_numpy(world, drawn, 0.4, 0.6, 3, 4, 1e-4, 0.3)
    method = FedSSO(
        0.4, 3, batches=Full(), server_step=0.6, curvature=FORMS[form], reset=4, least=1e-4,
        most=0.3, bad_pairs="printed", scaled=False, reach=1e9,
    )  # fmt: skip
    with pytest.warns(RuntimeWarning, match="FedSSO: the objective ended at .*, above"):
        result = run(world, method, rounds=5, participation=fedmin.Uniform(3))
    np.testing.assert_allclose(result.solution, x, rtol=1e-9)
    assert result.final("resets") == 1
    assert result.final("pairs_repaired") >= 1


@pytest.mark.parametrize("remember", [False, True])
@pytest.mark.parametrize("pairs", ["rounds", "same clients", "both points"])
def test_absent_clients(pairs, remember):
    world, who = known.logistic(), fedmin.Uniform(3)
    how = {"pairs": pairs, "remember": remember}
    x = fedsso_in_numpy(world, cohorts(who, 2, 5), 0.4, 0.6, 2, 99, 0.0, 1e9, **how)
    method = FedSSO(0.4, 2, server_step=0.6, curvature=LBFGS(9), **PLAIN, **how)
    result = run(world, method, rounds=5, participation=who, seed=2)
    np.testing.assert_allclose(result.solution, x, rtol=1e-9)
    assert result.final("pairs_accepted") >= 1


def test_remembered_gradients_reach_the_minimizer_of_all():
    """Two clients of five a round: others step along two gradients for ever, this one does not."""
    world, who = known.logistic(), fedmin.Uniform(2)
    far = {}
    for remember in (True, False):
        method = FedSSO(
            0.4, batches=Full(), server_step=0.2, pairs="both points", remember=remember
        )
        end = run(world, method, rounds=400, participation=who, every=400).solution
        far[remember] = np.linalg.norm(end - world.minimizer)
    assert far[True] < 1e-6 < 1e-2 < far[False]


def test_stages_of_local_steps():
    """Three local steps, and from round 2 on one."""
    world, stages = known.logistic(), fedmin.Stages((3, 1), starts=(0, 2))
    x = np.zeros(world.dim)
    for k in range(4):
        ends = []
        for i in range(len(world.clients)):
            z = x
            for _ in range(3 if k < 2 else 1):
                z = z - 0.4 * world.gradient(i, z)
            ends.append(z)
        x = world.shares @ np.array(ends)
    found = run(world, fedmin.FedAvg(0.4, local_steps=stages, batches=Full()), rounds=4)
    np.testing.assert_allclose(found.solution, x, rtol=1e-12)
    method = FedSSO(0.4, local_steps=stages, **PLAIN | {"scaled": True})
    first = run(world, method, rounds=1).solution  # before any pair a step is FedAvg's
    plain = run(world, fedmin.FedAvg(0.4, local_steps=3, batches=Full()), rounds=1).solution
    np.testing.assert_allclose(first, plain, rtol=1e-12)


def test_unequal_steps_do_not_change_the_function():
    """One row a step: 3, 5, 4, 6 and 2 steps; while they are short, g is the gradient of F."""
    world = known.apart()
    method = FedSSO(1e-7, epochs=1, batches=fedmin.Shuffled(1), scaled=False)
    found = run(world, method, rounds=1, seed=1).solution
    gradient = sum(p * world.gradient(i, np.zeros(3)) for i, p in enumerate(world.shares))
    np.testing.assert_allclose(found, -gradient, rtol=1e-5)


# ---------------------------------------------------------------- drift


def test_drift_in_numpy():
    """Local steps with c - c_i added, c the last g and c_i the client's own part of it; BFGS."""
    world = known.logistic().with_weights([1.0, 4.0, 2.0, 0.5, 3.0])
    x, B, c, own, last = np.zeros(3), np.eye(3), np.zeros(3), np.zeros((5, 3)), None
    for _ in range(5):
        g_i = np.zeros((5, 3))
        for i in range(5):
            z = x
            for _ in range(3):
                z = z - 0.4 * (world.gradient(i, z) - own[i] + c)
            g_i[i] = (x - z) / (0.4 * 3)
            own[i] = g_i[i] - c + own[i]
        g = world.shares @ g_i
        np.testing.assert_allclose(g, world.shares @ own)  # why c is the last g
        if last is not None:
            s, y = x - last[0], g - last[1]
            B = B + np.outer(y, y) / (y @ s) - np.outer(B @ s, B @ s) / (s @ B @ s)
        last, c = (x, g), g
        x = x - 0.6 * np.linalg.solve(B, g)
    method = FedSSO(
        0.4, 3, batches=Full(), server_step=0.6, bad_pairs="skip", scaled=False, drift=True
    )
    result = run(world, method, rounds=5)
    np.testing.assert_allclose(result.solution, x, rtol=1e-9)
    np.testing.assert_allclose(result.clients, own, rtol=1e-9)
    assert result.ledger.by_kind()["down control"] == 5 * 5 * 3 * 8
    with pytest.raises(ValueError, match=r"drift=True. needs all clients in every round"):
        run(world, method, participation=fedmin.Uniform(2))
    with pytest.raises(ValueError, match="drift=True is for all clients"):
        FedSSO(drift=True, remember=True)


@pytest.mark.parametrize("tau", [5, 20])
def test_drift_makes_the_fixed_point_exact(tau):
    """A softmax whose clients have other labels, no number given: F - F* below 1e-8 with drift,
    above 1e-4 without; F* by SciPy."""
    rng = np.random.default_rng(0)
    clients = []
    for odds in ([0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.05, 0.15, 0.8]):
        y = rng.choice(3, 40, p=odds)
        clients.append((np.eye(3)[y] + 0.8 * rng.standard_normal((40, 3)), y))
    problem, z, y = fedmin.Softmax(3, 3, l2=0.01), *map(np.concatenate, zip(*clients, strict=True))

    def objective(x):
        logits = z @ x.reshape(3, 3).T
        own = logits[np.arange(len(y)), y]
        return np.mean(scipy.special.logsumexp(logits, axis=1) - own) + 0.005 * x @ x

    best = scipy.optimize.minimize(objective, np.zeros(9), tol=1e-12).fun
    world, above = known.World(problem, tuple(clients)), {}
    for drift in (True, False):
        method = FedSSO("auto", local_steps=tau, batches=Full(), drift=drift)
        above[drift] = run(world, method, rounds=150, every=150).final("objective") - best
    assert above[True] < 1e-8
    assert above[False] > 1e-4


def test_gamma_of_all_pairs_and_printed():
    """One step of L-BFGS from two pairs, on gamma = sum |s|^2 / sum y.s, against BFGS in NumPy."""
    rng = np.random.default_rng(1)
    A = rng.standard_normal((4, 4))
    A = A @ A.T + np.eye(4)
    s = rng.standard_normal((2, 4))
    y = s @ A
    H = np.sum(s**2) / np.sum(s * y) * np.eye(4)
    pairs = lbfgs.empty(5, jnp.zeros(4))
    for one, change in zip(s, y, strict=True):
        V = np.eye(4) - np.outer(change, one) / (change @ one)
        H = V.T @ H @ V + np.outer(one, one) / (change @ one)
        pairs = lbfgs.push(pairs, jnp.asarray(one), jnp.asarray(change))
    g = rng.standard_normal(4)
    found = lbfgs.direction(pairs, jnp.asarray(g), True, 1.0, "all")
    np.testing.assert_allclose(found, H @ g, rtol=1e-10)
    printed = FedSSO.printed(0.3, server_step=0.5)
    assert (printed.local_steps, printed.batches.size, printed.reset) == (5, 100, 200)
    assert not printed.scaled


# ---------------------------------------------------------------- what must always hold


def hostile(d: int, count: int, seed: int = 0):
    """Pairs of which many are no curvature: y.s negative, zero, tiny, huge; and y or s = 0."""
    rng = np.random.default_rng(seed)
    s, y = rng.standard_normal((2, count, d))
    kind = rng.integers(0, 8, count)
    A = rng.standard_normal((d, d))
    good = s @ (A @ A.T / d + 0.1 * np.eye(d))
    flat = y - (np.sum(y * s, 1) / np.sum(s * s, 1))[:, None] * s
    choices = [good, y, -good, flat, flat + 1e-12 * s, 1e-9 * y, 1e9 * y, 0 * y]
    y = np.choose(kind[:, None], choices)
    s[kind == 5] *= 1e6
    s[(kind == 7) & (rng.random(count) < 0.5)] = 0
    return jnp.asarray(s), jnp.asarray(y), jnp.asarray(rng.standard_normal((count, d)))


@pytest.mark.parametrize("rule", ["change", "damp", "skip"])
def test_h_stays_the_inverse_and_positive(rule):
    """A thousand pairs, most of them bad; the limit on |H g| is what keeps H from growing."""
    inverse, solve = FORMS["inverse"], FORMS["solve"]

    def advance(carry, given):
        H, B = carry
        s, y, g = given
        pair = bfgs.mend(rule, s, y, B.M @ s, 0.01, 100.0)
        start = Start(1.0, jnp.array(False), most=100.0)
        H, _, anew = inverse.advance(H, pair, g, start)
        B, _, too = solve.advance(B, pair, g, start)
        return (H, B), (H.matrix(), B.M, pair.used, anew, too)

    eye = jnp.zeros(6)
    first = (inverse.first(eye, 1.0), solve.first(eye, 1.0))
    _, (H, B, used, anew, too) = jax.jit(lambda: lax.scan(advance, first, hostile(6, 1000)))()
    assert 100 < used.sum() < 1000
    assert np.array_equal(anew, too)
    low, high = np.linalg.eigvalsh(H)[:, [0, -1]].T
    assert (low > 0).all()
    error = np.abs(H @ B - np.eye(6)).max((1, 2))
    assert (error < 1e-9 * high / low).all()


@pytest.mark.parametrize(
    ("form", "rule"),
    [(f, r) for f in FORMS for r in bfgs.RULES if FORMS[f].dense or r != "printed"],
)
def test_every_direction_is_finite_and_downhill(form, rule):
    """Whatever the pairs are, in single precision too; as printed the form begins anew often."""
    form = FORMS[form]

    def advance(state, given):
        s, y, g = given
        pair = bfgs.mend(rule, s, y, s, 1e-4, 9999.0)
        start = Start(jnp.float32(1), jnp.array(False), most=jnp.float32(1e4))
        new, p, anew = form.advance(state, pair, g, start)
        return new, (p, jnp.dot(g, p), anew)

    pairs = [a.astype(jnp.float32) for a in hostile(5, 200)]
    start = form.first(pairs[0][0], 1.0)
    p, slope, anew = jax.jit(lambda: lax.scan(advance, start, pairs))()[1]
    assert np.isfinite(p).all()
    assert (slope > 0).all()
    assert (rule == "printed") <= bool(anew.any())


def waves(x, z, y):
    """A nonconvex loss with saddles: wells, and waves across them."""
    wells = jnp.sum((z * x) ** 4) / 4 - jnp.sum((z * x) ** 2) / 2
    return wells + 0.3 * jnp.sin(5 * jnp.dot(z, x) + y)


def test_at_a_minimum_nothing_moves_and_nothing_begins_anew():
    """g = 0 and p = 0 is the end; p = 0 where g is not is no descent, and the curvature is left."""
    start = Start(0.5, jnp.array(False), most=100.0)
    zero, g = jnp.zeros(2), jnp.array([0.0, 1.0])
    for slope, step, anew in ((zero, zero, False), (g, 0.5 * g, True)):
        p, begins = downhill(zero, slope, start)
        np.testing.assert_array_equal(p, step)
        assert bool(begins) == anew


def test_a_nonconvex_problem_stays_in_hand():
    rng = np.random.default_rng(0)
    clients = [(rng.standard_normal((6, 4)), rng.standard_normal(6)) for _ in range(3)]
    problem = fedmin.from_loss(waves, jnp.zeros(4))
    method = FedSSO(0.05, 2, batches=fedmin.Blocks(2), reset=50)
    record = [fedmin.Objective(), fedmin.Measure("norm", lambda problem, x: jnp.linalg.norm(x))]
    result = fedmin.minimize(
        problem, fedmin.Federation.from_clients(clients), method, rounds=150, record=record,
        progress=False,
    )  # fmt: skip
    history = result.history
    assert result.status == "done"
    assert all(np.isfinite(column).all() for column in history.values())
    assert (history["step_norm"][1:] <= 1.0001 * np.maximum(1, history["norm"][:-1])).all()
    assert result.final("pairs_repaired") > 0  # it was nonconvex
    assert result.final("resets") >= 2


def test_too_large_a_matrix_is_refused_before_it_is_there():
    problem = fedmin.Logistic(200_000)
    with pytest.raises(ValueError, match=r"d is 200000, more than 16384; use LBFGS\(memory=10\)"):
        FedSSO(curvature=DenseInverse()).check(problem)
    with pytest.raises(ValueError, match="bad_pairs='printed' changes the matrix"):
        FedSSO(bad_pairs="printed").check(problem)
    FedSSO().check(problem)  # by itself it takes L-BFGS


def test_messages_are_fedavgs():
    """The same parts of the same length; what the remedies for absent clients send besides."""
    lines = []
    for method in (
        FedSSO(0.1),
        fedmin.FedAvg(0.1),
        FedSSO(0.1, pairs="same clients"),
        FedSSO(0.1, pairs="both points", remember=True),
    ):
        world = known.shared()
        pieces = assemble(
            world.problem, world.federation, method, fedmin.Everyone(), fedmin.Plain(), None, None
        )
        lines.append(
            [line.parts for line in ONE_BY_ONE.prepare(pieces, world.federation)[-1].lines]
        )
    assert lines[0] == lines[1]
    assert set(lines[2][1]) - set(lines[0][1]) == {"y", "both"}
    assert set(lines[3][0]) - set(lines[0][0]) == {"before"}
    assert set(lines[3][1]) == {"header", "change", "new", "y"}
