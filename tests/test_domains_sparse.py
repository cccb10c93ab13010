"""Few non-zeros and low rank: projections against brute force and SciPy, and what travels."""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedmin
from fedmin.domains.largest import PAYS, largest
from fedmin.domains.rank import truncated

PARTS = {"weights": (3, 4), "bias": (3,)}


def nearest(x: np.ndarray, supports) -> float:
    """The least distance of x from the vectors with one of these supports: brute force."""
    return min(np.linalg.norm(np.delete(x, list(s))) for s in supports)


@pytest.mark.parametrize("seed", range(4))
def test_projection_is_the_nearest_point(seed):
    """Among all supports; with ties on purpose, where the first by index stay."""
    x = np.random.default_rng(seed).integers(-3, 4, 8).astype(float)
    for tau in range(1, 9):
        found = np.asarray(fedmin.L0Ball(tau).project(jnp.asarray(x)))
        best = nearest(x, combinations(range(8), tau))
        assert np.linalg.norm(x - found) == pytest.approx(best, abs=1e-12)
        first = np.argsort(-np.abs(x), kind="stable")[:tau]
        np.testing.assert_array_equal(found, np.where(np.isin(np.arange(8), first), x, 0))


def test_entries_are_inside_exactly_where_all_others_are_0():
    domain = fedmin.Entries([0, 2])
    assert domain.contains(jnp.array([1.0, 0.0, -3.0]))
    assert domain.contains(jnp.array([1.0, 5e-7, -3.0]))  # within the tolerance
    assert not domain.contains(jnp.array([1.0, 2e-6, -3.0]))
    assert not domain.contains(jnp.array([0.0, -1.0, 0.0]))


def test_by_row_and_without_the_bias(rng):
    x = rng.standard_normal(15)
    domain = fedmin.L0Ball(2, each="row", free="bias").fitted(PARTS)
    found = np.asarray(domain.project(jnp.asarray(x)))
    for row, kept in zip(x[:12].reshape(3, 4), found[:12].reshape(3, 4), strict=True):
        best = nearest(row, combinations(range(4), 2))
        assert np.linalg.norm(row - kept) == pytest.approx(best)
        assert np.count_nonzero(kept) == 2
    np.testing.assert_array_equal(found[12:], x[12:])
    over_all = fedmin.L0Ball(5, free=("bias",)).fitted(PARTS)
    found = np.asarray(over_all.project(jnp.asarray(x)))
    assert np.count_nonzero(found[:12]) == 5
    assert np.linalg.norm(x - found) == pytest.approx(nearest(x[:12], combinations(range(12), 5)))


def test_groups(rng):
    """Unequal groups, one of them with zeros in it, beside a part that is free."""
    groups = np.array([0, 0, 1, 2, 2, 2, 2, 1, 3, 3, 0, 1])
    domain = fedmin.L0Ball(2, groups=groups, free="bias").fitted(PARTS)
    for _ in range(5):
        x = rng.standard_normal(15)
        x[2] = 0.0
        found = np.asarray(domain.project(jnp.asarray(x)))
        supports = [np.flatnonzero(np.isin(groups, two)) for two in combinations(range(4), 2)]
        assert np.linalg.norm(x - found) == pytest.approx(nearest(x[:12], supports))
        np.testing.assert_array_equal(found[12:], x[12:])
        sent = domain.compact(jnp.asarray(x))
        assert sent.values.shape == (4 + 3 + 3,)  # the two largest groups and the bias
        np.testing.assert_array_equal(sent.dense(), found)


def test_long_vectors_by_blocks(rng):
    """The same choice as a stable sort, ties across blocks included."""
    x = rng.integers(0, 40, 12_001).astype(float)  # some 300 of each magnitude
    for tau in (1, 7, 24):
        assert len(x) >= PAYS * tau
        found = np.sort(np.asarray(largest(jnp.asarray(x), tau)))
        np.testing.assert_array_equal(found, np.sort(np.argsort(-x, kind="stable")[:tau]))


@pytest.mark.parametrize(("seed", "digits"), [(0, 0), (1, 1), (2, 6)])  # many ties, some, none
def test_halving_keeps_what_sorting_does(seed, digits):
    rng = np.random.default_rng(seed)
    x = np.round(rng.standard_normal(60), digits)
    x[rng.integers(0, 60, 10)] = 0
    parts = {"weights": (4, 13), "bias": (8,)}
    for domain in (
        fedmin.L0Ball(9),
        fedmin.L0Ball(52),
        fedmin.L0Ball(11, free="bias"),
        fedmin.L0Ball(5, "row", free="bias"),
    ):
        domain = domain.fitted(parts)
        for dtype in (np.float32, np.float64):
            one = jnp.asarray(x.astype(dtype))
            assert np.array_equal(domain.project(one), domain.compact(one).dense())


def test_what_travels_has_a_fixed_size():
    domain = fedmin.L0Ball(3).fitted({"x": (6,)})
    for x in (np.zeros(6), np.arange(6.0), np.eye(6)[2]):
        sent = domain.compact(jnp.asarray(x))
        assert sent.indices.shape == sent.values.shape == (3,)
        np.testing.assert_array_equal(sent.dense(), domain.project(jnp.asarray(x)))
    assert bool(domain.contains(jnp.asarray(np.eye(6)[2])))
    assert not bool(domain.contains(jnp.ones(6)))


@pytest.mark.parametrize("shape", [(60, 40), (12, 5)])
def test_rank_projection_is_the_truncated_svd(shape, rng):
    """Against NumPy's SVD: where there is a gap, and, for the distance, where there is none."""
    u, _, vt = np.linalg.svd(rng.standard_normal(shape), full_matrices=False)
    s = np.linspace(3, 0.5, len(vt))
    for values in (np.where(np.arange(len(vt)) < 3, s, 0.01 * s), s):
        A = u * values @ vt
        left, right = jax.jit(truncated, static_argnums=(1, 2))(jnp.asarray(A), 3, 8)
        assert left.shape == (shape[0], 3)
        error = np.linalg.norm(A - np.asarray(left @ right.T))
        assert error == pytest.approx(np.linalg.norm(values[3:]), rel=1e-2)
    A = u * np.where(np.arange(len(vt)) < 3, s, 0.01 * s) @ vt
    domain = fedmin.RankBall(3).fitted({"weights": shape})
    sent = domain.compact(jnp.asarray(A.ravel()))
    assert isinstance(sent, fedmin.LowRank)
    best = (u[:, :3] * s[:3]) @ vt[:3]
    np.testing.assert_allclose(sent.dense().reshape(shape), best, atol=1e-9)
    assert bool(domain.contains(sent.dense()))


def test_no_full_svd_of_a_large_matrix():
    """The program of a small r has no SVD in it."""
    text = str(jax.make_jaxpr(lambda a: truncated(a, 2, 3))(jnp.zeros((50, 40))))
    assert "svd" not in text
    assert "svd" in str(jax.make_jaxpr(lambda a: truncated(a, 2, 3))(jnp.zeros((50, 12))))


def test_rank_leaves_vectors_alone(rng):
    domain = fedmin.RankBall(1).fitted(PARTS)
    x = jnp.asarray(rng.standard_normal(15))
    sent = domain.compact(x)
    assert isinstance(sent, fedmin.Concatenated)
    np.testing.assert_array_equal(sent.dense()[12:], x[12:])
    assert np.linalg.matrix_rank(np.asarray(sent.dense()[:12]).reshape(3, 4)) == 1
    two = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), sent.scaled(jnp.asarray(0.5)))
    np.testing.assert_allclose(two.total()[12:], 1.5 * x[12:])  # (1 + 2) / 2 of a vector


BAD = [
    (lambda: fedmin.L0Ball(0), "tau must be at least 1, got 0"),
    (lambda: fedmin.L0Ball(31).fitted({"weights": (30,)}), "tau must be at most 30, .*, got 31"),
    (lambda: fedmin.L0Ball(5, each="row").fitted(PARTS), "at most 3, the entries of a row"),
    (lambda: fedmin.L0Ball(13, free="bias").fitted(PARTS), "at most 12"),
    (lambda: fedmin.L0Ball(1, free="biass").fitted(PARTS), "did you mean 'bias'"),
    (lambda: fedmin.L0Ball(1, each="column"), "unknown each 'column'"),
    (lambda: fedmin.L0Ball(3, groups=[0, 1, 1]), "tau must be at most 2, the groups"),
    (lambda: fedmin.L0Ball(1, groups=[0, 2]), "without gaps"),
    (lambda: fedmin.L0Ball(1, groups=[0, 1]).fitted(PARTS), "each of the 15 entries"),
    (lambda: fedmin.L0Ball(1, each="row", groups=[0, 1]), "not both"),
    (lambda: fedmin.RankBall(0), "rank must be at least 1"),
    (lambda: fedmin.RankBall(4).fitted(PARTS), "rank must be at most 3"),
    (lambda: fedmin.RankBall(1).fitted({"x": (4,)}), "is for matrices"),
    (lambda: fedmin.RankBall(1).project(jnp.ones(4)), r"use over\(problem, RankBall"),
]


@pytest.mark.parametrize(("make", "words"), BAD, ids=[words for _, words in BAD])
def test_bad_sets_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
