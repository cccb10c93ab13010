"""Where what is allowed ends: the last value that is, and the first beyond it that is refused.

`test_bad_input.py` has one value for each refusal; a bound that has moved by one passes there.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

import fedmin
from fedmin.engines.sessions.checkpoint import Checkpoint
from fedmin.privacy.policy import Policy
from fedmin.runs.terms import Terms
from fedmin.server.tuning import Penalty

# the least whole number of a field
WHOLE: list[tuple[Callable[..., Any], str, int]] = [
    (fedmin.FedAvg, "local_steps", 1), (fedmin.FedAvg, "epochs", 1),
    (fedmin.SSCA, "local_steps", 1),
    (fedmin.FedFW, "local_steps", 1), (fedmin.FedDR, "local_steps", 1),
    (fedmin.DONE, "local_steps", 1), (fedmin.FedNL, "warmup", 0), (fedmin.FedNL, "largest", 1),
    (fedmin.FedNLPP, "largest", 1), (fedmin.FedSSO, "reset", 1), (fedmin.SparseNewton, "memory", 1),
    (fedmin.LBFGS, "memory", 1), (fedmin.TopK, "k", 1), (fedmin.TopRank, "k", 1),
    (fedmin.TopEntries, "k", 1), (fedmin.SecureSum, "least", 3),
    (fedmin.HomomorphicSum, "least", 2),
    (fedmin.Blocks, "size", 1), (fedmin.Shuffled, "size", 1), (fedmin.WithReplacement, "size", 1),
    (fedmin.WithoutReplacement, "size", 1), (fedmin.Uniform, "count", 1),
    (fedmin.Cyclic, "count", 1),
    (fedmin.L0Ball, "tau", 1), (fedmin.RankBall, "rank", 1), (fedmin.Processes, "workers", 1),
    (fedmin.Simulator, "chunk", 1), (fedmin.Simulator, "devices", 1),
    (lambda rounds: Checkpoint("runs", rounds=rounds), "rounds", 1),
    (lambda survivors: fedmin.Noise(1.0, at="sites", survivors=survivors), "survivors", 1),
    (lambda iterations: fedmin.RankBall(2, iterations=iterations), "iterations", 1),
    (lambda krylov: fedmin.NuclearBall(1.0, krylov=krylov), "krylov", 2),
    (lambda cycles: fedmin.NuclearBall(1.0, cycles=cycles), "cycles", 1),
    (lambda most: fedmin.Growing(1.0, 1.0, most=most), "most", 1),
    (lambda every: Penalty(1.0, every=every), "every", 1),
    (lambda features: fedmin.Logistic(features), "features", 1),
    (lambda features: fedmin.Softmax(features, 2), "features", 1),
    (lambda classes: fedmin.Softmax(1, classes), "classes", 2),
    (lambda classes: fedmin.MLP(1, classes), "classes", 2),
    (lambda hidden: fedmin.MLP(1, 2, hidden=(hidden,)), "hidden", 1),
    (lambda most_rounds: Policy(most_rounds=most_rounds), "most_rounds", 1),
    (lambda smallest_cohort: Policy(smallest_cohort=smallest_cohort), "smallest_cohort", 1),
]  # fmt: skip

# the ends of a field that has a number; an open end is not itself allowed
INSIDE, OPEN, BELOW, BETWEEN = "[]", "(]", "[)", "()"  # whether the ends themselves are allowed
NUMBERS: list[tuple[Callable[..., Any], str, str, float, float | None]] = [
    (fedmin.FedAvg, "step", OPEN, 0.0, None), (fedmin.FedAvg, "server_step", OPEN, 0.0, None),
    (fedmin.FedProx, "mu", INSIDE, 0.0, None), (fedmin.FedFW, "penalty", INSIDE, 0.0, None),
    (fedmin.FedOpt, "beta1", BELOW, 0.0, 1.0), (fedmin.FedOpt, "tau", OPEN, 0.0, None),
    (lambda beta2: fedmin.FedOpt(second=fedmin.Adam(beta2)), "beta2", INSIDE, 0.0, 1.0),
    (fedmin.FedDR, "alpha", BETWEEN, 0.0, 2.0), (fedmin.FedDR, "accuracy", INSIDE, 0.0, None),
    (fedmin.FedDR, "eta", OPEN, 0.0, None), (fedmin.FedNL, "alpha", OPEN, 0.0, 1.0),
    (fedmin.FedNL, "mu", OPEN, 0.0, None), (fedmin.DONE, "alpha", OPEN, 0.0, None),
    (fedmin.Clip, "norm", OPEN, 0.0, None), (fedmin.L2Ball, "radius", OPEN, 0.0, None),
    (fedmin.Simplex, "radius", OPEN, 0.0, None), (fedmin.ConvexSteps, "p", OPEN, 0.0, 1.0),
    (fedmin.Bernoulli, "probability", OPEN, 0.0, 1.0),
    (lambda rounds: fedmin.NonconvexSteps(rounds), "rounds", INSIDE, 1.0, None),
    (lambda first: fedmin.Growing(first, 1.0, most=9), "first", INSIDE, 1.0, None),
    (lambda factor: fedmin.Growing(1.0, factor, most=9), "factor", INSIDE, 1.0, None),
    (lambda rate: fedmin.PrivateRows(rate, multiplier=1.0), "rate", OPEN, 0.0, 1.0),
    (lambda clip: fedmin.PrivateRows(0.5, multiplier=1.0, clip=clip), "clip", OPEN, 0.0, None),
    (lambda bound: fedmin.SecureSum(bound=bound), "bound", OPEN, 0.0, None),
    (lambda growth: Penalty(1.0, growth=growth), "growth", INSIDE, 1.0, None),
    (lambda slack: Penalty(1.0, slack=slack), "slack", OPEN, 0.0, None),
    (lambda tolerance: fedmin.NuclearBall(1.0, tolerance=tolerance), "tolerance", OPEN, 0.0, None),
    (lambda l2: fedmin.Logistic(2, l2=l2), "l2", INSIDE, 0.0, None),
    (lambda delta: fedmin.Huber(2, delta=delta), "delta", OPEN, 0.0, None),
    (lambda quorum: Terms(("north",), quorum=quorum), "quorum", OPEN, 0.0, 1.0),
    (lambda deadline: Terms(("north",), deadline=deadline), "deadline", OPEN, 0.0, None),
    (lambda delta: fedmin.Noise(1.0, delta=delta), "delta", OPEN, 0.0, 0.5),
    (lambda seconds: Checkpoint("runs", seconds=seconds), "seconds", OPEN, 0.0, None),
]  # fmt: skip
TINY = 1e-9


def named(row) -> str:
    make = getattr(row[0], "__name__", "")
    return f"{'' if make == '<lambda>' else make}-{row[1]}"


def refused(make: Callable[..., Any], field: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=rf"{field}\b"):
        make(**{field: value})


@pytest.mark.parametrize(("make", "field", "least"), WHOLE, ids=map(named, WHOLE))
def test_the_least_whole_number(make, field, least):
    made = make(**{field: least})
    if dataclasses.is_dataclass(made) and isinstance(getattr(made, field, None), int):
        assert getattr(made, field) == least  # what was given is what is kept
    refused(make, field, least - 1)
    refused(make, field, least + 0.5)


@pytest.mark.parametrize(("make", "field", "end", "low", "high"), NUMBERS, ids=map(named, NUMBERS))
def test_the_ends_of_a_number(make, field, end, low, high):
    make(**{field: low + TINY})
    if end in (INSIDE, BELOW):
        make(**{field: low})
        refused(make, field, low - TINY)
    else:
        refused(make, field, low)
    if high is not None:
        if end in (BELOW, BETWEEN):
            make(**{field: high - TINY})
            refused(make, field, high)
        else:
            make(**{field: high})
        refused(make, field, high * (1 + TINY))
    refused(make, field, float("inf"))
    refused(make, field, float("nan"))
