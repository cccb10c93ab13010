"""The server's convex problem against Clarabel, its own dual, and closed forms."""

import clarabel
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import thorough
from fedmin.server import qcqp


@jax.jit
def solve(g, q, v, a, tau, c) -> qcqp.Solution:
    return qcqp.solve(jnp.concatenate([g[None], v]), q, a, tau, c)


def clarabel_solve(g, q, v, a, tau, c) -> np.ndarray:
    """w by interior points; tau |w|^2 <= t is the cone |(2 sqrt(tau) w, 1 - t)| <= 1 + t."""
    count, d = v.shape
    curve = sp.block_diag([2 * q * sp.eye(d), sp.csc_matrix((count, count))]).tocsc()
    rows = [sp.hstack([sp.csc_matrix((count, d)), -sp.eye(count)])]
    right, cones = [np.zeros(count)], [clarabel.NonnegativeConeT(count)]
    for m in range(count):
        t = np.zeros(d + count)
        t[:d], t[d + m] = v[m], -1
        ball = np.hstack([-2 * np.sqrt(tau) * np.eye(d), np.zeros((d, count))])
        rows.append(sp.csc_matrix(np.vstack([t, ball, -t])))
        right.append(np.concatenate([[1 - a[m]], np.zeros(d), [1 + a[m]]]))
        cones.append(clarabel.SecondOrderConeT(d + 2))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    linear = np.concatenate([g, np.full(count, c)])
    matrix = sp.vstack(rows).tocsc()
    solver = clarabel.DefaultSolver(curve, linear, matrix, np.concatenate(right), cones, settings)
    return np.array(solver.solve().x)[:d]


def objective(w, g, q, v, a, tau, c) -> float:
    """What is minimized, with the best slack for this w."""
    return g @ w + q * w @ w + c * np.maximum(a + v @ w + tau * w @ w, 0).sum()


def dual_value(nu, g, q, v, a, tau, c) -> float:
    return a @ nu - np.sum((g + nu @ v) ** 2) / (4 * (q + tau * nu.sum()))


KINDS = ("plain", "twice the same", "infeasible", "inactive", "more constraints than numbers")


def instance(kind: str, count: int, seed: int):
    """A random problem; scales over several powers of ten."""
    rng = np.random.default_rng(seed)
    d = 1 + seed % 2 if kind == KINDS[4] else int(rng.choice([3, 8]))
    tau, q, c = 10 ** rng.uniform([-2, -2, -1], [1, 1, 4])
    g = rng.standard_normal(d) * 10 ** rng.uniform(-1, 1)
    v = rng.standard_normal((count, d)) * 10 ** rng.uniform(-1, 1)
    a = rng.standard_normal(count) * 10 ** rng.uniform(-1, 1)
    if kind == "twice the same":
        v, a = np.repeat(v[:1], count, 0), np.repeat(a[:1], count)
    if kind == "infeasible":
        a = np.abs(a) + (v**2).sum(1) / (4 * tau)
    if kind == "inactive":
        w = -g / (2 * q)  # the free minimum, which all constraints are to allow
        a = -np.abs(a) - v @ w - tau * w @ w
    return g, q, v, a, tau, c


@pytest.mark.parametrize(("kind", "count"), thorough.product(KINDS, range(1, 6)))
def test_no_solver_finds_better(kind, count):
    """550 problems: as good as Clarabel's to 1e-6, and proved best by the dual alone."""
    for seed in range(22):
        problem = instance(kind, count, 1000 * count + seed)
        c = problem[-1]
        w, nu, slack = (np.asarray(part) for part in solve(*problem))
        ours = objective(w, *problem)
        theirs = objective(clarabel_solve(*problem), *problem)
        assert ours <= theirs + 1e-6 * (1 + abs(theirs))
        # Clarabel may be the worse of the two: what is below both is the dual's value
        assert ours - dual_value(nu, *problem) <= 1e-7 * (1 + abs(ours) + c)
        assert np.all((nu >= 0) & (nu <= c))
        level = problem[3] + problem[2] @ w + problem[4] * w @ w
        np.testing.assert_allclose(slack, np.maximum(level, 0), rtol=1e-6, atol=1e-8)
        if kind == "infeasible":
            assert np.all(nu == c)
        if kind == "inactive":
            assert np.all(nu == 0)


def test_turns_are_counted(monkeypatch):
    """Of problems that need several, one turn solves none and ten solve all."""
    need = [instance("plain", 2, 49), instance("more constraints than numbers", 4, 3)]
    values = {}
    for most in (1, 10, 100):
        monkeypatch.setattr(qcqp, "MOST", most)
        solve = jax.jit(lambda g, q, v, *rest: qcqp.solve(jnp.vstack([g, v]), q, *rest))
        found = [solve(*p) for p in need]
        values[most] = [
            dual_value(np.asarray(one.multipliers), *p) for one, p in zip(found, need, strict=True)
        ]
    np.testing.assert_allclose(values[10], values[100], rtol=1e-9)
    assert all(few < 0.99 * all_ for few, all_ in zip(values[1], values[100], strict=True))


def test_without_constraints():
    g = jnp.array([1.0, -2.0])
    answer = solve(g, 0.5, jnp.zeros((0, 2)), jnp.zeros(0), 0.1, 1.0)
    np.testing.assert_allclose(answer.w, -g)


@pytest.mark.parametrize("limit", [0.5, 2.0, -10.0])
def test_the_papers_closed_form(limit):
    """minimize |w|^2, M = 1: eq. (38)-(42), with the sign of Abar repaired."""
    rng = np.random.default_rng(3)
    v, level, tau, c = rng.standard_normal(6), 1.0, 0.1, 50.0
    b = v @ v
    room = b + 4 * tau * (limit - level)
    nu = np.clip((np.sqrt(b / room) - 1) / tau, 0, c) if room > 0 else c
    answer = solve(jnp.zeros(6), 1.0, v[None], np.array([level - limit]), tau, c)
    np.testing.assert_allclose(answer.multipliers, [nu], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(answer.w, -nu * v / (2 * (1 + nu * tau)), rtol=1e-12, atol=1e-14)


def test_single_precision_is_close():
    """Large vectors in float32, as a run uses them."""
    rng = np.random.default_rng(0)
    d, count = 2000, 5
    g, v = rng.standard_normal(d), rng.standard_normal((count, d))
    problem = (g, 1.0, v, rng.standard_normal(count) + 100.0, 0.5, 1e3)
    exact = solve(*problem)
    single = solve(*(jnp.asarray(part, jnp.float32) for part in problem))
    assert single.w.dtype == jnp.float32
    np.testing.assert_allclose(single.w, exact.w, atol=2e-4)
