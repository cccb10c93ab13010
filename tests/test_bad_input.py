"""Bad calls: refused before any work, by an error that names the thing and what is right."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import fedmin
import known
from fedmin import (
    DONE,
    LBFGS,
    Adam,
    Bernoulli,
    Blocks,
    Cyclic,
    FedAvg,
    FedAvgM,
    Federation,
    FedOpt,
    FedProx,
    FedSGD,
    FedSSO,
    Full,
    LeastSquares,
    Logistic,
    Scaffold,
    Simulator,
    Softmax,
    Stop,
    TopK,
    Uniform,
)
from fedmin.engines import devices
from fedmin.engines.sessions import halves
from fedmin.engines.simulator import simulator

X, Y = np.ones((6, 2)), np.array([0, 1, 0, 1, 0, 1])
PARTS = [[0, 1], [2, 3, 4, 5]]
FEDERATION = Federation.from_parts(X, Y, PARTS, classes=2)
NUMBERS = Federation.from_parts(X, Y + 0.5, PARTS)
COLUMNS = Federation.from_columns(X, Y, [[0], [1]], classes=2)
PROBLEM = Logistic(2)


def holed(value: float) -> np.ndarray:
    x = X.copy()
    x[3, 1] = value
    return x


class Ball(fedmin.Domain):
    bounded = True
    convex = True

    def contains(self, x, tolerance=1e-6):
        return jnp.linalg.norm(x) <= 1 + tolerance

    def project(self, x):
        return x / jnp.maximum(1.0, jnp.linalg.norm(x))


class Confined(Logistic):
    @property
    def domain(self):
        return Ball()


class Constrained(Logistic):
    @property
    def num_constraints(self):
        return 1


def minimize(problem=PROBLEM, federation=FEDERATION, method=FedSGD(), rounds=2, **options):
    return fedmin.minimize(problem, federation, method, rounds=rounds, **options)


def sweep(**options):
    return fedmin.sweep(PROBLEM, FEDERATION, FedAvg(), rounds=2, **options)


def parts(given, x=X, y=Y, **options):
    return Federation.from_parts(x, y, given, **options)


TABLE = [
    # data
    (lambda: fedmin.matrix(np.ones((2, 3, 4))), r"rows and features, got shape \(2, 3, 4\)"),
    (lambda: fedmin.rows(X, Y[:4]), r"one entry a row: x has 6 rows, y has shape \(4,\)"),
    (lambda: fedmin.rows(X, 3.0), "y must have one entry a row"),
    (lambda: parts(PARTS, y=Y[:4]), "one entry a row: x has 6 rows, y has"),
    (lambda: fedmin.rows(holed(np.nan), Y), r"x must be finite; x\[3, 1\] is nan"),
    (lambda: fedmin.rows(holed(-np.inf), Y), r"x must be finite; x\[3, 1\] is -inf"),
    (lambda: parts(PARTS, x=holed(np.nan)), r"x must be finite; x\[\d, 1\] is nan"),
    (lambda: fedmin.rows(X, np.where(Y, np.nan, 0.0)), r"y must be finite; y\[1\] is nan"),
    (
        lambda: fedmin.rows(scipy.sparse.csr_matrix(holed(np.inf)), Y),
        r"x must be finite; x\[3, 1\] is inf",
    ),
    (lambda: fedmin.rows(X, Y, weight=-np.ones(6)), "weight must be 6 numbers of at least 0"),
    (lambda: fedmin.rows(X, Y, weight=np.ones(5)), "weight must be 6 numbers"),
    # who holds what
    (lambda: parts([]), "at least one"),
    (lambda: parts([[0, 1], []]), "client 1 has no rows"),
    (lambda: parts([[i] for i in range(7)]), "client 6 holds row 6; there are 6 rows"),
    (lambda: parts([[0, 1], [5, 6]]), "client 1 holds row 6; there are 6 rows"),
    (lambda: parts([[0, -1], [2]]), "client 0 holds row -1"),
    (lambda: parts([[0, 1], [1, 2]]), "client 1 holds row 1, and so does client 0"),
    (lambda: parts([[0, 0], [1, 2]]), "client 0 holds row 0 twice"),
    (lambda: parts(PARTS, weights="size"), "unknown weights 'size'; did you mean 'sizes'?"),
    (lambda: parts(PARTS, weights=[1.0]), "'sizes', 'secret', 'uniform' or 2 positive"),
    (lambda: parts(PARTS, weights=[1.0, 0.0]), "2 positive numbers"),
    (lambda: parts(PARTS, weights=[1.0, np.nan]), "2 positive numbers"),
    (lambda: parts(PARTS, names=["a"]), "names must be one a client: 2 clients, 1 names"),
    (lambda: parts(PARTS, y=Y + 1, classes=2), r"labels must be in 0..1; row \d has label 2"),
    (lambda: parts(PARTS, y=Y - 1, classes=2), r"labels must be in 0..1; row \d has label -1"),
    (lambda: parts(PARTS, y=Y + 0.5, classes=2), "labels must be whole numbers 0..1"),
    (lambda: Federation.from_clients([]), "at least one pair"),
    (
        lambda: Federation.from_clients([(X, Y), (np.ones((2, 3)), [0, 1])]),
        r"same features, got \[\(2,\), \(3,\)\]",
    ),
    (
        lambda: Federation.from_clients([(X, Y), (holed(np.nan), Y)], names=["a", "b"]),
        r"^client 'b': x must be finite; x\[3, 1\] is nan",
    ),
    (
        lambda: Federation.from_clients([(X, Y), (scipy.sparse.csr_matrix(holed(np.inf)), Y)]),
        r"^client 1: x must be finite; x\[3, 1\] is inf",
    ),
    (
        lambda: Federation.from_clients([(X, Y), (X, np.where(Y, np.nan, 0.0))]),
        r"^client 1: y must be finite; y\[1\] is nan",
    ),
    (lambda: Federation.from_clients([(X, Y), (X, Y[:4])]), "^client 1: y must have one entry a"),
    (lambda: Federation.from_clients([(X, Y), X]), r"^client 1: it must be a pair \(x, y\)"),
    (lambda: Federation.from_clients([(X, Y), (X[0], Y)]), "^client 1: x must be numbers, rows"),
    (
        lambda: Federation.from_clients([(X, Y), (X, Y + 1)], classes=2),
        r"^client 1: labels must be in 0..1; row 1 has label 2",
    ),
    (lambda: Federation.from_columns(X, Y, [[0], [0]]), "column 0"),
    (lambda: Federation.from_columns(X, Y, [[0, 1], []]), "client 1 has no columns"),
    # do the pieces fit
    (lambda: minimize(Logistic(3)), r"Logistic\(features=3\) does not fit data with 2 features"),
    (lambda: minimize(federation=NUMBERS), "Logistic needs one whole label 0..1 a row"),
    (
        lambda: minimize(federation=parts(PARTS, y=Y + 1)),
        r"Logistic knows labels 0..1; row \d has label 2",
    ),
    (
        lambda: minimize(Softmax(2, 3), parts(PARTS, y=3 * Y)),
        r"Softmax knows labels 0..2; row \d has label 3",
    ),
    (
        lambda: minimize(LeastSquares(2), parts(PARTS, y=np.ones((6, 2)))),
        r"one number a row, got y of shape \(6, 2\)",
    ),
    (
        lambda: minimize(federation=parts(PARTS, test=(np.ones((2, 3)), [0, 1]))),
        "does not fit data with 3 features",
    ),
    (lambda: minimize(federation=COLUMNS), "split by rows; this federation.* split by features"),
    (
        lambda: minimize(Confined(2)),
        r"FedSGD does not handle a domain; Confined\(...\) has Ball.* FedFW.* handle a domain$",
    ),
    (
        lambda: minimize(Constrained(2), method=Scaffold()),
        r"Scaffold does not handle constraints; Constrained\(...\) has 1. .*, SSCA handle con",
    ),
    (
        lambda: minimize(fedmin.MLP(2, 2, hidden=(10**5, 10**5))),
        "MLP has a model of 10,000,400,000 numbers; fewer than 2.31 can be counted",
    ),
    (lambda: minimize("logistic"), "problem must be like Logistic"),
    (lambda: minimize(federation=(X, Y)), "federation must be like Federation.from_parts"),
    (lambda: minimize(method=FedAvg), "method must be like FedAvg"),
    (lambda: minimize(participation=0.5), "participation must be like Uniform"),
    (lambda: minimize(channel="topk"), "channel must be like Plain"),
    (lambda: minimize(engine="loopback"), "engine must be like Simulator"),
    (lambda: minimize(record=["objective"]), "record must be like"),
    (lambda: minimize(record=[]), "record must name at least one metric"),
    (lambda: minimize(record=[fedmin.Scores("test")]), "has no test rows; give test="),
    (
        lambda: minimize(record=[fedmin.Objective(), fedmin.Objective()]),
        "'objective' more than once",
    ),
    (lambda: minimize(stop="objective"), "stop must be like Stop"),
    (
        lambda: minimize(stop=Stop("objectiv", below=1.0)),
        "unknown recorded column 'objectiv'; did you mean 'objective'?",
    ),
    (
        lambda: minimize(stop=Stop("objectiv", below=1.0), engine=fedmin.Loopback()),
        "did you mean 'objective'?",
    ),
    # numbers
    (lambda: minimize(rounds=0), "rounds must be at least 1, got 0"),
    (lambda: minimize(rounds=2.5), "rounds must be a whole number, got 2.5"),
    (lambda: minimize(rounds=True), "rounds must be a whole number, got True"),
    (lambda: minimize(every=0), "every must be at least 1, got 0"),
    (lambda: minimize(seed=-1), "seed must be at least 0, got -1"),
    (lambda: minimize(seed=2**32), "seed must be below 2.32 = 4294967296, got 4294967296"),
    (lambda: minimize(seed=True), "seed must be a whole number, got True"),
    (lambda: FedAvg(local_steps=0), "local_steps must be at least 1, got 0"),
    (lambda: FedAvg(local_steps=1.5), "local_steps must be a whole number, got 1.5"),
    (lambda: FedAvg(epochs=0), "epochs must be at least 1, got 0"),
    (lambda: FedAvg(epochs=2, local_steps=3), "give local_steps or epochs, not both"),
    (lambda: FedAvg(step=-1), "step must be more than 0.*got -1"),
    (lambda: FedAvg(step=0.0), "step must be more than 0.*got 0"),
    (lambda: FedAvg(step=float("nan")), "step must be more than 0.*got nan"),
    (lambda: FedAvg(step=float("inf")), "step must be more than 0.*got inf"),
    (lambda: FedAvg(step="0.1"), "step must be a number, got '0.1'"),
    (lambda: FedAvg(step=None), "step must be a number, got None"),
    (lambda: FedAvg(batches=32), r"batches must be like Blocks\(100\) or Full\(\), got 32"),
    (lambda: FedAvg(server_step=0.0), "server_step must be more than 0"),
    (lambda: FedSGD(step=-1), "step must be more than 0.*got -1"),
    (lambda: FedSGD(batches="full"), "batches must be like"),
    (lambda: FedProx(mu=-0.1), "mu must be at least 0.*got -0.1"),
    (lambda: Scaffold(local_steps=0), "local_steps must be at least 1, got 0"),
    (lambda: Scaffold(server_step=-1.0), "server_step must be more than 0"),
    (lambda: FedOpt(tau=0.0), "tau must be more than 0"),
    (lambda: FedOpt(beta1=1.5), "beta1 must be at least 0 and below 1, got 1.5"),
    (lambda: FedOpt(beta1=1.0), "beta1 must be at least 0 and below 1, got 1"),
    (lambda: FedAvgM(beta=1.0), "beta must be at least 0 and below 1, got 1"),
    (lambda: FedProx(stragglers=1.5), "stragglers must be at least 0 and at most 1, got 1.5"),
    (lambda: DONE(first="one"), "unknown first v 'one'; there is 'zero', 'gradient'"),
    (lambda: FedOpt(second=Adam(2.0)), "beta2 must be at least 0 and at most 1, got 2"),
    (lambda: FedOpt(second="adam"), "second must be like Adam"),
    (lambda: fedmin.FedAC(local_steps=0), "local_steps must be at least 1, got 0"),
    (lambda: fedmin.FedAC(mu=0.0), "mu must be more than 0.*got 0"),
    (lambda: fedmin.FedAC(version=3), r"version must be 1 \(FedAC-I\) or 2 \(FedAC-II\), got 3"),
    (lambda: fedmin.FedAC(0.5, mu=4.0), r"step \* mu must be below 1, .*; got 2"),
    (lambda: fedmin.FedAC(fedmin.Power(9.0, 1.0), mu=1.0), r"step \* mu must be below 1"),
    (lambda: fedmin.FedDANE(mu=-1.0), "mu must be at least 0.*got -1"),
    (lambda: fedmin.DONE(alpha=0.0), "alpha must be more than 0.*got 0"),
    (lambda: fedmin.DONE(local_steps=0), "local_steps must be at least 1, got 0"),
    (lambda: fedmin.FedNL(TopK(3)), r"compress must be like TopRank\(1\) or TopEntries\(100\)"),
    (lambda: fedmin.FedNL(alpha=1.5), "alpha must be more than 0 and at most 1, got 1.5"),
    (lambda: fedmin.FedNL(mu=0.0), "mu must be more than 0.*got 0"),
    (lambda: fedmin.FedNL(warmup=-1), "warmup must be at least 0, got -1"),
    (lambda: fedmin.TopRank(0), "k must be at least 1, got 0"),
    (
        lambda: minimize(method=fedmin.FedNL(fedmin.TopRank(3))),
        r"TopRank\(k\) has k at most d, the length of x, 2; got 3",
    ),
    (
        lambda: minimize(method=fedmin.FedNLPP(fedmin.TopEntries(4))),
        r"TopEntries\(k\) has k at most d \(d \+ 1\)/2 = 3, .*; got 4",
    ),
    (
        lambda: minimize(Softmax(784, 10, bias=True), method=fedmin.FedNL()),
        "d = 7850 each has 470 MiB, and largest is 4096. FedSSO in its L-BFGS form or DONE",
    ),
    (
        lambda: minimize(Logistic(10**9), method=fedmin.FedNLPP()),
        "FedNLPP keeps a d x d matrix at every client",
    ),
    (lambda: FedSSO(local_steps=0), "local_steps must be at least 1, got 0"),
    (lambda: FedSSO(step=0.0), "step must be more than 0.*got 0"),
    (lambda: FedSSO(least=2.0, most=1.0), "must be below most .Lambda., got 2.0 and 1.0"),
    (lambda: FedSSO(reset=0), "reset must be at least 1, got 0"),
    (lambda: FedSSO(curvature=LBFGS(0)), "memory must be at least 1, got 0"),
    (lambda: FedSSO(curvature="bfgs"), "curvature must be like DenseInverse"),
    (lambda: FedSSO(bad_pairs="damped"), "bad pairs 'damped'; did you mean 'damp'"),
    (lambda: FedSSO(pairs="same"), "unknown kind of pairs 'same'; did you mean 'same clients'"),
    (lambda: FedSSO(local_steps=fedmin.Stages((2.5,), (0,))), "local_steps must be a whole number"),
    (lambda: fedmin.Stages((2, 1), (0,)), "as many numbers, got 2 and 1"),
    (lambda: fedmin.Stages((2, 1), (5, 9)), "starts must begin with 0 and rise"),
    (lambda: fedmin.Stages((2, 0), (0, 9)), "values must be more than 0"),
    (lambda: Blocks(0), "size must be at least 1, got 0"),
    (lambda: fedmin.Shuffled(-3), "size must be at least 1, got -3"),
    (lambda: fedmin.WithReplacement(0), "size must be at least 1, got 0"),
    (lambda: fedmin.WithoutReplacement(2.0), "size must be a whole number, got 2.0"),
    (lambda: Bernoulli(0.0), "probability must be more than 0 and at most 1, got 0"),
    (lambda: Bernoulli(1.5), "probability must be more than 0 and at most 1, got 1.5"),
    (lambda: Uniform(0), "count must be at least 1, got 0"),
    (lambda: minimize(participation=Uniform(3)), "at most the number of clients, 2, got 3"),
    (lambda: minimize(participation=Cyclic(3)), "at most the number of clients, 2, got 3"),
    (lambda: TopK(0), "k must be at least 1, got 0"),
    (lambda: Simulator(chunk=0), "chunk must be at least 1, got 0"),
    (lambda: Simulator(devices=999), r"devices must be at most \d+, .*JAX has, got 999"),
    (lambda: Stop("objective"), r"below=... or above=..., and not both"),
    (lambda: Stop("objective", below=1.0, above=2.0), "and not both"),
    # sweeps
    (lambda: sweep(over={"stp": [0.1]}), "unknown field of FedAvg 'stp'; did you mean 'step'?"),
    (lambda: sweep(over={"local_steps": [1, 2]}), "local_steps is a count .*one by one"),
    (lambda: sweep(over={"step": []}), "at least one value"),
    (lambda: sweep(over={"step": [0.1, -0.1]}), "step must be more than 0.*got -0.1"),
    (lambda: sweep(over={"step": [0.1, 0.2, 0.1]}), "a value of step twice"),
    (lambda: sweep(seeds=()), "at least one seed"),
    (lambda: sweep(seeds=(1, 0, 1)), "seeds has 1 twice"),
    (lambda: sweep(seeds=(0.5,)), "seeds must be a whole number, got 0.5"),
    (lambda: sweep(seeds=(2**32 + 1,)), "seeds must be below 2.32"),
    (lambda: sweep(engine=fedmin.Loopback()), "engine must be like Simulator"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "said"), TABLE, ids=[said[:50] for _, said in TABLE])
def test_refused_with_a_reason(call, said, monkeypatch):
    worked = []
    fail = lambda *_: worked.append("work") or 1 / 0
    monkeypatch.setattr(simulator, "programs", fail)
    monkeypatch.setattr(halves.Halves, "begin", fail)
    with pytest.raises((ValueError, TypeError), match=said):
        call()
    assert not worked


def test_unknown_columns_of_a_result():
    result = minimize(engine=Simulator(1, 1))
    with pytest.raises(ValueError, match="unknown column 'objektive'; did you mean 'objective'"):
        result.final("objektive")


@pytest.mark.parametrize("value", ["0", "two", "-1", "1.5", ""])
def test_devices_must_be_a_number(value, monkeypatch):
    monkeypatch.setenv("FEDMIN_DEVICES", value)
    with pytest.raises(ValueError, match="FEDMIN_DEVICES must be a whole number of at least 1"):
        devices.wanted()


def test_a_matrix_is_not_silently_reordered():
    """A `Matrix` has no row order to pick from: refused, or picked rightly; never ignored."""
    x = fedmin.matrix(np.arange(12.0).reshape(6, 2))
    try:
        federation = Federation.from_parts(x, Y, [[5, 4], [0]], classes=2)
    except (TypeError, ValueError):
        return
    assert federation.pool.count == federation.pool.x.shape[0] == 3


def test_the_same_pieces_rightly_put_together_run():
    """The table's parts are good ones: only the one thing it changes is wrong."""
    world = known.apart()
    assert minimize(engine=Simulator(1, 1), method=FedAvg(batches=Full())).status == "done"
    assert fedmin.minimize(
        world.problem, world.federation, FedSGD(), rounds=1, engine=Simulator(1, 1)
    ).status == "done"  # fmt: skip
