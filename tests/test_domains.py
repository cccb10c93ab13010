"""Sets: every atom against all corners or a linear program, every projection against Clarabel."""

import clarabel
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

import fedmin
from fedmin import (
    Box,
    GroupL1Ball,
    KSparsePolytope,
    L1Ball,
    L2Ball,
    LinfBall,
    NuclearBall,
    Product,
    Simplex,
)
from fedmin.client.atoms import dense

D = 6
PARTS = {"a": (2, 2), "b": (2,)}
LOW, HIGH = np.array([-1.0, 0, 0.5, -2, 0, -3]), np.array([1.0, 2, 1, 0, 3, -1])


def polytope(A, b, equal=None):
    """Least <g, u> over A u <= b by linear programming (u, and slack variables after it)."""

    def least(g):
        c = np.concatenate([g, np.zeros(A.shape[1] - len(g))])
        Ae, be = equal or (None, None)
        return scipy.optimize.linprog(c, A, b, Ae, be, bounds=(None, None)).fun

    return least


def absolute(r, k=None):
    """|u|_1 <= r, and |u_j| <= r/k, with slacks t >= |u|."""
    eye = np.eye(D)
    A = np.block([[eye, -eye], [-eye, -eye], [np.zeros((1, D)), np.ones((1, D))]])
    b = np.concatenate([np.zeros(2 * D), [r]])
    if k is not None:
        A = np.vstack([A, np.hstack([np.zeros((D, D)), eye])])
        b = np.concatenate([b, np.full(D, r / k)])
    return A, b


def box(low, high):
    eye = np.eye(D)
    return np.vstack([eye, -eye]), np.concatenate([high, -low])


POSITIVE = (-np.eye(D), np.zeros(D))
SUM = (np.ones((1, D)), np.array([1.5]))


def singular(x):
    return np.linalg.svd(x.reshape(2, 3), compute_uv=False)


# set, least <g, u> by another way, and the nearest point by another way (None: by Clarabel's cones)
SETS = {
    "l1": (L1Ball(1.5), polytope(*absolute(1.5)), absolute(1.5)),
    "linf": (LinfBall(1.5), polytope(*box(-1.5 * np.ones(D), 1.5 * np.ones(D))),
             box(-1.5 * np.ones(D), 1.5 * np.ones(D))),
    "box": (Box(-0.5, 2.0), polytope(*box(-0.5 * np.ones(D), 2 * np.ones(D))),
            box(-0.5 * np.ones(D), 2 * np.ones(D))),
    "box each": (Box(LOW, HIGH), polytope(*box(LOW, HIGH)), box(LOW, HIGH)),
    "simplex": (Simplex(1.5), polytope(*POSITIVE, SUM), POSITIVE),
    "ksparse": (KSparsePolytope(2, 0.5), polytope(*absolute(1.0, 2)), absolute(1.0, 2)),
    "l2": (L2Ball(1.5), lambda g: -1.5 * np.linalg.norm(g), [(1.5, range(D))]),
    "group": (GroupL1Ball(1.5, group=2),
              lambda g: -1.5 * np.linalg.norm(g.reshape(-1, 2), axis=1).max(),
              [(1.5, (0, 1), (2, 3), (4, 5))]),
    "nuclear": (NuclearBall(1.5, shape=(2, 3), tolerance=1e-9),
                lambda g: -1.5 * singular(g)[0], None),
    "product": (Product({"a": L2Ball(1.0), "b": L1Ball(0.5)}),
                lambda g: -np.linalg.norm(g[:4]) - 0.5 * np.abs(g[4:]).max(), None),
}  # fmt: skip


@pytest.fixture(params=SETS)
def entry(request):
    domain, least, region = SETS[request.param]
    return request.param, domain.fitted(PARTS), least, region


def directions(count=8):
    rng = np.random.default_rng(1)
    return [*(3 * rng.standard_normal((count, D))), 1e-3 * rng.standard_normal(D)]


def test_atoms_are_the_least(entry):
    _, domain, least, _ = entry
    lmo, inside = (jax.jit(lambda a, f=f: f(a)) for f in (domain.lmo, domain.contains))
    for g in directions():
        u = lmo(jnp.asarray(g))
        dense = u.dense() if isinstance(u, fedmin.Payload) else u
        assert inside(dense)
        assert g @ dense == pytest.approx(least(g), rel=1e-7)
        if isinstance(u, fedmin.Payload):
            assert u.inner(jnp.asarray(g)) == pytest.approx(g @ dense)
            assert sum(a.nbytes for a in jax.tree.leaves(u)) < D * 8
    zero = lmo(jnp.zeros(D))
    assert inside(zero.dense() if isinstance(zero, fedmin.Payload) else zero)


def test_atoms_travel_small_and_come_back(entry):
    """Weighted sums of what travels are what the weighted sums of atoms are made of."""
    name, domain, _, _ = entry
    gs, w = jnp.asarray(directions(3)), jnp.array([0.5, 0.3, 0.1, 0.4])
    atoms = [domain.lmo(g) for g in gs]
    forms = [domain.packed(u) for u in atoms]
    whole, z = (
        sum(a * dense((u,)) for a, u in zip(w, some, strict=True)) for some in (atoms, forms)
    )
    np.testing.assert_allclose(domain.unpacked(z, jnp.sum(w)), whole, atol=1e-12)
    if name != "l2":
        assert sum(a.nbytes for a in jax.tree.leaves(forms[0])) < D * 8


def nearest(x, region, total=None):
    """min |u - x|^2 over a polytope (A, b), or over sum of |u_G| <= r, by Clarabel."""
    if isinstance(region, list):
        ((r, *groups),) = region
        n = D + len(groups)  # a length t_G for each group
        rows, b, cones = [np.r_[np.zeros(D), np.ones(len(groups))][None]], [r], [1]
        for i, group in enumerate(groups):  # (t_G, u_G) in the second-order cone
            block = np.zeros((1 + len(group), n))
            block[0, D + i] = -1
            block[1 + np.arange(len(group)), list(group)] = -1
            rows.append(block)
            b += [0.0] * len(block)
            cones.append(len(block))
        A = np.vstack(rows)
        kinds = [clarabel.NonnegativeConeT(1), *map(clarabel.SecondOrderConeT, cones[1:])]
    else:
        A, b = region
        n, kinds = A.shape[1], [clarabel.NonnegativeConeT(len(b))]
        if total is not None:
            A, b = np.vstack([total[0], A]), np.concatenate([total[1], b])
            kinds = [clarabel.ZeroConeT(1), *kinds]
    P = sp.diags(np.r_[np.ones(D), np.zeros(n - D)]).tocsc()
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    q = np.r_[-x, np.zeros(n - D)]
    found = clarabel.DefaultSolver(P, q, sp.csc_matrix(A), np.array(b), kinds, settings).solve()
    return np.array(found.x)[:D]


def by_hand(name, domain, x):
    """Unitarily invariant, and separable: the projections that follow from others' by a theorem."""
    if name == "nuclear":
        u, values, v = np.linalg.svd(x.reshape(2, 3), full_matrices=False)
        A = np.vstack([-np.eye(D), np.r_[np.ones(2), np.zeros(4)][None]])
        kept = nearest(np.r_[values, np.zeros(4)], (A, np.r_[np.zeros(D), 1.5]))[:2]
        return ((u * kept) @ v).ravel()
    a = x[:4] / max(1.0, np.linalg.norm(x[:4]))
    padded = nearest(np.r_[x[4:], np.zeros(4)], absolute(0.5))
    return np.r_[a, padded[:2]]


def test_projections_are_the_nearest(entry):
    name, domain, _, region = entry
    project, inside = (jax.jit(lambda a, f=f: f(a)) for f in (domain.project, domain.contains))
    for x in directions(4):
        if region is None:
            expected = by_hand(name, domain, x)
        else:
            expected = nearest(x, region, SUM if name == "simplex" else None)
        found = project(jnp.asarray(x))
        np.testing.assert_allclose(found, expected, atol=2e-6)
        assert inside(found)
        np.testing.assert_allclose(project(found), found, atol=1e-9)


def test_gap_and_diameter(entry):
    """No two points are farther apart than the diameter, and two atoms nearly or just are."""
    _, domain, least, _ = entry
    points = list(map(jax.jit(lambda g: domain.project(g)), directions(4)))
    far = 0.0
    lmo, gap = jax.jit(lambda g: domain.lmo(g)), jax.jit(lambda x, g: domain.gap(x, g))
    for g in directions(30):
        ends = [lmo(jnp.asarray(s * g)) for s in (1.0, -1.0)]
        u, v = (np.asarray(e.dense() if isinstance(e, fedmin.Payload) else e) for e in ends)
        far = max(far, np.linalg.norm(u - v))
    assert 0.9 * domain.diameter <= far <= domain.diameter * (1 + 1e-9)
    g = directions()[0]
    for x in map(np.asarray, points):
        found, true = float(gap(x, g)), g @ x - least(g)
        # what a search may have missed is in it: the gap is never below the true one
        missed = domain.tolerance * abs(least(g)) if domain.searches else 0.0
        assert found == pytest.approx(true + missed, rel=1e-5, abs=1e-8)
        assert found >= max(true, 0) - 1e-9


@pytest.mark.parametrize("cycles", [1, 20])
def test_a_coarse_search_does_not_hide_the_gap(rng, cycles):
    """Two nearly equal singular values and two Lanczos steps: the pair found is far from right."""
    u, v = (np.linalg.qr(rng.normal(size=(8, 8)))[0] for _ in range(2))
    g = ((u * [1.0, 0.98, 0.97, 0.9, 0.5, 0.2, 0.1, 0.0]) @ v).ravel()
    ball = fedmin.NuclearBall(2.0, shape=(8, 8), tolerance=0.2, krylov=2, cycles=cycles)
    x = jnp.zeros(64)
    plain = float(-ball.lmo(jnp.asarray(g)).inner(jnp.asarray(g)))
    assert plain < 2.0 <= float(ball.gap(x, jnp.asarray(g))) < 2.0 * 1.3
    both = fedmin.Product((ball, ball), (64, 64))
    twice = both.gap(jnp.zeros(128), jnp.tile(jnp.asarray(g), 2))
    assert float(twice) == pytest.approx(2 * float(ball.gap(x, jnp.asarray(g))))


def test_corners_of_a_box_travel_as_sides_where_one_of_its_ends_differs(rng):
    """Numbers of its own for one end only are numbers of its own: both parties know them."""
    g, weight = jnp.asarray(rng.normal(size=D)), 0.25
    for low, high in ((LOW, 4.0), (-4.0, HIGH), (LOW, HIGH)):
        box = Box(low, high)
        corner = np.where(np.asarray(g) > 0, low, high)
        np.testing.assert_allclose(dense((box.lmo(g),)), corner)
        sides = dense((box.packed(box.lmo(g)),))
        np.testing.assert_array_equal(sides, np.asarray(g) <= 0)
        np.testing.assert_allclose(box.unpacked(weight * sides, weight), weight * corner)
    same = Box(-0.5, 2.0)  # one number for all: what travels has it with it
    np.testing.assert_allclose(dense((same.packed(same.lmo(g)),)), np.where(g > 0, -0.5, 2.0))


def test_points_outside_are_outside(entry):
    _, domain, _, _ = entry
    assert not domain.contains(jnp.full(D, 4.0))


def test_leading_pairs_of_hard_matrices():
    """Close singular values, one row, one column, rank one, and a start at a right angle."""
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.standard_normal((n, n)))[0] for n in (8, 6))
    close = (u[:, :6] * [1, 0.999, 0.99, 0.5, 0.1, 0.0]) @ v
    for matrix in (close, close[:1], close[:, :1], np.outer(u[0], v[0])):
        ball = NuclearBall(1.0, shape=matrix.shape, tolerance=1e-6)
        best = -np.linalg.svd(matrix, compute_uv=False)[0]
        g = jnp.asarray(matrix.ravel())
        start = fedmin.LowRank(
            jnp.zeros((len(matrix), 1)), jnp.asarray(v[3][: matrix.shape[1], None])
        )
        lmo = jax.jit(lambda g, near, ball=ball: ball.lmo(g, near))
        cold = lmo(g, start)  # at a right angle to the answer, where the matrix is the first one
        assert cold.inner(g) == pytest.approx(best, rel=1e-5)
        assert lmo(g, cold).inner(g) == pytest.approx(best, rel=1e-5)


def test_a_leading_pair_is_as_exact_as_it_says():
    """|g v - s u| <= 1e-3 s, which one cycle on this matrix is far from."""
    matrix = np.random.default_rng(0).standard_normal((60, 50))
    for tolerance, ball in (
        (1e-3, NuclearBall(1.0, shape=(60, 50))),
        (1e-6, NuclearBall(1.0, shape=(60, 50), tolerance=1e-6)),
    ):
        atom = ball.lmo(jnp.asarray(matrix.ravel()))
        u, v = -np.asarray(atom.left)[:, 0], np.asarray(atom.right)[:, 0]
        s = np.linalg.norm(matrix.T @ u)
        assert np.linalg.norm(matrix @ v - s * u) <= tolerance * s
        assert s == pytest.approx(np.linalg.svd(matrix, compute_uv=False)[0], rel=tolerance)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: L1Ball(0.0), "radius must be more than 0"),
        (lambda: L2Ball(-1.0), "radius must be more than 0"),
        (lambda: NuclearBall(float("nan")), "radius must be more than 0"),
        (lambda: Simplex(0.0), "radius must be more than 0"),
        (lambda: Box(1.0, 1.0), "lower must be below upper"),
        (lambda: Box(-np.inf, 1.0), "lower must be at least -inf and finite"),
        (lambda: Box(np.zeros(5), 1.0).fitted(PARTS), "lower must have 6 numbers"),
        (lambda: KSparsePolytope(0), "k must be at least 1"),
        (lambda: KSparsePolytope(7).fitted(PARTS), "k must be at most the length of x, 6"),
        (lambda: GroupL1Ball(1.0, group=4).fitted(PARTS), "x has 6 entries, no groups of 4"),
        (lambda: NuclearBall(1.0).fitted(PARTS), "one matrix"),
        (lambda: NuclearBall(1.0, shape=(5, 2)).fitted(PARTS), "no matrix of shape"),
        (lambda: NuclearBall(1.0, krylov=1), "krylov must be at least 2"),
        (lambda: Product({"a": L2Ball(1.0)}).fitted(PARTS), "no set for 'b'"),
        (lambda: Product({"c": L2Ball(1.0)}).fitted(PARTS), "unknown part 'c'"),
        (lambda: LinfBall(1.0).diameter, "depends on d"),
        (lambda: Product(L2Ball(1.0)).lmo(jnp.ones(2)), "does not know the parts"),
    ],
)
def test_bad_sets_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_set_of_numbers_does_not_compile_anew():
    """A new radius is a new argument."""
    lmo = jax.jit(lambda domain, g: domain.lmo(g).dense())
    for radius in (1.0, 2.0):
        assert jnp.abs(lmo(L1Ball(jnp.asarray(radius)), jnp.ones(3))).sum() == radius
    assert lmo._cache_size() == 1


def test_every_set_is_tested():
    kinds = {type(domain) for domain, _, _ in SETS.values()}
    from fedmin.domains import DOMAINS

    with_atoms = {kind for kind in DOMAINS.values() if kind.lmo is not fedmin.Domain.lmo}
    assert kinds == with_atoms
