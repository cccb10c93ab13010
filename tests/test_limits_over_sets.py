"""Constraints together with a set: the server's problem against Clarabel, runs against both."""

import itertools

import clarabel
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

import fedmin
import thorough
from fedmin.runs.config import Config
from fedmin.runs.folder import run
from fedmin.server import qcqp, qcqp_over
from test_qcqp import KINDS, instance, objective

SETS = {
    "l1": fedmin.L1Ball(0.7),
    "l2": fedmin.L2Ball(0.6),
    "box": fedmin.Box(-0.3, 0.5),
    "simplex": fedmin.Simplex(1.2),
}


def rows_of(domain, d: int, extra: int) -> tuple[list, list, list]:
    """The set as cones of Clarabel's over w and `extra` numbers, t with |w_j| <= t_j last."""
    eye, none = np.eye(d), np.zeros((d, d))
    lead = np.zeros((d, extra - d))

    def wide(left, right):
        return sp.csc_matrix(np.hstack([left, lead, right]))

    plus = clarabel.NonnegativeConeT
    if isinstance(domain, fedmin.L1Ball):
        total = np.concatenate([np.zeros(d + extra - d), np.ones(d)])[None]
        rows = [wide(eye, -eye), wide(-eye, -eye), sp.csc_matrix(total)]
        return rows, [np.zeros(2 * d), [domain.radius]], [plus(2 * d + 1)]
    if isinstance(domain, fedmin.Box):
        ends = [np.full(d, domain.upper), np.full(d, -domain.lower)]
        return [wide(eye, none), wide(-eye, none)], ends, [plus(2 * d)]
    if isinstance(domain, fedmin.Simplex):
        total = np.concatenate([np.ones(d), np.zeros(extra)])[None]
        cones = [plus(d), clarabel.ZeroConeT(1)]
        return [wide(-eye, none), sp.csc_matrix(total)], [np.zeros(d), [domain.radius]], cones
    empty = sp.csc_matrix((1, d + extra))
    return (
        [empty, wide(-eye, none)],
        [[domain.radius], np.zeros(d)],
        [clarabel.SecondOrderConeT(d + 1)],
    )


def clarabel_over(domain, g, q, v, a, tau, c) -> np.ndarray:
    """w of the set by interior points; slack s and the t of |w_j| <= t_j are variables too."""
    count, d = v.shape
    size = d + count + d
    curve = sp.block_diag([2 * q * sp.eye(d), sp.csc_matrix((count + d, count + d))]).tocsc()
    slack = np.hstack([np.zeros((count, d)), -np.eye(count), np.zeros((count, d))])
    rows, right = [sp.csc_matrix(slack)], [np.zeros(count)]
    cones = [clarabel.NonnegativeConeT(count)]
    for m in range(count):
        t = np.zeros(size)
        t[:d], t[d + m] = v[m], -1
        ball = np.hstack([-2 * np.sqrt(tau) * np.eye(d), np.zeros((d, size - d))])
        rows.append(sp.csc_matrix(np.vstack([t, ball, -t])))
        right.append(np.concatenate([[1 - a[m]], np.zeros(d), [1 + a[m]]]))
        cones.append(clarabel.SecondOrderConeT(d + 2))
    more = rows_of(domain, d, count + d)
    rows, right, cones = rows + more[0], right + more[1], cones + more[2]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    linear = np.concatenate([g, np.full(count, c), np.zeros(d)])
    matrix = sp.vstack(rows).tocsc()
    solver = clarabel.DefaultSolver(curve, linear, matrix, np.concatenate(right), cones, settings)
    return np.array(solver.solve().x)[:d]


@jax.jit
def solved(domain, g, q, v, a, tau, c) -> qcqp.Solution:
    vectors = jnp.concatenate([g[None], v])
    return qcqp_over.solve(vectors, q, a, tau, c, domain.project)


def dual_value(domain, nu, g, q, v, a, tau, c) -> float:
    k, b = q + tau * nu.sum(), g + nu @ v
    w = np.asarray(domain.project(jnp.asarray(-b / (2 * k))))
    return a @ nu + b @ w + k * w @ w


def in_the_way(domain, g, q, v, a, tau, c):
    """The same with levels between those at the set's free minimum and at the least of the first
    constraint: that one can be met and is in the way, and its multiplier lies between 0 and c."""
    ends = (np.asarray(domain.project(jnp.asarray(z))) for z in (-g / (2 * q), -v[0] / (2 * tau)))
    free, low = (v @ w + tau * w @ w for w in ends)
    return g, q, v, -(free + low) / 2 - np.where(free > low, 0, 1 + low - free), tau, 1e4


@pytest.mark.parametrize(("name", "count"), thorough.product([*SETS], [1, 2, 3]))
def test_no_solver_finds_better_in_the_set(name, count):
    """20 problems a set and count: as good as Clarabel's to 1e-6, and proved best by the dual."""
    domain, touched = SETS[name], 0
    for number, kind in enumerate((*KINDS[:3], "in the way")):
        for seed in range(5):
            made = "plain" if kind == "in the way" else kind
            problem = instance(made, count, 1000 * count + 100 * number + seed)
            problem = tuple(part[..., :3] if np.ndim(part) and part.shape[-1] == 8 else part
                            for part in problem)  # fmt: skip  # one shape, one program
            if kind == "in the way":
                problem = in_the_way(domain, *problem)
            c = problem[-1]
            w, nu, slack = (np.asarray(part) for part in solved(domain, *problem))
            ours = objective(w, *problem)
            theirs = np.asarray(domain.project(jnp.asarray(clarabel_over(domain, *problem))))
            theirs = objective(theirs, *problem)
            assert bool(domain.contains(jnp.asarray(w)))
            assert ours <= theirs + 1e-6 * (1 + abs(theirs)), (kind, seed)
            assert np.all((nu >= 0) & (nu <= c))
            low = dual_value(domain, nu, *problem)
            assert ours - low <= 1e-7 * (1 + abs(ours) + c), (kind, seed, ours - low)
            level = problem[3] + problem[2] @ w + problem[4] * w @ w
            np.testing.assert_allclose(slack, np.maximum(level, 0), rtol=1e-6, atol=1e-8)
            touched += bool(np.any((nu > 0) & (nu < c)))
    assert touched >= 5  # the multipliers that are hard to find are among them


def test_without_constraints_it_is_the_projection():
    g = jnp.array([3.0, -2.0, 0.1])
    answer = qcqp_over.solve(g[None], 0.5, jnp.zeros(0), 0.1, 1.0, SETS["l1"].project)
    np.testing.assert_allclose(answer.w, SETS["l1"].project(-g))


# ---------------------------------------------------------------- runs


class World:
    """Least squares in two groups of rows, at three clients; the curvature of the steepest part."""

    def __init__(self, d: int = 5, seed: int = 0):
        rng = np.random.default_rng(seed)
        z, group = rng.standard_normal((90, d)), np.repeat([0, 1], [60, 30])
        true = np.stack([rng.standard_normal(d), rng.standard_normal(d)])
        y = np.sum(z * true[group], axis=1) + 0.1 * rng.standard_normal(90)
        self.z, self.y, self.group = z, y, group
        parts = [np.arange(i, 90, 3) for i in range(3)]
        self.federation = fedmin.Federation.from_parts(z, y, parts, groups=group.astype(str))
        self.problem = fedmin.LeastSquares(d)
        self.tau = max(np.linalg.eigvalsh(h)[-1] / 2 for h, *_ in self.quadratics())

    def quadratics(self):
        """H, b, c of the mean loss x.Hx/2 - b.x + c on all rows and on each group's."""
        for some in (self.group >= 0, self.group == 0, self.group == 1):
            z, y = self.z[some], self.y[some]
            yield z.T @ z / len(y), z.T @ y / len(y), y @ y / (2 * len(y))

    def losses(self, x) -> list[float]:
        return [x @ h @ x / 2 - b @ x + c for h, b, c in self.quadratics()]

    def limited(self, limit: float, domain) -> fedmin.Problem:
        limits = fedmin.GroupLossAtMost({"1": limit}, by="groups")
        return fedmin.over(fedmin.subject_to(self.problem, limits), domain)

    def method(self) -> fedmin.SSCA:
        return fedmin.SSCA(rho=1.0, gamma=1.0, tau=self.tau, batches=fedmin.Full())

    def best(self, limit: float, domain) -> np.ndarray:
        """By Clarabel: x.Hx/2 - b.x + c <= limit is a cone in R x, H = R^T R."""
        (h, b, _), _, (h1, b1, c1) = self.quadratics()
        d = len(b)
        r, t = np.linalg.cholesky(h1).T, np.concatenate([-b1, np.zeros(d)])
        ball = np.hstack([-np.sqrt(2) * r, np.zeros((d, d))])
        rows, right, cones = rows_of(domain, d, d)
        rows = [sp.csc_matrix(np.vstack([t, ball, -t])), *rows]
        right = [np.concatenate([[1 - c1 + limit], np.zeros(d), [1 + c1 - limit]]), *right]
        curve = sp.block_diag([h, sp.csc_matrix((d, d))]).tocsc()
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        solver = clarabel.DefaultSolver(
            curve, np.concatenate([-b, np.zeros(d)]), sp.vstack(rows).tocsc(),
            np.concatenate(right), [clarabel.SecondOrderConeT(d + 2), *cones], settings,
        )  # fmt: skip
        return np.array(solver.solve().x)[:d]


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.mark.parametrize("domain", [fedmin.L1Ball(1.5), fedmin.Box(-0.5, 0.8)], ids=["l1", "box"])
def test_a_run_ends_at_the_minimum_of_both(world, domain):
    """With the group's limit and the set both active: Clarabel's x, certified for both."""
    free = world.best(1e3, domain)
    limit = world.losses(free)[2] - 0.1
    best = world.best(limit, domain)
    problem = world.limited(limit, domain)
    result = fedmin.minimize(problem, world.federation, world.method(), rounds=300, every=50)
    np.testing.assert_allclose(result.solution, best, atol=2e-5)
    found = result.certificate
    assert found.feasible
    assert found.inside
    assert found.convex
    assert found.domain.startswith(type(domain).__name__)
    assert found.multipliers[0] > 0.01
    for number in (found.stationarity, found.best_stationarity, found.complementarity):
        assert number < 1e-4 < 1e-2 * found.gradient
    # the bound on the distance to the minimum is one, here and at a worse model
    assert world.losses(result.solution)[0] - world.losses(best)[0] <= found.gap + 1e-6
    assert found.gap < 1e-3
    middle = np.asarray(domain.project(jnp.asarray(best * 0.98)))
    worse = fedmin.certify(world.limited(limit + 0.1, domain), world.federation, middle)
    lowest = world.losses(world.best(limit + 0.1, domain))[0]
    assert 0 < world.losses(middle)[0] - lowest <= worse.gap


def test_every_model_of_a_run_is_in_the_set(world):
    """Also with steps that are shorter than whole: means of points of a convex set."""
    domain = fedmin.Simplex(1.0)
    inside = fedmin.Measure("inside", lambda problem, x: problem.domain.contains(x, 1e-5))
    method = fedmin.SSCA(tau=world.tau, batches=fedmin.WithoutReplacement(5))
    problem = world.limited(0.5 * world.losses(np.zeros(5))[2], domain)
    result = fedmin.minimize(
        problem, world.federation, method, rounds=20, record=[inside, fedmin.Optimality()]
    )
    assert all(result.history["inside"] == 1)


def best_on_supports(world: World, limit: float, tau: int) -> tuple[float, tuple[int, ...]]:
    """All supports of tau entries, the group's limit met on each by SLSQP: the least objective."""
    (h, b, c), _, (h1, b1, c1) = world.quadratics()
    found = []
    for support in itertools.combinations(range(len(b)), tau):
        s = np.array(support)

        def value(x, s=s):
            return x @ h[np.ix_(s, s)] @ x / 2 - b[s] @ x + c

        def room(x, s=s):
            return limit - (x @ h1[np.ix_(s, s)] @ x / 2 - b1[s] @ x + c1)

        start = np.linalg.solve(h1[np.ix_(s, s)], b1[s])
        if room(start) >= 0:
            limits = {"type": "ineq", "fun": room}
            ended = scipy.optimize.minimize(value, start, constraints=limits, tol=1e-12)
            found.append((ended.fun, support))
    return min(found)


def few_entries(seed: int) -> tuple[fedmin.Result, float, bool]:
    """A run with 3 of 6 entries and a limit below the loss of the best unlimited ones; the least
    objective of all supports that can meet it; and whether the limit changes the best support."""
    world = World(6, seed)
    unlimited = list(best_on_supports(world, 1e3, 3)[1])
    h, b, _ = next(world.quadratics())
    x = np.zeros(6)
    x[unlimited] = np.linalg.solve(h[np.ix_(unlimited, unlimited)], b[unlimited])
    limit = 0.8 * world.losses(x)[2]
    value, support = best_on_supports(world, limit, 3)
    problem = world.limited(limit, fedmin.L0Ball(3))
    result = fedmin.minimize(problem, world.federation, world.method(), rounds=300, every=300)
    found = result.certificate
    assert found.feasible
    assert found.inside
    assert found.nonzeros == 3
    assert found.stationarity < 1e-6 < found.gradient
    assert found.settled > 0.1
    assert result.final("stable") > 200
    return result, value, list(support) != unlimited


@pytest.mark.parametrize("seed", [2, 7])
def test_few_entries_and_a_groups_limit(seed):
    """Met, stationary on the support, and here the best of all supports: not that of no limit."""
    result, value, other = few_entries(seed)
    assert result.certificate.objective == pytest.approx(value, rel=1e-6)
    assert other
    assert seed == 7 or result.certificate.multipliers[0] > 0.01  # there the limit is met freely
    assert "non-zeros" in str(result.certificate)


@pytest.mark.thorough
def test_how_often_the_support_is_the_best():
    """Of 40 problems with 20 supports each 31 end on the best, half of the others within 2%."""
    above = []
    for seed in range(40):
        result, value, _ = few_entries(seed)
        above.append(result.certificate.objective / value - 1)
    assert sum(each < 1e-6 for each in above) == 31
    assert sum(each < 0.02 for each in above) == 35


def test_the_certificate_notices_a_model_that_is_not_stationary_on_its_support(world):
    limit = 0.6 * world.losses(np.zeros(5))[2]
    _value, support = best_on_supports(world, limit, 3)
    problem = world.limited(limit, fedmin.L0Ball(3))
    x = np.zeros(5)
    x[list(support)] = 0.3
    assert fedmin.certify(problem, world.federation, x).best_stationarity > 0.05
    outside = fedmin.certify(problem, world.federation, np.full(5, 0.3))
    assert not outside.inside
    assert not outside.feasible
    assert "outside" in outside.verdict


def clarabel_nearest(domains, z) -> np.ndarray:
    """The projection onto what the sets have in common, by interior points."""
    d = len(z)
    parts = [rows_of(domain, d, d) for domain in domains]
    rows, right, cones = ([x for part in parts for x in part[k]] for k in range(3))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    curve = sp.block_diag([sp.eye(d), sp.csc_matrix((d, d))]).tocsc()
    solver = clarabel.DefaultSolver(
        curve, np.concatenate([-z, np.zeros(d)]), sp.vstack(rows).tocsc(),
        np.concatenate(right), cones, settings,
    )  # fmt: skip
    return np.array(solver.solve().x)[:d]


PAIRS = {
    "l1, box": (fedmin.L1Ball(1.5), fedmin.Box(-0.2, 0.9)),
    "l2, box": (fedmin.L2Ball(1.0), fedmin.Box(0.1, 0.7)),
    "simplex, l2": (fedmin.Simplex(1.0), fedmin.L2Ball(0.6)),
    "three": (fedmin.L1Ball(1.5), fedmin.Box(-0.6, 0.9), fedmin.L2Ball(0.9)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_projections_onto_intersections_are_clarabels(name, rng):
    domain = fedmin.Intersection(*PAIRS[name])
    project = jax.jit(domain.project)
    moved = 0
    for _ in range(20):
        z = 2 * rng.standard_normal(6)
        found = np.asarray(project(jnp.asarray(z)))
        theirs = clarabel_nearest(PAIRS[name], z)
        np.testing.assert_allclose(found, theirs, atol=1e-5)
        assert np.linalg.norm(found - z) <= np.linalg.norm(theirs - z) + 1e-8  # theirs is outside
        assert bool(domain.contains(jnp.asarray(found), 1e-9))
        # none of the sets alone has it
        each = [jnp.max(jnp.abs(one.project(jnp.asarray(z)) - found)) for one in PAIRS[name]]
        moved += bool(min(each) > 1e-3)
    assert moved > 3


def test_dykstra_does_not_stop_where_it_stands_still():
    """x stands still for many sweeps, and goes on: the rule looks at all sets' points."""
    upper, line = fedmin.Box(jnp.array([-9.0, 0.0]), jnp.array([9.0, 9.0])), fedmin.Box(-9.0, 0.01)
    domain = fedmin.Intersection(upper, fedmin.L1Ball(0.5), line)
    z = jnp.array([-40.0, 40.0])
    best = clarabel_nearest((fedmin.L1Ball(0.5), fedmin.Box(-9.0, 0.01)), np.asarray(z))
    np.testing.assert_allclose(domain.project(z), best, atol=1e-6)


def test_sets_without_a_common_point_are_refused():
    with pytest.raises(ValueError, match="no common point"):
        fedmin.Intersection(fedmin.L2Ball(1.0), fedmin.Box(2.0, 3.0)).fitted({"x": (4,)})
    with pytest.raises(ValueError, match="is not convex"):
        fedmin.Intersection(fedmin.L0Ball(2), fedmin.Box(2.0, 3.0))
    with pytest.raises(ValueError, match="sets"):
        fedmin.Intersection(fedmin.L2Ball(1.0))


def test_sets_that_do_not_fit_are_refused(world):
    sets = fedmin.L0Ball(1, groups=np.array([0, 0, 1, 1, 1]))
    with pytest.raises(ValueError, match="convex set with a projection, or an L0Ball without"):
        fedmin.minimize(world.limited(1.0, sets), world.federation, world.method(), rounds=1)


FILE = """
[data]
name = "breast_cancer"
standardize = true
[partition]
name = "iid"
clients = 3
[problem]
name = "logistic"
[[constraint]]
name = "grouplossatmost"
limits = {{"0" = 0.3}}
[domain]
{domain}
[method]
name = "ssca"
tau = 2.0
rho = 1.0
gamma = 1.0
batches = {{name = "full"}}
[run]
rounds = 60
every = 60
"""


@pytest.mark.parametrize(
    "domain",
    [
        'name = "intersection"\nsets = [{name = "l1ball", radius = 3.0}, '
        '{name = "box", lower = -0.5, upper = 0.5}]',
        'name = "l0ball"\ntau = 5',
    ],
    ids=["l1 and box", "l0"],
)
def test_in_a_file(tmp_path, domain):
    (outcome,) = run(Config(FILE.format(domain=domain)), tmp_path / "runs")
    found = outcome.result.certificate
    assert found.feasible
    assert found.inside
    assert found.stationarity < 0.05
