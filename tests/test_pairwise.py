"""Pairwise Frank-Wolfe steps: the definition in NumPy, the rate they are for, what they send."""

from dataclasses import replace

import numpy as np
import pytest

import fedmin
import known
from agreement import assert_same, run
from fedmin import CentralFW, FedFW, L1Ball, L2Ball, Simplex

DIM, RADIUS = 12, 0.9


def world(domain: fedmin.Domain, clients: int = 1) -> known.World:
    """Strongly convex least squares whose solution lies on a face of the set."""
    rng = np.random.default_rng(5)
    truth = np.zeros(DIM)
    truth[:3] = [0.9, 0.6, 0.4]
    made = []
    for _ in range(clients):
        z = rng.standard_normal((30, DIM))
        made.append((z, z @ truth + 0.05 * rng.standard_normal(30)))
    return known.World(fedmin.over(fedmin.LeastSquares(DIM), domain), tuple(made))


def smoothness(made: known.World) -> float:
    return max(float(np.linalg.eigvalsh(z.T @ z / len(z))[-1]) for z, _ in made.clients)


def pairwise(x, g, L, two_sided):
    """One step, x as a mean of corners (and of 0 inside the l1 ball) by the definition."""
    corners = [RADIUS * e for e in np.eye(DIM)] + [-RADIUS * e for e in np.eye(DIM)] * two_sided
    held = [(v, abs(x @ v) / RADIUS**2) for v in corners if x @ v > 1e-12]
    slack = 1 - np.abs(x).sum() / RADIUS
    if two_sided and slack > 1e-6:
        held.append((np.zeros(DIM), slack))
    s = min(corners, key=lambda u: g @ u)
    v, most = max(held, key=lambda pair: g @ pair[0])
    d = s - v
    if not d.any():
        return x
    return x + min(most, -(g @ d) / (L * d @ d)) * d


@pytest.mark.parametrize("domain", [L1Ball(RADIUS), Simplex(RADIUS)], ids=str)
def test_one_client_step_by_step(domain):
    made = world(domain)
    L = smoothness(made)
    x = np.asarray(made.problem.init(None)).astype(float)
    for t in range(1, 25):
        x = pairwise(x, made.gradient(0, x), L, isinstance(domain, L1Ball))
        if t in (1, 2, 7, 24):
            options = {"smoothness": L, "pairwise": True}
            for method in (CentralFW(**options), FedFW(1e-12, **options)):  # one x_i: no penalty
                found = run(made, method, rounds=t).solution
                np.testing.assert_allclose(found, x, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("domain", [L1Ball(RADIUS), Simplex(RADIUS)], ids=str)
def test_pairwise_steps_are_linear_where_classic_ones_are_not(domain):
    made = world(domain)
    L = smoothness(made)
    methods = {
        "short": CentralFW(smoothness=L),
        "pairwise": CentralFW(smoothness=L, pairwise=True),
    }
    gap = {}
    for name, method in methods.items():
        result = run(made, method, rounds=300, record=[fedmin.WolfeGap()], every=300)
        gap[name] = result.final("gap")
        assert made.problem.domain.contains(result.solution)
    assert gap["pairwise"] < 1e-10
    assert gap["short"] > 1e-6


def test_two_entries_travel_whoever_is_there():
    made = world(L1Ball(RADIUS), clients=4)
    steps = fedmin.ConvexSteps(p=0.5)
    method = FedFW(1.0, steps, smoothness=smoothness(made), pairwise=True)
    options = {"participation": fedmin.Bernoulli(0.5), "rounds": 6}
    result = run(made, method, **options)
    sent = result.ledger.by_kind()
    present = sent["down model"] // (8 * DIM)
    assert 0 < present < 24
    assert sent["up move"] == present * 2 * 12  # two indices and two numbers of eight bytes
    np.testing.assert_allclose(made.shares @ result.clients.x, result.solution, atol=1e-14)
    assert_same(result, run(made, method, engine=fedmin.Loopback(), **options))


def test_clients_agree_on_the_solution():
    made = world(L1Ball(RADIUS), clients=4)
    L = smoothness(made)
    ends = {
        pairwise: run(made, FedFW(0.1, smoothness=L, pairwise=pairwise), rounds=400, every=400)
        for pairwise in (False, True)
    }
    classic, swapped = (end.final("gap") for end in ends.values())
    assert swapped < classic < 0.05  # the penalty, not the kind of step, sets the pace here


@pytest.mark.parametrize(
    ("domain", "settings", "words"),
    [
        (L1Ball(1.0), {}, "needs smoothness, an L"),
        (L2Ball(1.0), {"smoothness": 1.0}, "which atoms a point is made of, L1Ball or Simplex"),
    ],
)
@pytest.mark.parametrize("method", [FedFW, CentralFW])
def test_what_pairwise_steps_need(method, domain, settings, words):
    made = replace(world(L1Ball(1.0)), problem=fedmin.over(fedmin.LeastSquares(DIM), domain))
    with pytest.raises(ValueError, match=words):
        run(made, method(pairwise=True, **settings))


def test_a_split_and_pairwise_steps_exclude_each_other():
    with pytest.raises(ValueError, match="not both"):
        FedFW(smoothness=1.0, pairwise=True, split=fedmin.LargerSet(L2Ball(1.0), lambda rows: True))
    with pytest.raises(TypeError, match="cannot tell which atoms"):
        L2Ball(1.0).away(np.ones(2), np.ones(2))
