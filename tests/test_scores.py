"""Scores are counts, divided once; what is better the metric says, not the first value."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedmin
from fedmin.core.result import RISING
from fedmin.engines.simulator.sweep import Sweep
from fedmin.reports.compare import tables

RECORD = [fedmin.Objective(), fedmin.Scores("test"), fedmin.Scores("train")]
COUNT = 61  # 61 times 1/61 is not 1, in single and in double precision
PARTS = [range(7), range(7, 30), range(30, COUNT)]


def federation(wrong: int, weights) -> fedmin.Federation:
    """Rows that the sign of the first column tells, but for the first few, which it tells wrong."""
    x = np.random.default_rng(0).normal(size=(COUNT, 3))
    x[:, 0] = np.sign(x[:, 0]) * 10
    y = (x[:, 0] > 0) ^ (np.arange(COUNT) < wrong)
    both = {"test": (x, y.astype(int)), "classes": 2}
    if weights == "columns":
        return fedmin.Federation.from_columns(x, y.astype(int), [[0], [1, 2]], **both)
    return fedmin.Federation.from_parts(x, y.astype(int), PARTS, weights=weights, **both)


SINGLE = [(e, w, False) for w in ("sizes", "uniform", "columns") for e in ("simulator", "loopback")]
ENGINES = {"simulator": fedmin.Simulator(devices=2), "loopback": fedmin.Loopback()}


@pytest.mark.parametrize(("engine", "weights", "x64"), [*SINGLE, ("simulator", "uniform", True)])
def test_all_right_is_one_and_a_stop_there_fires(engine, weights, x64):
    method = fedmin.SplitSGD(0.1) if weights == "columns" else fedmin.FedSGD(0.1)
    with jax.enable_x64(x64):
        for wrong in (0, 2, COUNT):
            rows = federation(wrong, weights)
            stop = fedmin.Stop("train_accuracy", above=1.0)
            options = {"rounds": 2, "record": RECORD, "stop": stop, "engine": ENGINES[engine]}
            result = fedmin.minimize(fedmin.Logistic(3), rows, method, **options)
            kind = result.history["accuracy"].dtype
            assert kind == (np.float64 if x64 else np.float32)
            right = COUNT if wrong == COUNT else COUNT - wrong  # it learns what all labels say
            assert result.final("accuracy") == kind.type(right) / kind.type(COUNT)
            if weights != "uniform":
                assert result.final("train_accuracy") == result.final("accuracy")
            assert (result.status == "stopped") == (right == COUNT)


def test_weighted_rows_are_counted_by_their_weight():
    x, y = np.array([[1.0], [1.0], [1.0]]), np.array([1, 1, 0])
    rows = fedmin.rows(x, y, [0.1, 0.2, 0.7])
    (tally,) = fedmin.Scores().measure(fedmin.Logistic(1), jnp.ones(1), rows)
    np.testing.assert_allclose(tally.dense(), [0.3, 0.7])
    (share,) = fedmin.Scores().finish(None, None, [tally.dense()], {})
    np.testing.assert_allclose(share, 0.3)


def test_a_score_that_is_no_count_is_a_mean():
    score = lambda p, z, y: jnp.abs(p @ z - y)
    problem = fedmin.from_loss(lambda p, z, y: (p @ z - y) ** 2, jnp.zeros(1), score=score)
    parts = [(np.ones((1, 1)), [1.0]), (np.ones((3, 1)), [2.0, 3.0, 4.0])]
    rows = fedmin.Federation.from_clients(parts, weights="uniform")
    for engine in (fedmin.Simulator(), fedmin.Loopback()):
        options = {"rounds": 1, "record": [fedmin.Scores("train")], "engine": engine}
        result = fedmin.minimize(problem, rows, fedmin.FedSGD(1e-9), **options)
        assert result.history["train_accuracy"][0] == pytest.approx((1 + 3) / 2)


@pytest.fixture(scope="module")
def run() -> fedmin.Result:
    rows = federation(20, "sizes")
    record = [*RECORD, fedmin.Support([0]), fedmin.Measure("up", lambda p, x: x[0], higher=True)]
    return fedmin.minimize(
        fedmin.Logistic(3), rows, fedmin.FedSGD(0.02), rounds=3, record=record, every=1
    )


def test_what_is_better_is_said_by_the_metric(run):
    rises = ("accuracy", "train_accuracy", "precision", "recall", "f1", "up")
    assert set(run.rising) == set(rises)
    assert not run.rises("objective")
    assert run.rises("seconds")


def test_a_run_that_began_there_came_there_at_once(run, tmp_path):
    start = float(run.history["objective"][0])
    assert run.first("objective", start) == run.first("objective", start + 1) == 0
    assert run.first("accuracy", 0.0) == 0
    assert run.first("accuracy", 1.1) is run.first("objective", -1.0) is None
    assert run.first("up", 0.0, rising=False) == 0
    _, (_, ((_, came, rounds, *_),)) = tables({"a": run}, "objective", [start + 1])
    assert (came, rounds) == ("1 of 1", "0")
    # a run that rises all the way has not come to where it was before
    worse = dataclasses.replace(run, history={**run.history, "objective": np.arange(1.0, 5.0)})
    assert worse.first("objective", 3.5) == 0
    assert worse.first("objective", 0.5) is None
    _, (head, (line,)) = tables({"a": worse}, "objective")
    assert (head[0], line[1]) == ("objective 4", "1 of 1")


def test_the_best_of_a_sweep_is_the_highest_accuracy(run):
    def ended(value: float) -> fedmin.Result:
        history = {**run.history, "accuracy": np.array([0.5, value])}
        return dataclasses.replace(run, history=history)

    found = Sweep(map(ended, (0.7, 0.9, 0.8)))
    assert found.best("accuracy").final("accuracy") == 0.9
    assert found.best("accuracy", largest=False).final("accuracy") == 0.7
    lower = Sweep(dataclasses.replace(each, rising=()) for each in found)
    assert lower.best("accuracy").final("accuracy") == 0.7


def test_a_level_is_met_by_what_was_saved_too(run, tmp_path):
    """0.9 of single precision is less than 0.9: what is read back has the type it had."""
    single = run.history["objective"].astype(np.float32) * 0 + np.float32(0.9)
    history = {
        k: v if v.dtype.kind == "i" else v.astype(np.float32) for k, v in run.history.items()
    }
    kept = dataclasses.replace(run, history={**history, "accuracy": single})
    again = fedmin.Result.load(kept.save(tmp_path))
    assert again.first("accuracy", 0.9) == kept.first("accuracy", 0.9) == 0
    assert again.history["accuracy"].dtype == np.float32
    assert again.rising == run.rising
    # folders that do not say it: by the names of the columns
    assert RISING.search("train_accuracy")
    assert not RISING.search("objective")
