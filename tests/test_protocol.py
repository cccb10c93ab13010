"""A channel's own trips: keys before an exchange, unmasking after it, whoever drops out.

`masks.py` has the two channels. `Integers` is what they compute without hiding anything, so it says
which bits must come out.
"""

import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import conftest
import fedmin
import known
from agreement import assert_same, run
from contract import Median
from fedmin.core.protocol import Leg, Part
from fedmin.engines.drive import Book
from fedmin.engines.forms import purpose_of
from fedmin.engines.round import NOBODY
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.halves import Halves
from fedmin.engines.sessions.server import QuorumError
from fedmin.engines.sessions.wire import MessageError
from fedmin.engines.transports.memory import Memory
from fedmin.engines.weighing import ledger_of
from fedmin.privacy.observers import who_learns
from masks import Integers, OneOpens, PairwiseMasks
from test_sessions import Lossy, answers, mutant, parties, state_of, unmoved

WORLD = known.apart(sizes=(4, 3, 5))
FOUR = known.apart(sizes=(4, 3, 5, 2))
KEYS, EXCHANGE, STAYED = range(3)  # the trips of PairwiseMasks, as they are numbered on the wire


class Coarse(fedmin.FedSGD):
    """Gradients on a coarse grid, so that no engine's last digit decides how they are rounded."""

    def client(self, problem, rows, state, down, now):
        up, state = super().client(problem, rows, state, down, now)
        return jax.tree.map(lambda a: jnp.round(a * 64) / 64, up), state


METHOD = Coarse(0.25)


def tapped(monkeypatch) -> list[bytes]:
    """Every message that a loopback carries, both ways."""
    carried: list[bytes] = []
    deliver = Memory.deliver

    def watch(self, messages, *rest):
        replies = deliver(self, messages, *rest)
        carried.extend([*messages.values(), *replies.values()])
        return replies

    monkeypatch.setattr(Memory, "deliver", watch)
    return carried


# ---------------------------------------------------------------- the same sum, the same bytes


@pytest.mark.parametrize("channel", [PairwiseMasks(), OneOpens()], ids=["masks", "opened"])
@pytest.mark.parametrize("part", [fedmin.Everyone(), fedmin.Bernoulli(0.7)], ids=str)
def test_the_same_bits_and_every_byte_counted(channel, part, monkeypatch):
    """Hidden or not, simulated or not, the sum has the same bits; and the ledger is a formula."""
    options = {"participation": part, "rounds": 4, "every": 2}
    if channel == OneOpens() and part != fedmin.Everyone():
        options["participation"] = fedmin.Uniform(3)  # which never sums fewer than two
    shown = run(FOUR, METHOD, channel=Integers(), engine=fedmin.Loopback(), **options)
    carried = tapped(monkeypatch)
    hidden = run(FOUR, METHOD, channel=channel, engine=fedmin.Loopback(), **options)
    simulated = run(FOUR, METHOD, channel=channel, **options)
    for one in (hidden, simulated):
        np.testing.assert_array_equal(one.solution, shown.solution)
    assert simulated.ledger.counts == hidden.ledger.counts
    assert simulated.ledger.by_kind() == hidden.ledger.by_kind()
    assert hidden.ledger.bytes(evaluation=True) == sum(map(len, carried))
    assert not hidden.ledger.uneven
    kinds = hidden.ledger.by_kind()
    asked = sum(hidden.ledger.counts)
    if channel == PairwiseMasks():
        squares = sum(n * n for n in hidden.ledger.counts)
        assert kinds["channel up key"] == 32 * asked
        assert kinds["down protocol"] == 33 * squares
        assert kinds["channel up seeds"] == 32 * squares
        assert kinds["up gradient"] == 3 * 4 * asked
    else:
        assert kinds["channel up part_0"] == 3 * 4 * hidden.ledger.counts.__len__()


def test_masks_hide_each_reply_and_not_their_sum():
    server, sites = parties(METHOD, FOUR, PairwiseMasks())
    plain, bare = parties(METHOD, FOUR, Integers())
    server.open_round(0)
    server.took(answers(sites, server.asks()))
    plain.open_round(0)
    like = server.messages.training.reply_like(0, 0, 4)
    hidden, shown = (
        [wire.decode(data, like)[1]["gradient"] for data in answers(s, p.asks()).values()]
        for p, s in ((server, sites), (plain, bare))
    )
    assert not any(np.isin(a, b).any() for a, b in zip(hidden, shown, strict=True))
    total = [np.sum(each, axis=0, dtype=np.uint32) for each in (hidden, shown)]
    np.testing.assert_array_equal(*total)


def test_two_exchanges_play_two_roles():
    method, options = fedmin.FedDANE(0.3, local_steps=2), {"rounds": 2}
    ends = [run(WORLD, method, channel=channel, engine=fedmin.Loopback(), **options)
            for channel in (Integers(), PairwiseMasks())]  # fmt: skip
    np.testing.assert_array_equal(ends[0].solution, ends[1].solution)
    np.testing.assert_allclose(
        run(WORLD, method, channel=PairwiseMasks(), **options).solution, ends[1].solution, rtol=1e-6
    )


@pytest.mark.thorough  # processes to start
def test_processes_carry_it_unchanged(monkeypatch):
    if conftest.XLA == "quick":
        flags = os.environ.get("XLA_FLAGS", "")
        monkeypatch.setenv("XLA_FLAGS", f"{flags} --xla_cpu_use_fusion_emitters=false")
    channel = fedmin.chain(fedmin.Clip(0.5), PairwiseMasks(looks=True))
    ends = [run(WORLD, METHOD, channel=channel, engine=engine, rounds=2)
            for engine in (fedmin.Loopback(), fedmin.Processes())]  # fmt: skip
    np.testing.assert_array_equal(ends[0].solution, ends[1].solution)
    np.testing.assert_array_equal(ends[0].history["objective"], ends[1].history["objective"])
    assert ends[0].ledger.by_kind() == ends[1].ledger.by_kind()


# ---------------------------------------------------------------- what is recorded


@pytest.mark.parametrize("devices", [1, 2])
def test_what_is_recorded_goes_through_it_too(devices, monkeypatch):
    """On the channel's grid, so the same number in both engines; counted as evaluation."""
    channel, carried = PairwiseMasks(looks=True), tapped(monkeypatch)
    honest = run(FOUR, METHOD, channel=channel, engine=fedmin.Loopback(), rounds=2)
    fast = run(FOUR, METHOD, channel=channel, engine=fedmin.Simulator(devices=devices), rounds=2)
    assert_same(honest, fast)
    assert honest.ledger.bytes(evaluation=True) == sum(map(len, carried))
    assert honest.ledger.by_kind() == fast.ledger.by_kind()
    assert honest.ledger.by_kind()["evaluation channel up key"] == 3 * 4 * 32
    grid = 8.0 / 2**30
    l2 = 0.5 * FOUR.l2 * np.sum(honest.solution**2)
    steps = (honest.final("objective") - l2) / grid
    assert abs(steps - round(steps)) < 1e-3  # of which an unrounded one has none
    plain = run(FOUR, METHOD, channel=PairwiseMasks(), rounds=2)
    assert abs(plain.final("objective") - fast.final("objective")) < 4 * grid


def test_what_looks_remembers_nothing():
    class Remembers(fedmin.TopK):
        def for_evaluation(self):
            return self

    with pytest.raises(ValueError, match="looks at the model and would remember it"):
        run(WORLD, METHOD, channel=Remembers(1), record=[fedmin.GradientNorm()])


# ---------------------------------------------------------------- drop-outs


def dropping(channel, lost, world=FOUR, method=METHOD, quorum=0.5, rounds=2):
    """Rounds over a road that loses messages; server, ledger, and the bytes that travelled."""
    server, sites = parties(method, world, channel, quorum=quorum)
    road, carried = Lossy(sites, lost), []
    deliver = road.deliver

    def watch(messages, *rest):
        replies = deliver(messages, *rest)
        carried.extend([*messages.values(), *replies.values()])
        return replies

    road.deliver = watch
    halves = Halves(server, road, every=1, rounds=rounds)
    book = Book(halves.names, ledger_of(server.messages, len(sites)))
    book.add(0, 0.0, halves.begin()[0], halves.first_look)
    for t in range(rounds):
        (log,) = halves.advance(t, 1)
        book.enter(log, 0.0, 1.0, server.roster.names)
    return server, book.ledger, sum(map(len, carried))


@pytest.mark.parametrize(
    ("lost", "without"),
    [
        ({(0, KEYS, 1)}, {1}),
        ({(0, EXCHANGE, 1)}, {1}),
        ({(0, EXCHANGE, 0), (0, EXCHANGE, 3)}, {0, 3}),
        ({(0, KEYS, 2), (0, EXCHANGE, 3)}, {2, 3}),
        ({(0, STAYED, 1)}, set()),  # its reply is in the sum already
    ],
    ids=["keys", "exchange", "two", "both trips", "unmasking"],
)
def test_whoever_drops_out_the_sum_of_the_others_has_the_same_bits(lost, without):
    server, ledger, travelled = dropping(PairwiseMasks(), lost)
    same, *_ = dropping(Integers(), {(0, 0, i) for i in without})
    for a, b in zip(state_of(server), state_of(same), strict=True):
        np.testing.assert_array_equal(a, b)
    assert ledger.bytes(evaluation=True) == travelled
    assert list(ledger.uneven) == [0]
    assert sum(ledger.by_kind().values()) == travelled
    assert sum(record["bytes"] for record in ledger.per_round()) == ledger.bytes()


def test_masks_that_nobody_can_open_end_the_round_in_words():
    """Client 1 dropped out with masks in the sum, and client 2 does not say which."""
    with pytest.raises(QuorumError, match="round 0: without client 2 its masks stay in the sum"):
        dropping(PairwiseMasks(), {(0, EXCHANGE, 1), (0, STAYED, 2)})


def test_a_second_site_opens_the_sum_where_the_first_is_lost():
    server, ledger, travelled = dropping(OneOpens(), {(0, 1, 0)})
    same, *_ = dropping(Integers(), set())
    for a, b in zip(state_of(server), state_of(same), strict=True):
        np.testing.assert_array_equal(a, b)
    assert ledger.bytes(evaluation=True) == travelled
    records = [r for r in ledger.per_round() if r["kind"] == "channel part_0"]
    sent = [(r["round"], r["trip"], r["direction"], r["messages"]) for r in records]
    assert sent == [
        (0, 1, "down", 1), (0, 1, "up", 0), (0, 2, "down", 1), (0, 2, "up", 1),
        (1, 1, "down", 1), (1, 1, "up", 1), (1, 2, "down", 0), (1, 2, "up", 0),
    ]  # fmt: skip


def test_a_sum_that_nobody_opens_ends_the_round_in_words():
    with pytest.raises(QuorumError, match="round 0: nobody has opened the sum"):
        dropping(OneOpens(), {(0, 1, 0), (0, 2, 1)})


def test_drop_outs_are_counted_trip_by_trip_without_a_protocol_too():
    """Client 1 answers the first exchange of round 0 and not the second; 2 is not looked at."""
    lost = {(0, 1, 1), (1, wire.EVALUATION, 2)}
    method = fedmin.FedDANE(0.3, local_steps=2)
    _, ledger, travelled = dropping(fedmin.Plain(), lost, WORLD, method, quorum=0.5)
    assert ledger.counts == [2, 3]
    assert ledger.uneven[0].messages == (3, 3, 3, 2)
    assert ledger.uneven_looks[1].messages == (3, 2)
    assert ledger.bytes(evaluation=True) == travelled == sum(ledger.by_kind().values())
    assert ledger.cumulative_evaluation()[-1] + ledger.bytes() == travelled


# ---------------------------------------------------------------- what is refused


def at_trip(trip):
    """A server and its sites, before the messages of a trip are carried."""
    server, sites = parties(METHOD, FOUR, PairwiseMasks())
    seen = []
    for t in range(2):
        server.open_round(t)
        for step in range(3):
            asks = server.asks()
            if t == 1 and step == trip:
                return server, sites, asks, seen
            replies = answers(sites, asks)
            seen += [*asks.values(), *replies.values()] if t == 0 else []
            server.took(replies)
    raise AssertionError


@pytest.mark.parametrize("trip", [KEYS, EXCHANGE, STAYED])
def test_mutants_of_a_protocols_messages_are_refused(trip, rng):
    server, sites, asks, seen = at_trip(trip)
    site, ask = sites[1], asks[1]
    before = state_of(site)
    # the last round's are answered again, word for word, until the next one begins
    others = [*(seen if trip != KEYS else []), *(asks[i] for i in (0, 2, 3))]
    for _ in range(400):
        data = mutant(rng, ask, others)
        if data != ask:
            with pytest.raises(MessageError):
                site.answer(data)
    assert unmoved(site, before)
    replies = answers(sites, asks)
    assert answers(sites, asks) == replies  # asked twice, the same bytes: no new keys or masks
    before = state_of(server)
    for _ in range(400):
        data = mutant(rng, replies[1], [*seen, replies[0], replies[2]])
        if data != replies[1]:
            with pytest.raises(QuorumError):
                server.took({**replies, 1: data})
    assert unmoved(server, before)
    server.took(replies)
    assert server.outcome.culprit == NOBODY


def test_a_site_does_not_unmask_before_the_exchange_nor_twice():
    server, sites, asks, _ = at_trip(EXCHANGE)
    late = at_trip(STAYED)[2][1]
    with pytest.raises(MessageError, match="trip 1 of it must come first"):
        sites[1].answer(late)
    sites[1].answer(asks[1])
    sites[1].answer(late)
    envelope = wire.envelope_of(late)
    leg = server.messages.training.steps[STAYED].leg
    other = leg.form("down", 4)
    other["stayed"][1] = True  # another list of who stayed: it would give away more seeds
    with pytest.raises(MessageError, match="asked before, with other words"):
        sites[1].answer(wire.encode(envelope, other))


def test_what_a_role_refuses_changes_nothing():
    server, sites, asks, _ = at_trip(STAYED)
    envelope = wire.envelope_of(asks[1])
    leg = server.messages.training.steps[STAYED].leg
    before = state_of(sites[1])
    with pytest.raises(MessageError, match="those who stayed does not have this client"):
        sites[1].answer(wire.encode(envelope, leg.form("down", 4)))
    assert unmoved(sites[1], before)
    server.took(answers(sites, asks))

    server, sites, asks, _ = at_trip(KEYS)
    replies = answers(sites, asks)
    none = wire.encode(wire.envelope_of(replies[2]), {"key": np.zeros(32, np.uint8)})
    with pytest.raises(QuorumError, match=r"2: .*a public key of zeros is none"):
        server.took({**replies, 2: none})


def test_what_no_sum_can_hide_is_refused():
    with pytest.raises(ValueError, match="Median gathers every reply, and the channel brings"):
        run(WORLD, Median(), channel=PairwiseMasks())
    alone = fedmin.Exchange(None, print, print, only=1)
    assert "single client" in fedmin.chain(fedmin.Clip(1.0), PairwiseMasks()).refuses(alone)
    with pytest.raises(ValueError, match="must be the last stage of a chain"):
        fedmin.chain(PairwiseMasks(), fedmin.Clip(1.0))
    with pytest.raises(NotImplementedError, match="Mute hides replies and has no protocol"):
        run(WORLD, METHOD, channel=Mute())


class Mute(fedmin.Channel):
    hides = True


def test_legs_have_names_of_their_own():
    class Twice(PairwiseMasks):
        def protocol(self, sent):
            found = super().protocol(sent)
            found.before = (Leg("exchange", up={"key": Part((32,))}),)
            return found

    server, _ = parties(METHOD, FOUR, PairwiseMasks())
    form = server.messages.training.forms[0]
    with pytest.raises(ValueError, match="two legs named 'exchange'"):
        purpose_of("training", 0, Twice(), (form._replace(protocol=Twice().protocol(form.sent)),))


def test_what_leaves_is_listed():
    server, _ = parties(METHOD, FOUR, PairwiseMasks())
    listed = who_learns((server.messages.training,), "abcd")
    said = [(d.trip, d.senders == ("server",), d.parts, d.sees) for d in listed]
    assert said == [
        (0, False, {"key": "uint8[32]"}, "each client's public key"),
        (1, True, {"model": "float64[3]", "keys": "uint8[peers, 32]", "there": "bool[peers]"},
         "all of it"),
        (1, False, {"gradient": "uint32[3]"},
         "the sum of at least 1 clients' replies, each in fixed point"),
        (2, True, {"stayed": "bool[peers]"}, "its own part of it"),
        (2, False, {"seeds": "uint8[peers, 32]"},
         "what each client agreed on with those who dropped out"),
    ]  # fmt: skip


# ---------------------------------------------------------------- messages of checkpoints


def test_messages_of_checkpoints_are_counted_apart(tmp_path, monkeypatch):
    """Every byte that travelled is counted; those that serve checkpoints are no method's."""
    carried = tapped(monkeypatch)
    options = {"channel": PairwiseMasks(), "engine": fedmin.Loopback()}
    plain = run(WORLD, METHOD, rounds=4, **options)
    assert plain.ledger.control == {}
    carried.clear()
    keep = fedmin.Checkpoint(tmp_path, rounds=1, seconds=1e9)
    half = run(WORLD, METHOD, rounds=2, checkpoint=keep, **options)
    down, up = 2 * 3 * (wire.HEADER.size + 2 + 4), 2 * 3 * wire.HEADER.size
    assert half.ledger.control == {"down keep": down, "up keep": up}
    assert half.ledger.bytes(evaluation=True, control=True) == sum(map(len, carried))
    assert "control up keep" in str(half.ledger)
    whole = run(WORLD, METHOD, rounds=4, checkpoint=keep, **options)
    assert whole.ledger.by_kind() == plain.ledger.by_kind()  # as if it had never stopped
    # the look before round 0 was not made again
    assert whole.ledger.control == {
        "down keep": 2 * down, "up keep": 2 * up, "down back": down // 2, "up back": up // 2,
    }  # fmt: skip
    assert whole.ledger.bytes(evaluation=True, control=True) == sum(map(len, carried))
    again = fedmin.Result.load(whole.save(tmp_path / "result"), also=[Coarse])
    assert again.ledger == whole.ledger


def test_a_ledger_with_drop_outs_is_saved_whole():
    _, ledger, _ = dropping(PairwiseMasks(), {(0, EXCHANGE, 1), (1, wire.EVALUATION, 2)})
    again = fedmin.Ledger(ledger.lines, ledger.counts, evaluation=ledger.evaluation)
    again.enter(json.loads(json.dumps(ledger.exceptions())))
    assert (again.uneven, again.uneven_looks) == (ledger.uneven, ledger.uneven_looks)
    assert ledger.uneven
    assert ledger.uneven_looks
