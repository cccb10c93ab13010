"""Channels: what becomes of a reply on its way to the sum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedmin
from agreement import assert_same, run
from fedmin.channels import CHANNELS
from fedmin.core import payload
from fedmin.engines.sessions import wire

NOW = fedmin.Now(jnp.int32(0), jax.random.key(0), jax.random.key(1))


def test_topk_keeps_the_largest():
    up = {"update": jnp.array([0.5, -3.0, 0.0, 2.0, -0.1])}
    channel = fedmin.TopK(2)
    sent, memory = channel.encode(up, channel.init(up), NOW)
    assert sorted(np.asarray(sent["update"].indices)) == [1, 3]
    np.testing.assert_array_equal(sent["update"].dense(), [0.0, -3.0, 0.0, 2.0, 0.0])
    np.testing.assert_array_equal(memory["update"], [0.5, 0.0, 0.0, 0.0, -0.1])


def test_topk_feeds_the_error_back():
    """What was sent in all, plus what is remembered, is what was to be sent in all."""
    channel, rng = fedmin.TopK(2), np.random.default_rng(0)
    ups = rng.standard_normal((30, 6))
    memory = channel.init({"update": jnp.zeros(6)})
    arrived = np.zeros(6)
    for up in ups:
        sent, memory = channel.encode({"update": jnp.asarray(up)}, memory, NOW)
        assert sent["update"].values.shape == (2,)
        arrived += np.asarray(sent["update"].dense())
    np.testing.assert_allclose(arrived + memory["update"], ups.sum(axis=0), rtol=1e-12)
    assert np.abs(memory["update"]).max() < np.abs(ups.sum(axis=0)).max() + 10


def test_topk_leaves_alone_what_it_cannot_shorten():
    up = {
        "count": jnp.arange(9),  # whole numbers
        "short": jnp.ones(2),
        "number": jnp.ones(()),
        "table": jnp.ones((4, 4)),
        "atom": fedmin.Sparse(jnp.array([3]), jnp.array([1.0]), 9),
    }
    channel = fedmin.TopK(2)
    sent, memory = channel.encode(up, channel.init(up), NOW)
    assert jax.tree.structure(sent) == jax.tree.structure(up)
    assert not jax.tree.leaves(memory)
    for a, b in zip(jax.tree.leaves(sent), jax.tree.leaves(up), strict=True):
        np.testing.assert_array_equal(a, b)


def test_combine_is_the_sum_of_what_was_sent():
    channel, rng = fedmin.TopK(2), np.random.default_rng(1)
    ups = {"update": jnp.asarray(rng.standard_normal((4, 6)))}
    memory = jax.vmap(channel.init)(ups)
    sent, memory = jax.vmap(channel.encode, (0, 0, None))(ups, memory, NOW)
    cohort = fedmin.Cohort(jnp.arange(4), jnp.ones(4, bool), jnp.full(4, 0.25))
    together = channel.decode(channel.combine(sent), (), cohort, NOW)[0]["update"]
    each = jax.vmap(lambda s: s.dense())(sent["update"])
    np.testing.assert_allclose(together, each.sum(axis=0), rtol=1e-12)
    parts = [channel.combine(jax.tree.map(lambda a, i=i: a[i : i + 2], sent)) for i in (0, 2)]
    np.testing.assert_allclose(together, parts[0]["update"] + parts[1]["update"], rtol=1e-12)


def test_plain_changes_nothing():
    up = {"update": jnp.arange(3.0)}
    sent, memory = fedmin.Plain().encode(up, fedmin.Plain().init(up), NOW)
    assert sent is up
    assert memory == ()


def test_payloads_are_scaled_and_summed():
    atoms = fedmin.Sparse(jnp.array([[0, 2], [2, 2]]), jnp.array([[1.0, 2.0], [3.0, 4.0]]), 3)
    np.testing.assert_array_equal(payload.total({"a": atoms})["a"], [1.0, 0.0, 9.0])
    one = jax.tree.map(lambda a: a[0], atoms)
    np.testing.assert_array_equal(one.scaled(jnp.array(2.0)).dense(), [2.0, 0.0, 4.0])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_seen(value):
    assert payload.all_finite({"a": jnp.ones(2), "n": jnp.arange(3)})
    assert not payload.all_finite({"a": jnp.array([1.0, value])})
    assert not payload.all_finite({"s": fedmin.Sparse(jnp.array([0]), jnp.array([value]), 2)})
    assert payload.all_finite({})


@pytest.mark.parametrize("channel", [fedmin.TopK(1), fedmin.TopK(2)], ids=str)
def test_the_optimum_is_still_reached(shared, channel):
    result = run(shared, fedmin.FedSGD(0.4), rounds=1500, every=1500, channel=channel)
    np.testing.assert_allclose(result.solution, shared.minimizer, atol=1e-8)


def test_smaller_steps_end_nearer_where_clients_disagree(apart):
    """Error feedback then stalls at a distance in proportion to the step, not at the optimum."""
    far, near = (
        run(apart, fedmin.FedSGD(step), rounds=6000, every=6000, channel=fedmin.TopK(1)).solution
        for step in (0.4, 0.04)
    )
    distance = [np.linalg.norm(x - apart.minimizer) for x in (far, near)]
    assert distance[1] < 0.2 * distance[0]
    assert distance[0] > 1e-3


def test_fewer_bytes_up_and_as_many_down(apart):
    plain, cut = (
        run(apart, fedmin.FedSGD(0.4), channel=channel).ledger.by_kind()
        for channel in (fedmin.Plain(), fedmin.TopK(1))
    )
    assert cut["down model"] == plain["down model"]
    assert plain["up gradient"] == 6 * 5 * 3 * 8
    assert cut["up gradient"] == 6 * 5 * (4 + 8)


def test_every_channel_is_tested():
    assert set(CHANNELS.values()) == {
        fedmin.Plain,
        fedmin.TopK,
        fedmin.Clip,
        fedmin.Chain,
        fedmin.EF21,  # tests/test_ef21.py
        fedmin.HomomorphicSum,
        fedmin.Noise,  # tests/test_noise.py
        fedmin.SecureSum,  # tests/test_secure_sum.py
    }


@pytest.mark.parametrize("bound", [0.3, 2.0, 1e3])
def test_clip_shortens_the_whole_reply(bound):
    rng = np.random.default_rng(0)
    atom = fedmin.Sparse(jnp.array([3, 3]), jnp.array([1.0, 2.0]), 9)  # one entry of length 3
    up = {"update": jnp.asarray(rng.standard_normal(5)), "atom": atom, "count": jnp.arange(4)}
    sent, memory = fedmin.Clip(bound).encode(up, (), NOW)
    dense = np.concatenate([sent["update"], sent["atom"].dense()])
    before = np.concatenate([up["update"], up["atom"].dense()])
    length = np.linalg.norm(before)
    np.testing.assert_allclose(dense, before * min(1, bound / length), rtol=1e-12)
    assert np.linalg.norm(dense) <= bound * (1 + 1e-12) or length <= bound
    np.testing.assert_array_equal(sent["count"], up["count"])
    assert memory == ()


def test_clip_sees_the_reply_before_its_weight(apart):
    """x <- x - step sum p_i min(1, C / |g_i|) g_i, by NumPy."""
    bound, x = 0.4, np.zeros(3)
    lengths = []
    for _ in range(5):
        gradients = [apart.gradient(i, x) for i in range(len(apart.clients))]
        lengths += [np.linalg.norm(g) for g in gradients]
        clipped = [g * min(1, bound / np.linalg.norm(g)) for g in gradients]
        x = x - 0.5 * sum(p * g for p, g in zip(apart.shares, clipped, strict=True))
    assert min(lengths) < bound < max(lengths)  # some are shortened, some are not
    result = run(apart, fedmin.FedSGD(0.5), rounds=5, channel=fedmin.Clip(bound))
    np.testing.assert_allclose(result.solution, x, rtol=1e-10)


def test_a_reply_that_is_not_finite_stays_so():
    for bad in (np.nan, np.inf):
        sent, _ = fedmin.Clip(1.0).encode({"update": jnp.array([1.0, bad])}, (), NOW)
        assert not payload.all_finite(sent)


def test_a_chain_is_its_stages_in_order():
    up = {"update": jnp.array([3.0, -4.0, 1.0])}
    clip, cut = fedmin.Clip(2.0), fedmin.TopK(1)
    both = fedmin.chain(clip, cut)
    sent, memory = both.encode(up, both.init(up), NOW)
    first, _ = clip.encode(up, (), NOW)
    by_hand, error = cut.encode(first, cut.init(first), NOW)
    np.testing.assert_array_equal(sent["update"].dense(), by_hand["update"].dense())
    np.testing.assert_array_equal(memory[1]["update"], error["update"])
    other = fedmin.chain(cut, clip)
    assert not np.allclose(other.encode(up, other.init(up), NOW)[0]["update"].dense(),
                           sent["update"].dense())  # fmt: skip
    assert fedmin.chain(fedmin.Plain(), clip) == clip


class Noise(fedmin.Channel):
    """Adds a number of the client's own."""

    def encode(self, up, memory, now):
        return jax.tree.map(lambda a: a + jax.random.normal(now.secret, a.shape), up), memory


def test_each_stage_draws_numbers_of_its_own():
    up = {"update": jnp.zeros(3)}
    one, two = Noise(), fedmin.chain(Noise(), Noise())
    alone, _ = one.encode(up, (), NOW)
    both, _ = two.encode(up, two.init(up), NOW)
    assert not np.allclose(both["update"], 2 * alone["update"])


class Twice(fedmin.Channel):
    """Sends half, and its server half doubles the sum and counts how often it did."""

    def encode(self, up, memory, now):
        return jax.tree.map(lambda a: a / 2, up), memory

    def init_server(self, up):
        return jnp.zeros((), jnp.int32)

    def decode(self, combined, state, cohort, now):
        return jax.tree.map(lambda a: 2 * a, combined), state + cohort.count


@pytest.mark.parametrize("engine", [None, fedmin.Loopback()], ids=str)
def test_the_server_half_undoes_what_the_client_half_did(apart, engine):
    options = {"engine": engine} if engine else {}
    plain = run(apart, fedmin.FedSGD(0.5), **options)
    for channel in (Twice(), fedmin.chain(Twice(), Twice())):
        again = run(apart, fedmin.FedSGD(0.5), channel=channel, **options)
        np.testing.assert_allclose(again.solution, plain.solution, rtol=1e-12)


def test_a_chain_goes_through_both_engines_alike(apart):
    options = {"channel": fedmin.chain(fedmin.Clip(0.4), fedmin.TopK(1)), "rounds": 8}
    method = fedmin.FedDANE(0.3, local_steps=2)  # two exchanges, a memory at the clients
    both = [run(apart, method, **options), run(apart, method, engine=fedmin.Loopback(), **options)]
    assert_same(*both)


def test_what_the_server_learns_is_said():
    assert str(fedmin.Plain().learns) == "each client's reply, as it is"
    both = fedmin.chain(fedmin.Clip(1.0), fedmin.TopK(3))
    assert str(both.learns) == (
        "each client's reply, shortened to a bound, its largest entries only"
    )
    assert str(fedmin.Learns(noisy=True)) == "each client's reply with noise, as it is"
    hidden = fedmin.Learns(each=False, least=3, noisy=True)
    assert str(hidden) == "the sum of at least 3 clients' replies with noise, each as it is"


def test_a_channel_is_asked_whether_it_fits():
    exchange = fedmin.Exchange(None, print, print, unchanged=True)
    assert fedmin.Plain().refuses(exchange) == ""
    for lossy in (fedmin.TopK(1), fedmin.Clip(1.0), fedmin.chain(fedmin.Clip(1.0), fedmin.TopK(1))):
        assert "as they are" in lossy.refuses(exchange)
        assert lossy.refuses(fedmin.Exchange(None, print, print)) == ""


def test_gathered_replies_arrive_dense():
    """A method that gathers sees vectors, also when the channel sends them compactly."""
    stacked = fedmin.Sparse(jnp.array([[0], [2]]), jnp.array([[5.0], [7.0]]), 3)
    found = payload.dense_each({"update": stacked})["update"]
    assert np.array_equal(found, [[5, 0, 0], [0, 0, 7]])


def test_header_is_not_a_name_for_a_part():
    with pytest.raises(ValueError, match="cannot have a part named 'header'"):
        wire.sizes({"header": jnp.zeros(2)})
