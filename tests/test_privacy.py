"""Who learns what: the printed list is compared with the bytes that leave the parties of a run."""

import re

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import fedmin
from fedmin.assembling import assemble
from fedmin.cli import app as cli
from fedmin.core.channel import Learns
from fedmin.core.participation import Everyone
from fedmin.engines.messages import messages_of
from fedmin.engines.round import SERVER
from fedmin.engines.sessions import seal, wire
from fedmin.engines.transports.memory import Memory
from fedmin.privacy import observers
from parted import problems, split

RNG = np.random.default_rng(3)
CLIENTS = [(RNG.standard_normal((n, 6)), RNG.integers(0, 2, n)) for n in (4, 5, 3)]
ROWS = fedmin.Federation.from_clients(CLIENTS, names=list("abc"))
LOGISTIC = fedmin.Logistic(6, l2=0.1)
ON_BALL = fedmin.over(LOGISTIC, fedmin.L1Ball(2.0))
BOUNDED = fedmin.subject_to(LOGISTIC, fedmin.NormAtMost(1.0), tolerance=100.0)


def on_columns(labels, name="swish"):
    problem, y = problems(split((3, 1, 3)))[name]
    return problem, split((3, 1, 3), y, labels=labels), fedmin.SplitSGD(0.4), fedmin.Plain()


WORLDS = {
    "fedavg": (LOGISTIC, ROWS, fedmin.FedAvg(0.1), fedmin.Plain()),
    "scaffold": (LOGISTIC, ROWS, fedmin.Scaffold(0.1), fedmin.TopK(2)),
    "fedfw": (ON_BALL, ROWS, fedmin.FedFW(1.0, smoothness=1.0), fedmin.Plain()),
    "ssca": (BOUNDED, ROWS, fedmin.SSCA(), fedmin.Plain()),
    **{f"columns, {who}": on_columns(who) for who in ("everyone", "server", "b")},
    "columns, each": on_columns("b", "product"),
}


def disclosures(problem, federation, method, channel):
    run = assemble(problem, federation, method, Everyone(), channel, None, None, certificate=True)
    roster = federation.roster(True)
    return observers.who_learns(messages_of(run, roster).purposes, roster.names)


def form(part) -> list[str]:
    """Types and shapes of a part's arrays, as they are printed."""
    leaves = [np.asarray(a) for a in jax.tree.leaves(part)]
    return [f"{a.dtype}{list(a.shape) or ''}" for a in leaves]


def printed(words: str) -> list[str]:
    """The same, read from the list: without the names of compact forms."""
    return re.findall(r"(?:u?int|float|bool)\d*(?:\[[\d, ]*\])?", words)


def place(trip: int) -> tuple[str, int]:
    first, when = next(
        (first, when)
        for first, when in (
            (wire.SETUP, "setup"),
            (wire.CERTIFICATE, "certificate"),
            (wire.EVALUATION, "evaluation"),
            (0, "training"),
        )
        if trip >= first
    )
    return when, trip - first


class Tap:
    """What the transport of loopback runs really carries: by time, sender, receiver and parts.

    Bytes say no names, so what is encoded is remembered with the names that it was given; only
    what is found again among the carried bytes counts.
    """

    def __init__(self, monkeypatch, names):
        self.names, self.seen = names, set()
        self.encoded, self.packets = {}, []
        encode, close, deliver = wire.encode, seal.Sealer.seal, Memory.deliver

        def encoding(envelope, message):
            data = encode(envelope, message)
            self.encoded[data] = {k: form(v) for k, v in message.items()}
            return data

        def sealing(sealer, receiver, round, trip, data):
            packet = close(sealer, receiver, round, trip, data)
            self.packets.append((sealer.number, receiver, trip, packet, self.encoded[data]))
            return packet

        def watched(transport, messages, *rest):
            replies = deliver(transport, messages, *rest)
            for data in (*messages.values(), *replies.values()):
                self.look(data)
            return replies

        monkeypatch.setattr(wire, "encode", encoding)
        monkeypatch.setattr(seal.Sealer, "seal", sealing)
        monkeypatch.setattr(Memory, "deliver", watched)

    def look(self, data: bytes) -> None:
        envelope, parts = wire.envelope_of(data), dict(self.encoded[data])
        parts.pop("relayed", None)  # seen as they left their senders
        if parts.pop("sealed", None) is not None:
            size = 0  # nothing but these packets is in the message
            for sender, receiver, trip, packet, inside in self.packets:
                if sender == envelope.sender and packet in data:
                    self.enter(trip, sender, receiver, inside)
                    size += len(packet)
            assert size == len(data) - wire.HEADER.size - 10  # type, axes and two lengths
        self.enter(envelope.trip, envelope.sender, envelope.receiver, parts)

    def enter(self, trip, sender, receiver, parts) -> None:
        for name, arrays in parts.items():
            ends = (self.party(sender), self.party(receiver))
            self.seen.add((*place(trip), *ends, name, tuple(arrays)))

    def party(self, number: int) -> str:
        return "server" if number == SERVER else f"client {self.names[number]}"


@pytest.mark.filterwarnings("ignore:SSCA:RuntimeWarning")  # two rounds do not meet a constraint
@pytest.mark.parametrize("name", WORLDS)
def test_the_list_is_what_the_transport_carries(name, monkeypatch):
    problem, federation, method, channel = WORLDS[name]
    tap = Tap(monkeypatch, federation.roster(True).names)
    fedmin.minimize(
        problem, federation, method, channel=channel, rounds=2, engine=fedmin.Loopback()
    )
    found = disclosures(*WORLDS[name])
    listed = {
        (d.when, d.trip, *ends, part, tuple(printed(words)))
        for d in found
        for ends in d.pairs
        for part, words in d.parts.items()
    }
    assert listed == tap.seen
    # what the server says to all has nobody's own in it; no channel of these hides a reply from it
    for each in found:
        if "server" in (*each.senders, *each.receivers):
            assert each.summed == (each.senders == ("server",))


def lines(name) -> list[tuple[str, ...]]:
    found = observers.leaving(disclosures(*WORLDS[name]))
    return [(line[0], *line[2:]) for line in observers.table(found)]


def test_words_of_a_sum():
    first, second = lines("scaffold")
    sparse = "Sparse(int32[2], float64[2])"
    parts = f"control {sparse}, update {sparse}"
    cut = "each client's reply, its largest entries only"
    assert first == ("training", "every client", parts, "server", cut)
    assert second[:2] == ("evaluation", "every client")
    assert second[-1] == "each client's reply, as it is: sums over its rows"


class Hidden(fedmin.Channel):
    """A channel that shows sums only."""

    lossless = True

    @property
    def learns(self):
        return Learns(each=False, least=2)


def test_what_is_gathered_is_not_hidden_by_a_sum():
    summed, gathered = (
        observers.leaving(disclosures(*WORLDS[name][:3], Hidden()))[0].sees
        for name in ("fedavg", "fedfw")
    )
    assert summed == "the sum of at least 2 clients' replies, each as it is"
    assert gathered == "each client's reply, as it is"


@pytest.mark.parametrize(
    ("labels", "sender", "receiver"),
    [
        ("everyone", "every client", "every other client"),
        ("b", "every other client", "client b"),
        ("server", "every client", "server"),
    ],
)
def test_who_gets_the_embeddings(labels, sender, receiver):
    found = [x for x in lines(f"columns, {labels}") if x[2].startswith("embedding")]
    when, *ends, sees = found[0]
    assert (when, ends[0], ends[2]) == ("training", sender, receiver)
    assert ("the server sees its length only" in sees) == (labels != "server")


def test_a_lone_client_tells_no_other():
    problem, y = problems(split((7,)))["swish"]
    found = disclosures(problem, split((7,), y), fedmin.SplitSGD(0.4), fedmin.Plain())
    assert {each.receivers for each in observers.leaving(found)} == {("server",)}


def test_show_prints_it(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        '[data]\nname = "wine"\n[partition]\nname = "iid"\nclients = 3\n'
        '[problem]\nname = "softmax"\n[method]\nname = "fedavg"\nstep = [0.1, 0.2]\n'
        '[channel]\nname = "topk"\nk = [2, 3]\n[run]\nrounds = 2\n'
    )
    outcome = CliRunner().invoke(cli.app, ["show", str(file)])
    assert outcome.exit_code == 0, outcome.output
    # two step sizes show the same, two k do not
    assert outcome.stdout.count("what leaves a client") == 2
    assert "update Sparse(int32[3], float64[3])" in outcome.stdout
    assert "sums over its rows" in outcome.stdout
