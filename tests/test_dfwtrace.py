"""DFWTrace against NumPy's SVD, what it sends, and what it refuses; entries of a matrix as rows."""

import numpy as np
import pytest

import fedmin
import known
from agreement import assert_same, run

SEEN = fedmin.data.matrix_completion(8, 6, rank=2, seen=0.6, noise=0.1, clients=3, seed=1)
CELLS, Y = np.asarray(SEEN.x, float), np.asarray(SEEN.y, float)
RADIUS = 0.7 * SEEN.truth["nuclear"]


def world(domain=None) -> known.World:
    problem = fedmin.MatrixCompletion(8, 6)
    clients = tuple((CELLS[part], Y[part]) for part in SEEN.parts)
    return known.World(fedmin.over(problem, domain or fedmin.NuclearBall(RADIUS)), clients)


@pytest.mark.parametrize("participation", [fedmin.Everyone(), fedmin.Cyclic(3)], ids=str)
def test_a_turn_of_the_power_method_and_an_exact_step(participation):
    """In NumPy, from the left direction on: v = G^T u/|G^T u|, near the leading one, and the least
    of F on the line to -r u v^T."""
    i, j = CELLS.astype(int).T
    x = np.zeros((8, 6))
    for rounds in (1, 2):
        G = np.zeros((8, 6))
        np.add.at(G, (i, j), (x[i, j] - Y) / len(Y))
        result = run(world(), fedmin.DFWTrace(), rounds=rounds, participation=participation)
        u, v = np.asarray(result.server.u), np.asarray(result.server.v)
        assert np.linalg.norm(u) == pytest.approx(1)
        np.testing.assert_allclose(v, u @ G / np.linalg.norm(u @ G), atol=1e-12)
        assert u @ G @ v > 0.7 * np.linalg.norm(G, 2)
        D = -RADIUS * np.outer(u, v) - x
        x = x + np.clip(-np.sum(G * D) / np.mean(D[i, j] ** 2), 0, 1) * D
        np.testing.assert_allclose(result.solution.reshape(8, 6), x, atol=1e-12)


def test_what_travels_and_that_two_turns_do():
    options = {"rounds": 200, "every": 100, "participation": fedmin.Everyone()}
    result = run(world(), fedmin.DFWTrace(), **options)
    assert result.final("objective") < 0.1 * result.history["objective"][0]
    assert np.linalg.svd(result.solution.reshape(8, 6))[1].sum() <= RADIUS + 1e-9
    sizes = result.ledger.by_kind()
    assert sizes["up left 1"] == sizes["down left 2"] == 200 * 3 * 8 * 8
    assert sizes["up right 1"] == sizes["down right 2"] == 200 * 3 * 6 * 8
    assert "down model" not in sizes
    again = {"rounds": 2, "engine": fedmin.Loopback()}
    assert_same(run(world(), fedmin.DFWTrace(), rounds=2), run(world(), fedmin.DFWTrace(), **again))


def test_entries_that_there_are_not():
    """NaN, so that the run ends and says so; and rows that are no pairs are refused before."""
    problem = fedmin.MatrixCompletion(2, 2)
    x = np.arange(4.0)
    rows = fedmin.rows(np.array([[1, 0], [2, 0], [0, 0.5], [-1, 0]]), np.zeros(4))
    found = np.asarray(problem.predict(x, rows))
    assert found[0] == 2
    assert np.isnan(found[1:]).all()
    with pytest.raises(ValueError, match="needs two columns"):
        problem.check(3, None, np.zeros(4))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: fedmin.DFWTrace(turns=0), "turns must be at least 1"),
        (lambda: run(world(fedmin.L1Ball(1.0)), fedmin.DFWTrace()), "is for a NuclearBall"),
        (
            lambda: run(world(), fedmin.DFWTrace(), channel=fedmin.Clip(1.0)),
            "needs all of every reply",
        ),
    ],
)
def test_what_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
