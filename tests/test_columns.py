"""Data split by columns: whoever holds what, it is the same as one client that holds everything."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fedmin
import thorough
from agreement import ONE_BY_ONE, assert_same, compiling
from fedmin import Columns, Exchange, Federation, Full, SplitSGD, WithoutReplacement
from fedmin.client import column_trips as columns
from fedmin.engines.round import SERVER, key_of
from fedmin.methods import METHODS
from parted import (
    CLASSES,
    FLAGS,
    LABELS,
    SPLITS,
    K,
    N,
    X,
    cut,
    problems,
    run,
    split,
    start,
)

# ---------------------------------------------------------------- views


@settings(max_examples=6)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
@example([1, 4, 2])
def test_a_client_sees_its_own_columns(sizes):
    features, width = sum(sizes), max(sizes)
    x = np.random.default_rng(features).standard_normal((6, features))
    x[x < 0] = 0
    y = np.arange(1, 7)
    first = np.concatenate([[0], np.cumsum(sizes)])
    rows = [3, 0, 3, 5]
    for given_x in (x, scipy.sparse.csr_matrix(x)):
        pool = jax.tree.map(jnp.asarray, fedmin.rows(given_x, y))
        for i, count in enumerate(sizes):
            labeled = i % 2 == 0
            view = Columns(
                pool, jnp.int32(first[i]), jnp.int32(count), jnp.int32(i), jnp.array(labeled), width
            )
            expected = np.zeros((6, width))
            expected[:, :count] = x[:, first[i] : first[i + 1]]
            taken, block = view.take(jnp.array(rows)), view.block(jnp.int32(1), 4)
            identity = jnp.eye(width)
            np.testing.assert_array_equal(taken.x @ identity, expected[rows])
            np.testing.assert_array_equal(view.all().x @ identity, expected)
            np.testing.assert_array_equal(taken.y, y[rows] if labeled else 0 * y[rows])
            kept = block.weight > 0
            np.testing.assert_array_equal((block.x @ identity)[kept], expected[4:])
            assert type(taken.x) is type(pool.x)
            assert taken.x.shape == (len(rows), width)


@pytest.mark.parametrize("labels", ["everyone", "server", "b"])
def test_labels_are_only_where_they_belong(labels):
    federation = split((3, 1, 3), labels=labels)
    knows = {"everyone": [True] * 3, "server": [False] * 3, "b": [False, True, False]}[labels]
    assert federation.knows_labels.tolist() == knows
    for i, known in enumerate(knows):
        for y in (federation.client(i).y, alone(federation, i).pool.y):  # the latter: Loopback's
            assert np.array_equal(y, federation.pool.y) == known
            assert known or not np.any(y)
    assert (federation.server_rows is not None) == (labels == "server")
    if labels == "server":
        assert federation.server_rows.x.shape == (N, 0)
        np.testing.assert_array_equal(federation.server_rows.y, federation.pool.y)


def test_a_client_apart_holds_its_columns_only():
    """What a loopback client has in memory, dense and sparse."""
    for x in (X, scipy.sparse.csr_matrix(X)):
        federation = split((3, 1, 3), x=x)
        whole = np.asarray(federation.pool.x @ jnp.eye(K))
        for i, (a, b) in enumerate([(0, 3), (3, 4), (4, 7)]):
            view = alone(federation, i)
            np.testing.assert_array_equal((view.pool.x @ jnp.eye(3))[:, : b - a], whole[:, a:b])
            assert not np.any((view.pool.x @ jnp.eye(3))[:, b - a :])
            mine = federation.client(i).x
            np.testing.assert_array_equal(mine @ jnp.eye(b - a), whole[:, a:b])


# ---------------------------------------------------------------- problems


@pytest.mark.parametrize(
    ("name", "sizes"), thorough.product([*problems(split((7,)))], [(7,), (3, 1, 3), (5, 2)])
)
def test_losses_are_head_of_embeddings(name, sizes, rng):
    federation = split(sizes)
    problem, y = problems(federation)[name]
    owners = federation.roster().owners
    x = jnp.asarray(rng.standard_normal(problem.size()))
    head, blocks = problem.cut(x, owners.starts, owners.sizes, owners.width)
    assert head.shape == (problem.head_size,)
    assert blocks.shape[0] == len(sizes)
    np.testing.assert_array_equal(problem.join(head, blocks, owners.starts, owners.sizes), x)
    for given_x in (X, scipy.sparse.csr_matrix(X)):
        rows = fedmin.rows(given_x, y)
        composed = problem.composed(x, rows, owners)
        np.testing.assert_allclose(composed, problem.losses(x, rows), rtol=1e-12)
        assert composed.shape == (N, 1 + problem.num_constraints)


# ---------------------------------------------------------------- the same as one client


@pytest.mark.parametrize(
    ("name", "clients"), [("swish", 2), ("swish", 7), ("logistic", 3), ("softmax", 3)]
)
def test_any_split_is_one_client(name, clients):
    whole, parted = run(name, SPLITS[1]), run(name, SPLITS[clients])
    assert whole.final("objective") < whole.history["objective"][0]
    np.testing.assert_allclose(parted.solution, whole.solution, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(parted.history["objective"], whole.history["objective"], rtol=1e-11)


@pytest.mark.parametrize(
    ("name", "labels"),
    thorough.first(
        [("swish", "everyone"), ("product", "b"), ("swish", "server"), ("product", "everyone")], 2
    ),
)
def test_engines_agree_and_labels_change_nothing(name, labels):
    simulated = run(name, labels=labels)
    assert_same(simulated, run(name, labels=labels, engine=fedmin.Loopback()))
    kinds = run(name, labels=labels, engine=fedmin.Loopback()).ledger.by_kind()
    assert simulated.ledger.by_kind() == kinds
    np.testing.assert_allclose(simulated.solution, run(name).solution, rtol=1e-11)
    sealed = {kind.removeprefix("evaluation ") for kind in kinds if "seal" in kind}
    assert sealed == (set() if labels == "server" else {"up seal", "down seal"})


@pytest.mark.parametrize(
    ("name", "engine"), [("swish", ONE_BY_ONE), ("logistic", fedmin.Loopback())], ids=str
)
def test_dense_is_sparse(name, engine):
    np.testing.assert_allclose(
        run(name, sparse=True, engine=engine).solution, run(name).solution, rtol=1e-11
    )


@pytest.mark.parametrize(
    ("chunk", "devices", "labels"), [(1, 3, "everyone"), (2, 2, "b"), (3, 1, "everyone")]
)
def test_any_chunk_and_devices(chunk, devices, labels):
    spread = run(labels=labels, engine=fedmin.Simulator(chunk, devices))
    assert_same(run(labels=labels), spread)


@pytest.mark.parametrize(
    "batches",
    thorough.first([fedmin.Blocks(5), fedmin.Shuffled(5), Full(), fedmin.WithReplacement(4)], 2),
)
def test_any_batches(batches):
    method = SplitSGD(0.4, batches)
    whole = run("logistic", SPLITS[1], method=method)
    np.testing.assert_allclose(
        run("logistic", labels="server", method=method).solution, whole.solution, rtol=1e-11
    )


def test_sweep_is_single_runs():
    found = fedmin.sweep(
        fedmin.Softmax(K, CLASSES, bias=True, l2=0.1), split((3, 1, 3)),
        SplitSGD(0.4, WithoutReplacement(5)), rounds=3, over={"step": [0.1, 0.4]}, seeds=(0, 1),
        engine=ONE_BY_ONE,
    )  # fmt: skip
    assert_same(found[2], run("softmax"))
    assert isinstance(found[0].problem, fedmin.Softmax)


def test_a_new_step_or_split_of_the_same_form_compiles_nothing():
    class Fresh(SplitSGD):
        """A method that no other test has run: its first run has to compile."""

    problem, federation = fedmin.MLP(K, CLASSES, hidden=(4,), l2=0.1), split((3, 1, 3))
    with compiling() as first:
        fedmin.minimize(problem, federation, Fresh(0.4, Full()), rounds=2, engine=ONE_BY_ONE)
    assert first
    with compiling() as later:
        for other, step in ((federation, 0.1), (split((1, 3, 3)), 0.4)):
            fedmin.minimize(problem, other, Fresh(step, Full()), rounds=2, engine=ONE_BY_ONE)
    assert later == []


def alone(federation, i):
    """What a site is given."""
    return federation.roster().view(i, federation.client(i))


def test_reaches_the_minimizer():
    federation = split((3, 1, 3), FLAGS.astype(float))
    z, y = np.asarray(federation.pool.x.values), np.asarray(federation.pool.y)
    best = np.linalg.solve(z.T @ z / N + 0.1 * np.eye(K), z.T @ y / N)
    result = fedmin.minimize(
        fedmin.LeastSquares(K, l2=0.1), federation, SplitSGD(0.5), rounds=600, every=600
    )
    np.testing.assert_allclose(result.solution, best, rtol=1e-8)


# ---------------------------------------------------------------- against formulas


class Looks(SplitSGD):
    """Remembers the last estimate and does not move."""

    def init_server(self, problem, roster, key):
        x, M = problem.init(key), problem.num_constraints
        look = columns.Estimate(jnp.zeros(1 + M), jnp.zeros((1 + M, x.shape[0])), {})
        return columns.start(problem, self.batches, (x, look))

    def exchanges(self, problem, roster):
        return columns.exchanges(
            problem, self.batches, lambda own: own[0], lambda p, own, look, now: (own[0], look)
        )

    def solution(self, server):
        return server.own[0]

    handles = frozenset({"features", "constraints"})


@pytest.mark.parametrize(
    ("name", "labels"),
    thorough.first([
        ("deep", "everyone"), ("bounded", "server"), ("product", "c"), ("bounded", "c"),
        ("product", "server"), ("plain", "everyone"),
    ], 3),
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Looks. the constraints need more rounds:RuntimeWarning")
def test_full_estimate_is_the_problems_gradient(name, labels):
    federation = split((3, 1, 3))
    problem, y = problems(federation)[name]
    rows = jax.tree.map(jnp.asarray, split((3, 1, 3), y).pool)
    result = run(name, labels=labels, rounds=1, method=Looks(batches=Full()))
    x, look = result.server.own
    totals, jacobian = problem.totals(x, rows) / N, jax.jacrev(problem.totals)(x, rows) / N
    np.testing.assert_allclose(look.values, totals, rtol=1e-12)
    np.testing.assert_allclose(look.gradients, jacobian, rtol=1e-10, atol=1e-14)
    plain = problem.grad(x, rows) - jax.grad(problem.regularizer)(x)
    np.testing.assert_allclose(look.gradients[0], plain, rtol=1e-10, atol=1e-14)


def test_two_rounds_by_hand():
    """SGD on the swish network over columns, the chain rule written out in NumPy."""
    sizes, J, step, l2, B = (2, 5), 4, 0.4, 0.1, 5
    problem = fedmin.MLP(K, CLASSES, hidden=(J,), l2=l2)
    federation = split(sizes)
    z, y = np.asarray(federation.pool.x.values), np.asarray(federation.pool.y)
    own = [z[:, :2], z[:, 2:]]
    w = start(problem)
    W1, W2 = w[: J * K].reshape(J, K), w[J * K :].reshape(CLASSES, J)
    blocks = [W1[:, :2], W1[:, 2:]]
    key, batches = jax.random.key(0), WithoutReplacement(B)
    for t in range(2):
        server_key = key_of(key, jnp.int32(t), 0, SERVER)
        rows = columns._Size(jnp.int32(N), N)
        n = np.asarray(batches.draw(rows, server_key, jnp.int32(0))[0])
        assert len(set(n)) == B
        h = sum(x[n] @ v.T for x, v in zip(own, blocks, strict=True))
        s = 1 / (1 + np.exp(-h))
        S, dS = h * s, s + h * s * (1 - s)
        e = np.exp(S @ W2.T)
        dz = (e / e.sum(axis=1, keepdims=True) - np.eye(CLASSES)[y[n]]) / B
        dh = (dz @ W2) * dS
        W2 = W2 - step * (dz.T @ S + l2 * W2)
        blocks = [v - step * (dh.T @ x[n] + l2 * v) for x, v in zip(own, blocks, strict=True)]
    expected = np.concatenate([np.hstack(blocks).ravel(), W2.ravel()])
    result = fedmin.minimize(problem, federation, SplitSGD(step, batches), rounds=2)
    np.testing.assert_allclose(result.solution, expected, rtol=1e-11)


# ---------------------------------------------------------------- bad input


class Wrong(SplitSGD):
    """Asks a client that is not there."""

    def exchanges(self, problem, roster):
        return (Exchange(None, None, lambda *a: a[2], only=9),)


BAD = [
    (lambda: split((3, 4), labels="z"), "unknown holder of the labels 'z'"),
    (lambda: split((3, 4), labels=None), "unknown holder of the labels None"),
    (lambda: split((3, 4), y=LABELS[:-1]), r"x has 12 rows, y has \(11,\)"),
    (lambda: split((3, 4), y=None), "y must have one entry a row"),
    (
        lambda: Federation.from_columns(
            X, LABELS, cut((3, 4)), names=["server", "b"], labels="server"
        ),
        "also a client's name",
    ),
    (
        lambda: Federation.from_columns(X, LABELS, cut((3, 4)), names=["b", "b"], labels="b"),
        "need different names",
    ),
    (lambda: Exchange(None, print, None), "an Exchange needs a server function, got None"),
    (
        lambda: fedmin.data.partition(
            fedmin.data.load("wine"), fedmin.data.IID(2), labels="server"
        ),
        "with rows split every client has its rows' labels",
    ),
    (lambda: try_out(fedmin.CNN((7, 1, 1), 3, channels=(), hidden=())), "cannot be cut by columns"),
    (lambda: try_out(participation=fedmin.Uniform(2)), "needs every client in every round"),
    (lambda: try_out(channel=fedmin.TopK(2)), "channel is TopK"),
    (lambda: try_out(method=Wrong()), "speaks to client 9; there are 0..2"),
    (lambda: try_out(method=fedmin.FedSGD()), "FedSGD works on data split by rows"),
    (
        lambda: fedmin.minimize(
            fedmin.Softmax(K, 3), Federation.from_parts(X, LABELS, [range(N)]), SplitSGD(), rounds=1
        ),
        "SplitSGD works on data split by features",
    ),
    (
        lambda: try_out(
            problems(split((3, 1, 3)))["product"][0], record=[fedmin.Scores("train")]
        ),
        "cannot be recorded on the clients' rows where columns are split",
    ),
    (lambda: SplitSGD(step=-1.0), "step must be more than 0"),
    (lambda: SplitSGD(batches=5), "batches must be like"),
]  # fmt: skip


def try_out(problem=None, method=None, **options):
    problem = problem or fedmin.Softmax(K, CLASSES)
    return fedmin.minimize(problem, split((3, 1, 3)), method or SplitSGD(), rounds=1, **options)


@pytest.mark.parametrize(("call", "message"), BAD, ids=lambda b: b if isinstance(b, str) else "")
def test_bad_input_is_named(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_divergence_is_the_same_result():
    ends = []
    for engine in (ONE_BY_ONE, fedmin.Loopback()):
        with pytest.warns(RuntimeWarning, match="stopped at round"):
            ends.append(run("plain", method=SplitSGD(1e200), rounds=9, engine=engine))
    assert ends[0].status == "diverged"
    assert_same(*ends)


def test_every_method_on_columns_is_here():
    """SplitSGD here, SSCA in test_ssca_columns.py."""
    assert {m for m in METHODS.values() if "features" in m.handles} == {SplitSGD, fedmin.SSCA}
