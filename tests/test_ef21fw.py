"""EF21FW against NumPy, and what it is for: few rounds at the bytes of FedFW."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import fedmin
import known
from agreement import run
from fedmin import EF21FW, L1Ball, NuclearBall
from fedmin.methods.ef21fw import nearest
from test_oracles import ROUNDS, cohorts


def in_l1_ball() -> known.World:
    world = known.apart()
    return dataclasses.replace(world, problem=fedmin.over(world.problem, L1Ball(0.7)))


def steepest(world: known.World, i: int) -> float:
    """Ten turns of the power method from the gradient at 0 on."""
    v = world.gradient(i, np.zeros(world.dim))
    z, y = world.clients[i]
    H = z.T @ z / len(y) + world.l2 * np.eye(world.dim)
    for _ in range(10):
        v = H @ v / np.linalg.norm(H @ v)
    return np.linalg.norm(H @ v) / np.linalg.norm(v)


@pytest.mark.parametrize("participation", [fedmin.Everyone(), fedmin.Uniform(2)], ids=str)
def test_in_numpy(participation):
    """Two entries a round of what the server does not know yet; Frank-Wolfe steps by the gap."""
    world, p = in_l1_ball(), known.apart().shares
    x, h, L = np.zeros(3), np.zeros((5, 3)), 0.0
    for cohort in cohorts(participation, 2, 5):
        for i in cohort:
            for _ in range(2):
                left = world.gradient(i, x) - h[i]
                j = np.argmax(np.abs(left))
                h[i, j] += left[j]
        L = max(L, p[cohort] @ [steepest(world, i) for i in cohort] / p[cohort].sum())
        g = p @ h
        j = np.argmax(np.abs(g))
        way = x + 0.7 * np.sign(g[j]) * np.eye(3)[j]
        x = x - np.clip(g @ way / (L * way @ way), 0, 1) * way
    method = EF21FW(atoms=2, pairwise=False)
    result = run(world, method, rounds=ROUNDS, participation=participation, seed=2)
    np.testing.assert_allclose(result.solution, x, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.server.h, p @ h, rtol=1e-9)
    kinds = result.ledger.by_kind()
    replies = sum(map(len, cohorts(participation, 2, 5)))
    assert kinds["up gradient 1"] == replies * (4 + 8)  # an index and a value
    assert ("down model" in kinds) != ("down atom" in kinds)


@pytest.mark.parametrize("participation", [fedmin.Everyone(), fedmin.Bernoulli(0.5)], ids=str)
def test_pairwise_steps_reach_the_optimum(participation):
    """A linear rate over a polytope, also where half of the clients are absent: the gap goes to 0
    to rounding, by what the clients' true gradients say."""
    world = in_l1_ball()
    result = run(
        world, EF21FW(), rounds=400, every=400, participation=participation,
        record=[fedmin.Objective(), fedmin.WolfeGap()],
    )  # fmt: skip
    assert result.final("gap") < 1e-10
    assert np.abs(result.solution).sum() <= 0.7 + 1e-9


def test_what_a_client_has_sent_adds_up_to_its_gradient():
    """Its privacy, said plainly: h_i, the sum of a client's replies, is grad f_i at the model."""
    world = in_l1_ball()
    result = run(world, EF21FW(), rounds=400, every=400)
    for i in range(5):
        gradient = world.gradient(i, np.asarray(result.solution))
        np.testing.assert_allclose(result.clients.h[i], gradient, atol=1e-6)


def test_the_nearest_multiple_of_an_atom(rng):
    """The largest entry, of either sign; the best matrix of rank one, by NumPy's SVD."""
    D = rng.standard_normal(12)
    entry = np.zeros(12)
    entry[np.argmax(np.abs(D))] = D[np.argmax(np.abs(D))]
    for domain in (L1Ball(3.0), fedmin.Simplex()):
        for sign in (1, -1):
            found = nearest(domain, sign * jnp.asarray(D)).dense()
            np.testing.assert_allclose(found, sign * entry, atol=1e-12)
    u, s, v = np.linalg.svd(D.reshape(3, 4))
    found = nearest(NuclearBall(2.0, (3, 4), tolerance=1e-9), jnp.asarray(D)).dense()
    np.testing.assert_allclose(found, s[0] * np.outer(u[:, 0], v[0]).ravel(), atol=1e-8)
    # a client whose memory is its gradient already: nothing is left, and nothing is what it sends
    for domain in (L1Ball(3.0), fedmin.Simplex(), fedmin.L2Ball(1.0)):
        none = nearest(domain, jnp.zeros(12))
        np.testing.assert_array_equal(
            none.dense() if hasattr(none, "dense") else none, np.zeros(12)
        )


def test_fewer_rounds_than_fedfw_at_the_same_bytes():
    """Clients that want different things: relative gap 1e-2 in a third of the rounds of the best of
    FedFW's penalties and forms, and no more bytes up a round."""
    rng = np.random.default_rng(0)
    clients = []
    for _ in range(5):
        z = rng.standard_normal((30, 20))
        x = np.where(rng.random(20) < 0.3, 3 * rng.standard_normal(20), 0)
        clients.append((z, z @ x + 0.1 * rng.standard_normal(30)))
    problem = fedmin.over(fedmin.LeastSquares(20), L1Ball(4.0))
    world = known.World(problem, tuple(clients))
    L = float(max(fedmin.constants(problem, world.federation).client_smoothness))
    best = run(world, EF21FW(), rounds=1500, every=1500).final("objective")

    def rounds(result):
        gap = np.asarray(result.history["objective"]) - best
        below = gap < 1e-2 * gap[0]
        return int(np.argmax(below)) if below.any() else np.inf

    ours = run(world, EF21FW(), rounds=100)
    theirs = []
    for options in ({}, {"smoothness": L, "pairwise": True}):
        theirs += fedmin.sweep(
            problem, world.federation, fedmin.FedFW(L, **options), rounds=600,
            over={"penalty": [0.003 * L, 0.03 * L, 0.3 * L, 3 * L]}, engine=fedmin.Simulator(1, 1),
        )  # fmt: skip
    fastest = min(theirs, key=rounds)
    print(rounds(ours), "rounds;", [rounds(r) for r in theirs], "of FedFW")
    assert 3 * rounds(ours) <= rounds(fastest)
    assert ours.final("bytes_up") / 100 <= min(r.final("bytes_up") for r in theirs) / 600
