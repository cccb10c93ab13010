"""Choices with noise: vertices and entries are drawn by the law that is accounted, and no more of
the rows is told."""

import itertools
import re
from collections import Counter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import fedmin
import thorough
from agreement import assert_same, run
from fedmin.core import choices, private
from fedmin.core.payload import is_payload
from fedmin.core.release import Release
from fedmin.engines import private as noise_of_runs
from fedmin.engines.messages import training_of
from fedmin.privacy import accountant

NOW = fedmin.Now(jnp.int32(0), jax.random.key(0), jax.random.key(1))
DRAWS = 6000


class World(NamedTuple):
    problem: fedmin.Problem
    federation: fedmin.Federation


@pytest.fixture(scope="module")
def rows():
    """Three clients of 12, 20 and 28 rows in 3 columns, and test rows."""
    rng = np.random.default_rng(5)
    x, truth = rng.standard_normal((80, 3)), np.array([1.0, -2.0, 0.5])
    y = (x @ truth + 0.1 * rng.standard_normal(80) > 0).astype(int)
    cuts = [0, 12, 32, 60]
    parts = [(x[a:b], y[a:b]) for a, b in itertools.pairwise(cuts)]
    return fedmin.Federation.from_clients(parts, test=(x[60:], y[60:]))


def over(rows, domain, problem=None):
    return World(fedmin.over(problem or fedmin.Logistic(3), domain), rows)


def fitted(world, method, rounds=5):
    from fedmin.assembling import assemble

    everyone = fedmin.Everyone()
    made = assemble(
        world.problem, world.federation, method, everyone, fedmin.Plain(), None, None, rounds=rounds
    )
    return made, world.federation.roster(True)


# ---------------------------------------------------------------- the laws, by NumPy


def peeled(scores, count, scale):
    """The chance of every way to take `count` candidates one after the other, by exp(score / b).

    `scores` is {candidate: score}; a candidate is (index, sign), and an index is taken once.
    """
    law = Counter()

    def take(left, taken, chance):
        if len(taken) == count:
            law[frozenset(taken)] += chance
            return
        top = max(left.values())
        weights = {c: np.exp((s - top) / scale) for c, s in left.items()}
        total = sum(weights.values())
        for one, weight in weights.items():
            rest = {c: s for c, s in left.items() if c[0] != one[0]}
            take(rest, (*taken, one), chance * weight / total)

    take(scores, (), 1.0)
    assert sum(law.values()) == pytest.approx(1)
    return law


def signed(g):
    return {(j, sign): -sign * g[j] for j in range(len(g)) for sign in (1, -1)}


def fits(seen, law):
    """p-value of what was seen under a law, what is rare put together."""
    total = sum(seen.values())
    assert set(seen) <= set(law)
    often = [key for key in law if law[key] * total >= 5]
    counts = [seen[key] for key in often]
    wanted = [law[key] * total for key in often]
    rest = total - sum(wanted)
    if rest > 1:
        counts, wanted = [*counts, total - sum(counts)], [*wanted, rest]
    wanted = np.array(wanted) * sum(counts) / sum(wanted)
    return stats.chisquare(counts, wanted).pvalue


def candidates(vectors, radius):
    """What each of these vertices was made of."""
    found = Counter()
    for v in np.asarray(vectors):
        places = np.flatnonzero(v)
        np.testing.assert_allclose(np.abs(v[places]), radius, rtol=1e-5)
        found[frozenset((int(j), int(np.sign(v[j]))) for j in places)] += 1
    return found


G = np.array([0.3, -0.8, 0.1, 0.5, -0.2])
KEYS = jax.random.split(jax.random.key(3), DRAWS)


def vertices(domain, scale, g=G):
    draw = lambda key: domain.noisy_lmo(jnp.asarray(g, jnp.float32), scale, key).dense()
    return jax.vmap(draw)(KEYS)


@pytest.mark.parametrize("name", ["l1", "simplex", "ksparse", "product"])
def test_vertices_are_drawn_by_the_exponential_mechanism(name):
    scale = 0.4
    if name == "product":
        problem = fedmin.over(
            fedmin.Logistic(3, bias=True), fedmin.Product({
                "weights": fedmin.L1Ball(2.0), "bias": fedmin.L1Ball(2.0)})
        )  # fmt: skip
        drawn, g = vertices(problem.domain, scale, G[:4]), G[:4]
        each = peeled(signed(g[:3]), 1, scale), peeled({(3, 1): -g[3], (3, -1): g[3]}, 1, scale)
        law = {a | b: p * q for (a, p), (b, q) in itertools.product(*(e.items() for e in each))}
        assert problem.domain.vertex_choices() == 2
    else:
        domain, count, scores = {
            "l1": (fedmin.L1Ball(2.0), 1, signed(G)),
            "simplex": (fedmin.Simplex(2.0), 1, {(j, 1): -G[j] for j in range(5)}),
            "ksparse": (fedmin.KSparsePolytope(3, 2.0), 3, signed(G)),
        }[name]
        drawn, law = vertices(domain, scale), peeled(scores, count, scale)
        other = peeled(scores, count, 1.2 * scale)
        assert domain.vertex_choices() == count
        assert fits(candidates(drawn, 2.0), other) < 1e-3  # a law that is not the one is seen
    assert fits(candidates(drawn, 2.0), law) > 1e-3


def test_without_noise_vertices_are_the_linear_minimizers():
    g = jnp.asarray(G, jnp.float32)
    for domain in (fedmin.L1Ball(2.0), fedmin.Simplex(2.0), fedmin.KSparsePolytope(3, 2.0)):
        drawn = domain.noisy_lmo(g, 0.0, jax.random.key(0)).dense()
        np.testing.assert_array_equal(drawn, domain.lmo(g).dense())


Y = np.array([0.3, -0.8, 0.1, 0.5, -0.2, 0.7])


@pytest.mark.parametrize("each", ["all", "row"])
def test_entries_are_peeled_and_their_values_have_noise(each):
    """Two classes of two features and two biases, which are free: all of them have noise."""
    domain = fedmin.L0Ball(1 if each == "row" else 2, each=each, free="bias")
    domain = fedmin.over(fedmin.Softmax(2, 2, bias=True), domain).domain
    scale, y = 0.3, jnp.asarray(Y, jnp.float32)
    drawn = np.asarray(jax.vmap(lambda key: domain.noisy_project(y, scale, key))(KEYS))
    chosen = drawn[:, :4] != 0
    seen = Counter(frozenset((int(j), 1) for j in np.flatnonzero(row)) for row in chosen)
    size = {(j, 1): abs(Y[j]) for j in range(4)}
    if each == "all":
        law = peeled(size, 2, scale)
    else:
        halves = [peeled({c: s for c, s in size.items() if c[0] in at}, 1, scale)
                  for at in ((0, 1), (2, 3))]  # fmt: skip
        law = {a | b: p * q for (a, p), (b, q) in itertools.product(*(h.items() for h in halves))}
    assert fits(seen, law) > 1e-3
    told = np.where(np.pad(chosen, ((0, 0), (0, 2)), constant_values=True), drawn - Y, np.nan)
    noise = told[~np.isnan(told)]
    assert len(noise) == 4 * DRAWS
    assert stats.kstest(noise / scale, "norm").pvalue > 1e-3
    assert stats.kstest(noise / (1.1 * scale), "norm").pvalue < 1e-3
    assert domain.entry_choices(6) == 2 + 4  # two choices, and four numbers


# ---------------------------------------------------------------- what it costs


def renyi(p, q, order):
    """Of two laws that are given by their logarithms."""
    return special.logsumexp(order * p + (1 - order) * q) / (order - 1)


def test_a_choice_costs_what_a_gaussian_costs():
    """The Renyi divergences of neighbours, computed: a (D / b)^2 / 2 at most, and nearly."""
    rng, most = np.random.default_rng(0), 0.0
    for size, ratio in itertools.product((2, 3, 20), (0.05, 0.5, 2.0)):  # D / b
        for k in range(60):
            s = rng.standard_normal(size) * rng.choice([0.0, 0.1, 1.0, 5.0])
            moved = ratio * (rng.choice([-1, 1], size) if k % 2 else rng.uniform(-1, 1, size))
            p, q = (special.log_softmax(t) for t in (s, s + moved))
            for order in (1.5, 2.0, 8.0, 32.0):
                told = order * ratio**2 / 2
                for a, b in ((p, q), (q, p)):
                    found = renyi(a, b, order)
                    assert found <= told * (1 + 1e-9)
                    most = max(most, found / told)
    assert most > 0.95


def test_choices_compose_with_noise_by_what_is_concentrated():
    """epsilon of rho-zCDP, least over orders by hand; and beside a Gaussian of the same rows."""
    choice = Release("row", 5.0, concentrated=True, times=2)
    found = accountant.epsilon([choice], 10, 1e-5)
    rho = 20 / (2 * 5.0**2)
    orders = np.array(accountant.ORDERS)
    # Canonne, Kamath and Steinke's conversion of Renyi divergences, as dp-accounting has it
    by_hand = rho * orders + np.log1p(-1 / orders) - np.log(1e-5 * orders) / (orders - 1)
    assert found == pytest.approx(by_hand.min(), rel=1e-6)
    both = accountant.epsilon([choice, Release("row", 5.0, times=2)], 10, 1e-5)
    assert both == pytest.approx(accountant.epsilon([choice._replace(times=4)], 10, 1e-5))


# ---------------------------------------------------------------- runs: rows


def batch_of(world, i=1, clip=0.3, multiplier=1.0):
    roster = world.federation.roster(True)
    shard = roster.view(i, jax.tree.map(jnp.asarray, world.federation.client(i)))
    given = (jnp.asarray(a, float) for a in (clip, multiplier))
    return shard, choices.ChoiceBatch(shard, jax.random.key(9), *given)


def gradients(world, i, x, clip):
    """The rows' gradients, each no larger than `clip` in any entry, by NumPy."""
    held = world.federation.client(i)
    z, y = np.asarray(held.x.values, float), np.asarray(held.y)
    each = z * (1 / (1 + np.exp(-z @ x)) - y)[:, None]
    return each * np.minimum(1, clip / np.abs(each).max(axis=1))[:, None]


def test_what_is_withheld_is_clipped_row_by_row(rows):
    world = World(fedmin.Logistic(3, l2=0.1), rows)
    x = np.array([0.4, -0.2, 1.0])
    _, batch = batch_of(world)
    each = gradients(world, 1, x, 0.3)
    expected = each.sum(axis=0) / 20 + 0.1 * x
    np.testing.assert_allclose(world.problem.grad(jnp.asarray(x), batch), expected, rtol=1e-5)
    # one row: no entry moves by more than C / n, and for some by as much
    moved = np.abs(each / 20)
    assert moved.max() == pytest.approx(0.3 / 20)


def replies(made, roster, world, i, secrets):
    """What client i sends in the first round, by these secrets."""
    trip = made.method.exchanges(made.problem, roster)[0]
    view = roster.view(i, jax.tree.map(jnp.asarray, world.federation.client(i)))
    state = made.method.init_client(made.problem, roster, view, jax.random.key(0))
    server = made.method.init_server(made.problem, roster, jax.random.key(0))
    down = trip.broadcast(made.problem, server, NOW)

    def one(secret):
        now = fedmin.Now(NOW.round, NOW.key, secret)
        up, _ = trip.client(made.problem, view, state, down, now)
        return jax.tree.map(lambda p: p.dense() if is_payload(p) else p, up, is_leaf=is_payload)

    return jax.vmap(one)(secrets)


@pytest.mark.parametrize("kind", [fedmin.FedFW, fedmin.FedFWSto])
def test_a_client_draws_its_vertex_as_is_accounted(rows, kind):
    """From the rows to what is sent: the law by NumPy, with the accountant's own multiplier."""
    world = over(rows, fedmin.L1Ball(2.0))
    made, roster = fitted(world, kind(0.1, batches=fedmin.PrivateChoices(0.4, multiplier=6.0)))
    (unit,) = noise_of_runs.units(made, roster)
    assert unit.releases == (Release("row", 6.0, 1.0, 1, concentrated=True),)
    sent = np.asarray(replies(made, roster, world, 1, KEYS[:3000])["atom"][0][0])
    g = gradients(world, 1, np.zeros(3), 0.4).mean(axis=0)
    scale = unit.releases[0].multiplier * 0.4 / 20
    step = float(made.method.steps.eta(1.0))
    seen = candidates(sent / step, 2.0)
    assert fits(seen, peeled(signed(g), 1, scale)) > 1e-3
    assert fits(seen, peeled(signed(g), 1, 1.3 * scale)) < 1e-3


def test_a_client_draws_its_entries_as_is_accounted(rows):
    world = over(rows, fedmin.L0Ball(2))
    method = fedmin.DistributedIHT(0.5, fedmin.PrivateChoices(0.4, multiplier=3.0))
    made, roster = fitted(world, method)
    (unit,) = noise_of_runs.units(made, roster)
    assert unit.releases == (Release("row", 3.0, 1.0, 1, concentrated=True),)
    sent = np.asarray(replies(made, roster, world, 1, KEYS[:3000])["model"])
    y = -0.5 * gradients(world, 1, np.zeros(3), 0.4).mean(axis=0)
    # two choices and two numbers, each of which a row moves by 0.5 * 0.4 / 20
    scale = 3.0 * 0.5 * 0.4 / 20 * 4**0.5
    seen = Counter(frozenset((int(j), 1) for j in np.flatnonzero(row)) for row in sent)
    law = peeled({(j, 1): abs(y[j]) for j in range(3)}, 2, scale)
    assert fits(seen, law) > 1e-3
    noise = (sent - y)[sent != 0]
    assert stats.kstest(noise / scale, "norm").pvalue > 1e-3
    assert stats.kstest(noise / (1.1 * scale), "norm").pvalue < 1e-3


PRIVATE = {
    "fedfw": (fedmin.FedFW(0.1, local_steps=2), fedmin.L1Ball(2.0), 2),
    "fedfwplus": (fedmin.FedFWPlus(0.1, local_steps=2), fedmin.Simplex(1.0), 2),
    "fedfwsto": (fedmin.FedFWSto(0.1, local_steps=3), fedmin.KSparsePolytope(2, 1.0), 3),
    "fediterht": (fedmin.FedIterHT(local_steps=3), fedmin.L0Ball(2), 3),
    "distributediht": (fedmin.DistributedIHT(), fedmin.L0Ball(2), 1),
}


def private_one(name, **options):
    from dataclasses import replace

    method, domain, times = PRIVATE[name]
    return replace(method, batches=fedmin.PrivateChoices(0.4, **options)), domain, times


def problem_in(domain):
    """A problem that begins within the set: a simplex does not have 0 in it."""
    if not isinstance(domain, fedmin.Simplex):
        return fedmin.Logistic(3)
    return fedmin.from_loss(
        lambda x, z, y: jnp.logaddexp(0.0, -jnp.where(y > 0, 1.0, -1.0) * jnp.dot(z, x)),
        jnp.ones(3) / 3,
    )


@pytest.mark.parametrize("name", PRIVATE)
def test_nothing_but_choices_leaves_a_client(rows, name, monkeypatch):
    """With choices that do not look at the rows, what is sent does not depend on them at all."""
    method, domain, times = private_one(name, multiplier=2.0)
    world = over(rows, domain, problem_in(domain))
    made, roster = fitted(world, method)
    (unit,) = noise_of_runs.units(made, roster)
    assert unit.releases == (Release("row", 2.0, 1.0, times, concentrated=True),)
    blind = jnp.array([0.2, -0.5, 0.4])
    monkeypatch.setattr(
        choices.ChoiceBatch, "vertex", lambda self, domain, g: domain.lmo(blind.astype(g.dtype))
    )
    monkeypatch.setattr(
        choices.ChoiceBatch, "entries", lambda self, domain, y, step: domain.project(blind)
    )
    sent = [jax.tree.leaves(replies(made, roster, world, i, KEYS[:2])) for i in (1, 2)]
    for one, other in zip(*sent, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", thorough.first(["fediterht", "fedfwsto", "fedfwplus"]))
def test_engines_agree_and_epsilon_is_what_was_asked_for(rows, name):
    method, domain, _ = private_one(name, epsilon=5.0)
    world = over(rows, domain, problem_in(domain))
    both = [run(world, method), run(world, method, engine=fedmin.Loopback())]
    assert_same(*both)
    assert 4.98 < both[0].epsilon["row"] <= 5.0
    assert both[0].ledger.by_kind() == both[1].ledger.by_kind()
    if domain == fedmin.L0Ball(2):
        assert np.count_nonzero(both[0].solution) <= 2


def test_a_reply_of_entries_is_as_short_as_the_model(rows):
    method = fedmin.DistributedIHT(batches=fedmin.PrivateChoices(multiplier=1.0))
    made, roster = fitted(over(rows, fedmin.L0Ball(2)), method)
    (form,) = training_of(made, roster).purpose.forms
    assert {name: part.values.shape for name, part in form.up.items()} == {"model": (2,)}


@pytest.mark.parametrize(
    ("method", "domain", "words"),
    [
        (fedmin.FedHT, fedmin.L0Ball(2), "DistributedIHT entries; give one of these"),
        (fedmin.ScaffoldHT, fedmin.L0Ball(2), "or batches=PrivateRows"),
        (fedmin.FedAvg, None, "FedAvg sends what it makes of gradients"),
        (fedmin.FedFW, fedmin.L2Ball(1.0), r"got L2Ball.*FedFWSto\(batches=PrivateRows"),
        (fedmin.FedIterHT, fedmin.L0Ball(1, groups=np.array([0, 0, 1])), "without groups"),
        (fedmin.SSCA, None, "several functions"),
    ],
)  # fmt: skip
def test_what_choices_do_not_cover_is_refused(rows, method, domain, words):
    world = World(fedmin.Logistic(3), rows) if domain is None else over(rows, domain)
    with pytest.raises(ValueError, match=words):
        run(world, method(batches=fedmin.PrivateChoices(multiplier=1.0)))


def test_settings_that_read_more_than_noise_covers_are_refused():
    chosen = fedmin.PrivateChoices(multiplier=1.0)
    for also in ({"smoothness": 1.0}, {"smoothness": 1.0, "pairwise": True},
                 {"split": fedmin.LargerSet(fedmin.L2Ball(9.0), lambda rows: True)}):  # fmt: skip
        with pytest.raises(ValueError, match="leave them out"):
            fedmin.FedFW(0.1, batches=chosen, **also)
    with pytest.raises(ValueError, match="FedFWSto takes batches"):
        fedmin.FedFW(0.1, batches=fedmin.PrivateRows(0.1, multiplier=1.0))
    with pytest.raises(ValueError, match="rho"):
        fedmin.FedFWSto(0.1, batches=chosen, steps=TooFast())
    with pytest.raises(TypeError, match="epochs"):
        chosen.per_epoch(10, 10)


class TooFast(fedmin.StochasticSteps):
    """Running gradients that count a row more than once."""

    def rho(self, t):
        return 2.0 + 0 * t


class Both(fedmin.DistributedIHT):
    """A method that chooses by two gradients of one batch, where noise is for one."""

    def client(self, problem, rows, state, down, now):
        batch = self.batches.read(rows, self.batches.draw(rows, now.secret, jnp.int32(0)))
        x = down["model"].dense()
        y = problem.step(problem.step(x, batch, 0.1), batch, 0.1)
        return {"model": problem.domain.compact(batch.entries(problem.domain, y, 0.1))}, state


def test_a_choice_is_by_one_gradient(rows):
    with pytest.raises(ValueError, match="two gradients of one batch for one choice"):
        run(over(rows, fedmin.L0Ball(2)), Both(batches=fedmin.PrivateChoices(multiplier=1.0)))
    with pytest.raises(private.PrivacyError, match="'x' of private rows"):
        batch_of(over(rows, fedmin.L0Ball(2)))[1].x  # noqa: B018


FILE = """
[data]
name = "wine"
standardize = true
[partition]
name = "iid"
clients = 3
[problem]
name = "softmax"
[domain]
name = "l1ball"
radius = 10.0
[method]
name = "fedfw"
penalty = 0.1
batches = {name = "privatechoices", clip = 1.0, epsilon = 6.0, delta = 1e-3}
[run]
rounds = 30
seeds = [0]
stop = {name = "budget", epsilon = 3.0, delta = 1e-3}
"""


def test_a_file_says_what_it_will_cost_and_when_it_stops(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from fedmin.cli.app import app

    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(FILE)
    shown = CliRunner().invoke(app, ["show", "run.toml"])
    assert shown.exit_code == 0, shown.output
    assert "for a row" in shown.output
    assert "one more would make it" in shown.output
    # half of epsilon allows about a quarter of the rounds, which add up as variances do
    assert re.search(r"after [6-9] rounds", shown.output), shown.output


def test_a_run_that_goes_on_draws_the_same_and_spends_nothing_twice(rows, tmp_path):
    method, domain, _ = private_one("fedfw", multiplier=4.0)
    world = over(rows, domain)
    whole = run(world, method, rounds=6)
    keep = fedmin.Checkpoint(tmp_path, rounds=1)
    run(world, method, rounds=3, checkpoint=keep)
    again = run(world, method, rounds=6, checkpoint=keep)
    assert_same(whole, again, rtol=0)
    told = Release("row", 4.0, times=2, concentrated=True)
    assert again.final("epsilon_row") == accountant.epsilon([told], 6, 1e-5)
