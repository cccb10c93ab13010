"""The two halves of a run: what each accepts, refuses, repeats and keeps.

The full number of mutants is tried by FEDMIN_MUTANTS=200000 make test ARGS="-k mutants"; its last
figures are in docs/architecture.md.
"""

import os
import struct
import zlib
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedmin
import known
from agreement import assert_same, run
from fedmin.assembling import assemble
from fedmin.core.roster import Roster
from fedmin.engines.round import NOBODY, SERVER
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.checkpoint import CheckpointError
from fedmin.engines.sessions.halves import Halves
from fedmin.engines.sessions.packets import ClientError
from fedmin.engines.sessions.server import QuorumError, ServerSession
from fedmin.engines.sessions.site import Place, SiteSession, run_name
from fedmin.engines.sessions.transport import Transport
from fedmin.engines.sessions.wire import Envelope, MessageError
from fedmin.engines.transports.memory import Memory
from parted import problems, split

MUTANTS = int(os.environ.get("FEDMIN_MUTANTS", "20000"))
WORLD = known.apart(sizes=(4, 3, 5))
METHOD = fedmin.Scaffold(0.3, local_steps=2, batches=fedmin.Blocks(2))


def parties(method=METHOD, world=WORLD, channel=None, folders=(), quorum=1.0, seed=0):
    """A server and its sites; the server is given a roster and no federation."""
    federation = world.federation
    channel = fedmin.TopK(2) if channel is None else channel
    pieces = assemble(
        world.problem, federation, method, fedmin.Everyone(), channel, [fedmin.Objective()], None
    )
    roster = federation.roster()
    name = run_name(pieces, roster, seed)
    server = ServerSession(pieces, roster, seed=seed, name=name, quorum=quorum)
    sites = [
        SiteSession(
            pieces, roster, i, federation.client(i), seed=seed,
            folder=folders[i] if folders else None, gaps=quorum < 1,
        )
        for i in range(roster.clients)
    ]  # fmt: skip
    return server, sites


def answers(sites, asks):
    return {i: sites[i].answer(data) for i, data in asks.items()}


def go(server, sites, t):
    """One round."""
    server.open_round(t)
    while asks := server.asks():
        server.took(answers(sites, asks))
    return server.outcome


def state_of(party) -> list[np.ndarray]:
    return [np.asarray(a) for a in jax.tree.leaves(party.state)]


def unmoved(party, before) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(state_of(party), before, strict=True))


# ---------------------------------------------------------------- what each half has


def test_the_halves_share_nothing_but_what_all_may_know():
    """A roster has no row in it; two halves that never met name the run alike."""
    server, sites = parties()
    rows = {a.tobytes() for z, y in WORLD.clients for a in (z, y)}
    held = [np.asarray(a).tobytes() for a in jax.tree.leaves((server.run, server.roster))]
    assert not rows & set(held)
    assert isinstance(server.roster, Roster)
    assert server.server_rows is None
    for i, site in enumerate(sites):
        others = [z for k, (z, _) in enumerate(WORLD.clients) if k != i]
        own = np.asarray(site.rows.pool.x.values)
        assert not any((row == own).all(axis=1).any() for z in others for row in z)
        assert site.run_name == server.name
    assert parties(seed=1)[0].name != server.name
    assert parties(fedmin.FedSGD(0.3))[0].name != server.name


def test_rows_that_are_not_what_the_roster_says_are_refused():
    server, _ = parties()
    rows = WORLD.federation.client(0)
    for bad, said in (
        (fedmin.rows(np.ones((3, 2)), np.zeros(3)), "client 0: features: the roster says 3, it ha"),
        (fedmin.rows(np.ones((9, 3)), np.zeros(9)), "client 0 has 9 rows; the roster says 5"),
        (fedmin.rows(np.ones((3, 3)), np.zeros(3, int)), "type and shape of y: the roster says"),
    ):
        with pytest.raises(ValueError, match=said):
            SiteSession(server.run, server.roster, 0, bad, seed=0)
    SiteSession(server.run, server.roster, 0, rows, seed=0)


def test_rows_that_only_fill_up_never_count():
    """All have four rows of weight 1, says the roster: fewer would be filled up with zeros."""
    even = known.apart(sizes=(4, 4))
    roster = even.federation.roster()
    x, y = np.ones((4, 3)), np.zeros(4)
    assert roster.even
    roster.check(0, fedmin.rows(x, y))
    for bad in (fedmin.rows(x[:3], y[:3]), fedmin.rows(x, y, weight=[1.0, 1.0, 2.0, 1.0])):
        with pytest.raises(ValueError, match="all have 4 rows of weight 1, it has"):
            roster.check(0, bad)


# ---------------------------------------------------------------- asked twice


def test_asked_the_same_thing_twice_a_site_gives_the_same_reply():
    server, sites = parties()
    server.open_round(0)
    ask = server.asks()[1]
    reply = sites[1].answer(ask)
    moved = state_of(sites[1])
    assert sites[1].answer(ask) == reply
    assert unmoved(sites[1], moved)


def test_asked_another_thing_under_the_same_name_it_refuses():
    server, sites = parties()
    server.open_round(0)
    ask = server.asks()[1]
    sites[1].answer(ask)
    like = server.messages.training.ask_like(0, 1, 3)
    envelope, down = wire.decode(ask, like)
    other = wire.encode(envelope, {**down, "model": down["model"] + 1})
    moved = state_of(sites[1])
    with pytest.raises(MessageError, match="asked before, with other words"):
        sites[1].answer(other)
    assert unmoved(sites[1], moved)


def test_what_has_been_is_not_done_again():
    server, sites = parties()
    server.open_round(0)
    first = server.asks()
    server.took(answers(sites, first))
    for t in (1, 2, 3):
        go(server, sites, t)
    before = state_of(sites[0])
    with pytest.raises(MessageError, match="it has been"):
        sites[0].answer(first[0])
    assert unmoved(sites[0], before)


def test_trips_come_in_order():
    server, sites = parties(fedmin.FedDANE(0.3, local_steps=2), channel=fedmin.Plain())
    server.open_round(0)
    server.took(answers(sites, server.asks()))
    second = server.asks()
    fresh = parties(fedmin.FedDANE(0.3, local_steps=2), channel=fedmin.Plain())[1]
    with pytest.raises(MessageError, match="trip 0 of it must come first"):
        fresh[0].answer(second[0])
    sites[0].answer(second[0])
    assert Place.of(wire.envelope_of(second[0])) == Place(0, 1, 1)


def test_keys_are_exchanged_anew_with_keys_that_sealed_nothing():
    """After a site has begun anew; never for what has been, and never with the old pair."""
    federation = split((3, 1, 3), labels="b")
    pieces = assemble(
        problems(federation)["softmax"][0], federation, fedmin.SplitSGD(0.4), fedmin.Everyone(),
        fedmin.Plain(), None, None,
    )  # fmt: skip
    roster = federation.roster()
    sites = [SiteSession(pieces, roster, i, federation.client(i), seed=0) for i in range(3)]
    site = sites[0]
    keys = np.stack([other.packets.sealer.public for other in sites])
    ask = Envelope("ask", 0, wire.SETUP, SERVER, 0, site.run_name)
    second = ask._replace(trip=wire.SETUP + 1)
    with pytest.raises(MessageError, match="trip 0 of it must come first"):
        site.answer(wire.encode(second, {"key": keys}))
    first = site.answer(wire.encode(ask, {}))
    assert site.answer(wire.encode(ask, {})) == first
    bad = keys.copy()
    bad[1] = 0
    with pytest.raises(MessageError, match="the public key of client 1 is none"):
        site.answer(wire.encode(second, {"key": bad}))
    assert not site.packets.ready
    site.answer(wire.encode(second, {"key": keys}))
    with pytest.raises(MessageError, match="another one for this client"):
        site.answer(wire.encode(second, {"key": keys[::-1]}))
    with pytest.raises(MessageError, match="trip 0 of it must come first"):
        site.answer(wire.encode(second._replace(round=1), {"key": keys}))
    again = site.answer(wire.encode(ask._replace(round=1), {}))
    assert again[wire.HEADER.size :] != first[wire.HEADER.size :]
    assert not site.packets.ready
    rows_only = parties()[1][0]
    with pytest.raises(MessageError, match="no keys are exchanged here"):
        rows_only.answer(wire.encode(ask._replace(run=rows_only.run_name), {}))


def test_keys_take_two_trips():
    """Everybody's own up, everybody's down; then all can seal, and nobody is asked more."""
    federation = split((3, 1, 3), labels="b")
    pieces = assemble(
        problems(federation)["softmax"][0], federation, fedmin.SplitSGD(0.4), fedmin.Everyone(),
        fedmin.Plain(), None, None,
    )  # fmt: skip
    roster = federation.roster()
    server = ServerSession(pieces, roster, seed=0, name=run_name(pieces, roster, 0))
    sites = [SiteSession(pieces, roster, i, federation.client(i), seed=0) for i in range(3)]
    server.open_setup(0)
    for ready in (False, True):
        asks = server.asks()
        assert sorted(asks) == [0, 1, 2]
        server.took({i: sites[i].answer(ask) for i, ask in asks.items()})
        assert all(site.packets.ready is ready for site in sites)
    assert not server.asks()


# ---------------------------------------------------------------- what a server does not accept


def test_an_old_reply_is_not_accepted_for_ever():
    server, sites = parties()
    server.open_round(0)
    old = answers(sites, server.asks())
    server.took(old)
    server.open_round(1)
    server.asks()
    with pytest.raises(QuorumError, match="its round is 0, not 1"):
        server.took(old)
    assert len(server.refused) == 3


def test_one_clients_reply_is_not_passed_off_as_everybodys():
    server, sites = parties()
    server.open_round(0)
    replies = answers(sites, server.asks())
    with pytest.raises(QuorumError, match="its sender is 0, not 1"):
        server.took(dict.fromkeys(range(3), replies[0]))


def test_another_runs_reply_is_not_accepted():
    server, _ = parties()
    other, sites = parties(seed=5)
    for each in (server, other):
        each.open_round(0)
    server.asks()
    with pytest.raises(QuorumError, match="its run is"):
        server.took(answers(sites, other.asks()))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_reply_that_is_not_finite_names_its_client(bad):
    server, sites = parties(channel=fedmin.Plain())
    server.open_round(0)
    replies = answers(sites, server.asks())
    envelope, parts = wire.decode(replies[2], server.messages.training.reply_like(0, 2, 3))
    broken = {**parts, "update": parts["update"] * bad}
    before = state_of(server)
    server.took({**replies, 2: wire.encode(envelope, broken)})
    assert server.outcome.culprit == 2
    assert unmoved(server, before)
    assert server.asks() == {}


# ---------------------------------------------------------------- mutants


def repaired(data: bytes) -> bytes:
    """The same message with a checksum that fits."""
    front = data[: wire.HEADER.size - 4]
    body = data[wire.HEADER.size :]
    return front + struct.pack("<I", zlib.crc32(front + bytes(4) + body)) + body


HEADER_FIELDS = {"version": 4, "kind": 5, "trip": 6, "run": 8, "round": 16, "sender": 20,
                 "receiver": 24, "leaves": 28}  # fmt: skip


def mutant(rng, data: bytes, others: list[bytes]) -> bytes:
    """Damaged, cut, lengthened, re-addressed with a right checksum, or another message."""
    how = rng.integers(6)
    if how == 0:  # some bytes are other bytes
        found = bytearray(data)
        for place in rng.integers(0, len(data), rng.integers(1, 5)):
            found[place] ^= int(rng.integers(1, 256))
        return bytes(found)
    if how == 1:
        return data[: rng.integers(0, len(data))]
    if how == 2:  # cut or lengthened, with a checksum that fits
        cut = data[: rng.integers(wire.HEADER.size, max(len(data), wire.HEADER.size + 1))]
        return repaired(cut if rng.random() < 0.5 else data + rng.bytes(rng.integers(1, 9)))
    if how == 3:  # re-addressed, with a checksum that fits
        found = bytearray(data)
        place = list(HEADER_FIELDS.values())[rng.integers(len(HEADER_FIELDS))]
        found[place] ^= int(rng.integers(1, 256))
        return repaired(bytes(found))
    if how == 4:  # a shape or a type is another one, with a checksum that fits
        found = bytearray(data)
        if len(found) > wire.HEADER.size + 6:
            found[wire.HEADER.size + int(rng.integers(0, 6))] ^= int(rng.integers(1, 256))
        return repaired(bytes(found))
    return others[rng.integers(len(others))]  # replayed, or somebody else's


def test_mutants_of_what_a_site_is_asked():
    server, sites = parties()
    rng, others = np.random.default_rng(0), []
    for t in range(2):
        server.open_round(t)
        asks = server.asks()
        others += asks.values()
        server.took(answers(sites, asks))
    server.open_round(2)
    asks = server.asks()
    ask, site = asks[1], sites[1]
    others += [asks[0], asks[2], *answers(sites[:1], {0: asks[0]}).values()]
    # the last round's are answered again, word for word; earlier ones no more
    others = [data for data in others if Place.of(wire.envelope_of(data)).round != 1]
    before = state_of(site)
    for _ in range(MUTANTS // 2):
        data = mutant(rng, ask, others)
        if data == ask:
            continue
        with pytest.raises(MessageError):
            site.answer(data)
    assert unmoved(site, before)
    assert wire.envelope_of(site.answer(ask)).kind == "reply"


def test_mutants_of_what_a_server_is_answered():
    server, sites = parties()
    rng, others = np.random.default_rng(1), []
    for t in range(2):
        server.open_round(t)
        asks = server.asks()
        others += [*asks.values()]
        replies = answers(sites, asks)
        others += replies.values()
        server.took(replies)
    server.open_round(2)
    replies = answers(sites, server.asks())
    others += [replies[0], replies[2]]
    before = state_of(server)
    for _ in range(MUTANTS // 2):
        data = mutant(rng, replies[1], others)
        if data == replies[1]:
            continue
        with pytest.raises(QuorumError):
            server.took({**replies, 1: data})
    assert unmoved(server, before)
    assert server.outcome.culprit == NOBODY
    server.took(replies)
    assert not unmoved(server, before)


# ---------------------------------------------------------------- drop-outs


class Lossy(Transport):
    """Loses the replies of some sites, from some trip on."""

    def __init__(self, sites, lost):
        self.inner, self.lost, self.asked = Memory(sites), lost, []

    def deliver(self, messages, deadline=None, enough=None, before=MappingProxyType({})):
        envelopes = {i: wire.envelope_of(data) for i, data in messages.items()}
        self.asked += [(e.round, e.trip, i) for i, e in envelopes.items()]
        here = {i: d for i, d in messages.items()
                if (envelopes[i].round, envelopes[i].trip, i) not in self.lost}  # fmt: skip
        return self.inner.deliver(here, before=before)


def test_a_quorum_rules_whether_a_round_counts():
    """Without client 1 in round 1 the step is the mean of the others, by NumPy."""
    server, sites = parties(fedmin.FedSGD(0.4), channel=fedmin.Plain(), quorum=0.6)
    halves = Halves(server, Lossy(sites, {(1, 0, 1)}), every=100, rounds=3)
    x = np.zeros(3)
    for t in range(3):
        (log,) = halves.advance(t, 1)
        there = [0, 2] if t == 1 else [0, 1, 2]
        assert log.counts == [len(there)]
        p = WORLD.shares[there] / WORLD.shares[there].sum()
        x = x - 0.4 * sum(q * WORLD.gradient(i, x) for q, i in zip(p, there, strict=True))
    np.testing.assert_allclose(server.run.method.solution(server.state.method), x, rtol=1e-12)


def test_what_is_recorded_without_some_is_the_mean_of_the_others():
    server, sites = parties(fedmin.FedSGD(0.4), channel=fedmin.Plain(), quorum=0.6)
    halves = Halves(server, Lossy(sites, {(0, wire.EVALUATION, 1)}), every=100, rounds=3)
    (values,) = halves.begin()
    there = [0, 2]
    p = WORLD.shares[there] / WORLD.shares[there].sum()
    x = np.zeros(3)
    each = [np.mean(known.row_loss(WORLD.problem, z @ x, y)) for z, y in WORLD.clients]
    assert values[0] == pytest.approx(p @ np.array(each)[there] + WORLD.objective(x) * 0)


def test_a_look_without_some_is_the_mean_of_the_others():
    server, sites = parties(fedmin.FedSGD(0.4), channel=fedmin.Plain(), quorum=0.6)
    halves = Halves(server, Lossy(sites, {(0, wire.EVALUATION, 1)}), every=100, rounds=3)
    found, x = halves.begin()[0], np.zeros(3)
    there = [0, 2]
    p = WORLD.shares[there] / WORLD.shares[there].sum()
    rows = [known.row_loss(WORLD.core, z @ x, y) for z, y in WORLD.clients]
    wanted = sum(q * np.mean(rows[i]) for q, i in zip(p, there, strict=True))
    np.testing.assert_allclose(found[0], wanted + 0.5 * WORLD.l2 * x @ x, rtol=1e-12)


@pytest.mark.parametrize("labels", ["everyone", "server", "b"])
@pytest.mark.parametrize("trip", [wire.SETUP, wire.EVALUATION, 0, 1])
def test_where_columns_are_split_nobody_may_be_missing(labels, trip):
    """A quorum of half would take zeros for the block of whoever is absent."""
    problem, y = problems(split((3, 1, 3)))["swish"]
    federation = split((3, 1, 3), y, labels=labels)
    pieces = assemble(
        problem, federation, fedmin.SplitSGD(0.4), fedmin.Everyone(), fedmin.Plain(), None, None
    )
    roster = federation.roster()
    name = run_name(pieces, roster, 0)
    rows = federation.server_rows
    server = ServerSession(pieces, roster, seed=0, name=name, server_rows=rows, quorum=0.1)
    sites = [
        SiteSession(pieces, roster, i, federation.client(i), seed=0, gaps=True) for i in range(3)
    ]
    lost = {(0, trip, i) for i in (0, 1)}  # one of them is asked on every trip
    halves = Halves(server, Lossy(sites, lost), every=100, rounds=1)
    if labels == "server" and trip == wire.SETUP:
        pytest.skip("nothing is sealed")

    def whole():
        halves.begin()
        halves.advance(0, 1)

    with pytest.raises(QuorumError, match="no reply came"):
        whole()


@pytest.mark.parametrize("quorum", [0.0, 1.5])
def test_a_quorum_is_a_share(quorum):
    with pytest.raises(ValueError, match="quorum"):
        parties(quorum=quorum)


def test_too_few_are_an_error_that_names_them():
    server, sites = parties(quorum=0.6)
    halves = Halves(server, Lossy(sites, {(0, 0, 0), (0, 0, 2)}), every=100, rounds=3)
    with pytest.raises(QuorumError, match=r"round 0: too few .*: 0: no reply came; 2: no reply"):
        halves.advance(0, 1)


def test_who_is_absent_on_a_trip_is_not_asked_again_in_the_round():
    method = fedmin.FedDANE(0.3, local_steps=2)
    server, sites = parties(method, channel=fedmin.Plain(), quorum=0.5)
    transport = Lossy(sites, {(0, 0, 1)})
    halves = Halves(server, transport, every=100, rounds=3)
    halves.advance(0, 1)
    halves.advance(1, 1)
    assert (0, 1, 1) not in transport.asked
    assert {(0, 1, 0), (0, 1, 2), (1, 0, 1), (1, 1, 1)} <= set(transport.asked)


# ---------------------------------------------------------------- what survives a crash


def control(kind, server, i, done, used) -> bytes:
    """What the server says of what survives: keep a round, or go back."""
    envelope = Envelope(kind, done, 0, SERVER, i, server.name)
    return wire.encode(envelope, {"used": np.uint32(used)})


def test_a_site_keeps_its_own_state_and_finds_it_again(tmp_path):
    folders = [tmp_path / str(i) for i in range(3)]
    server, sites = parties(folders=folders)
    for t in range(3):
        go(server, sites, t)
    assert wire.envelope_of(sites[0].answer(control("keep", server, 0, 3, 3))).kind == "kept"
    again = parties(folders=folders)[1][0]
    assert not unmoved(again, state_of(sites[0]))
    again.answer(control("back", server, 0, 3, 3))
    assert unmoved(again, state_of(sites[0]))
    for done, used, why in ((3, 2, "is after 3 replies"), (2, 2, "nothing was kept of round 2")):
        with pytest.warns(RuntimeWarning, match=why):
            said = parties(folders=folders)[1][0].answer(control("back", server, 0, done, used))
        assert wire.envelope_of(said).kind == "lost"
    with pytest.raises(ClientError, match=r"has used 2 of its replies; it has given 0"):
        parties()[1][0].answer(control("back", server, 0, 2, 2))
    with pytest.raises(MessageError, match="already"):
        sites[0].answer(control("keep", server, 0, 1, 1))


def test_a_site_with_other_rows_does_not_take_up_a_state(tmp_path):
    folders = [tmp_path / str(i) for i in range(3)]
    server, sites = parties(folders=folders)
    go(server, sites, 0)
    sites[0].answer(control("keep", server, 0, 1, 1))
    z, y = WORLD.clients[0]
    other = WORLD.with_clients([(z, y + 1), *WORLD.clients[1:]])
    with pytest.raises(CheckpointError, match="belongs to another run"):
        parties(world=other, folders=folders)[1][0].answer(control("back", server, 0, 1, 1))


def test_a_server_that_lost_its_journal_goes_back_with_living_sites(tmp_path):
    """It has its checkpoint of round 1; its sites are after round 4."""
    folders = [tmp_path / str(i) for i in range(3)]
    server, sites = parties(folders=folders)
    said = []
    for t in range(4):
        if t == 1:
            for i, site in enumerate(sites):
                site.answer(control("keep", server, i, 1, 1))
            kept = server.state
        server.open_round(t)
        asks = server.asks()
        replies = answers(sites, asks)
        said.append(replies)
        server.took(replies)
    end = state_of(server)
    crashed = parties(folders=folders)[0]
    crashed.state = kept
    for i, site in enumerate(sites):
        site.answer(control("back", server, i, 1, 1))
    for t in range(1, 4):
        crashed.open_round(t)
        replies = answers(sites, crashed.asks())
        assert replies == said[t]
        crashed.took(replies)
    assert unmoved(crashed, end)


# ---------------------------------------------------------------- keys and secrets


class Draws(fedmin.FedSGD):
    """Sends a number of the shared key, and one of the client's own secret."""

    def client(self, problem, rows, state, down, now):
        up, state = super().client(problem, rows, state, down, now)
        both = (jax.random.uniform(now.key), jax.random.uniform(now.secret))
        return {**up, "shared": both[0], "secret": both[1]}, state


def test_what_is_shared_and_what_is_secret():
    server, sites = parties(Draws(0.1), channel=fedmin.Plain())
    seen: dict[str, list] = {"shared": [], "secret": []}
    for t in range(2):
        server.open_round(t)
        replies = answers(sites, server.asks())
        for i, data in replies.items():
            parts = wire.decode(data, server.messages.training.reply_like(0, i, 3))[1]
            for name, found in seen.items():
                found.append(float(parts[name]) / float(WORLD.shares[i]))
        server.took(replies)
    shared, secret = (np.round(seen[name], 12) for name in ("shared", "secret"))
    assert len(set(shared)) == 2  # one a round, the same for all
    assert len(set(secret)) == 6


def test_a_secret_of_its_own_changes_what_is_drawn_from_it_only():
    method = fedmin.FedAvg(0.3, local_steps=2, batches=fedmin.WithReplacement(2))
    server, (site, *_) = parties(method, channel=fedmin.Plain())
    own = SiteSession(
        server.run, server.roster, 0, WORLD.federation.client(0), seed=0,
        secret=jax.random.key(99),
    )  # fmt: skip
    # numbers of the run became arrays, so its name is another one: give it the server's
    own.run_name = server.name
    server.open_round(0)
    ask = server.asks()[0]
    like = server.messages.training.reply_like(0, 0, 3)
    plain, other = (wire.decode(s.answer(ask), like)[1]["update"] for s in (site, own))
    assert not np.allclose(plain, other)


def test_info_is_reported_and_counts_add_up():
    class Counts(fedmin.FedSGD):
        def server(self, problem, server_rows, x, learnt, now):
            state = super().server(problem, server_rows, x, learnt, now)
            late = now.round >= 2
            return fedmin.Reported(state, {"late": late, "weight": learnt.weight})

    for engine in (fedmin.Simulator(devices=1), fedmin.Loopback()):
        options = {"rounds": 6, "engine": engine, "every": 3}
        result = run(WORLD, Counts(0.1), **options)
        assert result.history["late"].tolist() == [0, 1, 4]
        assert result.history["weight"].tolist() == [0, 1, 1]
        assert int(result.info["late"]) == 4
        assert_same(run(WORLD, fedmin.FedSGD(0.1), **options), without_info(result))


def without_info(result):
    import dataclasses

    kept = {k: v for k, v in result.history.items() if k not in ("late", "weight")}
    return dataclasses.replace(result, history=kept)


def test_a_relay_must_reach_somebody():
    class Lost(fedmin.FedSGD):
        def exchanges(self, problem, roster):
            (one,) = super().exchanges(problem, roster)
            return one, fedmin.Relay(None, lambda p, r, s, d, now: ({"a": jnp.ones(1)}, s))

    with pytest.raises(ValueError, match="a Relay must be followed by a trip"):
        run(WORLD, Lost(0.1))
