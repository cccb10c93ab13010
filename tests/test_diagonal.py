"""The server's convex problem with curvatures by coordinate: against Clarabel, and its own dual."""

import clarabel
import jax
import numpy as np
import pytest
import scipy.sparse as sp

from fedmin.server import diagonal, qcqp
from test_qcqp import solve as scalar

KINDS = ("plain", "twice the same", "infeasible", "inactive", "many scales")
D = 6


@jax.jit
def solve(*problem) -> qcqp.Solution:
    return diagonal.solve(*problem)


def clarabel_solve(g, q, a, G, curves, c) -> np.ndarray:
    """v by interior points; v.D v <= t is the cone |(2 sqrt(D) v, 1 - t)| <= 1 + t."""
    count, d = G.shape
    curve = sp.block_diag([2 * sp.diags(q), sp.csc_matrix((count, count))]).tocsc()
    rows = [sp.hstack([sp.csc_matrix((count, d)), -sp.eye(count)])]
    right, cones = [np.zeros(count)], [clarabel.NonnegativeConeT(count)]
    for m in range(count):
        t = np.concatenate([G[m], -np.eye(count)[m]])
        ball = np.hstack([np.diag(-2 * np.sqrt(curves[m])), np.zeros((d, count))])
        rows.append(sp.csc_matrix(np.vstack([t, ball, -t])))
        right.append(np.concatenate([[1 - a[m]], np.zeros(d), [1 + a[m]]]))
        cones.append(clarabel.SecondOrderConeT(d + 2))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    linear, right = np.concatenate([g, np.full(count, c)]), np.concatenate(right)
    solver = clarabel.DefaultSolver(curve, linear, sp.vstack(rows).tocsc(), right, cones, settings)
    return np.array(solver.solve().x)[:d]


def levels(v, a, G, curves):
    return a + G @ v + curves @ v**2


def objective(v, g, q, a, G, curves, c) -> float:
    """What is minimized, with the best slack for this v."""
    return g @ v + q @ v**2 + c * np.maximum(levels(v, a, G, curves), 0).sum()


def dual_value(nu, g, q, a, G, curves, c) -> float:
    return a @ nu - np.sum((g + nu @ G) ** 2 / (4 * (q + nu @ curves)))


def instance(kind: str, count: int, seed: int):
    """A random problem; scales over several powers of ten, of coordinates too."""
    rng = np.random.default_rng(seed)
    wide = 2.0 if kind == "many scales" else 0.5
    q = 10 ** (rng.uniform(-2, 1) + rng.uniform(-wide, wide, D))
    curves = 10 ** (rng.uniform(-2, 1) + rng.uniform(-wide, wide, (count, D)))
    c = 10 ** rng.uniform(-1, 4)
    g = rng.standard_normal(D) * 10 ** rng.uniform(-1, 1)
    G = rng.standard_normal((count, D)) * 10 ** rng.uniform(-1, 1)
    a = rng.standard_normal(count) * 10 ** rng.uniform(-1, 1)
    if kind == "twice the same":
        G, curves, a = (np.repeat(part[:1], count, 0) for part in (G, curves, a))
    if kind == "infeasible":
        a = np.abs(a) + (G**2 / (4 * curves)).sum(1)
    if kind == "inactive":
        v = -g / (2 * q)  # the free minimum, which all constraints are to allow
        a = -np.abs(a) - G @ v - curves @ v**2
    return g, q, a, G, curves, c


@pytest.mark.parametrize("count", range(1, 6))
def test_no_solver_finds_better(count):
    """300 problems: as good as Clarabel's to 1e-6, and proved best by the dual alone."""
    for kind in KINDS:
        for seed in range(12):
            problem = instance(kind, count, 1000 * count + seed)
            c = problem[-1]
            v, nu, slack = (np.asarray(part) for part in solve(*problem))
            ours = objective(v, *problem)
            theirs = objective(clarabel_solve(*problem), *problem)
            assert ours <= theirs + 1e-6 * (1 + abs(theirs)), (kind, seed)
            # Clarabel may be the worse of the two: what is below both is the dual's value
            assert ours - dual_value(nu, *problem) <= 1e-7 * (1 + abs(ours) + c), (kind, seed)
            assert np.all((nu >= 0) & (nu <= c))
            level = levels(v, *problem[2:5])
            np.testing.assert_allclose(slack, np.maximum(level, 0), rtol=1e-6, atol=1e-8)
            if kind == "infeasible":
                assert np.all(nu == c)
            if kind == "inactive":
                assert np.all(nu == 0)
    other = solve(*problem, np.full(count, 0.1))  # from other multipliers: the same answer
    np.testing.assert_allclose(objective(np.asarray(other.w), *problem), ours, rtol=1e-6)


def test_one_number_for_all_coordinates_is_the_scalar_solver():
    g, q, a, G, curves, c = instance("plain", 3, 7)
    curves, q = np.full_like(curves, 0.3), np.full_like(q, 2.0)
    ours = solve(g, q, a, G, curves, c)
    theirs = scalar(g, 2.0, G, a, 0.3, c)
    np.testing.assert_allclose(ours.w, theirs.w, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.multipliers, theirs.multipliers, rtol=1e-5, atol=1e-9)


def test_without_constraints():
    none = np.zeros((0, 2))
    answer = solve(np.array([1.0, -2.0]), np.array([0.5, 0.25]), np.zeros(0), none, none, 1.0)
    np.testing.assert_allclose(answer.w, [-1.0, 4.0])
