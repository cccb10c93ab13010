"""Second-order and accelerated rivals: pseudo-code in NumPy, and what their theorems say."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse.linalg

import fedmin
import known
from agreement import run
from fedmin import DONE, FedAC, FedDANE, FedNL, FedNLPP, Full, TopEntries, TopRank
from test_oracles import ROUNDS, WEIGHTS, averaged, cohorts, local_steps

KEY = jax.random.key(0)
SOME = fedmin.Uniform(2)


@pytest.fixture(scope="module")
def world() -> known.World:
    return known.logistic().with_weights(WEIGHTS["custom"])


def hessian(world: known.World, i: int, x: np.ndarray) -> np.ndarray:
    """The Hessian of f_i in NumPy."""
    z, y = world.clients[i]
    bend = np.ones(len(y))
    if isinstance(world.problem, fedmin.Logistic):
        bend = 1 / (4 * np.cosh(z @ x / 2) ** 2)
    return (z.T * bend) @ z / len(y) + world.l2 * np.eye(world.dim)


def alone(world: known.World) -> known.World:
    """All rows at one client."""
    return world.with_clients([tuple(np.concatenate(a) for a in zip(*world.clients, strict=True))])


# ---------------------------------------------------------------- FedAC


def coupling(version: int, eta: float, mu: float, K: int) -> tuple[float, float, float]:
    gamma = max(np.sqrt(eta / (mu * K)), eta)
    if version == 1:
        return gamma, 1 / (gamma * mu), 1 / (gamma * mu) + 1
    alpha = 3 / (2 * gamma * mu) - 1 / 2
    return gamma, alpha, (2 * alpha**2 - 1) / (alpha - 1)


@pytest.mark.parametrize("version", [1, 2])
def test_fedac(world, version):
    """[yuan2020fedac] Algorithm 1 with the hyperparameters of FedAC-I and FedAC-II."""
    eta, mu, K = 0.4, 0.1, 3
    gamma, alpha, beta = coupling(version, eta, mu, K)
    w, w_ag = np.zeros(world.dim), np.zeros(world.dim)
    for cohort in cohorts(SOME, 0, 5):
        ends = []
        for i in cohort:
            v, v_ag = w, w_ag
            for _ in range(K):
                md = v / beta + (1 - 1 / beta) * v_ag
                g = world.gradient(i, md)
                v, v_ag = (1 - 1 / alpha) * v + md / alpha - gamma * g, md - eta * g
            ends.append((v, v_ag))
        p = world.shares[cohort] / world.shares[cohort].sum()
        w, w_ag = (sum(q * end[j] for q, end in zip(p, ends, strict=True)) for j in (0, 1))
    method = FedAC(eta, mu=mu, local_steps=K, batches=Full(), version=version)
    result = run(world, method, rounds=ROUNDS, participation=SOME)
    np.testing.assert_allclose(result.solution, w_ag, rtol=1e-9)
    np.testing.assert_allclose(result.server.w, w, rtol=1e-9)


def test_fedac_potential_falls():
    """F(w_ag) - F* + a/2 |w - w*|^2 falls by 1 - c a step, c = a gamma.

    a is mu in I and 1/(2 alpha gamma) in II; beta is what makes the inner products of the proof
    cancel: w_md (1 - c/alpha) = (1 - c) w_ag + c (1 - 1/alpha) w. I is Nesterov's (cases.py).
    """
    one = alone(known.apart())
    best, eta, mu = one.minimizer, 0.8, one.l2  # rows have length 1: eta < 1/L
    for version in (1, 2):
        method = FedAC(eta, mu=mu, batches=Full(), version=version)
        gamma, alpha, beta = (float(v) for v in method.coupling(jnp.float64(eta), jnp.float64(1)))
        a = mu if version == 1 else 1 / (2 * alpha * gamma)
        c = a * gamma
        assert 1 / beta == pytest.approx(c * (1 - 1 / alpha) / (1 - c / alpha), rel=1e-12)
    drop = one.objective(np.zeros(3)) - one.objective(best) + a / 2 * best @ best
    for rounds in range(1, 8):
        w, w_ag = (np.asarray(v) for v in run(one, method, rounds=rounds).server)
        now = one.objective(w_ag) - one.objective(best) + a / 2 * (w - best) @ (w - best)
        assert now <= (1 - c) * drop * (1 + 1e-9)
        drop = now


# ---------------------------------------------------------------- FedDANE


def test_feddane(world):
    """[li2019feddane] Algorithm 2, K gradient steps on the corrected problem."""
    x = np.zeros(world.dim)
    for cohort in cohorts(SOME, 0, 5):
        p = world.shares[cohort] / world.shares[cohort].sum()
        g = sum(q * world.gradient(i, x) for q, i in zip(p, cohort, strict=True))

        def slope(i, y, x, g=g):
            return world.gradient(i, y) + g - world.gradient(i, x) + 0.3 * (y - x)

        x = x + averaged(world, local_steps(slope, 0.4, 3), x, cohort)
    method = FedDANE(0.4, mu=0.3, local_steps=3, batches=Full())
    result = run(world, method, rounds=ROUNDS, participation=SOME)
    np.testing.assert_allclose(result.solution, x, rtol=1e-10)


def test_feddane_solved_exactly_is_a_newton_like_step(apart):
    """On quadratics x - mean((H_i + mu)^-1) g; for one client that is the proximal point."""
    method = FedDANE(0.6, mu=0.5, local_steps=100, batches=Full())
    for world in (apart, alone(apart)):
        x = np.zeros(3)
        for _ in range(2):
            g = sum(p * world.gradient(i, x) for i, p in enumerate(world.shares))
            inverses = [
                np.linalg.inv(hessian(world, i, x) + 0.5 * np.eye(3))
                for i in range(len(world.clients))
            ]
            x = x - sum(p * M for p, M in zip(world.shares, inverses, strict=True)) @ g
        np.testing.assert_allclose(run(world, method, rounds=2).solution, x, rtol=1e-9)
    # the proximal point: x = argmin F(y) + mu/2 |y - before|^2, so grad F(x) = mu (before - x)
    before, after = (run(world, method, rounds=r).solution for r in (1, 2))
    np.testing.assert_allclose(world.gradient(0, after), 0.5 * (before - after), atol=1e-12)


# ---------------------------------------------------------------- FedNL


def rank_one(M: np.ndarray) -> np.ndarray:
    values, V = np.linalg.eigh(M)
    j = np.argmax(np.abs(values))
    return values[j] * np.outer(V[:, j], V[:, j])


def two_entries(M: np.ndarray) -> np.ndarray:
    pairs = [(i, j) for i in range(len(M)) for j in range(i, len(M))]
    pairs.sort(key=lambda ij: -(M[ij] ** 2) * (1 if ij[0] == ij[1] else 2))
    kept = np.zeros_like(M)
    for i, j in pairs[:2]:
        kept[i, j] = kept[j, i] = M[i, j]
    return kept


COMPRESS = {"rank": (TopRank(1), rank_one), "entries": (TopEntries(2), two_entries)}


def project(H: np.ndarray, mu: float) -> np.ndarray:
    """The nearest matrix whose eigenvalues are at least mu."""
    values, V = np.linalg.eigh(H)
    return (V * np.maximum(values, mu)) @ V.T


@pytest.mark.parametrize(
    ("name", "mu", "warmup"), [("rank", 0.3, 3), ("rank", None, 0), ("entries", None, 0)]
)
def test_fednl(world, name, mu, warmup):
    """[safaryan2021fednl] Algorithm 1, both options, from H_i = 0."""
    compress, C = COMPRESS[name]
    x, H_i = np.zeros(3), np.zeros((5, 3, 3))
    p = world.shares
    for t in range(ROUNDS):
        true = np.array([hessian(world, i, x) for i in range(5)])
        H = np.tensordot(p, H_i, 1)
        ell = p @ [np.linalg.norm(true[i] - H_i[i]) for i in range(5)]
        g = sum(q * world.gradient(i, x) for i, q in enumerate(p))
        safe = H + ell * np.eye(3) if mu is None else project(H, mu)
        x = x - np.linalg.solve(safe, g) if t >= warmup else x
        H_i = H_i + 0.7 * np.array([C(true[i] - H_i[i]) for i in range(5)])
    method = FedNL(compress, alpha=0.7, mu=mu, warmup=warmup)
    result = run(world, method, rounds=ROUNDS)
    np.testing.assert_allclose(result.solution, x, rtol=1e-9)
    np.testing.assert_allclose(result.clients, H_i, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.server.H, np.tensordot(p, H_i, 1), rtol=1e-9, atol=1e-12)
    # a vector and a number; or two numbers and where they stand
    assert result.ledger.by_kind()["up hessian"] == ROUNDS * 5 * (32 if name == "rank" else 24)


@pytest.mark.parametrize("warmup", [0, 2])
def test_fednlpp(world, warmup):
    """[safaryan2021fednl] Algorithm 2; who was never asked counts for nothing."""
    compress, C = COMPRESS["rank"]
    x, H_i, ell_i, g_i = np.zeros(3), np.zeros((5, 3, 3)), np.zeros(5), np.zeros((5, 3))
    for t, cohort in enumerate(cohorts(SOME, 1, 5)):
        for i in cohort:
            true = hessian(world, i, x)
            H_i[i] += 0.7 * C(true - H_i[i])
            ell_i[i] = np.linalg.norm(H_i[i] - true)
            g_i[i] = (H_i[i] + ell_i[i] * np.eye(3)) @ x - world.gradient(i, x)
        H, ell, g = (np.tensordot(world.shares, each, 1) for each in (H_i, ell_i, g_i))
        x = np.linalg.solve(H + ell * np.eye(3), g) if t >= warmup else x
    method = FedNLPP(compress, alpha=0.7, warmup=warmup)
    result = run(world, method, rounds=ROUNDS, participation=SOME, seed=1)
    np.testing.assert_allclose(result.solution, x, rtol=1e-9)
    np.testing.assert_allclose(result.clients.H, H_i, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.clients.g, g_i, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", COMPRESS)
def test_fednl_is_superlinear_and_learns_the_hessian(world, name):
    """Its local theorem: the rate tends to 0, and H_i to the Hessian at the minimizer."""
    best, method = world.minimizer, FedNL(COMPRESS[name][0])
    ends = [run(world, method, rounds=r) for r in range(1, 12)]
    far = np.array([np.linalg.norm(end.solution - best) for end in ends])
    assert far[-1] < 1e-12
    rates = far[1:] / far[:-1]
    assert 0.3 < rates[0] < 0.7  # learning
    assert rates[far[:-1] > 1e-9][-1] < 0.01  # learned
    for i in range(5):
        np.testing.assert_allclose(ends[-1].clients[i], hessian(world, i, best), atol=1e-6)


def test_fednlpp_reaches_the_minimizer_where_fednl_cannot(world):
    """Two clients of five a round: FedNL steps along two gradients, FedNL-PP remembers all."""
    ends = [run(world, m, rounds=60, participation=SOME) for m in (FedNLPP(), FedNL())]
    far = [np.linalg.norm(end.solution - world.minimizer) for end in ends]
    assert far[0] < 1e-12 < 1e-2 < far[1]


def test_fednl_waits_until_it_knows_the_hessian(world):
    """d rounds of rank one are grad^2 f_i at the start; then option 1 takes a Newton step."""
    method = FedNL(TopRank(1), mu=0.01, warmup=3)
    with pytest.warns(RuntimeWarning, match="FedNL: the model did not move from the start"):
        told = run(world, method, rounds=3)
    moved = run(world, method, rounds=4)
    x = np.zeros(3)
    np.testing.assert_array_equal(told.solution, x)
    true = [hessian(world, i, x) for i in range(5)]
    np.testing.assert_allclose(told.clients, true, atol=1e-14)
    g = sum(p * world.gradient(i, x) for i, p in enumerate(world.shares))
    newton = x - np.linalg.solve(np.tensordot(world.shares, true, 1), g)
    np.testing.assert_allclose(moved.solution, newton, rtol=1e-9)


# ---------------------------------------------------------------- DONE


@pytest.mark.parametrize("first", ["zero", "gradient"])
def test_done(world, first):
    """[dinh2022done] Algorithm 1, from v = 0 or from v = -g."""
    x = np.zeros(3)
    for cohort in cohorts(SOME, 0, 5):
        p = world.shares[cohort] / world.shares[cohort].sum()
        g = sum(q * world.gradient(i, x) for q, i in zip(p, cohort, strict=True))
        mean = np.zeros(3)
        for q, i in zip(p, cohort, strict=True):
            v = np.zeros(3) if first == "zero" else -g
            for _ in range(4):
                v = (np.eye(3) - 0.3 * hessian(world, i, x)) @ v - 0.3 * g
            mean += q * v
        x = x + 0.9 * mean
    method = DONE(0.9, alpha=0.3, local_steps=4, first=first)
    result = run(world, method, rounds=ROUNDS, participation=SOME)
    np.testing.assert_allclose(result.solution, x, rtol=1e-9)


def test_done_with_enough_steps_is_newtons(apart):
    """One client and a quadratic: at the minimizer after one round."""
    result = run(alone(apart), DONE(alpha=1.0, local_steps=300), rounds=1)
    np.testing.assert_allclose(result.solution, alone(apart).minimizer, rtol=1e-9)


# ---------------------------------------------------------------- what they are made of


def symmetric(d: int, decay: float, seed: int = 0) -> np.ndarray:
    """Eigenvalues of both signs, each `decay` times the one before."""
    rng = np.random.default_rng(seed)
    V = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return (V * (decay ** np.arange(d) * rng.choice([-1, 1], d))) @ V.T


@pytest.mark.parametrize(
    ("compress", "delta"), [(TopRank(2), 2 / 7), (TopEntries(5), 5 / 28)], ids=["rank", "entries"]
)
def test_compressors_are_contractions(compress, delta):
    """|C(M) - M|^2 <= (1 - delta) |M|^2, also where nothing stands out (decay 1, or all ones)."""
    given = [symmetric(7, decay, seed) for decay in (1.0, 0.9) for seed in range(20)]
    given = np.array([*given, np.ones((7, 7))])
    kept = jax.jit(jax.vmap(lambda M: compress.matrix(compress(M, KEY).dense())))(given)
    left = np.sum((given - kept) ** 2, axis=(1, 2))
    assert np.all(left <= (1 - delta) * np.sum(given**2, axis=(1, 2)) * (1 + 1e-12))


def test_subspace_iteration_is_nearly_the_best():
    """Against SciPy's Lanczos method at d = 200, where not all eigenvalues are computed."""
    compress = jax.jit(TopRank(4))
    for decay, worst in ((0.5, 1 + 1e-6), (0.9, 1.01), (0.99, 1.1)):
        M = symmetric(200, decay)
        sent = compress(M, KEY)
        V = np.asarray(sent.vectors)
        np.testing.assert_allclose(V.T @ V, np.eye(4), atol=1e-12)
        left = np.sum((M - (V * np.asarray(sent.values)) @ V.T) ** 2)
        values, V = scipy.sparse.linalg.eigsh(M, 4, which="LM")
        best = np.sum((M - (V * values) @ V.T) ** 2)
        assert best * (1 - 1e-9) <= left <= worst * best


def test_eigenpairs_add_up_without_a_matrix_a_client():
    V, s = jnp.zeros((9, 6, 2)), jnp.zeros((9, 2))
    made = jax.make_jaxpr(lambda sent: sent.total())(fedmin.Eigenpairs(V, s)).jaxpr.eqns
    assert max(v.aval.size for eqn in made for v in eqn.outvars) == V.size


def test_hessians_of_problems():
    """Against the closed form, over three windows of rows; the l2 spares the bias."""
    rng = np.random.default_rng(0)
    z, x = rng.standard_normal((1100, 2)), rng.standard_normal(3)
    data = jax.tree.map(jnp.asarray, fedmin.rows(z, (rng.random(1100) < 0.5).astype(int)))
    wide = np.concatenate([z, np.ones((1100, 1))], axis=1)
    bend = 1 / (4 * np.cosh(wide @ x / 2) ** 2)
    closed = (wide.T * bend) @ wide / 1100 + np.diag([0.3, 0.3, 0])
    problem = fedmin.Logistic(2, l2=0.3, bias=True)
    found = eqx.filter_jit(problem.hessian)(jnp.asarray(x), data)
    np.testing.assert_allclose(found, closed, rtol=1e-10)


def test_a_matrix_of_one_entry_may_be_the_largest():
    assert FedNL(largest=1).largest == 1
    with pytest.raises(ValueError, match="largest must be at least 1, got 0"):
        FedNL(largest=0)
