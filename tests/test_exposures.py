"""What one party can compute of another one's rows: done here, from nothing but what it has."""

import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedmin
from agreement import run
from fedmin.assembling import assemble
from fedmin.engines.round import SERVER, start_key
from fedmin.engines.sessions import packets, wire
from fedmin.engines.transports import memory
from fedmin.minimizing import exposed
from fedmin.privacy.exposures import PrivacyWarning
from parted import LABELS, split

SIZES = (2, 5)  # columns of clients a and b
SOFTMAX = fedmin.Softmax(7, 3)  # embeddings of three numbers
METHOD = fedmin.SplitSGD(0.5)


class Wire:
    """Everything that goes over the server's wire in a loopback run, as bytes."""

    def __init__(self, monkeypatch):
        self.asks, self.replies, outer = [], [], self

        class Tapped(memory.Memory):
            def __init__(self, sites, *rest):
                super().__init__(sites, *rest)
                outer.messages = sites[0].messages

            def deliver(self, messages, *rest):
                replies = super().deliver(messages, *rest)
                for i, data in messages.items():
                    outer.asks.append((i, data))
                    outer.replies.append((i, replies[i]))
                return replies

        monkeypatch.setattr(memory, "Memory", Tapped)

    def trip(self, e: int, clients: int = 2) -> list[tuple[int, int, dict, dict]]:
        """Client, round, what it was told and what it said on trip e of every round."""
        found, purpose = [], self.messages.training
        for (i, ask), (_, reply) in zip(self.asks, self.replies, strict=True):
            envelope = wire.envelope_of(ask)
            if envelope.kind == "ask" and envelope.trip == e:
                down = wire.decode(ask, purpose.ask_like(e, i, clients))[1]
                up = wire.decode(reply, purpose.reply_like(e, i, clients))[1]
                found.append((i, envelope.round, down, up))
        return found


def world(problem=SOFTMAX, sizes=SIZES, **options):
    return SimpleNamespace(problem=problem, federation=split(sizes, **options))


def warned(where, method, **options) -> list[str]:
    """Runs, and what it was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(where, method, engine=fedmin.Loopback(), **options)
    return [str(w.message) for w in caught if issubclass(w.category, PrivacyWarning)]


def columns(where, i: int) -> np.ndarray:
    return np.asarray(where.federation.client(i).x.values)


def blocks_and_embeddings(tapped: Wire, i: int, e: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    """The block that the server sent to client i, and the embedding that came back, a round."""
    rounds = [(down, up) for who, _, down, up in tapped.trip(0) if who == i]
    # everyone weighs 1/N in a sum
    return [(down["block"].reshape(e, -1), 2 * up["embedding"]) for down, up in rounds]


def test_the_server_computes_the_columns_of_a_narrow_block(monkeypatch):
    """labels="server": two columns into three numbers; five columns into three it cannot."""
    where, tapped = world(labels="server"), Wire(monkeypatch)
    (words,) = warned(where, METHOD, rounds=2)
    assert "the server sees embeddings as they are and has the blocks of a (2)" in words
    block, h = blocks_and_embeddings(tapped, 0)[1]  # the first block of a softmax is zero
    own = h @ np.linalg.pinv(block[:, :2].T)
    np.testing.assert_allclose(own, columns(where, 0), atol=1e-9)
    block, h = blocks_and_embeddings(tapped, 1)[1]
    other = h @ np.linalg.pinv(block.T)
    assert np.abs(other - columns(where, 1)).max() > 0.1


def test_no_warning_for_wide_blocks():
    """Of which the test above has one: from a single message it computes something else."""
    where = split((3, 4), (LABELS > 0).astype(int), labels="server")
    assert sentences(fedmin.Logistic(7), where, METHOD) == []
    assert (
        len(sentences(fedmin.Logistic(7), split((1, 6), LABELS > 0, labels="server"), METHOD)) == 1
    )


def test_several_rounds_give_the_columns_of_a_wide_block(monkeypatch):
    """Why a run without a warning is not private: the same rows through other blocks."""
    where, tapped = world(labels="server"), Wire(monkeypatch)
    warned(where, METHOD, rounds=6)
    seen = blocks_and_embeddings(tapped, 1)[1:]
    blocks, h = np.concatenate([b for b, _ in seen]), np.concatenate([h for _, h in seen], axis=1)
    own = h @ np.linalg.pinv(blocks.T)
    np.testing.assert_allclose(own, columns(where, 1), atol=1e-4)


def test_a_client_computes_columns_from_the_seed(monkeypatch):
    """A network begins at numbers that all parties can draw: b reads a's first embedding."""
    where, seen = world(fedmin.MLP(7, 3, hidden=(4,))), []
    real = packets.Packets._open

    def curious(self, wanted, *others):
        reply = real(self, wanted, *others)
        if self.me == 1 and wanted.round == 0 and wanted.trip < wire.EVALUATION:
            seen.append(np.asarray(reply["embedding"]))
        return reply

    monkeypatch.setattr(packets.Packets, "_open", curious)
    (words,) = warned(where, METHOD, rounds=1, seed=3)
    assert "every other client reads embeddings of a (2), and has the first blocks" in words
    first = where.problem.init(start_key(jax.random.key(3), SERVER))  # what b computes itself
    block = np.asarray(first[: 4 * 7]).reshape(4, 7)[:, :2]
    np.testing.assert_allclose(
        seen[0] @ np.linalg.pinv(block.T), columns(where, 0), rtol=1e-5, atol=1e-5
    )
    # a model that begins at zeros tells nothing in its first round, and there is no warning
    assert sentences(SOFTMAX, split(SIZES), METHOD) == []


def test_the_holder_of_the_labels_is_named():
    (words,) = sentences(fedmin.MLP(7, 3, hidden=(4,)), split(SIZES, labels="b"), METHOD)
    assert words.startswith("privacy: client b reads embeddings of a (2)")
    assert sentences(fedmin.MLP(7, 3, hidden=(4,)), split(SIZES[::-1], labels="b"), METHOD) == []


def test_slopes_tell_the_labels(monkeypatch):
    """labels="server": what clients are told is p - y, whose only negative entry is the label."""
    where, tapped = world(labels="server"), Wire(monkeypatch)
    warned(where, METHOD, rounds=1)
    slopes = next(down["slope"] for i, _, down, _ in tapped.trip(1) if i == 0)
    np.testing.assert_array_equal(np.argmin(slopes[0], axis=1), where.federation.pool.y)


@pytest.mark.parametrize("size", [1, 2])
def test_a_batch_of_one_row_is_the_row(monkeypatch, size, apart):
    """The server divides a reply by itself: with one row in it, it is that row."""
    method, tapped = fedmin.FedSGD(0.1, batches=fedmin.WithoutReplacement(size)), Wire(monkeypatch)
    assert len(warned(apart, method, rounds=2)) == (size == 1)
    for i, _, down, up in tapped.trip(0, apart.federation.num_clients):
        # the server knows p_i, the model, and what the regularizer adds
        reply = up["gradient"] / apart.shares[i] - apart.problem.l2 * down["model"]
        rows = columns(apart, i)
        along = np.abs(rows @ reply) / np.linalg.norm(rows, axis=1) / np.linalg.norm(reply)
        assert (along.max() > 1 - 1e-9) == (size == 1)


def sentences(problem, federation, method, **options) -> list[str]:
    pieces = {"participation": fedmin.Everyone(), "channel": fedmin.Plain()} | options
    made = assemble(problem, federation, method, *pieces.values(), [fedmin.Objective()], None)
    return exposed(made, federation.roster())


def test_one_row_on_columns_too():
    where = world()
    for size, count in ((1, 1), (2, 0)):
        method = fedmin.SplitSGD(0.5, batches=fedmin.WithoutReplacement(size))
        assert len(sentences(where.problem, where.federation, method)) == count


@pytest.mark.parametrize(
    ("method", "count"),
    [
        (fedmin.FedAvg(0.1, batches=fedmin.Shuffled(1)), 1),
        (fedmin.FedAvg(0.1, local_steps=3, batches=fedmin.Shuffled(1)), 0),  # a sum of three rows
        (fedmin.FedAvg(0.1, epochs=1, batches=fedmin.Shuffled(1)), 0),
        (fedmin.FedAvg(0.1, batches=fedmin.Full()), 0),
        (fedmin.FedNL(), 0),
    ],
)
def test_which_batches_are_warned_of(apart, method, count):
    assert len(sentences(apart.problem, apart.federation, method)) == count


def test_a_client_with_one_row_is_warned_of():
    one = fedmin.Federation.from_clients([(np.eye(3)[[i]], np.ones(1)) for i in range(3)])
    assert len(sentences(fedmin.LeastSquares(3), one, fedmin.FedSGD(0.1))) == 1


def test_no_linear_layer_no_sentence():
    made = fedmin.from_loss(lambda x, z, y: jnp.dot(z, x) - y, jnp.zeros(3))
    one = fedmin.Federation.from_clients([(np.eye(3)[[i]], np.ones(1)) for i in range(3)])
    assert sentences(made, one, fedmin.FedSGD(0.1)) == []
