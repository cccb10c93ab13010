"""Messages between clients: every byte is counted; the server cannot read or change them."""

import numpy as np
import pytest

import fedmin
import thorough
from agreement import ONE_BY_ONE
from fedmin import SplitSGD
from fedmin.engines.sessions import seal, wire
from fedmin.engines.transports.memory import Memory
from parted import CLASSES, SPLITS, K, N, problems, run, split, start

HOLDERS = ["everyone", "server", "b"]  # of the labels

GRADIENTS = (fedmin.Objective(), fedmin.GradientNorm(), fedmin.Scores("train"))


def method_of(name):
    return fedmin.SSCA(batches=fedmin.Full()) if name == "bounded" else SplitSGD(0.4)


def tap(monkeypatch, change=lambda way, i, data: data) -> list[bytes]:
    """Every message of the loopback runs to come, as it is carried; `change` may alter them."""
    carried, deliver = [], Memory.deliver

    def watched(self, messages, *rest):
        asks = {i: change("down", i, data) for i, data in messages.items()}
        replies = {i: change("up", i, data) for i, data in deliver(self, asks, *rest).items()}
        carried.extend([*asks.values(), *replies.values()])
        return replies

    monkeypatch.setattr(Memory, "deliver", watched)
    return carried


# ---------------------------------------------------------------- bytes


def test_bytes_by_hand():
    """Three clients, five of the rows, four hidden units, eight bytes a number."""
    ledger = run().ledger
    h, rounds, widest = 5 * 4 * 8, 3, 3
    kinds = ledger.by_kind()
    for way in ("up", "down"):
        assert kinds[f"{way} embedding"] == rounds * 3 * 2 * h  # each to two others
        assert kinds[f"{way} seal"] == rounds * 3 * 2 * 16
    assert kinds["down block"] == rounds * 3 * 4 * widest * 8
    assert kinds["up gradient"] == kinds["down block"]
    assert kinds["down head"] == rounds * 3 * 4 * CLASSES * 8
    assert kinds["up head"] == rounds * 4 * CLASSES * 8  # by one client
    assert kinds["up values"] == rounds * 8
    assert kinds["down indices"] == rounds * 3 * 5 * (4 + 1)
    assert (kinds["up key"], kinds["down key"]) == (3 * 32, 3 * 3 * 32)
    assert ledger.bytes(evaluation=True) == sum(kinds.values())
    each = sum(record["bytes"] for record in ledger.per_round())
    # the keys, before: asked for, sent, all of them sent back, said to be there
    assert ledger.bytes() - each == 3 * (34 + (34 + 6 + 32) + (34 + 10 + 96) + 34)
    # looking at the objective: client 0 is sent the embeddings of all twelve rows by the others
    looks, rows = rounds + 1, N * 4 * 8
    assert (
        kinds["evaluation up embedding"] == kinds["evaluation down embedding"] == looks * 2 * rows
    )
    assert kinds["evaluation up values"] == looks * 8


@pytest.mark.parametrize(
    ("record", "labels"),
    thorough.product({"objective": None, "gradients": GRADIENTS}, HOLDERS),
)
def test_ledger_is_what_the_server_carries(labels, record, monkeypatch):
    carried = tap(monkeypatch)
    result = run(labels=labels, engine=fedmin.Loopback(), seed=5, record=record)
    assert result.ledger.bytes(evaluation=True) == sum(map(len, carried))
    looked = [wire.envelope_of(m).trip & wire.EVALUATION for m in carried]
    evaluation = sum(len(m) for m, look in zip(carried, looked, strict=True) if look)
    assert result.final("bytes_evaluation") == evaluation > 0
    assert result.final("bytes_up") + result.final("bytes_down") == result.ledger.bytes()
    simulated = run(labels=labels, seed=5, record=record)
    assert simulated.ledger.by_kind() == result.ledger.by_kind()


@pytest.mark.filterwarnings("ignore:SSCA:RuntimeWarning")  # a few rounds do not meet a constraint
@pytest.mark.parametrize(
    ("name", "labels"), thorough.product(["deep", "logistic", "product", "bounded"], HOLDERS)
)
def test_what_is_recorded_is_the_simulators(name, labels):
    """Where nobody has a whole row: by embeddings, gradients and scores that travel."""
    record = GRADIENTS if name in ("deep", "logistic") else GRADIENTS[:2]
    both = [run(name, labels=labels, engine=e, record=record, seed=2, method=method_of(name))
            for e in (ONE_BY_ONE, fedmin.Loopback())]  # fmt: skip
    for column in both[0].history:
        if column != "seconds":
            np.testing.assert_allclose(*(r.history[column] for r in both), rtol=1e-9, atol=1e-13)
    assert both[0].history["gradient_norm"][0] > 0


def test_one_client_sends_nothing_to_others():
    kinds = run("swish", SPLITS[1], engine=fedmin.Loopback()).ledger.by_kind()
    assert not {"up embedding", "down seal", "up key"} & set(kinds)


# ---------------------------------------------------------------- what the server sees


def pieces(numbers: np.ndarray) -> list[bytes]:
    """Every row of an array as bytes, in both precisions."""
    flat = numbers.reshape(-1, numbers.shape[-1])
    return [row.astype(kind).tobytes() for row in flat for kind in (np.float32, np.float64)]


@pytest.mark.parametrize("labels", ["everyone", "b"])
@pytest.mark.parametrize("name", ["swish", "product"])
def test_the_server_sees_no_embedding(name, labels, monkeypatch):
    plain, wrap = [], seal.Sealer.seal

    def watch(self, receiver, round, trip, data):
        plain.append((round, trip, self.number, data))
        return wrap(self, receiver, round, trip, data)

    monkeypatch.setattr(seal.Sealer, "seal", watch)
    carried = tap(monkeypatch)
    run(name, labels=labels, engine=fedmin.Loopback(), seed=7)
    seen = b"".join(carried)
    width = 4 if name == "swish" else 2
    embeddings = {
        (t, i): np.frombuffer(data[-5 * width * 8 :]).reshape(5, width)
        for t, e, i, data in plain if e == 0
    }  # fmt: skip
    senders = 3 if labels == "everyone" else 2  # the holder of the labels tells nobody
    assert len(embeddings) == 3 * senders
    secret = list(embeddings.values())
    looked = [data for t, e, i, data in plain if e == wire.EVALUATION]
    assert len(looked) == 4 * 2  # to the one that computes the losses
    secret += [np.frombuffer(data[-N * width * 8 :]).reshape(N, width) for data in looked]
    if labels == "everyone":
        secret += [sum(embeddings[t, i] for i in range(3)) for t in range(3)]
    for h in secret:
        assert np.abs(h).max() > 0
        assert not any(piece in seen for piece in pieces(h[np.any(h != 0, axis=1)]))
    assert all(data not in seen for *_, data in plain)
    # the search does find what is sent in the clear: the head's numbers
    problem = problems(split((3, 1, 3)))[name][0]
    head = start(problem, seed=7)[-problem.head_size :]
    assert head.tobytes() in seen


def test_embeddings_are_what_was_sealed(monkeypatch):
    """The secret that is looked for above is the real one."""
    plain, wrap = [], seal.Sealer.seal
    monkeypatch.setattr(
        seal.Sealer, "seal",
        lambda self, r, t, e, data: (e == 0 and plain.append((self.number, data)))
        or wrap(self, r, t, e, data),
    )  # fmt: skip
    problem, federation = fedmin.MLP(K, CLASSES, hidden=(4,), l2=0.1), split((3, 1, 3))
    fedmin.minimize(problem, federation, SplitSGD(0.4), rounds=1, engine=fedmin.Loopback())
    W = start(problem)[: 4 * K].reshape(4, K)
    z = np.asarray(federation.pool.x.values)
    for i, (a, b) in enumerate([(0, 3), (3, 4), (4, 7)]):
        sent = next(data for number, data in plain if number == i)
        h = np.frombuffer(sent[-N * 4 * 8 :]).reshape(N, 4)
        np.testing.assert_allclose(h, z[:, a:b] @ W[:, a:b].T, rtol=1e-12, atol=1e-15)


def tamper(monkeypatch, change):
    """A server that changes the packets it passes on, and makes a right checksum for them.

    change(round, packets, receiver) of the first trip's packets, one a row in order of senders.
    """
    encode = wire.encode

    def server(envelope, message):
        if envelope.kind == "ask" and envelope.trip < wire.EVALUATION and "relayed" in message:
            packets = np.array(message["relayed"][0])
            new = change(envelope.round, packets, envelope.receiver)
            message = {**message, "relayed": (new, *message["relayed"][1:])}
        return encode(envelope, message)

    monkeypatch.setattr(wire, "encode", server)


@pytest.mark.parametrize("place", [0, 40, -1])
def test_a_flipped_bit_is_refused(place, monkeypatch):
    def flip(round, packets, receiver):
        if (round, receiver) == (1, 2):
            packets[0, place] ^= 1
        return packets

    tamper(monkeypatch, flip)
    expected = "client c, round 1, exchange 0: message from client a: its seal is broken"
    with pytest.raises(fedmin.ClientError, match=expected):
        run(engine=fedmin.Loopback(), seed=50 + place)


@pytest.mark.parametrize("how", ["old", "swapped", "another's"])
def test_a_packet_given_out_for_another_is_refused(how, monkeypatch):
    seen = {}

    def replace(round, packets, receiver):
        if how == "old":
            return seen.setdefault(receiver, packets)
        if how == "swapped":
            return packets[::-1]
        return seen.setdefault(round, packets)  # everybody gets what client 0 was sent

    tamper(monkeypatch, replace)
    with pytest.raises(fedmin.ClientError, match=r"message from client .: its seal is broken"):
        run(engine=fedmin.Loopback(), seed=11)


def test_a_server_that_changes_a_clients_public_key_is_noticed(monkeypatch):
    encode = wire.encode

    def server(envelope, message):
        if envelope.kind == "ask" and "key" in message:
            keys = np.array(message["key"])
            keys[envelope.receiver] ^= 1
            message = {"key": keys}
        return encode(envelope, message)

    monkeypatch.setattr(wire, "encode", server)
    with pytest.raises(wire.MessageError, match="another one for this client"):
        run(engine=fedmin.Loopback(), seed=12)


def test_nothing_is_sealed_twice_under_one_nonce():
    a, b = seal.Sealer(0), seal.Sealer(1)
    keys = np.stack([a.public, b.public])
    a.agree(keys)
    b.agree(keys)
    packet = a.seal(1, 3, 0, b"first")
    assert b.open(0, 3, 0, packet) == b"first"
    for round, trip in ((3, 0), (2, 5), (0, 0)):
        with pytest.raises(seal.SealError, match="a nonce is used once"):
            a.seal(1, round, trip, b"second")
    a.seal(1, 3, 1, b"later")


def test_nonces_never_repeat():
    numbers = [0, 1, 2**16 - 1]
    made = [
        seal.nonce(t, e, s, r) for t in (*numbers, 2**32 - 1) for e in numbers
        for s in (*numbers, 2**24 - 1) for r in (*numbers, 2**24 - 1)
    ]  # fmt: skip
    assert len(set(made)) == len(made)
    assert {len(one) for one in made} == {12}
