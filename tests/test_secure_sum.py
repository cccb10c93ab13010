"""Secure sums: exact whoever drops out, refused below the threshold, and nothing for a liar.

`sums.py` plays the roles without sessions. Each attack of a server is a test of its own.
"""

import itertools
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import cases
import conftest
import fedmin
import known
import thorough
from agreement import run
from contract import Median
from fedmin.channels import fixed_point
from fedmin.channels.secure import derivations, masks, shamir
from fedmin.channels.secure.legs import GROUP, groups_of, threshold_of
from fedmin.channels.secure_sum import MARGIN
from fedmin.core.protocol import EXCHANGE, Occasion, ProtocolError, peers_of
from fedmin.engines.sessions.server import QuorumError
from fedmin.privacy.policy import Policy
from sums import LEGS, Table, integers_of, refused, roster_of
from test_protocol import FOUR, METHOD, dropping, tapped
from test_sessions import parties, state_of

# ---------------------------------------------------------------- fixed point


@pytest.mark.parametrize("limbs", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fixed_point_is_python_integers(limbs, dtype, rng):
    """Words and their sums, against integers of any length; float32 is what runs without x64."""
    w = 32 * limbs
    y = np.ldexp(rng.uniform(-1, 1, (9, 50)), rng.integers(0, w - 4, (9, 50)))
    y = np.rint(y.astype(dtype))
    y[0, :3] = 0, 1, -1
    words = np.asarray(fixed_point.to_words(jnp.asarray(y), limbs))
    found = np.array([integers_of(limbs)(row) for row in words])
    exact = np.array([[int(v) for v in row] for row in y], object)
    np.testing.assert_array_equal(found, exact % 2**w)
    total = fixed_point.to_numbers(fixed_point.columns(jnp.asarray(words)), dtype)
    wanted = exact.sum(axis=0)
    for got, whole in zip(np.asarray(total).astype(float), wanted, strict=True):
        assert abs(got - whole) <= 4 * np.finfo(dtype).eps * abs(whole)


@pytest.mark.parametrize("bits", [32, 64])
def test_the_sum_is_right_to_half_a_step_a_client(bits, rng):
    """|error| <= n/2 steps of the grid c / 2^(w-2), and the error that METHODS.md 7.1 has."""
    n, c = 10, 4.0
    x = rng.uniform(-c, c, (n, 1000))
    channel = fedmin.SecureSum(bits=bits, bound=c)
    now = fedmin.Now(jnp.int32(0), *jax.random.split(jax.random.key(0)))
    p = jnp.full(n, 1 / n)

    def sent(row, share):
        return channel.weigh(channel.encode({"update": row}, (), now)[0], share)

    wires = jax.vmap(sent)(jnp.asarray(x), p)
    cohort = fedmin.Cohort(jnp.arange(n), jnp.ones(n, bool), p)
    total, _ = channel.decode(channel.combine(wires), (), cohort, now)
    error = np.abs(total["update"] - x.mean(axis=0)).max()
    assert error <= n / 2 * c / 2 ** (bits - 2) + 1e-15
    assert error / c < {32: 2e-8, 64: 1e-15}[bits]


# ---------------------------------------------------------------- primitives


def test_any_t_shares_say_the_secret_and_fewer_do_not():
    secret = shamir.draw()
    shares = dict(enumerate(shamir.share(secret, 3, 5)))
    for some in itertools.combinations(range(5), 3):
        assert shamir.join({k: shares[k] for k in some}) == secret
    for some in itertools.combinations(range(5), 2):
        assert shamir.join({k: shares[k] for k in some}) != secret
    # with two of three, every secret has one polynomial: the third share would be another
    for other in (0, 1, secret):
        known_two = {0: shares[0], 1: shares[1]}
        weights = shamir.at_zero((0, 1, 2))
        rest = other - sum(known_two[k] * weights[k] for k in (0, 1))
        third = rest * pow(weights[2], -1, shamir.PRIME) % shamir.PRIME
        assert shamir.join({**known_two, 2: third}) == other


def vectors():
    """The test vectors of docs/secure-sums.md, computed here."""
    occasion = Occasion(bytes(range(8)), 3, 2, (0, 4, 7), roster_of(8))
    pad = np.zeros(4, np.uint32)
    masks.add_pads(pad, [(bytes(range(32)), 1)], 1)
    return {
        "label": occasion.label.hex(),
        "shares of 7, coefficients 7, 5, 3": [f"{v:x}" for v in shamir.values([7, 5, 3], 4)],
        "simulated identity of client 4": derivations.simulated_identity(occasion.run, 4)
        .public_key().public_bytes_raw().hex(),
        "mask key of seed 9": derivations.mask_key(9).public_key().public_bytes_raw().hex(),
        "self pad of seed 9, client 4": derivations.self_pad(occasion, 9, 4).hex(),
        "pair pad of 32 bytes of 1, clients 4 and 7":
            derivations.pair_pad(occasion, bytes([1] * 32), 7, 4).hex(),
        "sealed": derivations.seal(
            derivations.sealing(occasion, bytes([1] * 32), 4, 7), b"shares").hex(),
        "pad": pad.tobytes().hex(),
        "signed keys": derivations.simulated_identity(occasion.run, 4).sign(
            derivations.keys_statement(occasion, 4, bytes(64))).hex(),
        "signed list": derivations.simulated_identity(occasion.run, 4).sign(
            derivations.stayed_statement(occasion, bytes(32), bytes([1, 0, 1]))).hex(),
    }  # fmt: skip


def test_vectors_of_the_specification():
    text = (
        (Path(__file__).parents[1] / "docs" / "secure-sums.md").read_text("utf-8").replace("\n", "")
    )
    for name, value in vectors().items():
        each = value if isinstance(value, list) else [value]
        assert f"{name}" in text
        assert all(v in text.replace(" ", "") for v in each), name


def test_every_derivation_has_a_domain_of_its_own():
    one = Occasion(bytes(8), 0, 0, (0, 1, 2), roster_of(3))
    others = [one._replace(run=bytes([1] * 8)), one._replace(round=1), one._replace(trip=1),
              one._replace(clients=(0, 1, 3))]  # fmt: skip
    secret = bytes(range(32))
    made = [derivations.pair_pad(o, secret, 0, 1) for o in (one, *others)]
    made += [derivations.pair_pad(one, secret, 0, 2), derivations.self_pad(one, 5, 0),
             derivations.self_pad(one, 5, 1), derivations.self_pad(others[0], 5, 0),
             shamir.to_bytes(5)]  # fmt: skip
    made += [derivations.keys_statement(o, 0, bytes(64)) for o in (one, *others)]
    made += [derivations.stayed_statement(o, bytes(32), bytes(3)) for o in (one, *others)]
    assert len(set(made)) == len(made)
    sealed = {derivations.seal(derivations.sealing(one, secret, *ends), b"x")
              for ends in ((0, 1), (1, 0), (0, 2))}  # fmt: skip
    assert len(sealed) == 3


# ---------------------------------------------------------------- drop-outs


def outcome(table: Table, lost: dict) -> str:
    """Play to the end: "" if the sum is exact, else why it was refused."""
    try:
        table.play(lost)
        wire = table.server.reveal()
    except ProtocolError as error:
        return str(error)
    stayed = [i for i in range(table.count) if lost.get(i) not in ("keys", "shares", EXCHANGE)]
    assert list(integers_of(table.limbs)(masks.joined(wire))) == table.sum_of(stayed)
    return ""


def left(count: int, lost: dict) -> int:
    """Who is there to the very end; the fewest that any trip has."""
    return sum(lost.get(i) is None for i in range(count))


@pytest.mark.parametrize("limbs", [1, 2, 4])
def test_every_pattern_of_one_drop_out_and_none(limbs):
    """Four clients, three must stay: whoever is lost on whichever trip, the sum is exact."""
    for i, leg in itertools.product(range(4), LEGS):
        assert outcome(Table(4, limbs, seed=i), {i: leg}) == ""
    assert outcome(Table(4, limbs), {}) == ""


def test_every_pattern_of_two_drop_outs_is_refused_below_the_threshold():
    for (i, j), legs in itertools.product(
        itertools.combinations(range(4), 2), itertools.product(LEGS, LEGS)
    ):
        assert "3 are needed" in (why := outcome(Table(4), {i: legs[0], j: legs[1]})) or (
            "needs 3" in why
        ), (i, j, legs)


def test_patterns_of_drop_outs_among_more(rng):
    """30 % and more of ten dropping out at random: exact with seven, refused with fewer."""
    seen = set()
    for k in range(25):
        lost = {int(i): LEGS[rng.integers(5)] for i in rng.permutation(10)[: rng.integers(0, 6)]}
        why = outcome(Table(10, 1 + k % 2, seed=k), lost)
        assert (why == "") == (left(10, lost) >= 7), (lost, why)
        seen.add(why == "")
        curious = outcome(Table(10, server_is="curious", seed=k), lost)
        assert (curious == "") == (left(10, lost) >= 6)
    assert seen == {True, False}


def test_groups_above_a_hundred_and_within_them():
    """Groups that follow from the occasion alone; every group's sum must be opened."""
    assert fedmin.SecureSum().protocol({}).peers(100) == 100
    table = Table(11, group=4)
    sizes = sorted(len(g.clients) for g in table.server.groups)
    assert sizes == [3, 4, 4]
    others = groups_of(table.occasion._replace(round=1), 4)
    assert {g.clients for g in table.server.groups} != set(others)
    assert outcome(table, {}) == ""
    first = table.server.groups[0].clients
    whole = Table(11, group=4)
    four = next(g.clients for g in whole.server.groups if len(g.clients) == 4)
    assert outcome(whole, {four[0]: EXCHANGE}) == ""
    assert "needs 3" in outcome(Table(11, group=4), dict.fromkeys(first[:2], EXCHANGE))


@pytest.mark.parametrize("leg", LEGS)
def test_one_of_every_group_may_be_lost_on_every_trip(leg):
    """Two groups of four, of which three must stay: exact; with a second one lost, refused."""
    groups = [g.clients for g in Table(8, group=4).server.groups]
    assert outcome(Table(8, group=4), {clients[0]: leg for clients in groups}) == ""
    assert outcome(Table(8, group=4), dict.fromkeys(groups[1][:2], leg)) != ""


def test_groups_have_fifty_to_a_hundred():
    for count in (101, 102, 150, 199, 200, 201, 299, 350, 1000, 4321):
        clients = tuple(range(0, 3 * count, 3))
        occasion = Occasion(b"run name", 5, 0, clients, roster_of(count))
        found = groups_of(occasion, peers_of(count, GROUP))
        assert sorted(i for group in found for i in group) == list(clients)
        sizes = [len(group) for group in found]
        assert 50 <= min(sizes) <= max(sizes) <= 100
        assert max(sizes) - min(sizes) <= 1
    # by chance, another time others
    again = groups_of(occasion._replace(round=6), peers_of(count, GROUP))
    assert len({*map(frozenset, found)} & {*map(frozenset, again)}) == 0


def test_thresholds():
    for n in range(3, 101):
        t = threshold_of(n, "lying")
        assert 2 * t - n > n / 3  # two lists share more than a third: some honest one signed twice
        assert 2 * threshold_of(n, "curious") > n


# ---------------------------------------------------------------- servers that lie


def test_a_server_that_swaps_keys_gets_nothing():
    mine = Table(4, seed=1).sites[2]
    table = Table(4)
    said = table.play(until="shares")
    other = {k: v.copy() for k, v in said[0].items()}
    other["keys"][2] = np.frombuffer(mine.keys, np.uint8)  # keys that the server knows
    assert "s2 has not signed these keys" in refused(table.sites[0].answer, "shares", other)
    stolen = mine.answer("keys", {})["signature"]  # signed, but by nobody whom the roster pins
    other["signatures"][2] = stolen
    fresh = Table(4, round=5)
    assert "has not signed" in refused(fresh.sites[0].answer, "shares", _own(fresh, 0, other))
    assert table.sites[0].answer("shares", said[0])["sealed"].any()  # it goes on as if nothing was


def _own(table: Table, i: int, said) -> dict:
    """The same lists with client i's own keys in them."""
    found = {k: v.copy() for k, v in said.items()}
    reply = table.sites[i].answer("keys", {})
    found["keys"][i], found["signatures"][i] = reply["keys"], reply["signature"]
    return found


def test_keys_of_another_round_are_not_taken():
    """Replay: what was signed for one occasion is nothing in the next."""
    old, new = Table(4), Table(4, round=1)
    said, fresh = old.play(until="shares"), new.play(until="shares")
    replayed = {k: v.copy() for k, v in fresh[0].items()}
    replayed["keys"][1], replayed["signatures"][1] = said[0]["keys"][1], said[0]["signatures"][1]
    assert "s1 has not signed" in refused(new.sites[0].answer, "shares", replayed)


def test_pinned_identities_are_who_signs(rng):
    keys = tuple(Ed25519PrivateKey.from_private_bytes(rng.bytes(32)) for _ in range(3))
    assert outcome(Table(3, keys=keys), {}) == ""
    table = Table(3, keys=keys)
    with pytest.raises(ProtocolError, match="this site was given none"):
        table.protocol.site(table.occasion, 0)
    with pytest.raises(ProtocolError, match="another identity key"):
        table.protocol.site(table.occasion._replace(identity=rng.bytes(32)), 0)
    bare = Table(3)
    with pytest.raises(ProtocolError, match="another identity key for this site, or none"):
        bare.protocol.site(bare.occasion._replace(identity=keys[0].private_bytes_raw()), 0)


def test_a_server_that_shows_two_survivor_lists_gets_nothing():
    """Four are told that s9 dropped out, the rest that it stayed: each list lacks signatures."""
    table = Table(10)
    said = table.play(until="agree")
    without = {"stayed": said[0]["stayed"].copy()}
    without["stayed"][9] = False
    signed = {}
    for i in range(10):
        signed[i] = table.sites[i].answer("agree", without if i < 4 else said[i])["signature"]
    for one, of in ((0, range(4)), (5, range(4, 10))):  # 4 and 6 signatures, 7 are needed
        flags = np.isin(np.arange(10), list(of))
        ask = {"signatures": np.stack([signed[i] for i in range(10)]), "signed": flags}
        assert "needs 7" in refused(table.sites[one].answer, "unmask", ask)
        everyone = {**ask, "signed": np.isin(np.arange(10), [*range(9)])}
        assert "has signed another list" in refused(table.sites[one].answer, "unmask", everyone)


def test_a_site_gives_one_share_of_a_client_and_never_both():
    table = Table(4)
    said = table.play({3: EXCHANGE}, until="unmask")
    shares = table.sites[0].answer("unmask", said[0])["shares"]
    own, keys = ({i: shamir.to_bytes(v[k]) for i, v in table.sites[0].held.items()} for k in (0, 1))
    assert [shares[i].tobytes() == own[i] for i in range(4)] == [True, True, True, False]
    assert [shares[i].tobytes() == keys[i] for i in range(4)] == [False, False, False, True]
    # asked again, for another list or the same, it says nothing
    assert "was answered before" in refused(table.sites[0].answer, "unmask", said[0])
    assert "was answered before" in refused(
        table.sites[0].answer, "agree", {"stayed": said[0]["signed"]}
    )
    assert not set(own.values()) & set(keys.values())


def test_a_server_that_claims_a_drop_out_falsely_gets_nothing():
    """It has s3's masked numbers and says that s3 was lost: what it is then given opens the others'
    sum, and of s3 the pair masks, under which its own mask stays."""
    table = Table(4)
    table.play(until="agree")
    group = table.server.groups[0]
    kept = group.rows.pop(3)  # the lie
    for leg in ("agree", "unmask"):
        said = table.server.say(leg, (0, 1, 2))
        table.take(leg, {i: table.answer(leg, i, said[i]) for i in (0, 1, 2)})
    table.server.reveal()  # the sum of the three
    # with s3's mask key all pads of pairs can be taken off its row
    seed = shamir.join({k: shamir.from_bytes(group.shares[k][3].tobytes()) for k in (0, 1, 2)})
    assert derivations.mask_key(seed).public_key().public_bytes_raw() == group.keys[3][32:]
    row = kept.copy()
    pads = [(pad, -sign) for pad, sign in group._pads_of_lost(3, seed)]
    masks.add_pads(row, pads, 1)
    assert not np.isin(row, masks.joined(table.wires[3])).any()
    # and the client itself gives nothing for a list that it is not on
    lie = {"stayed": group.flags(group.rows)}
    assert "does not fit those who have shared" in refused(table.sites[3].answer, "agree", lie)
    # only its own mask is left, which nobody but the others' shares of it could tell
    own = derivations.self_pad(table.occasion, table.sites[3].seed, 3)
    masks.add_pads(row, [(own, -1)], 1)
    np.testing.assert_array_equal(row, masks.joined(table.wires[3]))


def test_damaged_shares_and_wrong_lists_are_refused():
    table = Table(4)
    said = table.play(until=EXCHANGE)
    bad = {k: v.copy() for k, v in said[0].items()}
    bad["sealed"][1][0] ^= 1
    assert "s1 were changed on their way" in refused(table.sites[0].hide, table.wires[0], bad)
    few = {**said[0], "shared": np.array([True, True, False, False])}
    assert "needs 3" in refused(table.sites[0].hide, table.wires[0], few)
    without = {**said[0], "shared": np.array([False, True, True, True])}
    assert "does not fit the list of keys" in refused(table.sites[0].hide, table.wires[0], without)
    assert table.sites[0].hide(table.wires[0], said[0])["update"].shape == (3, 1)
    assert "nothing twice" in refused(table.sites[0].hide, table.wires[0], said[0])


def test_a_wrong_share_is_noticed_by_the_weight():
    table = Table(3)
    said = table.play(until="unmask")
    replies = {i: table.answer("unmask", i, said[i]) for i in range(3)}
    replies[1] = {"shares": replies[1]["shares"].copy()}
    replies[1]["shares"][0][0] ^= 1
    table.take("unmask", replies)
    with pytest.raises(ProtocolError, match="another weight than the clients in it"):
        table.server.reveal()


# ---------------------------------------------------------------- whole runs


@pytest.mark.parametrize(
    "channel",
    [fedmin.SecureSum(), fedmin.SecureSum(bits=64, bound=8.0)],
    ids=["agreed", "bound"],
)
def test_the_same_bits_and_every_byte_counted(channel, monkeypatch):
    """The simulator rounds alike, bit for bit, and its ledger is what travelled."""
    options = {"rounds": 3, "every": 3, "channel": channel}
    carried = tapped(monkeypatch)
    real = run(FOUR, METHOD, engine=fedmin.Loopback(), **options)
    simulated = run(FOUR, METHOD, **options)
    np.testing.assert_array_equal(real.solution, simulated.solution)
    np.testing.assert_allclose(
        real.history["objective"], simulated.history["objective"], rtol=1e-14
    )
    assert real.ledger.by_kind() == simulated.ledger.by_kind()
    assert real.ledger.bytes(evaluation=True) == sum(map(len, carried))
    n, kinds = 4, real.ledger.by_kind()
    up = sum(kinds[f"channel up {part}"] for part in ("keys", "signature", "sealed", "shares"))
    assert up == 3 * n * (64 + 2 * 64 + n * (80 + 32))  # a round: 192 + 112 n bytes a client
    plain = run(FOUR, METHOD, rounds=3 if channel.bound else 2, every=3)
    np.testing.assert_allclose(real.solution, plain.solution, atol=1e-8)


def test_no_reply_travels_as_it_is(monkeypatch):
    """Of each client's numbers not one is on the wire; without masks all of them are."""
    channel = fedmin.SecureSum(bound=8.0)
    hidden, shown = [], []
    site = fedmin.channels.secure.site.SumSite
    hide = site.hide

    def watch(self, wire, said):
        shown.append(masks.joined(wire))
        hidden.append(masks.joined(hide(self, wire, said)))
        return masks.parted(hidden[-1], wire)

    monkeypatch.setattr(site, "hide", watch)
    carried = tapped(monkeypatch)
    run(FOUR, METHOD, engine=fedmin.Loopback(), channel=channel, rounds=1)
    road = b"".join(carried)
    for masked, plain in zip(hidden, shown, strict=True):
        assert not np.isin(masked[masked != 0], plain).any()
        assert all(word.tobytes() not in road for word in plain.astype("<u4") if word > 2**16)
        assert masked.tobytes()[:12] in road


def test_drop_outs_over_sessions_are_counted_and_exact():
    """The five trips of a round, each with somebody lost; as if they had not been drawn."""
    channel = fedmin.SecureSum(bound=8.0)
    for trip in range(5):
        server, ledger, travelled = dropping(channel, {(0, trip, 1)}, rounds=1)
        # lost after its numbers came, it is in the sum
        want, *_ = dropping(channel, {(0, 0, 1)} if trip <= 2 else set(), rounds=1)
        for a, b in zip(state_of(server), state_of(want), strict=True):
            np.testing.assert_array_equal(a, b)
        assert ledger.bytes(evaluation=True) == travelled
    with pytest.raises(QuorumError, match=r"2 of 4 clients have keys; .* needs 3"):
        dropping(channel, {(0, 0, 1), (0, 0, 2)})


def test_what_is_beyond_the_bound_is_clipped_counted_and_said():
    bound = 0.05
    with pytest.warns(
        RuntimeWarning, match=r"\d+ entries were clipped by the secure sum; give a l"
    ):
        found = run(FOUR, fedmin.FedSGD(0.1), channel=fedmin.SecureSum(bound=bound), rounds=2)
    first = [FOUR.gradient(i, np.zeros(3)) for i in range(4)]
    clipped = sum(np.sum(np.abs(g) > bound) for g in first)
    assert found.history["clipped"][1] == clipped
    assert found.info["clipped"] >= clipped
    assert "clipped" in found.reason
    step = 0.1 * sum(p * np.clip(g, -bound, bound) for p, g in zip(FOUR.shares, first, strict=True))
    once = run(FOUR, fedmin.FedSGD(0.1), channel=fedmin.chain(fedmin.Clip(9.0), fedmin.SecureSum(
        bound=4.0)), rounds=1)  # fmt: skip
    assert once.info["clipped"] == 0
    assert np.linalg.norm(step) < np.linalg.norm(once.solution)


def test_the_agreed_bound_follows_the_largest_entry_and_says_no_more(rng):
    """Sums of random words: zero below nobody, and of one client or four equally random."""
    channel = fedmin.SecureSum()
    keys = jax.random.split(jax.random.key(0), 4)
    nows = [fedmin.Now(jnp.int32(0), keys[0], key) for key in keys]
    ups = [{"a": jnp.array([2.0**k, -0.1]), "b": jnp.zeros(3)} for k in (1, 5, 3, 5)]
    wires = [channel.encode(up, (), now)[0] for up, now in zip(ups, nows, strict=True)]
    told = channel.tells(jnp.zeros(2, jnp.int32))
    assert bool(channel.waits(told))
    sent = [channel.weigh_as(wire, jnp.asarray(0.25), told) for wire in wires]
    assert not any(np.asarray(one["a"]).any() for one in sent)  # nothing but zeros before it
    stacked = channel.combine(jax.tree.map(lambda *a: jnp.stack(a), *sent))
    cohort = fedmin.Cohort(jnp.arange(4), jnp.ones(4, bool), jnp.full(4, 0.25))
    _, state = channel.decode(stacked, jnp.zeros(2, jnp.int32), cohort, nows[0])
    bounds, _ = channel._ranges(2, channel.tells(state))
    assert float(bounds[0]) == 2.0 ** (6 + MARGIN)  # maxima are told apart by even exponents
    assert float(bounds[1]) == float(bounds[0])  # a part that is 0 may become as large
    there = np.asarray(stacked["sum_range"])[0, :, 0]
    single = np.asarray(sent[1]["sum_range"])[0, :, 0]
    np.testing.assert_array_equal(there != 0, single != 0)  # the maximum, and not how many have it
    assert not np.isin(there[there != 0], single).any()
    for words in (there, single):  # at random, and no counts
        some = words[words != 0]
        assert len(np.unique(some)) == len(some) > 10
        assert np.median(some) > 2**28


def test_a_run_whose_replies_shrink_and_grow_is_not_clipped():
    world = known.apart(sizes=(4, 3, 5))
    found = run(world, fedmin.FedSGD(0.5), channel=fedmin.SecureSum(), rounds=300, every=300)
    np.testing.assert_allclose(found.solution, world.minimizer, atol=1e-6)
    assert found.info["clipped"] == 0


def sums_only(case) -> bool:
    trips = case.method.exchanges(case.world().problem, case.world().federation.roster())
    return all(trip.reduce == "sum" and not trip.unchanged for trip in trips)


SUMMED = [case for case in cases.CASES if sums_only(case) and case.name != "fedsso_same_clients"]
# each kind of wire and of state; FEDMIN_SUMS=all takes every method
QUICK = {"fedsgd", "scaffold", "feddane", "fednl", "fedht", "fedsso_remembered", "addressed"}
if os.environ.get("FEDMIN_SUMS") != "all":
    SUMMED = [case for case in SUMMED if case.name in QUICK]


@pytest.mark.parametrize("case", thorough.first(SUMMED, 3))
def test_every_method_of_sums_ends_at_the_same_optimum(case):
    world = case.world()
    settings = {"rounds": case.rounds + 2, "every": case.rounds + 2}
    found = run(world, case.method, channel=fedmin.SecureSum(bits=64), **settings)
    assert np.abs(found.solution - world.minimizer).max() < max(case.tolerance, 1e-7)
    assert found.info["clipped"] == 0


def test_processes_carry_it_unchanged(monkeypatch):
    for name, value in conftest.QUICKLY.items():
        monkeypatch.setenv(name, value)
    channel = fedmin.chain(fedmin.Clip(0.5), fedmin.SecureSum())
    ends = [run(known.apart(sizes=(4, 3, 5)), METHOD, channel=channel, engine=engine, rounds=2)
            for engine in (fedmin.Loopback(), fedmin.Processes())]  # fmt: skip
    np.testing.assert_array_equal(ends[0].solution, ends[1].solution)
    np.testing.assert_array_equal(ends[0].history["objective"], ends[1].history["objective"])
    assert ends[0].ledger.by_kind() == ends[1].ledger.by_kind()


# ---------------------------------------------------------------- what is refused


def test_what_no_sum_can_do_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match="Median gathers every reply"):
        run(FOUR, Median(), channel=fedmin.SecureSum())
    wide = fedmin.over(fedmin.LeastSquares(40), fedmin.L1Ball(1.0))
    rows = [(np.eye(4, 40), np.arange(4.0))] * 3
    world = known.World(wide, tuple(rows))
    with pytest.raises(ValueError, match=r"FedFW gathers .*give sums_only=True or Plain\(\)"):
        run(world, fedmin.FedFW(1.0), channel=fedmin.SecureSum())
    run(world, fedmin.FedFW(1.0, sums_only=True), channel=fedmin.SecureSum(), rounds=1)
    with pytest.raises(ValueError, match=r"pairs='same clients'.*give pairs="):
        run(FOUR, fedmin.FedSSO(0.3, pairs="same clients"), channel=fedmin.SecureSum())
    two = known.apart(sizes=(4, 3))
    with pytest.raises(ValueError, match="sums at least 3 clients; a round has at most 2"):
        run(two, METHOD, channel=fedmin.SecureSum())
    with pytest.raises(ValueError, match="a maximum without noise; give it a bound"):
        fedmin.chain(fedmin.Clip(1.0), fedmin.Noise(1.0), fedmin.SecureSum())
    noisy = fedmin.chain(fedmin.Clip(1.0), fedmin.Noise(1.0), fedmin.SecureSum(bound=1.0))
    with pytest.raises(ValueError, match=r"passes rounds of fewer than 3 .* give Everyone"):
        run(FOUR, METHOD, channel=noisy, participation=fedmin.Bernoulli(0.5))
    with pytest.raises(ValueError, match="bits must be 32 or 64"):
        fedmin.SecureSum(bits=16)
    with pytest.raises(ValueError, match="least must be at least 3"):
        fedmin.SecureSum(least=2)
    with pytest.raises(ValueError, match="lying"):
        fedmin.SecureSum(threshold="none")


def test_shares_of_noise_are_in_the_secure_sum():
    """Noise of the sites is in the sum that both engines have, and the same in both."""
    noise = fedmin.Noise(1.0, at="sites")
    channel = fedmin.chain(fedmin.Clip(1.0), noise, fedmin.SecureSum(bound=64.0))
    options = {"channel": channel, "rounds": 1, "record": [fedmin.Measure("size", size)]}
    both = [run(FOUR, METHOD, engine=engine, **options)
            for engine in (fedmin.Simulator(), fedmin.Loopback())]  # fmt: skip
    np.testing.assert_allclose(both[0].solution, both[1].solution, atol=1e-7)
    plain = run(FOUR, METHOD, rounds=1)
    assert np.abs(both[0].solution - plain.solution).max() > 0.01
    assert both[0].ledger.by_kind() == both[1].ledger.by_kind()


def size(problem, x):
    return jnp.linalg.norm(x)


def test_a_round_for_which_too_few_are_drawn_passes():
    part = fedmin.Bernoulli(0.7)
    options = {"participation": part, "rounds": 8, "channel": fedmin.SecureSum(bound=8.0)}
    both = [run(FOUR, METHOD, engine=engine, **options)
            for engine in (fedmin.Simulator(), fedmin.Loopback())]  # fmt: skip
    counts = both[0].ledger.counts
    assert set(counts) & {0}
    assert not set(counts) & {1, 2}
    assert set(counts) - {0}
    assert counts == both[1].ledger.counts
    np.testing.assert_array_equal(both[0].solution, both[1].solution)


def test_a_policy_has_the_last_word():
    from fedmin.engines.round import Run

    roster = FOUR.federation.roster()
    made = Run(FOUR.problem, METHOD, fedmin.SecureSum(), fedmin.Everyone(), (), None)
    assert Policy(smallest_sum=3, channels=("secure_sum",), modules=("test_protocol",)).refuses(
        made, roster, 5) == ""  # fmt: skip
    said = Policy(smallest_sum=4, modules=("test_protocol",)).refuses(made, roster, 5)
    assert "in sums of 3; the policy's smallest_sum is 4" in said
    more = Run(FOUR.problem, METHOD, fedmin.SecureSum(least=4), fedmin.Everyone(), (), None)
    assert Policy(smallest_sum=4, modules=("test_protocol",)).refuses(more, roster, 5) == ""


def test_what_leaves_is_listed():
    server, _ = parties(METHOD, FOUR, fedmin.SecureSum())
    from fedmin.privacy.observers import who_learns

    listed = who_learns(server.messages.purposes, "abcd")
    up = [d for d in listed if d.receivers == ("server",)]
    assert all(d.senders == tuple(f"client {c}" for c in "abcd") for d in up)
    sums = [d.sees for d in up if "sum_weight" in d.parts]
    assert sums == [
        "the sum of at least 3 clients' replies, each in fixed point of 32 bits",
        "the sum of at least 3 clients' replies, each in fixed point of 128 bits: sums over its "
        "rows",
    ]
