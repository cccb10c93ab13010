"""Messages between clients: every byte is counted; the server cannot read or change them."""

import numpy as np
import pytest

import fedmin
from fedmin import SplitSGD
from fedmin.engines.sessions import seal, wire
from fedmin.engines.transports.memory import _Session
from parted import CLASSES, SPLITS, K, N, problems, run, split, start

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
    assert ledger.bytes() == sum(kinds.values())
    each = sum(record["bytes"] for record in ledger.per_round())
    assert ledger.bytes() - each == 3 * (22 + 6 + 32) + 3 * (22 + 10 + 96)  # the keys, before


@pytest.mark.parametrize("labels", ["everyone", "server", "b"])
def test_ledger_is_what_the_server_carries(labels, monkeypatch):
    carried = []
    monkeypatch.setattr(_Session, "carry", lambda self, data: carried.append(data) or data)
    result = run(labels=labels, engine=fedmin.Loopback(), seed=5)
    assert result.ledger.bytes() == sum(map(len, carried))
    assert result.final("bytes_up") + result.final("bytes_down") == result.ledger.bytes()


def test_one_client_sends_nothing_to_others():
    kinds = run("swish", SPLITS[1], engine=fedmin.Loopback()).ledger.by_kind()
    assert kinds["up embedding"] == kinds["down seal"] == 0
    assert "up key" not in kinds


# ---------------------------------------------------------------- what the server sees


def pieces(numbers: np.ndarray) -> list[bytes]:
    """Every row of an array as bytes, in both precisions."""
    flat = numbers.reshape(-1, numbers.shape[-1])
    return [row.astype(kind).tobytes() for row in flat for kind in (np.float32, np.float64)]


@pytest.mark.parametrize("labels", ["everyone", "b"])
@pytest.mark.parametrize("name", ["swish", "product"])
def test_the_server_sees_no_embedding(name, labels, monkeypatch):
    carried, plain, wrap = [], [], seal.Sealer.seal

    def watch(self, receiver, round, exchange, data):
        plain.append((round, exchange, self.number, data))
        return wrap(self, receiver, round, exchange, data)

    monkeypatch.setattr(seal.Sealer, "seal", watch)
    monkeypatch.setattr(_Session, "carry", lambda self, data: carried.append(data) or data)
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
        lambda self, r, t, e, data: plain.append((self.number, data)) or wrap(self, r, t, e, data),
    )  # fmt: skip
    problem, federation = fedmin.MLP(K, CLASSES, hidden=(4,), l2=0.1), split((3, 1, 3))
    fedmin.minimize(problem, federation, SplitSGD(0.4), rounds=1, engine=fedmin.Loopback())
    W = start(problem)[: 4 * K].reshape(4, K)
    z = np.asarray(federation.pool.x.values)
    for i, (a, b) in enumerate([(0, 3), (3, 4), (4, 7)]):
        (sent, _) = [data for number, data in plain if number == i]
        h = np.frombuffer(sent[-N * 4 * 8 :]).reshape(N, 4)
        np.testing.assert_allclose(h, z[:, a:b] @ W[:, a:b].T, rtol=1e-12, atol=1e-15)


def tamper(monkeypatch, change):
    """A server that changes what is sealed, and makes a right checksum for it."""
    encode = wire.encode

    def server(envelope, message):
        if isinstance(message, dict) and "sealed" in message and envelope.kind == "down":
            sealed = np.array(message["sealed"])
            message = {**message, "sealed": change(envelope, int(message["peer"]), sealed)}
        return encode(envelope, message)

    monkeypatch.setattr(wire, "encode", server)


@pytest.mark.parametrize("place", [0, 40, -1])
def test_a_flipped_bit_is_refused(place, monkeypatch):
    def flip(envelope, sender, sealed):
        if (envelope.round, sender, envelope.party) == (1, 0, 2):
            sealed[place] ^= 1
        return sealed

    tamper(monkeypatch, flip)
    expected = "client c, round 1, exchange 0: message from client a: its seal is broken"
    with pytest.raises(fedmin.ClientError, match=expected):
        run(engine=fedmin.Loopback(), seed=50 + place)


def test_an_old_message_is_refused(monkeypatch):
    first = {}

    def replay(envelope, sender, sealed):
        return first.setdefault((sender, envelope.party), sealed)

    tamper(monkeypatch, replay)
    with pytest.raises(
        fedmin.ClientError, match=r"client a, round 1.*client b: its seal is broken"
    ):
        run(engine=fedmin.Loopback(), seed=11)


def test_damage_on_the_road_names_both_ends(monkeypatch):
    def damage(self, data):
        return (
            data[:-1] + bytes([data[-1] ^ 1]) if len(data) == self.weight[0, "up", True] else data
        )

    monkeypatch.setattr(_Session, "carry", damage)
    with pytest.raises(fedmin.ClientError, match=r"round 0.*from client b: a message was damaged"):
        run(engine=fedmin.Loopback(), seed=12)


def test_nonces_never_repeat():
    numbers = [0, 1, 2**16 - 1]
    made = [
        seal.nonce(t, e, s, r) for t in (*numbers, 2**32 - 1) for e in numbers
        for s in (*numbers, 2**24 - 1) for r in (*numbers, 2**24 - 1)
    ]  # fmt: skip
    assert len(set(made)) == len(made)
    assert {len(one) for one in made} == {12}
