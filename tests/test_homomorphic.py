"""Homomorphic sums: the server adds what it cannot read, a site in turn opens the sum.

The numbers are compared with NumPy's sums and with the simulator, which encrypts nothing.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import conftest
import fedmin
import known
from agreement import run
from contract import Median
from fedmin.channels import ckks
from fedmin.channels.homomorphic.legs import Encrypted
from fedmin.channels.secure.derivations import simulated_identity
from fedmin.core.protocol import Occasion, ProtocolError
from fedmin.engines.round import Run
from fedmin.engines.sessions.server import QuorumError
from fedmin.privacy.observers import who_learns
from fedmin.privacy.policy import Policy
from fedmin.runs.config import Config
from sums import roster_of
from test_protocol import dropping, tapped
from test_sessions import parties, state_of

FOUR = known.apart(sizes=(4, 3, 5, 2))
METHOD = fedmin.FedSGD(0.25)
CHANNEL = fedmin.HomomorphicSum(looks=False)
KEYS, SECRET, AGAIN, EXCHANGE, OPEN, OPEN_AGAIN = range(6)
ERROR = (
    8 * ckks.FLOOD
)  # 1.2e-10: what a sum of numbers below 100 is off by, at most, but once in 1e15


# ---------------------------------------------------------------- the encryption


@pytest.mark.parametrize("size", [1, ckks.SLOTS, ckks.SLOTS + 3])
def test_sums_of_ciphertexts_are_sums(size, rng):
    numbers = rng.normal(size=(5, size)) * 10.0 ** rng.integers(-6, 2, size)
    key = ckks.Secret()
    closed = [key.closed(each) for each in numbers]
    assert {each.shape for each in closed} == {(ckks.ciphertexts(size), ckks.CIPHER)}
    found = ckks.Secret(key.words()).opened(ckks.added(closed), size)
    np.testing.assert_allclose(found, numbers.sum(axis=0), rtol=0, atol=1e-12)


def test_ciphertexts_of_all_numbers_have_one_length(rng):
    """Nothing of the numbers shows in how long they are when encrypted, or in their bytes."""
    key = ckks.Secret()
    lengths, seen = set(), []
    for numbers in (np.zeros(9), np.full(9, 1e7), rng.normal(size=ckks.SLOTS), np.full(9, 1e-30)):
        (cipher,) = key.closed(numbers)
        lengths.add(len(cipher))
        seen.append(cipher.tobytes())
        for kind in (np.float32, np.float64):
            found = numbers[:8].astype(kind)
            assert not found.any() or found.tobytes() not in seen[-1]
    assert lengths == {ckks.CIPHER}
    again = key.closed(np.zeros(9))[0].tobytes()
    same = np.mean(np.frombuffer(again, np.uint8) == np.frombuffer(seen[0], np.uint8))
    assert same < 0.02  # the same numbers twice: other bytes, as many equal as by chance


def test_another_key_opens_nothing(rng):
    numbers = rng.normal(size=50)
    cipher = ckks.Secret().closed(numbers)
    try:
        found = ckks.Secret().opened(cipher, 50)
    except ProtocolError:
        return
    assert np.abs(found - numbers).min() > 1e3  # noise that fills the modulus


def test_what_is_given_away_has_noise_of_the_size_that_is_said(rng):
    """Without it whoever has ciphertext and sum computes the key from the encryption's error."""
    noise = (ckks.flooded(np.zeros(20_000))) / ckks.FLOOD
    assert abs(noise.mean()) < 5 / 20_000**0.5
    assert abs(noise.std() - 1) < 5 / 40_000**0.5
    assert abs(np.mean(np.abs(noise) < 1) - 0.6827) < 0.02
    # the error that it covers, of 8 clients, read off the slots: far below the noise
    key = ckks.Secret()
    exact = np.zeros(ckks.SLOTS)  # whose decryption is the error and nothing else
    error = key.opened(ckks.added([key.closed(exact)] * 8), ckks.SLOTS)
    assert 0 < np.abs(error).max() < ckks.FLOOD * 2.0**-30


def test_what_is_no_ciphertext_is_refused():
    key = ckks.Secret()
    good = key.closed(np.ones(3))
    for bad in (np.zeros_like(good), np.full_like(good, 255)):
        with pytest.raises(ProtocolError):
            ckks.added([good, bad])
    with pytest.raises(ProtocolError, match="too large to be encrypted"):
        key.closed(np.array([1e9]))
    with pytest.raises(ProtocolError, match="4 were encrypted"):
        key.opened(good, 4)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tenseal", None)
    with pytest.raises(ValueError, match=r"pip install 'fedmin\[privacy\]'"):
        run(FOUR, METHOD, channel=CHANNEL, rounds=1)


# ---------------------------------------------------------------- a run


def test_the_simulator_finds_the_same_and_counts_the_same(monkeypatch):
    """Not bit for bit: to the noise on what is opened, round by round. Bytes to the last one."""
    options = {"rounds": 3, "every": 3, "channel": fedmin.HomomorphicSum()}
    plain = run(FOUR, METHOD, engine=fedmin.Loopback(), rounds=3, every=3)
    carried = tapped(monkeypatch)
    honest = run(FOUR, METHOD, engine=fedmin.Loopback(), **options)
    fast = run(FOUR, METHOD, **options)
    assert 0 < np.abs(honest.solution - fast.solution).max() < 3 * ERROR
    assert np.abs(honest.solution - plain.solution).max() < 3 * ERROR
    assert abs(honest.final("objective") - fast.final("objective")) < 100 * ERROR
    assert honest.ledger.by_kind() == fast.ledger.by_kind()
    assert honest.ledger.bytes(evaluation=True) == sum(map(len, carried))
    kinds = honest.ledger.by_kind()
    assert kinds["up cipher"] == 3 * 4 * ckks.CIPHER
    assert kinds["channel up total"] == 3 * 3 * 8
    assert kinds["channel down cipher"] == 3 * ckks.CIPHER  # to the one that opens
    # 32 + 197,120 + 16 for the box, 48 a site, 4 for who made it, 32 for its key, 64 for its
    # signature, to 4 sites in 3 rounds
    assert kinds["down protocol"] == 3 * 4 * (ckks.KEY + 48 + 4 * 48 + 4 + 32 + 64)


@pytest.mark.parametrize(
    "method",
    [
        fedmin.Scaffold(0.2, local_steps=2),  # two parts
        fedmin.FedDANE(0.2, local_steps=2),  # two exchanges
        fedmin.FedSSO(0.1, local_steps=2),
        fedmin.SSCA(),
    ],
    ids=lambda method: type(method).__name__,
)
def test_methods_find_what_they_find_without_it(method):
    options = {"rounds": 2, "every": 2, "engine": fedmin.Loopback()}
    hidden = run(FOUR, method, channel=CHANNEL, **options)
    shown = run(FOUR, method, **options)
    np.testing.assert_allclose(hidden.solution, shown.solution, rtol=1e-7, atol=1e-8)


def test_it_is_the_last_stage_of_a_chain():
    """What TopK sends are places and values: they are added as arrays."""
    channel, options = fedmin.chain(fedmin.Clip(0.5), fedmin.TopK(2), CHANNEL), {"rounds": 2}
    hidden = run(FOUR, METHOD, channel=channel, engine=fedmin.Loopback(), **options)
    shown = run(FOUR, METHOD, channel=fedmin.chain(fedmin.Clip(0.5), fedmin.TopK(2)),
                engine=fedmin.Loopback(), **options)  # fmt: skip
    fast = run(FOUR, METHOD, channel=channel, **options)
    for one in (hidden, fast):
        np.testing.assert_allclose(one.solution, shown.solution, rtol=0, atol=3 * ERROR)
    with pytest.raises(ValueError, match="must be the last stage of a chain"):
        fedmin.chain(CHANNEL, fedmin.Clip(1.0))


def test_a_file_names_it():
    text = """
    data = {name = "wine"}
    partition = {name = "iid", clients = 4}
    problem = {name = "softmax"}
    method = {name = "fedsgd"}
    channel = {name = "homomorphicsum", least = 4}
    run = {rounds = 1}
    """
    (job,) = Config(text, "run.toml").jobs()
    assert job.words["channel"] == {"name": "homomorphicsum", "least": 4}


@pytest.mark.thorough  # processes to start
def test_processes_carry_it(monkeypatch):
    """Each site draws keys and noise of its own, so runs agree to the noise and not to the bit."""
    for name, value in conftest.QUICKLY.items():
        monkeypatch.setenv(name, value)
    three = known.apart(sizes=(4, 3, 5))
    ends = [run(three, METHOD, channel=fedmin.HomomorphicSum(), engine=engine, rounds=2, every=2)
            for engine in (fedmin.Loopback(), fedmin.Processes())]  # fmt: skip
    assert np.abs(ends[0].solution - ends[1].solution).max() < 2 * ERROR
    assert ends[0].ledger.by_kind() == ends[1].ledger.by_kind()


# ---------------------------------------------------------------- drop-outs


@pytest.mark.parametrize(
    ("lost", "without"),
    [
        ({(0, KEYS, 1)}, {1}),
        ({(0, SECRET, 0)}, {0}),  # who makes the key: the next one does
        ({(0, EXCHANGE, 1)}, {1}),
        ({(0, EXCHANGE, 0)}, {0}),
        ({(0, OPEN, 0)}, set()),  # its reply is in the sum already; the next one opens it
    ],
    ids=["keys", "secret", "exchange", "maker", "open"],
)
def test_whoever_drops_out_the_sum_is_of_the_others(lost, without):
    server, ledger, travelled = dropping(CHANNEL, lost, method=METHOD)
    same, *_ = dropping(fedmin.Plain(), {(0, 0, i) for i in without}, method=METHOD)
    for a, b in zip(state_of(server), state_of(same), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=3 * ERROR)
    assert ledger.bytes(evaluation=True) == travelled


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        ({(0, EXCHANGE, 1), (0, EXCHANGE, 2)}, "2 clients are in the sum, and at least 3 must be"),
        ({(0, OPEN, 0), (0, OPEN_AGAIN, 1)}, "nobody opened the sum"),
    ],
    ids=["few", "nobody"],
)
def test_a_sum_that_may_not_be_opened_ends_the_round_in_words(lost, words):
    with pytest.raises(QuorumError, match=words):
        dropping(CHANNEL, lost, method=METHOD)


# ---------------------------------------------------------------- who learns what


def seated(clients=4, size=5, least=3, round=0):
    """All roles of one exchange, each site with an identity that the roster pins."""
    sent = {"update": jax.ShapeDtypeStruct((size,), jnp.float32)}
    protocol = Encrypted(sent, least)
    keys = [Ed25519PrivateKey.from_private_bytes(bytes([i + 1] * 32)) for i in range(clients)]
    pinned = tuple(key.public_key().public_bytes_raw().hex() for key in keys)
    occasion = Occasion(b"run name", round, 0, tuple(range(clients)), roster_of(clients, pinned))
    sites = {
        i: protocol.site(occasion._replace(identity=key.private_bytes_raw()), i)
        for i, key in enumerate(keys)
    }
    return protocol, sites, protocol.server(occasion)


def played(clients=4, size=5, least=3):
    """The same, before the sum is opened: protocol, sites, server, wires."""
    protocol, sites, server = seated(clients, size, least)
    everyone, seen = tuple(sites), []
    for leg in ("keys", "secret"):
        replies = {i: sites[i].answer(leg, said) for i, said in server.say(leg, everyone).items()}
        seen += [part for reply in replies.values() for part in reply.values()]
        server.took(leg, replies)
    rng = np.random.default_rng(0)
    wires = {i: {"update": rng.normal(size=size).astype(np.float32)} for i in sites}
    along = server.say("exchange", everyone)
    hidden = {i: sites[i].hide(wires[i], along[i]) for i in sites}
    seen += [each["cipher"] for each in hidden.values()]
    server.took_wires(hidden)
    return protocol, sites, server, wires, hidden, seen


def test_no_reply_is_in_what_the_server_sees():
    """In float and integer form, aligned or not; and the sum is what it learns."""
    protocol, sites, server, wires, _, seen = played()
    everything = b"".join(part.tobytes() for part in seen)
    for wire in wires.values():
        for kind in (np.float32, np.float64):
            for number in wire["update"].astype(kind):
                assert number.tobytes() * 2 not in everything
            assert wire["update"].astype(kind).tobytes() not in everything
    secret = sites[0]._secret.words()
    assert secret[200:260].tobytes() not in everything
    assert server.__dict__.keys() == {
        "protocol", "occasion", "keys", "signatures", "there", "made", "stayed", "cipher", "total",
        "wrong", "taken",
    }  # fmt: skip
    said = server.say("open", tuple(sites))
    assert list(said) == [0]
    server.took("open", {0: sites[0].answer("open", said[0])})
    total = sum(wire["update"].astype(np.float64) for wire in wires.values())
    np.testing.assert_allclose(server.total, total, rtol=0, atol=ERROR)
    assert protocol.shaped(server.total)["update"].dtype == np.float32


def test_a_server_that_asks_for_another_sum_gets_nothing():
    """Single replies, sums of other lists, multiples, replies with something added: all refused."""
    _, sites, server, _, hidden, _ = played()
    everyone = np.ones(4, bool)
    one = hidden[1]["cipher"]
    load = ckks.library().ckks_vector_from
    vector = load(ckks._public(), ckks._bare(one[0])) + ([0.0] * 5 + [255.0] * 16)
    shifted = ckks._padded(vector.serialize(), ckks.CIPHER)[None]  # needs no key
    four, leaning = ckks.added([one] * 4), ckks.added([server.cipher, one])
    without = ckks.added([hidden[i]["cipher"] for i in (0, 1, 2)])
    for cipher in (one, shifted, four, leaning, without):
        with pytest.raises(ProtocolError, match="not the sum of those who stayed"):
            sites[2].answer("open", {"cipher": cipher, "stayed": everyone})
    with pytest.raises(ProtocolError, match="a sum of 1 is not opened; at least 3"):
        sites[2].answer("open", {"cipher": one, "stayed": np.eye(4, dtype=bool)[1]})
    good = {"cipher": server.cipher, "stayed": everyone}
    sites[2].answer("open", good)
    with pytest.raises(ProtocolError, match="has opened a sum already"):
        sites[2].answer("open", good)


def test_a_key_that_was_changed_is_refused():
    _, sites, server, wires, *_ = played()
    along = dict(server.say("exchange", tuple(sites))[1])
    for name in ("box", "sealed", "key", "signature"):
        other = along[name].copy()
        other[(1, 3) if name == "sealed" else 3] ^= 1
        with pytest.raises(ProtocolError):
            sites[1].hide(wires[1], {**along, name: other})
    for maker in (2, 7):
        with pytest.raises(ProtocolError):
            sites[1].hide(wires[1], {**along, "maker": np.uint32(maker)})
    keys = {"keys": server.keys[::-1].copy(), "signatures": server.signatures[::-1].copy()}
    with pytest.raises(ProtocolError, match="has another one for this client"):
        sites[1].answer("secret", {**keys, "there": server.there})


def test_a_server_that_hands_out_keys_of_its_own_gets_nothing():
    """It plays one site before the one that makes the sites' key, or makes the key itself."""
    _, sites, server = seated()
    replies = {i: site.answer("keys", {}) for i, site in sites.items()}
    server.took("keys", replies)
    everyone = tuple(sites)
    (maker,), said = (f(server.say("secret", everyone)) for f in (list, dict))
    # a key whose other half the server has, in place of site 2's: with the signature of site 2,
    # with one that the server makes itself, or with a simulation's, which anybody can make
    _, foreign, _ = seated()
    mine = foreign[2].public
    own = Ed25519PrivateKey.generate().sign(foreign[2]._statement(2, mine))
    anybody = simulated_identity(b"run name", 2).sign(foreign[2]._statement(2, mine))
    for signature in (replies[2]["signature"], own, anybody):
        other = {name: part.copy() for name, part in said[maker].items()}
        other["keys"][2] = mine
        other["signatures"][2] = np.frombuffer(bytes(signature), np.uint8)
        with pytest.raises(ProtocolError, match="s2 has not signed this key"):
            sites[maker].answer("secret", other)
    # a key that site 2 did sign, for another round
    _, earlier, _ = seated(round=5)
    old = earlier[2].answer("keys", {})
    other = {name: part.copy() for name, part in said[maker].items()}
    other["keys"][2], other["signatures"][2] = old["key"], old["signature"]
    with pytest.raises(ProtocolError, match="s2 has not signed this key"):
        sites[maker].answer("secret", other)
    # a CKKS key that the server made: in the name of the site whose turn it is
    forged = {**said[maker], "keys": _with(server.keys, maker, foreign)}
    made = foreign[maker].answer("secret", forged)
    wire = {"update": np.ones(5, np.float32)}
    for signature in (replies[maker]["signature"], np.frombuffer(own, np.uint8)):
        said_by = {"maker": np.uint32(maker), "key": foreign[maker].public, "signature": signature}
        with pytest.raises(ProtocolError, match=f"s{maker} has not signed this key"):
            sites[1].hide(wire, {**made, **said_by})
    # and they go on as if nothing was
    server.took("secret", {maker: sites[maker].answer("secret", said[maker])})
    assert sites[1].hide(wire, server.say("exchange", everyone)[1])["cipher"].any()


def _with(keys, i, sites):
    found = keys.copy()
    found[i] = sites[i].public
    return found


def test_who_learns_what_is_said():
    server, _ = parties(METHOD, FOUR, CHANNEL)
    everything = who_learns((server.messages.training,), "abcd")
    listed = {(d.trip, tuple(d.parts)): d.sees for d in everything if d.senders != ("server",)}
    assert listed == {
        (KEYS, ("key", "signature")): "each client's public key and signature",
        (SECRET, ("box", "sealed")): "a key of the sites, which it cannot open",
        (AGAIN, ("box", "sealed")): "a key of the sites, which it cannot open",
        (EXCHANGE, ("cipher",)):
            "the sum of at least 3 clients' replies, each encrypted under a key of the sites",
        (OPEN, ("total",)): "the sum, with noise of 1.5e-11",
        (OPEN_AGAIN, ("total",)): "the sum, with noise of 1.5e-11",
    }  # fmt: skip


def test_a_policy_on_sums_takes_it_and_gathering_is_refused():
    roster = FOUR.federation.roster()
    record = (fedmin.Objective(),)
    pieces = FOUR.problem, METHOD
    allowed = lambda channel: Policy(smallest_sum=3, channels=("homomorphicsum",)).refuses(
        Run(*pieces, channel, fedmin.Everyone(), record, None), roster, 5
    )
    assert allowed(fedmin.HomomorphicSum()) == ""
    assert "in sums of 2" in allowed(fedmin.HomomorphicSum(least=2))
    assert "what is measured" in allowed(CHANNEL)  # its looks show each client's sums
    with pytest.raises(ValueError, match="Median gathers every reply, and the channel brings"):
        run(FOUR, Median(), channel=CHANNEL)
    with pytest.raises(ValueError, match="least"):
        fedmin.HomomorphicSum(least=1)
