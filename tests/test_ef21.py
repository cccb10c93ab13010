"""EF21 against NumPy, and what it is for: compressed replies without a distance to the minimum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedmin
import known
from agreement import assert_same, run
from fedmin.channels.ef21 import leading_pair
from test_oracles import cohorts

WORLD = known.apart()


def in_numpy(drawn, step, clip=np.inf) -> tuple[np.ndarray, np.ndarray]:
    """Gradient steps on sum p_i h_i, where one entry of each gradient's change is told a round."""
    x, h, p = np.zeros(3), np.zeros((5, 3)), WORLD.shares
    for cohort in drawn:
        for i in cohort:
            g = WORLD.gradient(i, x)
            left = g * min(1, clip / np.linalg.norm(g)) - h[i]
            j = np.argmax(np.abs(left))
            h[i, j] += left[j]
        x = x - step * p @ h
    return x, h


@pytest.mark.parametrize("participation", [fedmin.Everyone(), fedmin.Uniform(2)], ids=str)
def test_in_numpy_and_exact_in_the_end(participation):
    """The mean of all clients' last, whoever is there; and the minimizer itself, which TopK does
    not come to where clients disagree (test_channels.py has its distance)."""
    options = {"channel": fedmin.EF21(1), "participation": participation, "seed": 2}
    result = run(WORLD, fedmin.FedSGD(0.2), rounds=8, **options)
    x, _ = in_numpy(cohorts(participation, 2, 5, rounds=8), 0.2)
    np.testing.assert_allclose(result.solution, x, rtol=1e-10)
    replies = sum(map(len, cohorts(participation, 2, 5, rounds=8)))
    assert result.ledger.by_kind()["up gradient"] == replies * (4 + 8)
    end = run(WORLD, fedmin.FedSGD(0.2), rounds=1000, every=1000, **options)
    np.testing.assert_allclose(end.solution, WORLD.minimizer, atol=1e-7)


def test_behind_a_clip_and_as_bytes():
    """A chain that ends with it: what enters is the clipped reply. Simulator and loopback agree."""
    channel = fedmin.chain(fedmin.Clip(0.1), fedmin.EF21(1))
    options = {"channel": channel, "participation": fedmin.Uniform(3), "rounds": 6}
    result = run(WORLD, fedmin.FedSGD(0.2), **options)
    x, _ = in_numpy(cohorts(fedmin.Uniform(3), 0, 5, rounds=6), 0.2, clip=0.1)
    np.testing.assert_allclose(result.solution, x, rtol=1e-10)
    other = run(WORLD, fedmin.FedSGD(0.2), engine=fedmin.Loopback(), **options)
    assert_same(result, other)
    assert result.ledger.by_kind() == other.ledger.by_kind()


def test_parts_that_travel_as_they_are(rng):
    """Short ones: the mean of those present; counts and others as without a channel."""
    channel, cohort = (
        fedmin.EF21(2),
        fedmin.Cohort(jnp.arange(1), jnp.ones(1, bool), jnp.ones(1) / 4),
    )
    up = {"long": jnp.asarray(rng.standard_normal(5)), "short": jnp.array([3.0, 1.0])}
    now = fedmin.Now(jnp.int32(0), jax.random.key(0), jax.random.key(1))
    wire, memory = channel.encode(up, channel.init(up), now)
    combined = jax.tree.map(lambda a: a[None], channel.weigh(wire, cohort.shares[0]))
    total, kept = channel.decode(channel.combine(combined), channel.init_server(up), cohort, now)
    np.testing.assert_allclose(total["short"], up["short"])
    np.testing.assert_allclose(total["long"], memory["long"] / 4)
    assert float(channel.weighing(cohort)) == 1
    assert kept["short"] is None


def test_a_pair_of_directions(rng):
    """NumPy's SVD; and gradients of a matrix come to the minimizer by m + n numbers a round."""
    A = jnp.asarray(rng.standard_normal((3, 4)) @ np.diag([5.0, 2, 1, 1]))
    u, s, v = np.linalg.svd(A)
    np.testing.assert_allclose(
        leading_pair(A).dense().reshape(3, 4), s[0] * np.outer(u[:, 0], v[0]), atol=1e-2
    )
    assert not leading_pair(jnp.zeros((3, 4))).dense().any()
    z = known.unit_rows(rng, 40, 12)
    clients = tuple((z[i::4], z[i::4] @ rng.standard_normal(12)) for i in range(4))
    world = known.World(fedmin.LeastSquares(12, l2=0.1), clients)
    options = {"channel": fedmin.EF21(shape=[3, 4]), "rounds": 1000, "every": 1000}
    result = run(world, fedmin.FedSGD(1.0), **options)
    np.testing.assert_allclose(result.solution, world.minimizer, atol=1e-6)
    assert result.ledger.by_kind()["up gradient"] == 1000 * 4 * (3 + 4) * 8


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (fedmin.EF21, "either k, a number of entries, or shape"),
        (lambda: fedmin.EF21(1, (2, 2)), "either k, a number of entries, or shape"),
        (lambda: fedmin.EF21(0), "k must be at least 1"),
        (lambda: fedmin.EF21(shape=(2, 0)), "shape must be at least 1"),
        (lambda: fedmin.EF21(shape=(2,)), "shape must be two numbers"),
        (lambda: fedmin.chain(fedmin.EF21(1), fedmin.Clip(1.0)), "must be the last stage of a ch"),
        (lambda: run(WORLD, fedmin.Scaffold(0.1), channel=fedmin.EF21(1)), "needs all of every re"),
    ],
)
def test_what_it_refuses(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()
