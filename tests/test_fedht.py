"""Thresholding over clients: the paper's pseudo-code, its theorems, recovery, and bad input."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import fedmin
import known
from agreement import ONE_BY_ONE, run
from cases import _minimizers, _model, keep
from fedmin import DistributedIHT, FedHT, FedIterHT, Full, L0Ball, LeastSquares, over
from fedmin.client import curvature
from fedmin.methods.fedht import stable_for
from fedmin.methods.sparsenewton import best_move
from fedmin.server.quasi_newton import compact, lbfgs

ROUNDS = 5
SPARSE = known.sparse_logistic()


def fedht_in_numpy(world, step, K, tau, inside: bool) -> np.ndarray:
    """[tong2022federated] Algorithm 1, and 2 if H_tau is `inside` the loop; K steps are meant."""
    x = np.zeros(world.dim)
    for _ in range(ROUNDS):
        ends = []
        for i in range(len(world.clients)):
            y = x
            for _ in range(K):
                y = y - step * world.gradient(i, y)
                y = keep(y, tau) if inside else y
            ends.append(y)
        x = keep(world.shares @ np.array(ends), tau)
    return x


@pytest.mark.parametrize("kind", [FedHT, FedIterHT])
def test_the_papers_pseudo_code(kind):
    world = SPARSE.with_weights([1.0, 4.0, 2.0, 0.5, 3.0])
    expected = fedht_in_numpy(world, 0.8, 3, 2, kind is FedIterHT)
    result = run(world, kind(0.8, local_steps=3, batches=Full()), rounds=ROUNDS)
    np.testing.assert_allclose(result.solution, expected, rtol=1e-10)
    other = fedht_in_numpy(world, 0.8, 3, 2, kind is not FedIterHT)
    assert not np.allclose(expected, other)  # the two algorithms can be told apart here


def test_what_travels():
    """tau indices of 4 bytes and values of 8, both ways in FedIter-HT; d values up in Fed-HT."""
    sparse, dense = 2 * (4 + 8), 3 * 8
    options = {"local_steps": 2, "batches": Full()}
    for method, up in ((FedHT(0.5, **options), dense), (FedIterHT(0.5, **options), sparse)):
        kinds = run(SPARSE, method, rounds=1).ledger.by_kind()
        assert kinds["down model"] == 5 * sparse
        assert sum(v for k, v in kinds.items() if k in ("up model", "up update")) == 5 * up


def made(noise=0.0, clients=4, seed=0, **changes):
    size = {"rows": 120, "features": 24, "support": 3} | changes
    return fedmin.data.sparse_regression(noise=noise, clients=clients, seed=seed, **size)


@pytest.mark.parametrize(
    "method",
    [
        FedHT(0.2, local_steps=2, batches=fedmin.Growing(10, 1.2, most=30)),
        FedIterHT(0.2, local_steps=2, batches=Full()),
        fedmin.SparseNewton(),
    ],
    ids=lambda m: type(m).__name__,
)
def test_the_true_support_is_found(method):
    """Noiseless sparse regression; and a support that stays ends the run."""
    truth = made()
    problem = over(LeastSquares(24), L0Ball(3))
    result = fedmin.minimize(
        problem, fedmin.data.partition(truth), method, rounds=120, engine=ONE_BY_ONE,
        record=[fedmin.Objective(), fedmin.Support(truth.truth["support"])],
        stop=fedmin.Stop("stable", above=15), progress=False,
    )  # fmt: skip
    assert result.status == "stopped"
    assert result.final("f1") == result.final("precision") == result.final("recall") == 1
    assert result.final("nonzeros") == 3
    assert result.final("stable") == 15
    assert result.rounds < 60
    np.testing.assert_allclose(result.solution, truth.truth["model"], atol=0.05)


def test_a_support_that_changes_is_new():
    old = jnp.array([1.0, 0.0, 2.0])
    same, other = jnp.array([3.0, 0.0, -1.0]), jnp.array([3.0, 1.0, 0.0])
    assert [int(stable_for(jnp.int32(4), old, new)) for new in (same, other)] == [5, 0]


@pytest.mark.parametrize("kind", [FedHT, FedIterHT])
def test_linear_at_no_worse_than_the_theorems_rate(kind):
    """Theorems 1 and 2 with all they ask for: gamma = 1/(6 l), full batches, and a tau so large
    against tau* that theta < 1; the distance to x*, squared, falls by theta a round at least.
    """
    rng = np.random.default_rng(0)
    d, clients, K = 2600, 2, 3
    best = np.zeros(d)
    best[7] = 2.0
    # orthogonal rows: each client's Hessian is the identity times 1 + a little, so kappa is near 1
    scales = [np.sqrt(rng.uniform(1.0, 1.02, d)) for _ in range(clients)]
    data = [(np.sqrt(d) * scipy.sparse.diags(s).tocsr(), np.sqrt(d) * s * best) for s in scales]
    steep, rho = (f([f(s**2) for s in scales]) for f in (max, min))
    kappa, tau = steep / rho, 2550
    rows = scipy.sparse.vstack([z for z, _ in data]).tocsr()
    parts = [range(i * d, (i + 1) * d) for i in range(clients)]
    federation = fedmin.Federation.from_parts(rows, np.concatenate([y for _, y in data]), parts)
    alpha = 2 * np.sqrt(1 / (tau - 1))
    shrink = (1 - 1 / (12 * kappa)) ** K
    theta = (1 + 2 * alpha) ** (1 if kind is FedHT else 2) * shrink
    assert theta < 1
    assert tau >= 16 * (12 * kappa - 1) ** 2 + 1  # what both theorems ask of tau, tau* = 1
    method = kind(1 / (6 * steep), local_steps=K, batches=Full())
    distance = fedmin.Measure("distance", lambda p, x: jnp.sum((x - jnp.asarray(best)) ** 2))
    result = fedmin.minimize(
        over(LeastSquares(d), L0Ball(tau)), federation, method, rounds=8, record=[distance],
        engine=ONE_BY_ONE, progress=False,
    )  # fmt: skip
    errors = result.history["distance"]
    assert (errors[1:] <= theta * errors[:-1]).all()
    assert errors[-1] < 0.1 * errors[0]


@pytest.mark.parametrize(
    "method",
    [FedIterHT(0.5, local_steps=2, batches=Full()), fedmin.SparseNewton(0.5)],
    ids=lambda m: type(m).__name__,
)
def test_sparse_rows_are_dense_rows(method):
    truth = made(noise=0.1, nonzeros=6)
    x, y = truth.x, np.asarray(truth.y)
    problem = over(LeastSquares(24, l2=0.01), L0Ball(3))
    ends = []
    for rows in (x, x.toarray()):
        federation = fedmin.Federation.from_parts(rows, y, truth.parts)
        result = fedmin.minimize(
            problem, federation, method, rounds=6, engine=ONE_BY_ONE, progress=False
        )
        ends.append(result.solution)
    assert isinstance(fedmin.matrix(x), fedmin.SparseRows)
    np.testing.assert_allclose(*ends, rtol=1e-8, atol=1e-12)


class Bilinear(fedmin.Problem):
    """(<A_j, X> - y_j)^2/2 for a matrix X of 6 x 5: rows of data are the matrices A_j."""

    def init(self, key):
        return jnp.zeros(30)

    @property
    def parts(self):
        return {"X": (6, 5)}

    def losses(self, x, rows):
        return 0.5 * (rows.x @ x - rows.y)[:, None] ** 2


@pytest.mark.parametrize("kind", [FedHT, FedIterHT])
def test_a_low_rank_matrix_is_recovered(kind):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((6, 1)) @ rng.standard_normal((1, 5))
    A = rng.standard_normal((160, 30))
    parts = np.array_split(np.arange(160), 4)
    federation = fedmin.Federation.from_parts(A, A @ X.ravel(), parts)
    result = fedmin.minimize(
        over(Bilinear(), fedmin.RankBall(1)), federation,
        kind(0.2, local_steps=2, batches=Full()), rounds=120, every=120, engine=ONE_BY_ONE,
        progress=False,
    )  # fmt: skip
    found = result.solution.reshape(6, 5)
    np.testing.assert_allclose(found, X, atol=1e-6)
    sent = result.ledger.by_kind()
    assert sent["down model"] == 120 * 4 * (6 + 5) * 8  # two factors, not 30 numbers


def test_curvature_is_bfgs():
    """B by its compact form against the BFGS update of a matrix; B_TT solved against NumPy."""
    rng = np.random.default_rng(0)
    H = np.diag(np.geomspace(1, 1e3, 7))
    pairs, B, sigma = lbfgs.empty(4, jnp.zeros(7)), 2.5 * np.eye(7), 2.5
    kept = []
    for _ in range(6):
        s = rng.standard_normal(7)
        pairs, kept = lbfgs.push(pairs, jnp.asarray(s), jnp.asarray(H @ s)), [*kept, s][-4:]
        B = sigma * np.eye(7)
        for s in kept:
            y = H @ s
            B = B + np.outer(y, y) / (y @ s) - np.outer(B @ s, B @ s) / (s @ B @ s)
        ours = compact.curvature(pairs, jnp.asarray(sigma))
        v, T = rng.standard_normal(7), np.array([5, 1, 2])
        np.testing.assert_allclose(compact.times(ours, jnp.asarray(v)), B @ v, rtol=1e-8)
        expected = np.linalg.solve(B[np.ix_(T, T)], v[:3])
        found = compact.solve_on(ours, jnp.asarray(T), jnp.asarray(v[:3]))
        np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_a_sparse_newton_step_tries_shorter_gradient_steps_for_its_support():
    """Against the same in NumPy: where B is far from sigma I, other supports than H(x - g/sigma)'s
    are better, and the best of five is taken."""
    rng, others = np.random.default_rng(5), 0
    for _ in range(12):
        x = keep(rng.standard_normal(8), 3)
        g, sigma = 3 * rng.standard_normal(8), 0.5
        pairs = lbfgs.empty(4, jnp.zeros(8))
        B = sigma * np.eye(8)
        root = rng.standard_normal((8, 8))
        for s in rng.standard_normal((3, 8)):
            y = root @ root.T @ s
            pairs = lbfgs.push(pairs, jnp.asarray(s), jnp.asarray(y))
            B = B + np.outer(y, y) / (y @ s) - np.outer(B @ s, B @ s) / (s @ B @ s)
        tried = list(_minimizers(B, x, g, 3, sigma))
        best = min(range(5), key=lambda k: _model(B, tried[k] - x, g))
        assert _model(B, tried[best] - x, g) < 0
        others += best > 0
        curvature = compact.curvature(pairs, jnp.asarray(sigma))
        found = best_move(L0Ball(3), curvature, jnp.asarray(x), jnp.asarray(g)).dense()
        np.testing.assert_allclose(found, tried[best], rtol=1e-6, atol=1e-9)
    assert others > 3


@pytest.mark.parametrize("slope", [-0.5, 0.5])
def test_sparse_newton_keeps_the_better_of_two_models(slope):
    """Where the mean slope along the step is above 0 it went too far: x stays, mu is four times."""
    method, problem = fedmin.SparseNewton(0.5, memory=3), over(LeastSquares(3), L0Ball(2))
    first = method.init_server(problem, None, jax.random.key(0))
    asked = L0Ball(2).projected(jnp.array([1.0, 0.0, 0.0]))
    before = first._replace(z=asked, mu=jnp.asarray(2.0), g=jnp.array([-1.0, 0.0, 0.0]))
    learnt = fedmin.Sum({"gradient": jnp.array([1.0 + slope, 0.2, 0.0])}, jnp.ones(()), 1)
    now = fedmin.Now(jnp.int32(1), jax.random.key(0), jax.random.key(1))
    after = method.server(problem, None, before, learnt, now)
    went = slope < 0  # (g + g').s = slope
    np.testing.assert_array_equal(after.x, [1.0, 0, 0] if went else [0.0, 0, 0])
    np.testing.assert_array_equal(after.g, learnt.total["gradient"] if went else before.g)
    assert float(after.mu) == (1.0 if went else 8.0)


def test_sparse_newton_needs_few_rounds_where_conditioning_is_bad():
    """Curvatures from 1 to 1e4, the true entries among the flat ones: Distributed-IHT at its best
    step is nowhere after 100 rounds; SparseNewton never makes its objective worse and is there.
    """
    truth = made(rows=400, features=24, support=3)
    x = np.asarray(truth.x) * np.geomspace(1, 100, 24)
    y = x[:, :3] @ np.array([5.0, -4.0, 6.0])
    federation = fedmin.Federation.from_parts(x, y, truth.parts)
    problem = over(LeastSquares(24), L0Ball(6))
    options = {"engine": ONE_BY_ONE, "progress": False}
    step = 1.9 / fedmin.constants(problem, federation).smoothness
    plain = fedmin.minimize(problem, federation, DistributedIHT(step), rounds=100, **options)
    ours = fedmin.minimize(problem, federation, fedmin.SparseNewton(), rounds=40, **options)
    objective = ours.history["objective"]
    assert (np.diff(objective) <= 1e-9 * objective[:-1]).all()
    assert objective[20] <= plain.final("objective")
    assert objective[-1] < 0.1 * plain.final("objective")


def test_refit_is_least_squares_on_the_support():
    truth = made(noise=0.5)
    federation = fedmin.data.partition(truth)
    problem = over(LeastSquares(24), L0Ball(3))
    found = truth.truth["model"] * 0.7  # the right entries, too small
    again = fedmin.refit(problem, federation, found, rounds=12, engine=ONE_BY_ONE, progress=False)
    np.testing.assert_allclose(again.solution, truth.truth["solution"], atol=1e-6)


def test_constants_are_the_largest_eigenvalues():
    truth = fedmin.data.quadratics(clients=3, dim=5, condition=10.0).truth
    world = fedmin.data.partition(fedmin.data.quadratics(clients=3, dim=5, condition=10.0))
    found = fedmin.constants(LeastSquares(5), world, iterations=200)
    assert found.smoothness == pytest.approx(truth["smoothness"], rel=1e-6)
    np.testing.assert_allclose(found.client_smoothness, truth["client_smoothness"], rtol=1e-4)
    few = fedmin.constants(LeastSquares(5), world, entries=1)
    diagonal = np.mean(np.asarray(world.pool.x.values) ** 2, axis=0)
    assert np.isclose(diagonal, few.smoothness).any()  # of vectors of one entry: a lower bound


def test_growing_batches():
    """Different rows, as many as asked for, all of weight 1; never more than the client has."""
    federation = known.sparse().federation
    rows = jax.tree.map(jnp.asarray, federation.pool)
    shard = fedmin.Shard(rows, jnp.int32(3), jnp.int32(5), federation.capacity)
    for round, size in ((0, 2), (3, 3), (6, 5), (500, 5)):
        batches = fedmin.Growing(2.0, 1.2, most=6).at(jnp.int32(round))
        batch = batches.read(shard, batches.draw(shard, jax.random.key(round), jnp.int32(0)))
        there = np.asarray(batch.weight) > 0
        assert there.sum() == size
        assert len(np.unique(np.asarray(batch.y)[there])) == size


class NoProjection(fedmin.Domain):
    bounded = True
    convex = True


NUMBERS = fedmin.Federation.from_parts(np.ones((4, 3)), np.arange(4.0), [[0, 1], [2, 3]])
SIGNS = fedmin.Federation.from_parts(np.ones((4, 3)), [-1, 1, 1, -1], [[0, 1], [2, 3]])
GROUPED = over(LeastSquares(3), L0Ball(1, groups=[0, 0, 1]))
BAD = [
    (FedHT(), LeastSquares(3), NUMBERS, r"FedHT needs a domain with a projection; .* has Free\(\)"),
    (fedmin.ScaffoldHT(), LeastSquares(3), NUMBERS, r"Give it one: fedmin.over\(problem, "),
    (FedIterHT(), over(LeastSquares(3), NoProjection()), NUMBERS, "needs a domain with a projec"),
    (fedmin.SparseNewton(), LeastSquares(3), NUMBERS, "is for an L0Ball"),
    (FedHT(), over(fedmin.Logistic(3), L0Ball(1)), SIGNS, "labels 0..1; row 0 has label -1"),
    (fedmin.FedAvg(), over(LeastSquares(3), L0Ball(1)), NUMBERS, "FedAvg does not handle a domain"),
]


@pytest.mark.parametrize(("method", "problem", "federation", "words"), BAD, ids=range(len(BAD)))
def test_what_does_not_fit_is_refused(method, problem, federation, words):
    with pytest.raises(ValueError, match=words):
        fedmin.minimize(problem, federation, method, rounds=1)


WRONG = [
    (lambda: FedHT(local_steps=0), ValueError, "local_steps must be at least 1, got 0"),
    (lambda: DistributedIHT(-1.0), ValueError, "step must be more than 0"),
    (lambda: fedmin.SparseNewton(memory=0), ValueError, "memory must be at least 1"),
    (lambda: fedmin.Growing(0.5, 1.1, most=3), ValueError, "first must be at least 1"),
    (lambda: fedmin.Support([0.5]), ValueError, "truth must have the indices"),
    (lambda: over(LeastSquares(3), L0Ball(4)), ValueError, "tau must be at most 3"),
    (lambda: over(LeastSquares(3), fedmin.Entries([5])), ValueError, "there is none 5"),
    (lambda: fedmin.refit(GROUPED, NUMBERS, np.zeros(3)), ValueError, "no non-zeros"),
    (
        lambda: run(SPARSE, FedHT(epochs=1, batches=fedmin.Growing(1, 1.1, most=3))),
        TypeError,
        "not with epochs",
    ),
]


@pytest.mark.parametrize(("make", "error", "words"), WRONG, ids=[words for *_, words in WRONG])
def test_bad_numbers_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize("step", [None, 10.0, 100.0])
def test_sparse_newton_goes_down_from_any_first_step(step):
    """Softmax, two entries a class, columns of lengths from 1 to 100: F never rises, also from a
    wild first step."""
    rng = np.random.default_rng(3)
    scale = np.array([1.0, 10.0, 100.0, 3.0])
    z = rng.standard_normal((80, 4)) * scale
    truth = rng.standard_normal((4, 3)) * np.array([[2.0], [0.0], [2.0], [0.0]]) / scale[:, None]
    y = np.argmax(z @ truth + 0.3 * rng.gumbel(size=(80, 3)), axis=1)
    clients = tuple((z[i::4], y[i::4]) for i in range(4))
    problem = fedmin.over(fedmin.Softmax(4, 3, l2=1e-3), L0Ball(2, each="row"))
    world = known.World(problem, clients)
    result = run(world, fedmin.SparseNewton(step), rounds=60)
    values = np.asarray(result.history["objective"])
    assert np.all(np.diff(values) <= 1e-12)
    assert values[-1] < 0.6 * values[0]
    assert (np.count_nonzero(result.solution.reshape(3, 4), axis=1) <= 2).all()


def test_sparse_newton_finds_the_best_groups():
    """Groups of one, two and three entries, two of them at most: least squares on each pair, by
    NumPy, and the best of them."""
    rng, groups = np.random.default_rng(1), np.array([0, 1, 2, 2, 1, 2])
    z = rng.standard_normal((60, 6)) * np.array([1, 1, 1, 3, 10, 1.0])
    y = z @ np.array([0.0, 2.0, 1.0, -1.0, 0.3, 0.5]) + 0.1 * rng.standard_normal(60)
    world = known.World(
        over(LeastSquares(6), L0Ball(2, groups=groups)), tuple((z[i::3], y[i::3]) for i in range(3))
    )
    result = run(world, fedmin.SparseNewton(), rounds=40)
    ends = []
    for left in range(3):
        i = np.flatnonzero(groups != left)
        ends.append(np.zeros(6))
        ends[-1][i] = np.linalg.lstsq(z[:, i], y, rcond=None)[0]
    best = min(ends, key=lambda x: np.sum((z @ x - y) ** 2))
    np.testing.assert_allclose(result.solution, best, atol=1e-7)


@pytest.mark.parametrize(
    ("H", "scale"), [([3.0, 1.0], 2.6), ([-3.0, 1.0], 7.4**0.5), ([0.0, 0.0], 5)]
)
def test_a_first_scale_where_a_loss_bends_down_or_is_flat(H, scale):
    """By hand for g along (2, -1), of length 5, and H diagonal: g.Hg/|g|^2; |Hg|/|g|
    where that is below 0; |g| where H is 0."""
    g = jnp.array([4.0, -2.0]) * (5 / 20**0.5)
    bent = SimpleNamespace(grad=lambda x, rows: g, hvp=lambda x, v, rows: jnp.array(H) * v)
    found = curvature.along_gradient(bent, jnp.zeros(2), None)
    assert float(found) == pytest.approx(scale)
