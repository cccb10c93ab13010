"""Every method with every channel: it comes to the minimizer, or is refused, or says that it fails.

Which pairs are refused is told for all of them; that the others hold what they promise is tried for
a few in every run of the tests, and for all with FEDMIN_PAIRS=all.
"""

import os
import warnings

import numpy as np
import pytest

import fedmin
from agreement import run
from cases import CASES, Case

CHANNELS = {
    "topk": fedmin.TopK(1),
    "clip": fedmin.Clip(0.5),
    "ef21": fedmin.EF21(1),
    "chain": fedmin.chain(fedmin.Clip(0.5), fedmin.TopK(1)),
}
# methods that refuse, and which; all others take every channel
REFUSED = {
    # a pair is a difference of two rounds, an atom and a Newton step are a gradient's
    **{name: {"topk", "chain"} for name in ("FedSSO", "CentralFW")},
    "SparseNewton": set(CHANNELS),  # it also compares f_i of two rounds
    # both ends add replies up, or they are models
    **{
        name: {"clip", "chain", "ef21"}
        for name in ("Scaffold", "ScaffoldHT", "FedDR", "FedNLPP", "FedIterHT")
    },
    "FedNL": set(CHANNELS),
    "DFWTrace": set(CHANNELS),  # directions, and numbers along them
    "EF21FW": set(CHANNELS),  # it compresses by itself, and both ends add up what it sends
    # atoms and their sums must arrive as they are
    **{name: set(CHANNELS) for name in ("FedFW", "FedFWPlus", "FedFWSto")},
}
QUICK = {("fedavg", "clip"), ("scaffold", "topk"), ("fedavg", "topk"), ("fedsso", "ef21")}
PAIRS = [
    pytest.param(case, name, id=f"{case}-{name}")
    for case in CASES
    for name in CHANNELS
    if os.environ.get("FEDMIN_PAIRS") == "all" or (case.name, name) in QUICK
]


def refused(case: Case, name: str) -> bool:
    world = case.world()
    trips = case.method.exchanges(world.problem, world.federation.roster())
    return any(CHANNELS[name].refuses(trip) for trip in trips)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_who_refuses_what(case):
    wanted = REFUSED.get(type(case.method).__name__, set())
    if getattr(case.method, "remember", False):
        wanted = wanted | {"clip", "ef21"}
    if case.name == "gather":  # a mean of all is no reply
        wanted = {"ef21"}
    assert {name for name in CHANNELS if refused(case, name)} == wanted


def test_a_refusal_says_why_and_what_to_do(shared):
    with pytest.raises(
        ValueError, match=r"FedSSO takes replies for their own round's, .* give Plain"
    ):
        run(shared, fedmin.FedSSO(0.3), channel=fedmin.TopK(1))
    with pytest.raises(ValueError, match=r"Scaffold needs all of every reply .* give Plain"):
        run(shared, fedmin.Scaffold(0.3), channel=fedmin.chain(fedmin.Clip(1.0), fedmin.TopK(1)))


@pytest.mark.parametrize(("case", "name"), PAIRS)
def test_a_pair_works_or_says_that_it_does_not(case, name):
    if refused(case, name):
        pytest.skip("refused")
    world = case.world()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = run(world, case.method, channel=CHANNELS[name], rounds=400, every=10)
    first = result.history["objective"][0]
    best = world.objective(world.minimizer)
    near = result.final("objective") - best < 0.02 * (first - best)
    assert np.isfinite(result.final("objective"))
    assert near != (result.status in ("risen", "stalled")), result


def test_steps_for_other_clients_than_come_are_told():
    problem = fedmin.over(fedmin.LeastSquares(2), fedmin.L1Ball(1.0))
    rows = fedmin.Federation.from_clients([(np.eye(2), np.ones(2))] * 4)
    two = fedmin.Uniform(2)

    def checked(method, participation):
        from fedmin.assembling import assemble

        assemble(problem, rows, method, participation, fedmin.Plain(), None, None)

    with pytest.warns(RuntimeWarning, match="chance 1, and with Uniform.count=2. they do with 0.5"):
        checked(fedmin.FedFW.printed(), two)
    with pytest.warns(RuntimeWarning, match="give the steps p=1"):
        checked(fedmin.FedFW(steps=fedmin.ConvexSteps(0.5)), fedmin.Everyone())
    with pytest.warns(RuntimeWarning, match="they do with 0.25"):
        checked(fedmin.FedFW(steps=fedmin.NonconvexSteps(100)), fedmin.Bernoulli(0.25))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checked(fedmin.FedFW(), fedmin.Everyone())
        checked(fedmin.FedFW(), two)  # its steps are the participation's
        checked(fedmin.FedFW(steps=fedmin.ConvexSteps(0.5)), two)
        checked(fedmin.FedFWSto(), two)  # its steps know no p
        checked(fedmin.CentralFW(), two)
