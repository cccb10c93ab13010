"""Embeddings of column runs under a secure sum: receivers have the sum, nobody a single one."""

from itertools import pairwise
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import fedmin
import thorough
from agreement import ONE_BY_ONE
from fedmin.assembling import assemble
from fedmin.channels.secure import masks
from fedmin.engines.sessions import packets, seal, wire
from fedmin.minimizing import exposed
from fedmin.privacy.search import search
from parted import K, problems, run, split
from test_sealed import tap

SUM = fedmin.SecureSum()
SIZES = (3, 1, 3)
HOLDERS = ("everyone", "server", "b")
SSCA = fedmin.SSCA(batches=fedmin.Full())
METHODS = {
    "swish": fedmin.SplitSGD(0.4, fedmin.WithoutReplacement(5)),
    "bounded": SSCA,
    "softmax": fedmin.SSCA(batches=fedmin.WithoutReplacement(5)),
}


# ---------------------------------------------------------------- the same model, every byte


@pytest.mark.filterwarnings("ignore:SSCA:RuntimeWarning")  # a few rounds do not meet a constraint
@pytest.mark.filterwarnings("ignore:privacy:UserWarning")  # of the run without a secure sum
@pytest.mark.parametrize(("labels", "name"), thorough.product(HOLDERS, [*METHODS]))
def test_the_same_bits_and_every_byte_counted(labels, name, monkeypatch):
    """The loopback masks and seals, the simulator adds: the same integers, so the same model."""
    carried = tap(monkeypatch)
    options = {"labels": labels, "method": METHODS[name], "seed": 4}
    real = run(name, channel=SUM, engine=fedmin.Loopback(), **options)
    simulated = run(name, channel=SUM, **options)
    np.testing.assert_allclose(real.solution, simulated.solution, rtol=1e-13, atol=1e-15)
    assert real.ledger.by_kind() == simulated.ledger.by_kind()
    assert real.ledger.bytes(evaluation=True) == sum(map(len, carried))
    plain = run(name, **options)
    np.testing.assert_allclose(real.solution, plain.solution, rtol=1e-9, atol=1e-10)
    for column in ("objective", *(c for c in plain.history if c.startswith("constraint"))):
        np.testing.assert_allclose(real.history[column], plain.history[column], atol=1e-9)


@pytest.mark.filterwarnings("ignore:SSCA:RuntimeWarning")
def test_bytes_of_embeddings():
    """Eight bytes a number, and 16 of the sum's own; keys are signed."""
    kinds = run(channel=SUM).ledger.by_kind()
    for part, size in (("embedding", 5 * 4 * 8), ("sum_weight", 8), ("sum_clipped", 8)):
        assert kinds[f"up {part}"] == kinds[f"down {part}"] == 3 * 3 * 2 * size
    assert (kinds["up signature"], kinds["down signature"]) == (3 * 64, 3 * 3 * 64)


def test_words_add_up_as_python_integers(rng):
    """What is sent, before pads: whole numbers of 2^-36, whose sum is exact."""
    carrier = SUM.for_trip(fedmin.Relay(None, None, embeds=True))
    h = rng.standard_normal((3, 6, 2)) * np.array([1e-9, 1.0, 1e5])[:, None, None]
    wires = [carrier.relayed({"h": jnp.asarray(one)}, jnp.float64(1 / 3)) for one in h]
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *wires)
    found = carrier.joined(carrier.combine(stacked), jnp.full(3, 1 / 3))["h"]
    exact = sum(np.vectorize(lambda v: int(np.rint(v * 2**36)), otypes=[object])(one) for one in h)
    np.testing.assert_array_equal(found, exact.astype(float) / 2**36)


# ---------------------------------------------------------------- who sees what


@pytest.mark.filterwarnings("ignore:privacy:UserWarning")
@pytest.mark.parametrize(
    ("labels", "method"), thorough.product(HOLDERS, {"sgd": fedmin.SplitSGD(0.4), "ssca": SSCA})
)
def test_nobody_gets_a_single_embedding(labels, method, monkeypatch):
    """In all that the server carries and all that clients open, of a round and of a look: none.

    Without the secure sum each of them is there, where it is opened.
    """
    problem = fedmin.Softmax(K, 3)
    first = np.random.default_rng(1).standard_normal(problem.size())
    blocks = first[: 3 * K].reshape(3, K)
    z = np.asarray(split(SIZES).pool.x.values)
    h = [z[:, a:b] @ blocks[:, a:b].T for a, b in pairwise(np.cumsum([0, *SIZES]))]
    wanted = {f"h_{i}": one.reshape(1, -1) for i, one in enumerate(h)}
    for channel, there in ((SUM, False), (fedmin.Plain(), True)):
        opened, take = [], seal.Sealer.open
        monkeypatch.setattr(
            seal.Sealer, "open",
            lambda self, *a, opened=opened: opened.append(take(self, *a)) or opened[-1],
        )  # fmt: skip
        carried = tap(monkeypatch)
        fedmin.minimize(
            problem, split(SIZES, labels=labels), method, rounds=1, channel=channel,
            start=first, engine=fedmin.Loopback(), progress=False,
        )  # fmt: skip
        monkeypatch.undo()
        seen = [*carried, *opened] if labels == "server" else opened
        assert opened or labels == "server"
        who = {found.what for found in search(seen, wanted)}
        assert bool(who) == there, who
        if labels != "server":
            assert not search(carried, wanted)


def test_pads_cancel_in_the_sum_of_all_and_in_no_other(rng):
    sealers = [seal.Sealer(i) for i in range(4)]
    keys = np.stack([s.public for s in sealers])
    for sealer in sealers:
        sealer.agree(keys)
    carrier = SUM.for_trip(fedmin.Relay(None, None, embeds=True))
    wires = [{"h": rng.integers(0, 2**32, (3, 2), dtype=np.uint32)} for _ in range(4)]
    hidden = [masks.joined(carrier.covered(w, s.pads(5, 0))) for w, s in zip(wires, sealers)]  # noqa: B905
    plain = [masks.joined(w) for w in wires]
    np.testing.assert_array_equal(masks.summed(hidden, 2), masks.summed(plain, 2))
    for some in ([0], [1], [0, 1], [1, 3], [0, 1, 2], [1, 2, 3]):
        a, b = (masks.summed([rows[i] for i in some], 2) for rows in (hidden, plain))
        assert not np.any(a == b)
    # another trip or round has other pads
    again = masks.joined(carrier.covered(wires[0], sealers[0].pads(5, 1)))
    assert not np.any(again == hidden[0])
    assert len({key for t in (0, 1) for e in (0, 1) for key, _ in sealers[0].pads(t, e)}) == 12


def test_the_warning_of_opened_embeddings_is_gone():
    """What a client could compute from h_i it cannot from the sum; the server cannot either."""
    for labels in HOLDERS:
        federation = split(SIZES, labels=labels)
        problem = problems(federation)["swish"][0]
        for channel, count in ((fedmin.Plain(), 1), (SUM, 0)):
            built = assemble(
                problem, federation, METHODS["swish"], fedmin.Everyone(), channel, None, None
            )
            assert len(exposed(built, federation.roster())) == count


def test_what_is_shown_is_listed():
    shown = run(channel=SUM).privacy.leaving
    embeddings = [s for s in shown if "embedding" in s.parts]
    assert {s.when for s in embeddings} == {"training", "evaluation"}
    assert not any(s.individual for s in embeddings)
    assert all("pads that cancel" in s.sees for s in embeddings)
    # of its own block each client tells the server, whatever hides embeddings
    (own,) = (s for s in shown if "gradient" in s.parts)
    assert own.individual
    assert own.sees == "each client's reply, as it is"
    assert any("signature" in s.parts for s in shown if s.when == "setup")


# ---------------------------------------------------------------- what is refused


def test_a_server_that_swaps_public_keys_is_refused(monkeypatch):
    encode, other = wire.encode, seal.Sealer(0)

    def server(envelope, message):
        if envelope.kind == "ask" and "key" in message and envelope.receiver != 0:
            message = {name: np.array(a) for name, a in message.items()}
            message["key"][0] = other.public
        return encode(envelope, message)

    monkeypatch.setattr(wire, "encode", server)
    with pytest.raises(wire.MessageError, match="client a has not signed its public key"):
        run(channel=SUM, engine=fedmin.Loopback(), seed=21)


def test_keys_are_signed_by_pinned_identities():
    own = [Ed25519PrivateKey.generate() for _ in range(2)]
    pinned = tuple(k.public_key().public_bytes_raw().hex() for k in own)
    roster = SimpleNamespace(clients=2, names=("a", "b"), identities=pinned)
    ask = wire.encode(wire.Envelope("ask", 0, wire.SETUP, 0, 0, b"run name"), {})

    def keys(identities):
        both = [packets.Packets(i, roster, b"run name", True, k.private_bytes_raw())
                for i, k in enumerate(identities)]  # fmt: skip
        said = [one.introduce(0, 0, ask) for one in both]
        return both[0], {name: np.stack([s[name] for s in said]) for name in said[0]}

    first, all_of_them = keys(own)
    second = wire.Envelope("ask", 0, wire.SETUP + 1, 0, 0, b"run name")
    first.introduce(0, 1, wire.encode(second, all_of_them))
    assert first.ready
    with pytest.raises(wire.MessageError, match="another identity key for this site"):
        keys(own[::-1])
    # a signature of another round is none
    first, all_of_them = keys(own)
    with pytest.raises(wire.MessageError, match="client a has not signed"):
        first.introduce(1, 1, wire.encode(second, all_of_them))


@pytest.mark.filterwarnings("ignore:SplitSGD stopped at round 1:RuntimeWarning")
def test_embeddings_beyond_the_grid_end_the_run():
    """2^24 and more: nothing wraps around, both engines say that the run diverged, and where."""
    ends = [
        run("logistic", channel=SUM, method=fedmin.SplitSGD(1e12), every=3, engine=engine)
        for engine in (ONE_BY_ONE, fedmin.Loopback())
    ]
    words = "round 1: client a sent a reply that is not finite"
    assert [(e.status, e.reason) for e in ends] == [("diverged", words)] * 2


def test_what_cannot_be_hidden_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"needs every embedding.*give Plain\(\)"):
        run("product", channel=SUM)
    with pytest.raises(ValueError, match="sums at least 3 clients; a round has at most 2"):
        run(sizes=(2, 5), channel=SUM)
    for channel in (fedmin.HomomorphicSum(), fedmin.chain(fedmin.Clip(1.0), SUM)):
        with pytest.raises(ValueError, match=r"does not hide embeddings.*give SecureSum\(\)"):
            run(channel=channel)
