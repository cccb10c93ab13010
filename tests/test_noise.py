"""Noise: what is drawn is what is accounted, what one unit can change, and what a run costs."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedmin
from agreement import ONE_BY_ONE, assert_same, run
from fedmin.channels.noise import Noised
from fedmin.core import private
from fedmin.core.channel import Cohort
from fedmin.core.release import Release
from fedmin.engines import private as noise_of_runs
from fedmin.engines.round import drawn
from fedmin.privacy import accountant
from fedmin.privacy.exposures import PrivacyWarning

NOW = fedmin.Now(jnp.int32(0), jax.random.key(0), jax.random.key(1))
CLIPPED = fedmin.chain(fedmin.Clip(0.5), fedmin.Noise(2.0))


class World(NamedTuple):
    problem: fedmin.Problem
    federation: fedmin.Federation


@pytest.fixture(scope="module")
def tested():
    """Three clients of 12, 20 and 28 rows in 3 columns, and test rows."""
    rng = np.random.default_rng(5)
    x, truth = rng.standard_normal((80, 3)), np.array([1.0, -2.0, 0.5])
    y = (x @ truth + 0.1 * rng.standard_normal(80) > 0).astype(int)
    cuts = [0, 12, 32, 60]
    parts = [(x[a:b], y[a:b]) for a, b in itertools.pairwise(cuts)]
    federation = fedmin.Federation.from_clients(parts, test=(x[60:], y[60:]))
    return World(fedmin.Logistic(3), federation)


def fitted(world, method, channel=fedmin.Plain(), participation=fedmin.Everyone(), rounds=5):
    from fedmin.assembling import assemble

    made = assemble(
        world.problem, world.federation, method, participation, channel, None, None, rounds=rounds
    )
    return made, world.federation.roster(participation.everyone)


# ---------------------------------------------------------------- the accountant


def test_figures_that_were_computed_with_dp_accounting_itself():
    one = Release("row", multiplier=1.0, rate=0.1)
    assert accountant.epsilon([one], 200, 1e-5, "rdp") == pytest.approx(11.06, abs=0.01)
    assert accountant.epsilon([one], 200, 1e-5) == pytest.approx(9.97, abs=0.02)
    found = accountant.calibrated(one, 200, 3.0, 1e-5)
    assert accountant.epsilon([one._replace(multiplier=found)], 200, 1e-5) <= 3.0
    assert found == pytest.approx(2.178, rel=3e-3)  # calibrate_dp_mechanism with PLDAccountant


def test_a_gaussian_without_sampling_is_the_closed_form():
    """delta(epsilon) of T Gaussians is that of one with multiplier / sqrt(T)."""
    epsilon = accountant.epsilon([Release("client", multiplier=4.0)], 9, 1e-5)
    mu = 3 / 4.0
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    delta = stats.norm.cdf(a) - np.exp(epsilon) * stats.norm.cdf(b)
    assert delta == pytest.approx(1e-5, rel=0.02)


def test_releases_of_one_unit_compose():
    one = Release("client", multiplier=3.0, rate=0.3)
    twice = accountant.epsilon([one._replace(times=2)], 5, 1e-5)
    assert twice == pytest.approx(accountant.epsilon([one], 10, 1e-5))
    assert accountant.epsilon([one, one], 5, 1e-5) == pytest.approx(twice, rel=1e-3)


def test_a_history_is_never_too_small():
    one = [Release("row", multiplier=1.5, rate=0.2)]
    rounds = np.arange(0, 31)
    column = accountant.column(one, rounds, 1e-5)
    for t in (0, 1, 7, 18, 30):
        assert column[t] >= accountant.epsilon(one, t, 1e-5) - 1e-9
    assert column[0] == 0
    assert column[30] == accountant.epsilon(one, 30, 1e-5)


# ---------------------------------------------------------------- clients


def test_noise_has_the_distribution_that_is_accounted(tested):
    """The server's noise over what one client can change is N(0, multiplier^2), as told."""
    made, roster = fitted(tested, fedmin.FedSGD(), CLIPPED, fedmin.Bernoulli(0.5))
    stage = made.channel.stages[1]
    (unit,) = noise_of_runs.units(made, roster)
    cohort = Cohort(jnp.arange(3), jnp.ones(3, bool), jnp.asarray(roster.shares))
    zeros = {"gradient": jnp.zeros(4000)}
    drawn = np.asarray(stage.decode(zeros, (), cohort, NOW)[0]["gradient"])
    moved = 28 / 60 * 0.5  # the largest share times the longest reply
    assert unit.releases == (Release("client", 2.0, 0.5, 1),)
    scale = unit.releases[0].multiplier * moved
    assert stats.kstest(drawn / scale, "norm").pvalue > 0.01
    assert stats.kstest(drawn / (1.1 * scale), "norm").pvalue < 0.01


def test_no_client_moves_the_sum_further_than_is_told(tested):
    """Over all neighbours: replies of any length, one of which is there or is 0."""
    made, roster = fitted(tested, fedmin.FedSGD(), CLIPPED)
    channel, rng = made.channel, np.random.default_rng(0)
    stage = channel.stages[1]
    assert isinstance(stage, Noised)
    shares, most = np.asarray(roster.shares), 0.0
    for _ in range(200):
        ups = rng.standard_normal((3, 4)) * rng.choice([0.01, 0.1, 10.0], (3, 1))
        i = int(rng.integers(3))
        totals = []
        for replies in (ups, np.where(np.arange(3)[:, None] == i, 0, ups)):
            wires = []
            for up, share in zip(replies, shares, strict=True):
                wire, _ = channel.encode({"g": jnp.asarray(up)}, ((), ()), NOW)
                wires.append(np.asarray(channel.weigh(wire, jnp.asarray(share))["g"]))
            totals.append(np.sum(wires, axis=0))
        moved = np.linalg.norm(totals[0] - totals[1])
        assert moved <= stage.sensitivity * (1 + 1e-9)
        most = max(most, moved)
    assert most == pytest.approx(stage.sensitivity)  # and one does move it so far


def test_the_mean_is_over_the_chance_and_empty_rounds_are_noise(tested):
    channel = fedmin.chain(fedmin.Clip(0.5), fedmin.Noise(1e-9))
    options = {"channel": channel, "participation": fedmin.Bernoulli(0.4), "rounds": 8}
    both = [run(tested, fedmin.FedSGD(0.3), **options)]
    # by hand: clipped gradients of those present times p_i, over q = 0.4 whoever came
    federation, x = tested.federation, np.zeros(3)
    shares = np.asarray(federation.roster(False).shares, float)
    key = jax.random.key(0)
    made, _ = fitted(tested, fedmin.FedSGD(0.3), channel, options["participation"])
    for t in range(8):
        _, present = drawn(made, key, t, 3)
        total = np.zeros(3)
        for i in np.flatnonzero(present):
            rows = federation.client(int(i))
            z, y = np.asarray(rows.x.values), np.asarray(rows.y)
            g = z.T @ (1 / (1 + np.exp(-z @ x)) - y) / len(y)
            total += shares[i] * g * min(1, 0.5 / np.linalg.norm(g))
        x = x - 0.3 * total / 0.4
    np.testing.assert_allclose(both[0].solution, x, atol=1e-6)
    assert 0 in both[0].ledger.counts  # somewhere nobody came


def test_a_round_without_clients_moves_the_model_by_noise(tested):
    channel = fedmin.chain(fedmin.Clip(0.5), fedmin.Noise(1.0))
    options = {"channel": channel, "participation": fedmin.Bernoulli(0.02), "rounds": 2}
    both = [run(tested, fedmin.FedSGD(0.3), **options)]
    both.append(run(tested, fedmin.FedSGD(0.3), engine=fedmin.Loopback(), **options))
    assert both[0].ledger.counts == [0, 0]
    assert np.abs(both[0].solution).min() > 0
    assert_same(*both)


def test_noise_and_a_secure_sum_in_every_engine(tested):
    for noise in (fedmin.Noise(0.5), fedmin.Noise(0.5, at="sites")):
        channel = fedmin.chain(fedmin.Clip(0.5), noise, fedmin.SecureSum(bound=8.0))
        both = [
            run(tested, fedmin.FedSGD(0.3), channel=channel, rounds=2, engine=engine)
            for engine in (ONE_BY_ONE, fedmin.Loopback())
        ]
        assert_same(*both)
        assert both[0].ledger.by_kind() == both[1].ledger.by_kind()
    assert both[0].epsilon["client"] > 0


def _whole_noise(world, channel, engine_rounds=5):
    made, roster = fitted(world, fedmin.FedSGD(), channel, rounds=engine_rounds)
    return made, roster, made.channel.stages[-1], np.asarray(roster.shares, float)


def _site_words(channel, up, share, key):
    """What a site adds into the secure sum: words modulo 2^w."""
    now = fedmin.Now(jnp.int32(0), jax.random.key(0), jax.random.key(key))
    wire, _ = channel.encode({"g": jnp.asarray(up)}, ((), (), ()), now)
    return channel.weigh(wire, jnp.asarray(share))["g"]


def _whole(words):
    """Words of 32 or 64 bits as whole numbers, by NumPy."""
    raw = np.ascontiguousarray(np.asarray(words))
    return raw.view(np.int32 if raw.shape[-1] == 1 else np.int64)[..., 0].astype(np.int64)


@pytest.mark.parametrize("bits", [32, 64])
def test_whole_noise_in_the_sum_has_the_law_that_is_accounted(bits):
    """Four sites of which one may drop out: chi-square of the sums of every three, and of all."""
    rng = np.random.default_rng(1)
    parts = [(rng.standard_normal((n, 3)), rng.integers(0, 2, n)) for n in (4, 4, 6, 10)]
    world = World(fedmin.Logistic(3), fedmin.Federation.from_clients(parts, test=parts[0]))
    summed = fedmin.SecureSum(bits=bits, bound=16.0)
    channel = fedmin.chain(fedmin.Clip(0.5), fedmin.Noise(2.0, at="sites"), summed)
    made, roster, last, shares = _whole_noise(world, channel)
    (unit,) = noise_of_runs.units(made, roster)
    assert unit.releases == (Release("client", 2.0, 1.0, 1, concentrated=True),)
    assert made.channel.stages[1].survivors == 3
    noises = [
        _whole(_site_words(made.channel, np.zeros(6000, np.float32), p, 10 + i)) >> last.shift
        for i, p in enumerate(shares)
    ]
    # what one reply of 3 numbers moves the sum, in steps: told, over what is drawn by three sites
    steps = 2.0 ** (bits - 2 - 4 - last.shift)  # the bound is 2^4
    moved = 10 / 24 * 0.5 * steps + 3**0.5 / 2
    for kept in itertools.combinations(range(4), 3):
        sums = np.sum([noises[i] for i in kept], axis=0)
        assert _fits(sums, 2.0 * moved) > 0.001
        assert _fits(sums, 2.2 * moved) < 0.001
    # with all four there is more than was told
    assert _fits(np.sum(noises, axis=0), 2.0 * moved * (4 / 3) ** 0.5) > 0.001


def _fits(sums, sigma):
    """p-value of whole numbers under a discrete Gaussian, in 30 cells of its own law."""
    reach = np.arange(-int(9 * sigma), int(9 * sigma) + 1)
    mass = np.exp(-0.5 * (reach / sigma) ** 2)
    law = np.cumsum(mass / mass.sum())
    cuts = np.searchsorted(law, np.arange(1, 30) / 30)
    wanted = np.diff(np.concatenate([[0], law[cuts], [1]])) * len(sums)
    seen = np.bincount(np.searchsorted(reach[cuts], sums), minlength=30)
    return stats.chisquare(seen, wanted).pvalue


def test_small_discrete_gaussians_entry_by_entry():
    """Against the formula, number by number, where sigma is small enough to see each."""
    from fedmin.channels import discrete_gaussian

    drawn = np.asarray(discrete_gaussian.drawn(
        jax.random.key(3), (20000,), discrete_gaussian.table(1.5)))  # fmt: skip
    x = np.arange(-5, 6)
    mass = np.exp(-0.5 * (np.arange(-30, 31) / 1.5) ** 2)
    law = np.exp(-0.5 * (x / 1.5) ** 2) / mass.sum()
    seen = np.array([(drawn == k).sum() for k in x])
    rest = len(drawn) - seen.sum()
    wanted = np.append(law, 1 - law.sum()) * len(drawn)
    assert stats.chisquare(np.append(seen, rest), wanted).pvalue > 0.001
    with pytest.raises(ValueError, match="sigma must be within"):
        discrete_gaussian.table(0.1)


def test_no_client_moves_whole_numbers_further_than_is_told(tested):
    """Rounding included, on a grid so coarse that it is seen; over replies of any length."""
    channel = fedmin.chain(
        fedmin.Clip(0.5), fedmin.Noise(100.0, at="sites"), fedmin.SecureSum(bound=512.0)
    )
    made, _, last, shares = _whole_noise(tested, channel)
    steps = 2.0 ** (30 - 9 - last.shift)
    told = 28 / 60 * 0.5 * steps * (1 + 11 * 2.0**-24) + 3**0.5 / 2
    rng, most = np.random.default_rng(0), 0.0
    for k in range(60):
        up = rng.standard_normal(3) * rng.choice([0.01, 0.3, 10.0])
        with_it = _whole(_site_words(made.channel, up.astype(np.float32), shares[2], k))
        without = _whole(_site_words(made.channel, np.zeros(3, np.float32), shares[2], k))
        moved = np.linalg.norm((with_it - without) / 2.0**last.shift)
        assert moved == np.linalg.norm(np.round((with_it - without) / 2.0**last.shift))
        assert moved <= told
        most = max(most, moved)
    assert steps < 300  # half a step is seen
    assert most > 28 / 60 * 0.5 * steps  # more than without rounding


def test_noise_in_a_secure_sum_is_refused_where_it_would_not_be_enough(tested):
    def given(noise, summed):
        fitted(tested, fedmin.FedSGD(), fedmin.chain(fedmin.Clip(0.5), noise, summed))

    sites = fedmin.Noise(1.0, at="sites")
    with pytest.raises(ValueError, match=r"bound of Clip at least, 0\.5"):
        given(sites, fedmin.SecureSum(bound=0.25))
    curious = fedmin.SecureSum(bound=1.0, threshold="curious")
    with pytest.raises(ValueError, match="opens a sum of"):
        given(fedmin.Noise(1.0, at="sites", survivors=4), curious)
    with pytest.raises(ValueError, match="steps of the secure sum's grid"):
        given(fedmin.Noise(1e-9, at="sites"), fedmin.SecureSum(bound=0.5))
    with pytest.raises(ValueError, match="give it a bound of 2"):
        given(fedmin.Noise(1e3, at="sites"), fedmin.SecureSum(bound=0.5))


def test_noise_and_ciphertexts_want_all_clients(tested):
    """A sum of fewer than `least` is not opened: so rounds of fewer pass, and noise is refused."""
    pytest.importorskip("tenseal")
    channel = fedmin.chain(fedmin.Clip(0.5), fedmin.Noise(0.5), fedmin.HomomorphicSum())
    options = {"channel": channel, "rounds": 2}
    for engine in (fedmin.Simulator(), fedmin.Loopback()):
        with pytest.raises(ValueError, match=r"passes rounds of fewer than 3 .* give Everyone"):
            run(tested, fedmin.FedSGD(0.3), participation=fedmin.Bernoulli(0.5), engine=engine,
                **options)  # fmt: skip
    both = [run(tested, fedmin.FedSGD(0.3), engine=engine, **options)
            for engine in (ONE_BY_ONE, fedmin.Loopback())]  # fmt: skip
    assert_same(*both)
    alone = {"channel": fedmin.HomomorphicSum(), "participation": fedmin.Bernoulli(0.5)}
    both = [run(tested, fedmin.FedSGD(0.3), engine=engine, rounds=6, **alone)
            for engine in (ONE_BY_ONE, fedmin.Loopback())]  # fmt: skip
    assert both[0].ledger.counts == both[1].ledger.counts
    assert set(both[0].ledger.counts) == {0, 3}
    assert_same(*both)


def test_shares_of_noise_are_enough_when_some_drop_out(tested):
    """The noise of any two of three sites is at least what was told; of all, it is more."""
    channel = fedmin.chain(fedmin.Clip(0.5), fedmin.Noise(2.0, at="sites", survivors=2))
    made, roster = fitted(tested, fedmin.FedSGD(), channel)
    stage, shares = made.channel.stages[1], np.asarray(roster.shares, float)
    up = {"g": jnp.zeros(4000)}
    noises = []
    for i in range(3):
        now = fedmin.Now(jnp.int32(0), jax.random.key(0), jax.random.key(10 + i))
        noises.append(shares[i] * np.asarray(stage.encode(up, (), now)[0]["g"]))
    needed = 2.0 * shares.max() * 0.5
    for kept in itertools.combinations(range(3), 2):
        told = np.sum([noises[i] for i in kept], axis=0)
        assert told.std() > needed * 0.96
    smallest = np.sum([noises[i] for i in np.argsort(shares)[:2]], axis=0)
    assert stats.kstest(smallest / needed, "norm").pvalue > 0.01
    few = Cohort(jnp.arange(3), jnp.array([True, False, False]), jnp.asarray(roster.shares))
    assert not np.isfinite(stage.decode({"g": jnp.zeros(2)}, (), few, NOW)[0]["g"]).any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"channel": fedmin.Noise(1.0)}, "right behind Clip"),
        ({"channel": fedmin.chain(fedmin.Clip(1.0), fedmin.TopK(1), fedmin.Noise(1.0))}, "behind"),
        ({"channel": CLIPPED, "participation": fedmin.Uniform(2)}, "Bernoulli"),
        ({"channel": CLIPPED, "participation": fedmin.Cyclic(2)}, "Bernoulli"),
        ({"stop": fedmin.Budget(1.0)}, "for runs with noise"),
        (
            {
                "channel": fedmin.chain(fedmin.Clip(1.0), fedmin.Noise(1e-3)),
                "stop": fedmin.Budget(1),
            },
            "allows 0 rounds",
        ),
    ],
)
def test_what_noise_cannot_cover_is_refused(tested, options, words):
    with pytest.raises(ValueError, match=words):
        run(tested, fedmin.FedSGD(0.1), **options)


def test_numbers_that_are_none():
    for make in (
        lambda: fedmin.Noise(),
        lambda: fedmin.Noise(1.0, epsilon=1.0),
        lambda: fedmin.Noise(-1.0),
        lambda: fedmin.Noise(1.0, delta=0.0),
        lambda: fedmin.Noise(1.0, survivors=2),
        lambda: fedmin.PrivateRows(1.5, multiplier=1.0),
        lambda: fedmin.PrivateRows(0.5),
        lambda: fedmin.Budget(0.0),
    ):
        with pytest.raises(ValueError):
            make()


# ---------------------------------------------------------------- rows


def _batch(world, rate, clip, multiplier, key=3):
    pool = jax.tree.map(jnp.asarray, world.federation.pool)
    shard = fedmin.Shard(pool, jnp.int32(12), jnp.int32(20), 28)
    numbers = (jnp.asarray(a, float) for a in (rate, clip, multiplier))
    return shard, private.PrivateBatch(shard, jax.random.key(key), *numbers)


def test_gradients_of_rows_are_clipped_one_by_one(tested):
    """Against NumPy: the clipped gradients of the rows that were drawn, over q n."""
    shard, batch = _batch(tested, 0.5, 0.3, 0.0)
    x = jnp.array([0.4, -0.2, 1.0])
    drawn = private.drawn(jax.random.split(batch.key)[0], batch.rate, shard)
    z = np.asarray(tested.federation.pool.x.values)[12:40][np.asarray(drawn)]
    y = np.asarray(tested.federation.pool.y)[12:40][np.asarray(drawn)]
    each = z * (1 / (1 + np.exp(-z @ np.asarray(x))) - y)[:, None]
    each = each * np.minimum(1, 0.3 / np.linalg.norm(each, axis=1))[:, None]
    problem = fedmin.Logistic(3, l2=0.1)
    expected = each.sum(axis=0) / (0.5 * 20) + np.asarray(jax.grad(problem.regularizer)(x))
    np.testing.assert_allclose(problem.grad(x, batch), expected, rtol=1e-6)
    np.testing.assert_allclose(
        problem.step(x, batch, jnp.asarray(2.0)), x - 2 * expected, rtol=1e-6
    )
    assert 0 < np.asarray(drawn).sum() < 20


def test_no_row_moves_the_sum_further_than_is_told(tested):
    shard, batch = _batch(tested, 1.0, 0.3, 0.0)
    problem, rng, most = fedmin.Logistic(3), np.random.default_rng(0), 0.0
    for _ in range(20):
        x = jnp.asarray(rng.standard_normal(3))
        part = lambda row: jax.grad(lambda u: problem.totals(u, row)[0])(x)
        everyone = np.arange(28) < 20
        whole = batch.clipped_sum(shard, jnp.asarray(everyone), part)
        without = everyone & (np.arange(28) != rng.integers(20))
        moved = np.linalg.norm(whole - batch.clipped_sum(shard, jnp.asarray(without), part))
        assert moved <= 0.3 * (1 + 1e-6)
        most = max(most, moved)
    assert most == pytest.approx(0.3)


def test_rows_are_drawn_and_noise_is_added_as_accounted(tested):
    made, roster = fitted(
        tested, fedmin.FedSGD(batches=fedmin.PrivateRows(0.3, clip=0.2, multiplier=1.5))
    )
    (unit,) = noise_of_runs.units(made, roster)
    assert unit.releases == (Release("row", 1.5, 0.3, 1),)
    shard, _ = _batch(tested, 0.3, 0.2, 1.5)
    keys = jax.random.split(jax.random.key(7), 1500)
    counts = jax.vmap(lambda k: jnp.sum(private.drawn(k, jnp.asarray(0.3), shard)))(keys)
    # each row by itself: the size of a batch is binomial
    bins = np.bincount(np.asarray(counts), minlength=21)
    likely = stats.binom.pmf(np.arange(21), 20, 0.3) * len(keys)
    kept = likely > 5
    seen, wanted = (
        np.append(bins[kept], bins[~kept].sum()),
        np.append(likely[kept], likely[~kept].sum()),
    )
    assert stats.chisquare(seen, wanted).pvalue > 0.01

    def noise(key):
        batch = private.PrivateBatch(shard, key, *(jnp.asarray(a, float) for a in (0.3, 0.2, 1.5)))
        told = batch.mean(lambda row: jnp.zeros(4))  # rows that tell nothing
        return told * (0.3 * 20)

    drawn = np.asarray(jax.vmap(noise)(keys)).ravel()
    assert stats.kstest(drawn / (1.5 * 0.2), "norm").pvalue > 0.01


def test_constraints_and_gradients_are_clipped_together(tested):
    limited = fedmin.subject_to(fedmin.Logistic(3), fedmin.LossAtMost(0.5))
    _, batch = _batch(tested, 1.0, 0.3, 0.0)
    x = jnp.array([0.4, -0.2, 1.0])
    values, slopes = limited.linearize(x, batch)
    flat = np.concatenate([np.asarray(s).ravel() for each in slopes for s in each])
    assert np.linalg.norm(np.append(flat, values[1:])) <= 0.3 * (1 + 1e-6)
    assert np.isnan(values[0])  # the objective's value is nobody's business
    assert np.isfinite(values[1:]).all()


METHODS = {
    "fedavg": (fedmin.FedAvg, 3), "fedprox": (fedmin.FedProx, 3), "scaffold": (fedmin.Scaffold, 3),
    "fedopt": (fedmin.FedOpt, 3), "fedac": (fedmin.FedAC, 3), "fedsso": (fedmin.FedSSO, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_as_many_gradients_are_told_as_are_accounted(tested, name, monkeypatch):
    """In a run of one site every noisy gradient says so; the accountant knows of each."""
    kind, steps = METHODS[name]
    method = kind(local_steps=steps, batches=fedmin.PrivateRows(0.3, multiplier=1.0))
    made, roster = fitted(tested, method)
    (unit,) = noise_of_runs.units(made, roster)
    assert unit.releases[0].times == steps
    seen, real = [], private.PrivateBatch.mean

    def counting(self, part):
        jax.debug.callback(lambda: seen.append(1))
        return real(self, part)

    monkeypatch.setattr(private.PrivateBatch, "mean", counting)
    rows = tested.federation.client(0)
    view = roster.view(0, jax.tree.map(jnp.asarray, rows))
    trip = made.method.exchanges(made.problem, roster)[0]
    server = made.method.init_server(made.problem, roster, jax.random.key(0))
    down = trip.broadcast(made.problem, server, NOW)
    state = made.method.init_client(made.problem, roster, view, jax.random.key(0))
    jax.block_until_ready(trip.client(made.problem, view, state, down, NOW))
    jax.effects_barrier()
    assert len(seen) == steps


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (fedmin.FedDANE(local_steps=2), "FedDANE uses 'sum' of private rows"),
        (fedmin.DONE(), "Hessian"),
        (fedmin.SSCA(local_steps=2), "loop of its own"),
        (fedmin.SSCA(tau=fedmin.Tuned()), "of private rows"),
    ],
)
def test_methods_that_use_more_of_the_rows_are_refused(tested, method, words):
    from dataclasses import replace

    private_one = replace(method, batches=fedmin.PrivateRows(0.3, multiplier=1.0))
    with pytest.raises(ValueError, match=words):
        run(tested, private_one)


class Twice(fedmin.FedSGD):
    """A method that asks for two gradients of one batch: their noise would cancel."""

    def client(self, problem, rows, state, down, now):
        batch = self.batches.read(rows, self.batches.draw(rows, now.secret, jnp.int32(0)))
        x = down["model"]
        return {"gradient": problem.grad(x, batch) - problem.grad(x + 1.0, batch)}, state


def test_a_batch_tells_one_gradient(tested):
    with pytest.raises(ValueError, match="two gradients, or two choices, of one batch"):
        run(tested, Twice(batches=fedmin.PrivateRows(0.3, multiplier=1.0)))


# ---------------------------------------------------------------- runs


def test_engines_agree_and_noise_is_from_the_sites_secret(tested):
    method = fedmin.FedAvg(0.3, local_steps=2, batches=fedmin.PrivateRows(0.3, multiplier=1.0))
    both = [run(tested, method), run(tested, method, engine=fedmin.Loopback())]
    assert_same(*both)
    assert list(both[0].history["epsilon_row"]) == sorted(both[0].history["epsilon_row"])
    assert both[0].epsilon == {"row": both[0].final("epsilon_row")}
    from fedmin.engines.sessions.site import SiteSession

    made, roster = fitted(tested, method)
    rows = tested.federation.client(0)
    own = [SiteSession(made, roster, 0, rows, seed=0, secret=jax.random.key(s)) for s in (1, 2)]
    assert (own[0].secret != own[1].secret).all()


def test_epsilon_that_is_asked_for_is_what_is_spent(tested):
    method = fedmin.FedSGD(0.3, batches=fedmin.PrivateRows(0.2, epsilon=2.0, delta=1e-4))
    result = run(tested, method, rounds=7)
    assert 1.99 < result.final("epsilon_row") <= 2.0
    channel = fedmin.chain(fedmin.Clip(0.5), fedmin.Noise(epsilon=2.0, delta=1e-4))
    result = run(tested, fedmin.FedSGD(0.3), channel=channel, rounds=7)
    assert 1.99 < result.final("epsilon_client") <= 2.0


def test_a_budget_ends_a_run_in_time(tested):
    method = fedmin.FedSGD(0.3, batches=fedmin.PrivateRows(0.2, multiplier=1.0))
    result = run(tested, method, rounds=50, stop=fedmin.Budget(4.0, 1e-5))
    assert result.status == "stopped"
    assert "one more would make it" in result.reason
    one = [Release("row", 1.0, 0.2)]
    assert accountant.epsilon(one, result.rounds, 1e-5) <= 4.0
    assert accountant.epsilon(one, result.rounds + 1, 1e-5) > 4.0
    assert result.final("epsilon_row") <= 4.0
    assert run(tested, method, rounds=3, stop=fedmin.Budget(4.0, 1e-5)).status == "done"


def test_a_run_that_goes_on_spends_what_it_spends_in_one_go(tested, tmp_path):
    method = fedmin.FedSGD(0.3, batches=fedmin.PrivateRows(0.2, multiplier=1.0))
    whole = run(tested, method, rounds=6)
    keep = fedmin.Checkpoint(tmp_path, rounds=1)
    run(tested, method, rounds=3, checkpoint=keep)
    again = run(tested, method, rounds=6, checkpoint=keep)
    assert_same(whole, again, rtol=0)  # the same noise, and the same epsilon for all six rounds
    assert again.final("epsilon_row") == accountant.epsilon([Release("row", 1.0, 0.2)], 6, 1e-5)


def test_what_noise_does_not_cover_is_said(tested):
    method = fedmin.FedSGD(0.3, batches=fedmin.PrivateRows(0.2, multiplier=1.0))
    made, roster = fitted(tested, method)
    assert [m.on for m in made.record] == ["test", "test"]
    assert noise_of_runs.uncovered(made, roster) == []
    with pytest.warns(PrivacyWarning, match="epsilon does not cover it"):
        run(tested, method, record=[fedmin.Objective()])
    over = fedmin.over(tested.problem, fedmin.L1Ball(1.0))
    chosen = fedmin.FedFWSto(0.1, batches=fedmin.PrivateRows(0.2, multiplier=1.0))
    made, _ = fitted(World(over, tested.federation), chosen)
    assert not made.certify


FILE = """
[data]
name = "wine"
standardize = true
[partition]
name = "iid"
clients = 3
[problem]
name = "softmax"
[method]
name = "fedavg"
step = 0.3
local_steps = 2
batches = {name = "privaterows", rate = 0.2, clip = 1.0, multiplier = 1.5}
[channel]
name = "chain"
stages = [{name = "clip", norm = 1.0}, {name = "noise", multiplier = 4.0}]
[run]
rounds = 40
seeds = [0]
stop = {name = "budget", epsilon = 4.0}
"""


def test_a_file_says_what_it_will_cost_and_runs(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from fedmin.cli.app import app

    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(FILE)
    shown = CliRunner().invoke(app, ["show", "run.toml"])
    assert shown.exit_code == 0, shown.output
    assert "for a row" in shown.output
    assert "for a client" in shown.output
    assert "one more would make it" in shown.output
    ran = CliRunner().invoke(app, ["run", "run.toml", "--quiet"])
    assert ran.exit_code == 0, ran.output
    (folder,) = (p.parent for p in tmp_path.glob("runs/**/result.json"))
    result = fedmin.Result.load(folder)
    assert set(result.epsilon) == {"client", "row"}
    assert max(result.epsilon.values()) <= 4.0
    assert f"after {result.rounds} rounds" in shown.output


# ---------------------------------------------------------------- before round 0


def test_what_is_told_once_is_counted_once():
    each, once = Release("row", 2.0, 0.3), Release("row", 3.0, times=2, once=True)
    whole = accountant.epsilon([each, once], 8, 1e-5)
    # eight rounds and two releases before them, which is what dp-accounting makes of them
    pld = accountant.epsilon([each._replace(times=8), once._replace(once=False)], 1, 1e-5)
    assert whole == pytest.approx(pld)
    assert accountant.epsilon([each, once], 0, 1e-5) == accountant.epsilon([once], 5, 1e-5) > 0
    column = accountant.column([each, once], [0, 4, 8], 1e-5)
    assert column[0] == accountant.epsilon([once], 0, 1e-5)
    assert column[-1] == whole


def test_columns_prepared_with_noise_are_in_epsilon(tested):
    """What preparing told of rows and of clients is in the history, in budgets and in noise."""
    from dataclasses import replace

    from fedmin.core.preparation import About

    told = (Release("row", 4.0, times=3), Release("client", 6.0))
    about = About(("a", "b", "c"), told=told)
    prepared = World(tested.problem, replace(tested.federation, about=about))
    method = fedmin.FedSGD(0.3, batches=fedmin.PrivateRows(0.2, multiplier=2.0))
    (unit,) = noise_of_runs.units(*fitted(prepared, method))
    assert unit.releases == (Release("row", 2.0, 0.2), told[0]._replace(once=True))
    result = run(prepared, method, rounds=4)
    assert result.history["epsilon_row"][0] == accountant.epsilon([told[0]], 1, 1e-5)
    assert result.epsilon["row"] == accountant.epsilon(unit.releases, 4, 1e-5)
    asked = fedmin.FedSGD(0.3, batches=fedmin.PrivateRows(0.2, epsilon=5.0))
    made, roster = fitted(prepared, asked)
    alone, _ = fitted(tested, asked)
    assert made.method.batches.multiplier > 1.02 * alone.method.batches.multiplier
    assert 4.98 < noise_of_runs.spent(made, roster, 5)["row"][0] <= 5.0
    channel = fedmin.chain(fedmin.Clip(0.5), fedmin.Noise(epsilon=3.0))
    made, roster = fitted(prepared, fedmin.FedSGD(), channel)
    assert 2.98 < noise_of_runs.spent(made, roster, 5)["client"][0] <= 3.0
    few = fedmin.FedSGD(0.3, batches=fedmin.PrivateRows(0.2, epsilon=0.5))
    with pytest.raises(ValueError, match="nothing is left of epsilon"):
        fitted(prepared, few)
    exact = World(tested.problem, replace(tested.federation, about=About(("a", "b", "c"))))
    with pytest.raises(ValueError, match="no epsilon covers them"):
        fitted(exact, method)
