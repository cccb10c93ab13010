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
from fedmin.inner import bfgs
from fedmin.inner.curvature import Start
from fedmin.minimize import assemble
from test_oracles import cohorts

pytestmark = pytest.mark.usefixtures("quick_to_compile")

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
    assert result.final("pairs_accepted") == 7


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


def fedsso_in_numpy(world, drawn, alpha, eta, tau, rounds_between, least, most, same=False, L=1):
    """[ma2023fedsso] Algorithm 1 and its BFGS updating, with B and a solve.

    `same`: y from clients of both rounds; L: pairs of means over L rounds.
    """
    x, B, last, kept, window, cohort_before = np.zeros(world.dim), None, None, {}, [], []
    for k, cohort in enumerate(drawn):
        local = {}
        for i in cohort:
            z = x
            for _ in range(tau):
                z = z - alpha * world.gradient(i, z)
            local[i] = (x - z) / (alpha * tau)
        p = {i: world.shares[i] for i in cohort}
        g = sum(p[i] * local[i] for i in cohort) / sum(p.values())
        window.append((x, g))
        pair = None
        if len(window) == L:
            mean = np.mean(window, axis=0)
            window = []
            if last is not None:
                pair = mean - last
            last = mean
        if same and pair is not None:
            both = [i for i in cohort if i in cohort_before]
            change = sum(p[i] * (local[i] - kept[i]) for i in both)
            pair = (pair[0], change / sum(p[i] for i in both)) if both else None
        kept, cohort_before = kept | local, cohort
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
    result = run(world, method, rounds=5, participation=fedmin.Uniform(3))
    np.testing.assert_allclose(result.solution, x, rtol=1e-9)
    assert result.final("resets") == 1
    assert result.final("pairs_repaired") >= 1


@pytest.mark.parametrize("how", [{"pairs": "same clients"}, {"average": 2}], ids=str)
def test_pairs_of_absent_clients(how):
    world, who = known.logistic(), fedmin.Uniform(3)
    wanted = {"same": "pairs" in how, "L": how.get("average", 1)}
    x = fedsso_in_numpy(world, cohorts(who, 2, 5), 0.4, 0.6, 2, 99, 0.0, 1e9, **wanted)
    method = FedSSO(0.4, 2, server_step=0.6, curvature=LBFGS(9), **PLAIN, **how)
    result = run(world, method, rounds=5, participation=who, seed=2)
    np.testing.assert_allclose(result.solution, x, rtol=1e-9)
    assert result.final("pairs_accepted") >= 1


def test_unequal_steps_do_not_change_the_function():
    """One row a step: 3, 5, 4, 6 and 2 steps; while they are short, g is the gradient of F."""
    world = known.apart()
    method = FedSSO(1e-7, epochs=1, batches=fedmin.Shuffled(1), scaled=False)
    found = run(world, method, rounds=1, seed=1).solution
    gradient = sum(p * world.gradient(i, np.zeros(3)) for i, p in enumerate(world.shares))
    np.testing.assert_allclose(found, -gradient, rtol=1e-5)


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
        return (H, B), (H.M, B.M, pair.used, anew, too)

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
    """The same parts of the same length; with pairs of the same clients one d + 1 up more."""
    lines = []
    for method in (FedSSO(0.1), fedmin.FedAvg(0.1), FedSSO(0.1, pairs="same clients")):
        world = known.shared()
        pieces = assemble(
            world.problem, world.federation, method, fedmin.Everyone(), fedmin.Plain(), None, None
        )
        lines.append([line.parts for line in ONE_BY_ONE.prepare(pieces, world.federation)[2].lines])
    assert lines[0] == lines[1]
    assert set(lines[2][1]) - set(lines[0][1]) == {"change", "both"}
