"""Who takes part: distinct clients, right frequencies, fixed shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import fedmin
from fedmin.core.participation import PARTICIPATIONS

N, DRAWS = 7, 4000
ALL = [fedmin.Everyone(), fedmin.Uniform(3), fedmin.Bernoulli(0.3), fedmin.Cyclic(3)]


def drawn(participation: fedmin.Participation, draws: int = DRAWS, population: int = N):
    """ids[draws, k] and present[draws, k] of rounds 0, 1, ..."""
    keys = jax.random.split(jax.random.key(0), draws)
    rounds = jnp.arange(draws, dtype=jnp.int32)
    cohort = jax.jit(jax.vmap(lambda k, t: participation.cohort(k, t, population)))
    return tuple(np.asarray(a) for a in cohort(keys, rounds))


def test_every_participation_is_tested():
    assert {type(p) for p in ALL} == set(PARTICIPATIONS.values())


@pytest.mark.parametrize("participation", ALL, ids=str)
def test_cohorts_are_distinct_and_in_range(participation):
    ids, there = drawn(participation)
    assert ids.shape == there.shape
    assert ids.min() >= 0
    assert ids.max() < N
    for who, present in zip(ids[:200], there[:200], strict=True):
        assert len(set(who[present])) == present.sum()


@pytest.mark.parametrize(
    ("participation", "probability"),
    [(fedmin.Everyone(), 1.0), (fedmin.Uniform(3), 3 / N), (fedmin.Bernoulli(0.3), 0.3)],
    ids=str,
)
def test_frequencies(participation, probability):
    ids, there = drawn(participation)
    times = np.bincount(ids[there], minlength=N)
    spread = 4.5 * np.sqrt(DRAWS * probability * (1 - probability))
    assert (np.abs(times - DRAWS * probability) <= spread).all()


def test_uniform_sets_are_equally_likely():
    ids, there = drawn(fedmin.Uniform(3))
    assert there.all()
    counts = np.unique(np.sort(ids) @ N ** np.arange(3), return_counts=True)[1]
    assert len(counts) == 35  # 7 choose 3
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_bernoulli_clients_are_independent():
    _, there = drawn(fedmin.Bernoulli(0.3))
    sizes = np.bincount(there.sum(axis=1), minlength=N + 1)
    expected = DRAWS * scipy.stats.binom.pmf(np.arange(N + 1), N, 0.3)
    pooled = [np.append(a[:5], a[5:].sum()) for a in (sizes, expected)]
    assert scipy.stats.chisquare(*pooled).pvalue > 1e-4
    assert sizes[0] > 0  # a round may find nobody


@pytest.mark.parametrize("count", [1, 3, 5, 7])
def test_cyclic_takes_turns(count):
    ids, there = drawn(fedmin.Cyclic(count), draws=2 * N)
    assert there.all()
    assert np.array_equal(ids.ravel(), np.arange(2 * N * count) % N)


def test_a_probability_of_one_is_everyone():
    assert drawn(fedmin.Bernoulli(1.0), draws=50)[1].all()


@pytest.mark.parametrize("participation", ALL, ids=str)
def test_the_key_decides(participation):
    one, again = drawn(participation, draws=20), drawn(participation, draws=20)
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
