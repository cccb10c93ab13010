"""The two engines where a run does not go smoothly: stopping, diverging, odd numbers."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedmin
import known
from agreement import ONE_BY_ONE, assert_same, run
from fedmin import FedAvg, FedSGD, Full, Scaffold
from fedmin.engines import compiled
from fedmin.engines.progress import Progress
from fedmin.engines.simulator import program
from fedmin.engines.simulator.program import SEGMENT

ENGINES = [ONE_BY_ONE, fedmin.Simulator(chunk=2, devices=2), fedmin.Loopback()]


@pytest.fixture(params=ENGINES, ids=str)
def engine(request):
    return request.param


# ---------------------------------------------------------------- recording and stopping


def test_every_that_does_not_divide(apart, engine):
    thin = run(apart, FedSGD(0.5), rounds=7, every=3, engine=engine)
    full = run(apart, FedSGD(0.5), rounds=7, engine=engine)
    assert thin.history["round"].tolist() == [0, 3, 6, 7]
    for name in ("objective", "bytes_up", "bytes_down"):
        np.testing.assert_array_equal(thin.history[name], full.history[name][[0, 3, 6, 7]])
    assert run(apart, FedSGD(0.5), rounds=3, every=50, engine=engine).history["round"].tolist() == [
        0,
        3,
    ]


@pytest.mark.parametrize("weights", ["sizes", "uniform", [1.0, 5.0, 2.0, 0.5, 3.0]], ids=str)
@pytest.mark.parametrize("world", [known.apart, known.logistic])
def test_recorded_objective_is_numpys(world, weights):
    world = world().with_weights(weights)
    for rounds in (1, 4):
        result = run(world, FedSGD(0.5), rounds=rounds, record=[fedmin.Objective()])
        assert result.history["objective"][0] == pytest.approx(world.objective(np.zeros(3)))
        assert result.final("objective") == pytest.approx(world.objective(result.solution))
    assert result.final("objective") < result.history["objective"][0]


def test_all_metrics_are_numpys(logistic, engine):
    rng = np.random.default_rng(5)
    z, labels = rng.standard_normal((9, 3)), rng.integers(0, 2, 9)
    federation = fedmin.Federation.from_clients(logistic.clients, test=(z, labels))
    result = fedmin.minimize(
        logistic.problem, federation, FedSGD(0.5), rounds=3, engine=engine, progress=False,
        record=[
            fedmin.GradientNorm(), fedmin.Scores("train"), fedmin.Objective("test"),
            fedmin.Scores("test"), fedmin.Objective(),
            fedmin.Measure("size", lambda problem, x: jnp.linalg.norm(x)),
        ],
    )  # fmt: skip
    x, p = result.solution, logistic.shares
    gradient = sum(q * logistic.gradient(i, x) for i, q in enumerate(p))
    right = [np.mean((z @ x > 0) == (y > 0)) for z, y in logistic.clients]
    test = np.mean(known.row_loss(logistic.problem, z @ x, labels)) + 0.05 * x @ x
    expected = {
        "gradient_norm": np.linalg.norm(gradient),
        "train_accuracy": p @ right,
        "test_objective": test,
        "accuracy": np.mean((z @ x > 0) == (labels > 0)),
        "objective": logistic.objective(x),
        "size": np.linalg.norm(x),
    }
    assert list(result.history)[5:] == list(expected)
    for name, value in expected.items():
        assert result.final(name) == pytest.approx(value, rel=1e-9), name


@pytest.mark.parametrize("every", [1, 4])
def test_stop_rule(apart, engine, every):
    best = apart.objective(apart.minimizer)
    whole = run(apart, FedSGD(0.5), rounds=40).history["objective"]
    level = best + 1e-3
    first = int(np.argmax(whole <= level))
    first = -(-first // every) * every  # it is seen when it is next measured
    stop = fedmin.Stop("objective", below=level)
    result = run(apart, FedSGD(0.5), rounds=40, every=every, stop=stop, engine=engine)
    assert result.status == "stopped"
    assert result.rounds == first == result.history["round"][-1] == len(result.ledger.counts)
    assert f"after round {first}" in result.reason
    assert result.final("objective") <= level


def test_stop_above(apart, engine):
    stop = fedmin.Stop("size", above=0.5)
    size = fedmin.Measure("size", lambda problem, x: jnp.linalg.norm(x))
    result = run(apart, FedSGD(0.5), rounds=40, stop=stop, record=[size], engine=engine)
    assert result.status == "stopped"
    assert result.final("size") >= 0.5 > result.history["size"][-2]


def test_a_run_of_several_segments(apart):
    """More rounds than one compiled loop returns; rounds, bytes and values keep their order."""
    rounds = SEGMENT + 70
    result = run(apart, FedSGD(0.05), rounds=rounds, every=10)
    assert result.rounds == len(result.ledger.counts) == rounds
    assert result.history["round"].tolist() == [*range(0, rounds, 10), rounds]
    assert (np.diff(result.history["objective"]) < 1e-15).all()
    x = np.zeros(3)
    for _ in range(rounds):
        x = x - 0.05 * sum(p * apart.gradient(i, x) for i, p in enumerate(apart.shares))
    np.testing.assert_allclose(result.solution, x, rtol=1e-9)


def test_a_look_at_test_rows_asks_nobody(logistic, engine):
    """They are the server's own; one more metric, on clients' rows, and all sites are asked."""
    federation = fedmin.Federation.from_clients(logistic.clients, test=logistic.clients[0])
    for record, asked in (([fedmin.Objective("test")], False), ([fedmin.Objective()], True)):
        result = fedmin.minimize(
            logistic.problem, federation, FedSGD(0.1), rounds=2, engine=engine, record=record,
            progress=False, certificate=False,
        )  # fmt: skip
        assert (result.ledger.bytes(evaluation=True) > result.ledger.bytes()) is asked


# ---------------------------------------------------------------- divergence


class Bad(FedSGD):
    """Client `who` sends NaN from round `when` on."""

    who: int = eqx.field(default=2, static=True)
    when: int = eqx.field(default=3, static=True)

    def client(self, problem, rows, state, down, now):
        reply, state = super().client(problem, rows, state, down, now)
        # a client knows itself by its first row only
        mine = jnp.allclose(
            rows.take(jnp.zeros(1, jnp.int32)).x.values, WORLD.pool.x.values[WORLD.starts[self.who]]
        )
        poison = jnp.where(mine & (now.round >= self.when), jnp.nan, 0.0)
        return {"gradient": reply["gradient"] + poison}, state


WORLD = known.apart().federation


def test_divergence_names_round_and_client(apart, engine):
    federation = fedmin.Federation.from_clients(apart.clients, names=list("abcde"))
    with pytest.warns(RuntimeWarning, match="Bad stopped at round 3: client c"):
        result = fedmin.minimize(
            apart.problem, federation, Bad(0.5), rounds=9, engine=engine, progress=False
        )
    good = run(apart, FedSGD(0.5), rounds=3)
    assert result.status == "diverged"
    assert "round 3: client c sent a reply that is not finite" in result.reason
    assert result.rounds == 3 == len(result.ledger.counts)
    assert result.history["round"].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(result.solution, good.solution, rtol=1e-9)
    np.testing.assert_allclose(result.history["objective"], good.history["objective"], rtol=1e-9)


@pytest.mark.parametrize("record", [
    [fedmin.Objective()], [fedmin.GradientNorm(), fedmin.Objective()],
], ids=["first", "second"])  # fmt: skip
def test_an_objective_that_overflows(apart, engine, record):
    """Finite replies, an objective that is not: the sum is named, what came before is kept."""
    with pytest.warns(RuntimeWarning, match="FedSGD stopped at round"):
        result = run(apart, FedSGD(1e60), rounds=9, engine=engine, record=record)
    assert result.status == "diverged"
    assert "objective is not finite" in result.reason
    assert np.isfinite(result.history["objective"]).all()
    assert result.rounds == len(result.ledger.counts) == result.history["round"][-1]
    assert f"round {result.rounds}:" in result.reason


def test_a_lane_that_diverges_disturbs_no_other(apart):
    """Bit for bit: a run of a sweep is what it is beside any other.

    Beside a run by itself it is so to rounding only. Two runs at once take r^T Z for two r, which
    is a product of matrices: it adds up in another order than a product of a vector and a matrix
    (two of three entries differ in their last digit here). A sweep of one run has no second r.
    """

    def swept(*steps):
        return fedmin.sweep(
            apart.problem, apart.federation, FedSGD(), rounds=9, over={"step": steps},
            engine=ONE_BY_ONE,
        )  # fmt: skip

    found = swept(0.5, 1e60)
    assert [r.status for r in found] == ["done", "diverged"]
    assert_same(found[0], swept(0.5, 0.25)[0], rtol=0)
    assert_same(found[1], swept(0.125, 1e60)[1], rtol=0)
    single = run(apart, FedSGD(0.5), rounds=9)
    assert_same(swept(0.5)[0], single, rtol=0)
    assert_same(found[0], single)
    with pytest.warns(RuntimeWarning, match="stopped at"):
        alone = run(apart, FedSGD(1e60), rounds=9)
    assert (found[1].rounds, found[1].reason) == (alone.rounds, alone.reason)
    ends = (found[1].history["objective"], alone.history["objective"])
    np.testing.assert_allclose(*ends, rtol=1e-12)
    assert found.best("objective") is found[0]


def test_a_sweep_that_diverges_entirely(apart):
    found = fedmin.sweep(
        apart.problem, apart.federation, FedSGD(), rounds=9,
        over={"step": [1e60, 1e70]}, engine=ONE_BY_ONE,
    )  # fmt: skip
    with pytest.raises(ValueError, match="every run of the sweep diverged"):
        found.best()


# ---------------------------------------------------------------- odd numbers


@pytest.mark.parametrize("clients", [1, 2, 4, 7])
def test_any_number_of_clients_on_three_devices(clients):
    """One client on three devices; four (a device stays idle); seven (not divisible)."""
    world = known.apart(seed=3, sizes=(4, 2, 5, 3, 1, 6, 2)[:clients])
    method = Scaffold(0.3, local_steps=2, batches=Full())
    spread = run(world, method, rounds=3, engine=fedmin.Simulator(chunk=2, devices=3))
    assert_same(run(world, method, rounds=3), spread)
    assert spread.clients.shape == (clients, 3)


def test_chunks_larger_than_the_cohort(apart):
    method, some = FedSGD(0.5), fedmin.Uniform(2)
    large = run(apart, method, participation=some, engine=fedmin.Simulator(chunk=64, devices=1))
    assert_same(run(apart, method, participation=some), large)


def test_programs_are_bounded_and_only_our_own_are_forgotten(apart, monkeypatch):
    """A thousand programs in one process would kill the compiler: the oldest are made again."""
    few = compiled.Recent(2)
    monkeypatch.setattr(program, "PROGRAMS", few)
    mine = jax.jit(lambda x: 2 * x)
    mine(jnp.ones(3))
    first = run(apart, FedSGD(0.3), rounds=2)
    begin, segment = next(iter(few.forms.values()))
    assert begin._cache_size() == segment._cache_size() == 1
    run(apart, FedSGD(0.3), rounds=2)
    assert len(few.forms) == 1
    for batches in (1, 2):
        run(apart, FedAvg(0.3, batches=fedmin.Blocks(batches)), rounds=2)
    assert len(few.forms) == 2
    assert begin._cache_size() == segment._cache_size() == 0  # forgotten, and not kept by JAX
    assert mine._cache_size() == 1
    assert_same(first, run(apart, FedSGD(0.3), rounds=2))


def test_seeds_differ_where_there_is_chance(apart):
    method = FedAvg(0.3, batches=fedmin.Blocks(2))
    assert not np.allclose(run(apart, method, seed=0).solution, run(apart, method, seed=1).solution)


def test_server_rows_reach_the_server(apart, engine):
    class Peek(FedSGD):
        """Adds the mean of the server's own targets to the model."""

        def server(self, problem, server_rows, x, learnt, now):
            return x + jnp.mean(server_rows.y)

    federation = fedmin.Federation.from_clients(
        apart.clients, server=(np.ones((4, 3)), np.array([1.0, 2.0, 3.0, 6.0]))
    )
    with pytest.warns(RuntimeWarning, match="Peek: the objective ended at .*, above"):
        result = fedmin.minimize(
            apart.problem, federation, Peek(), rounds=2, engine=engine, progress=False
        )
    np.testing.assert_array_equal(result.solution, [6.0, 6.0, 6.0])


# ---------------------------------------------------------------- errors at clients


class Broken(FedSGD):
    def client(self, problem, rows, state, down, now):
        return {"gradient": down["model"] @ jnp.ones(99)}, state


class Breaks(FedSGD):
    """Fails when it is run, not when it is looked at: what a client's own code may do."""

    def client(self, problem, rows, state, down, now):
        def fail(x, t):
            if t == 2:
                raise RuntimeError("no more memory")
            return x

        reply, state = super().client(problem, rows, state, down, now)
        like = jax.ShapeDtypeStruct(reply["gradient"].shape, reply["gradient"].dtype)
        return {"gradient": jax.pure_callback(fail, like, reply["gradient"], now.round)}, state


def test_loopback_names_client_and_round(apart):
    federation = fedmin.Federation.from_clients(apart.clients, names=list("abcde"))
    with pytest.raises(
        fedmin.ClientError, match=r"(?s)client a, round 2, exchange 0: .*no more memory"
    ):
        fedmin.minimize(
            apart.problem, federation, Breaks(0.5), rounds=5, engine=fedmin.Loopback(),
            progress=False,
        )  # fmt: skip


def test_code_that_cannot_run_is_refused_before_any_round(apart, engine):
    with pytest.raises(TypeError, match=r"dot_general|matmul|contract"):
        run(apart, Broken(0.5), engine=engine)


class Grows(FedSGD):
    def init_client(self, problem, roster, rows, key):
        return jnp.zeros(2)

    def client(self, problem, rows, state, down, now):
        return {"gradient": down["model"]}, jnp.zeros(3)


def test_client_state_must_keep_its_shape(apart, engine):
    with pytest.raises(ValueError, match="Grows: client state must keep its shape"):
        run(apart, Grows(0.5), engine=engine)


# ---------------------------------------------------------------- what is shown


def test_progress_is_shown_when_asked(apart, engine, capsys):
    run(apart, FedSGD(0.5), engine=engine, progress=True)
    shown = capsys.readouterr().err
    assert "FedSGD" in shown
    assert "6/6 rounds" in shown
    run(apart, FedSGD(0.5), engine=engine, progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_comes_at_a_terminal_unless_told_otherwise(terminal, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    for show, shown in ((True, True), (False, False), (None, terminal), (print, False)):
        with Progress("FedSGD", 3, show) as bar:
            assert bar.shown == (shown or callable(show))
            assert (bar.bar is not None) == shown


def test_result_says_how_it_went(apart):
    result = run(apart, FedSGD(0.5), rounds=20)
    text = repr(result)
    assert "FedSGD, done after 20 rounds" in text
    assert f"{result.final('objective'):.6g}" in text
    whole = result.history["objective"]
    level = whole[4] + 1e-12
    assert result.first("objective", level) == 4
    assert result.first("objective", level, of="bytes_up") == result.history["bytes_up"][4]
    assert result.first("objective", -1.0) is None
    assert result.plot().get_ylabel() == "objective F(x)"
    assert str(result.ledger).count("\n") == len(result.ledger.by_kind()) + 1  # two sums below


def test_words_and_flags_are_part_of_a_form():
    """A flag may decide what travels; shapes found for one run must not be used for the other."""
    assert compiled.form_of({"whole": True}) != compiled.form_of({"whole": False})
    assert compiled.form_of({"name": "a"}) != compiled.form_of({"name": "b"})
    assert compiled.form_of({"step": 0.1}) == compiled.form_of({"step": 0.2})
