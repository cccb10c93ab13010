"""A run that begins at a model of its own: every method, every engine, rows and columns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedmin
import known
from agreement import assert_same, run
from cases import CASES
from fedmin.core.column_problem import starting_at
from fedmin.engines.sessions.files import CheckpointError
from fedmin.engines.transports.words import from_words, to_words
from fedmin.methods import METHODS


def inside(world: known.World) -> np.ndarray:
    """A point of the world's set that is not where the problem begins."""
    x = np.linspace(0.2, 0.3, world.dim)
    domain = world.problem.domain
    return np.asarray(domain.project(jnp.asarray(x)) if domain.can_project else x)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_method_begins_there(case):
    world, start = case.world(), inside(case.world())
    assert np.abs(start).max() > 0.1
    origin, roster = starting_at(world.problem, start), world.federation.roster()
    server = case.method.init_server(origin, roster, jax.random.key(0))
    np.testing.assert_array_equal(case.method.solution(server), start)
    # a client that begins at the problem's own start begins here too
    rows = roster.view(0, jax.tree.map(np.asarray, world.federation.client(0)))
    old, new = (
        jax.tree.leaves(case.method.init_client(p, roster, rows, jax.random.key(0)))
        for p in (world.problem, origin)
    )
    first = np.asarray(world.problem.init(jax.random.key(0)))
    if type(case.method).__name__ in ("FedFW", "FedFWPlus", "FedFWSto", "FedDR"):
        assert any(a.shape == start.shape and np.array_equal(a, start) for a in new)
    for a, b in zip(old, new, strict=True):
        assert a.shape == b.shape
        if np.shape(a) == first.shape and np.array_equal(a, first) and first.any():
            np.testing.assert_array_equal(b, start)


@pytest.mark.parametrize("name", ["fedavg", "fedfw", "feddr", "sparsenewton"])
def test_the_engines_begin_alike(name):
    case = next(c for c in CASES if c.name == name)
    world, start = case.world(), inside(case.world())
    first = run(world, case.method, start=start, rounds=2)
    assert first.history["objective"][0] == pytest.approx(world.objective(start), rel=1e-12)
    assert_same(first, run(world, case.method, start=start, rounds=2, engine=fedmin.Loopback()))
    assert not np.allclose(first.solution, run(world, case.method, rounds=2).solution)


def test_a_sweep_begins_there(shared):
    start, over = np.full(shared.dim, 0.5), {"step": (0.2, 0.3)}
    pieces = (shared.problem, shared.federation, fedmin.FedSGD())
    for each in fedmin.sweep(*pieces, rounds=2, over=over, start=start):
        assert_same(each, run(shared, each.method, rounds=2, start=start))


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if "features" in m.handles])
def test_on_columns(name):
    x, y = np.random.default_rng(0).normal(size=(12, 3)), np.arange(12) % 2
    columns = fedmin.Federation.from_columns(x, y, [[0, 1], [2]], classes=2)
    start = np.array([0.5, -0.25, 1.0])
    results = [
        fedmin.minimize(
            fedmin.Logistic(3), columns, METHODS[name](), rounds=1, start=start, engine=engine
        )
        for engine in (fedmin.Simulator(), fedmin.Loopback())
    ]
    margin = x @ start
    loss = np.mean(np.log1p(np.exp(margin)) - y * margin)
    for result in results:
        assert result.history["objective"][0] == pytest.approx(loss, rel=1e-9)


def test_what_was_begun_elsewhere_goes_on_there(shared):
    """Two halves of a run without memory are the run."""
    whole = run(shared, fedmin.FedSGD(0.3), rounds=8)
    half = run(shared, fedmin.FedSGD(0.3), rounds=4)
    rest = run(shared, fedmin.FedSGD(0.3), rounds=4, start=half.solution)
    np.testing.assert_array_equal(rest.solution, whole.solution)


def test_a_run_in_words_has_it(shared):
    from fedmin.assembling import assemble

    start = np.arange(1.0, 1.0 + shared.dim)
    pieces = (fedmin.FedSGD(0.3), fedmin.Everyone(), fedmin.Plain(), None, None, start)
    made = assemble(shared.problem, shared.federation, *pieces)
    np.testing.assert_array_equal(from_words(to_words(made)).start, start)


def test_a_checkpoint_belongs_to_its_start(shared, tmp_path):
    kept = fedmin.Checkpoint(tmp_path, rounds=2)
    start = np.full(shared.dim, 0.5)
    half = run(shared, fedmin.FedSGD(0.3), rounds=2, start=start, checkpoint=kept)
    with pytest.raises(CheckpointError, match="start"):
        run(shared, fedmin.FedSGD(0.3), rounds=4, checkpoint=kept)
    rest = run(shared, fedmin.FedSGD(0.3), rounds=4, start=start, checkpoint=kept)
    np.testing.assert_array_equal(rest.history["objective"][:3], half.history["objective"])


def test_refit_starts_from_x():
    sample = fedmin.data.sparse_regression(60, 12, support=3, clients=3)
    problem, federation = fedmin.LeastSquares(12), fedmin.data.partition(sample)
    x = np.where(np.arange(12) < 3, 1.5, 0.0)
    again = fedmin.refit(problem, federation, x, rounds=1)
    loss = problem.value(jnp.asarray(x), fedmin.rows(sample.table.x, sample.table.y))
    assert again.history["objective"][0] == pytest.approx(float(loss), rel=1e-6)


class Elsewhere(fedmin.FedSGD):
    """A method that does not ask the problem where to begin."""

    def init_server(self, problem, roster, key):
        return jnp.zeros(problem.size())


BOUNDED = fedmin.over(fedmin.LeastSquares(3), fedmin.L1Ball(1.0))


@pytest.mark.parametrize(
    ("problem", "method", "start", "words"),
    [
        (None, fedmin.FedSGD(), np.zeros(4), "a model of 3 numbers, .* shape .4,"),
        (None, fedmin.FedSGD(), "model.npy", "a model of 3 numbers"),
        (None, fedmin.FedSGD(), [0.0, np.nan, 0.0], r"start must be finite; start\[1\]"),
        (
            BOUNDED,
            fedmin.FedFW(),
            np.ones(3),
            r"start lies outside of L1Ball\(radius=1.0\): .*point",
        ),
        (BOUNDED, fedmin.FedMid(), np.ones(3), "outside of L1Ball.*give domain.project"),
        (None, Elsewhere(), np.ones(3), "Elsewhere does not begin at start: its init_server must"),
    ],
)
def test_a_start_that_is_none_is_refused(problem, method, start, words):
    rows = [(np.ones((2, 3)), np.zeros(2))] * 2
    federation = fedmin.Federation.from_clients(rows)
    with pytest.raises(ValueError, match=words):
        fedmin.minimize(
            problem or fedmin.LeastSquares(3), federation, method, rounds=1, start=start
        )
