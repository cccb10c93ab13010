"""gRPC with mutual TLS: loopback's answer bit for bit, and who may not come in.

Sites are threads of this process here, each with its own session, stream and certificate; the road
between them is the real one, on 127.0.0.1. Processes that are killed: test_deploy.py.
"""

import asyncio
import contextlib
import dataclasses
import functools
import os
import socket
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

import fedmin
import known
import parted
from agreement import assert_same_bits
from fedmin.assembling import assemble
from fedmin.engines.drive import Settings
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.checkpoint import Checkpoint
from fedmin.engines.sessions.halves import Own, Terms, run_halves
from fedmin.engines.sessions.site import SiteSession
from fedmin.engines.sessions.transport import StoppedError
from fedmin.engines.transports.grpc import frames, joining, listener
from fedmin.engines.transports.grpc.frames import FrameError, Message, Reader, pieces, said
from fedmin.engines.transports.grpc.streams import Streams
from fedmin.privacy.authority import make_authority, revoke, sign
from fedmin.privacy.identity import Identity, make_request
from fedmin.runs.agreement import difference, misfit

HOST = "127.0.0.1"
NAMES = ("a", "b", "c")
WELCOME = {"document": "what is run"}
WORLD = known.apart(sizes=(4, 3, 5))
FEDERATION = dataclasses.replace(WORLD.federation, names=NAMES)
LIMITED = fedmin.subject_to(WORLD.problem, fedmin.NormAtMost(0.3))


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """An authority, and the identities of a server and its sites; of others who should not be."""
    home = tmp_path_factory.mktemp("keys")

    def party(name, authority="authority", role="site", folder=None, **options):
        folder = home / (folder or name)
        hosts = [HOST, "localhost"] if role == "server" else []
        sign(home / authority, make_request(folder, name, role, hosts), out=folder, **options)
        return folder

    make_authority(home / "authority")
    make_authority(home / "other")
    found = {name: party(name) for name in (*NAMES, "stranger")}
    found["server"] = party("server", role="server")
    found["foreign"] = party("b", "other", folder="foreign")
    return SimpleNamespace(home=home, party=party, **found)


class Sites:
    """Sites that take part until they are told the end, all on the loop of the streams."""

    def __init__(self, folders, build, port, names=NAMES):
        self.calls = {}
        for name in names:
            site = joining.Site(
                Identity.load(getattr(folders, name)), f"{HOST}:{port}", {"name": name},
                functools.partial(build, name), patience=60,
            )  # fmt: skip
            run = joining.JoinedSite(site, lambda: "").run()
            self.calls[name] = asyncio.run_coroutine_threadsafe(run, listener.streams_loop())

    def join(self):
        return {name: call.result(60) for name, call in self.calls.items()}


class Half:
    """A site's half, as a stream needs it."""

    largest = 2**20

    def __init__(self, session):
        self.session = session

    def ready(self):
        return {"run": self.session.run_name.hex()}

    def answer(self, data):
        return self.session.answer(data)


def over_grpc(keys, pieces_, federation, terms, settings, change=lambda half, name: half):
    """A run whose messages go over real streams."""
    roster = federation.roster()
    port = listener.Listener(Identity.load(keys.server), NAMES, f"{HOST}:0")

    def build(name, welcome):
        assert welcome == WELCOME  # as the server said it
        i = NAMES.index(name)
        session = SiteSession(
            pieces_, roster, i, federation.client(i), seed=0, gaps=True, diary=False
        )
        return change(Half(session), name)

    def open_sites(server, folders):
        streams = Streams(port, server.messages, roster, patience=15)
        port.welcome(WELCOME)
        return streams

    sites = Sites(keys, build, port.port)
    try:
        own = Own(federation.server_rows, federation.test)
        result = run_halves(pieces_, roster, own, open_sites, settings, terms)
        port.stop({"status": result.status}, linger=10)
        assert sites.join() == {name: {"status": result.status} for name in NAMES}
        return result, port
    except BaseException:
        port.stop()
        raise


def assembled(method, problem=WORLD.problem, federation=FEDERATION, channel=None):
    channel = fedmin.Plain() if channel is None else channel
    return assemble(problem, federation, method, fedmin.Everyone(), channel, None, None)


def on_columns():
    problem, y = parted.problems(parted.split((3, 1, 3)))["swish"]
    federation = parted.split((3, 1, 3), y, labels="b")
    method = fedmin.SplitSGD(0.4, fedmin.WithoutReplacement(5))
    return assembled(method, problem, federation), federation


KINDS = {
    "client memory": fedmin.Scaffold(0.3, local_steps=2, batches=fedmin.Blocks(2)),
    "two exchanges": fedmin.FedDANE(0.3, local_steps=2),
    "constraints": fedmin.SSCA(batches=fedmin.Full()),
    "sealed packets": None,
}
QUIET = Settings(3, 0, 2, False, None, None)


@pytest.mark.parametrize("kind", KINDS)
def test_bit_for_bit_as_in_loopback(keys, kind, monkeypatch):
    """In pieces of a few bytes, so that every message is in several."""
    monkeypatch.setattr(frames, "PIECE", 50)
    federation = FEDERATION
    if kind == "sealed packets":
        built, federation = on_columns()
    else:
        built = assembled(KINDS[kind], LIMITED if kind == "constraints" else WORLD.problem)
    found, _ = over_grpc(keys, built, federation, Terms(), QUIET)
    assert_same_bits(found, fedmin.Loopback().run(built, federation, QUIET))
    assert found.absent == ()


def test_statistics_are_taken_over_streams_as_in_loopback(keys):
    """Sums in double precision by an exchange of their own; every number, and every byte."""
    problem = fedmin.LeastSquares(known.FEATURES)
    pieces = problem, FEDERATION, fedmin.FedSGD(0.3), fedmin.Everyone(), fedmin.Plain()
    built = assemble(*pieces, None, None, statistics=True)
    found, _ = over_grpc(keys, built, FEDERATION, Terms(), QUIET)
    quiet = fedmin.Loopback().run(built, FEDERATION, QUIET)
    for name in ("estimates", "errors", "clustered", "deviance"):
        np.testing.assert_array_equal(
            getattr(found.statistics, name), getattr(quiet.statistics, name)
        )
    assert found.ledger.by_kind() == quiet.ledger.by_kind()
    assert found.ledger.by_kind()["evaluation statistics up meat"] > 0


def test_a_late_reply_is_dropped_and_counted_and_the_site_is_there_again(keys):
    """Site b takes longer than the deadline in round 1: without it, then with it again."""
    built = assembled(KINDS["client memory"])
    release = threading.Event()

    def change(half, name):
        inner = half.session.answer

        def answer(data):
            ask = wire.envelope_of(data)
            training = ask.kind == "ask" and ask.trip == 0
            if name == "b" and training and ask.round == 1:
                release.wait(30)
            if name == "a" and training and ask.round == 3:
                release.set()
                time.sleep(0.5)  # time for b to say what nobody waits for any more
            return inner(data)

        half.answer = answer
        return half

    terms = Terms(quorum=0.5, deadline=1.0)
    settings = Settings(6, 0, 6, False, None, None)
    found, port = over_grpc(keys, built, FEDERATION, terms, settings, change)
    absent = {(t, i) for t, trip, i in found.absent}
    assert (1, 1) in absent
    assert (5, 1) not in absent
    assert port.late >= 1  # on a busy machine perhaps of others, too
    quiet = fedmin.Loopback(absent=found.absent).run(built, FEDERATION, settings)
    assert_same_bits(found, quiet)


def test_a_site_that_does_not_keep_in_time_holds_up_nobody(keys, tmp_path):
    """A checkpoint is asked of those who are there; who leaves meanwhile is as one who was away."""
    built = assembled(KINDS["client memory"])
    release = threading.Event()

    def change(half, name):
        def answer(data):
            ask = wire.envelope_of(data)
            if name == "b" and ask.kind == "keep" and ask.round == 2:
                release.wait(10)
            if name == "a" and ask.kind == "ask" and ask.round == 3:
                release.set()
                time.sleep(0.5)  # time for b to say what nobody waits for any more
            return half.session.answer(data)

        half.answer = answer
        return half

    settings = Settings(6, 0, 6, False, Checkpoint(tmp_path, 2), None)
    terms = Terms(quorum=0.5, deadline=1.0)
    found, port = over_grpc(keys, built, FEDERATION, terms, settings, change)
    assert found.rounds == 6
    assert port.late == 1
    quiet = fedmin.Loopback(absent=found.absent)
    assert_same_bits(found, quiet.run(built, FEDERATION, Settings(6, 0, 6, False, None, None)))


# ---------------------------------------------------------------- who may not come in


@pytest.fixture(scope="module")
def door(keys):
    """A server that listens, with site a in, which answers; nobody else has come."""
    inside = listener.Listener(Identity.load(keys.server), NAMES, f"{HOST}:0")
    inside.check_hello = lambda name, words: "" if words.get("fit", True) else "it does not fit"
    inside.check_ready = lambda name, words: difference(name, {"method": "1"}, words.get("parts"))
    inside.welcome({})
    answers = SimpleNamespace(
        largest=2**20, ready=lambda: {"parts": {"method": "1"}}, answer=lambda data: data[::-1]
    )
    Sites(keys, lambda name, welcome: answers, inside.port, names=("a",))
    messages = SimpleNamespace(sealed=False, training=None, evaluation=None)
    streams = Streams.__new__(Streams)
    streams.listener, streams.names, streams.sealed = inside, NAMES, messages.sealed
    streams.patience, streams.interrupt, streams.away, streams.delays = 30, lambda: "", set(), {}
    yield streams
    inside.stop({})


def undisturbed(door):
    """Site a answers as before, and is the only one in."""
    assert door.deliver({0: b"abc"}) == {0: b"cba"}
    assert door.here() == {0}


def refusal(door, folder, messages=(), authority=None):
    """What a caller with these keys hears: the code and the words of the server's refusal."""

    async def call():
        me = Identity.load(folder) if not isinstance(folder, SimpleNamespace) else folder
        trusted = me.authority if authority is None else authority
        credentials = grpc.ssl_channel_credentials(trusted, me.key, me.certificate)
        address = f"{HOST}:{door.listener.port}"
        async with grpc.aio.secure_channel(address, credentials) as channel:
            stream = channel.stream_stream(frames.METHOD)()
            try:
                for message in messages:
                    if message is None:  # it leaves
                        stream.cancel()
                        break
                    for piece in pieces(message) if isinstance(message, Message) else [message]:
                        await stream.write(piece)
                while (await stream.read()) is not grpc.aio.EOF:
                    pass
            except grpc.aio.AioRpcError:  # what it says of a write that came too late is no reason
                pass
            except asyncio.InvalidStateError:  # nor is a stream that was closed before a write
                assert stream.done()
            except asyncio.CancelledError:
                assert stream.cancelled()
            return (await stream.code()).name, await stream.details()

    return door.listener.call(asyncio.wait_for(call(), 30))


HELLO = said(frames.HELLO, {})
READY = said(frames.READY, {"parts": {"method": "1"}})


def test_a_second_stream_of_the_same_site_is_refused(door, keys):
    undisturbed(door)
    assert refusal(door, keys.a, [HELLO]) == (
        "ALREADY_EXISTS", "a is connected already; only one stream a site",
    )  # fmt: skip
    undisturbed(door)


def test_a_site_of_another_run_is_refused(door, keys):
    code, words = refusal(door, keys.stranger, [HELLO])
    assert (code, words) == (
        "PERMISSION_DENIED", "stranger is no site of this run, which has a, b, c",
    )  # fmt: skip
    undisturbed(door)


def test_a_revoked_certificate_is_refused_from_that_moment_on(door, keys):
    keys.party("revoked")
    door.listener.names = (*NAMES, "revoked")
    try:
        assert refusal(door, keys.home / "revoked", [said(frames.HELLO, {"fit": False})]) == (
            "FAILED_PRECONDITION", "it does not fit",
        )  # fmt: skip
        me = Identity.load(keys.home / "revoked")
        newest = revoke(keys.home / "authority", "revoked")
        (keys.server / "revoked.pem").write_bytes(newest.read_bytes())
        code, words = refusal(door, SimpleNamespace(**vars(me)), [HELLO])
        assert code == "UNAUTHENTICATED"
        assert "site revoked was revoked" in words
    finally:
        door.listener.names = NAMES
    undisturbed(door)


def test_a_certificate_of_another_authority_is_refused(door, keys):
    """It trusts the server, but the server does not trust it."""
    ours = Identity.load(keys.a).authority
    code, _ = refusal(door, keys.foreign, [HELLO], authority=ours)
    assert code == "UNAVAILABLE"
    undisturbed(door)


def test_an_expired_certificate_is_refused(door, keys):
    long_ago = datetime.now(UTC) - timedelta(days=90)
    folder = keys.party("late", days=30, now=long_ago)
    parts = {name: (folder / f"{name}.pem").read_bytes() for name in ("key", "certificate")}
    me = SimpleNamespace(authority=Identity.load(keys.a).authority, **parts)
    code, _ = refusal(door, me, [HELLO])
    assert code == "UNAVAILABLE"
    undisturbed(door)


def test_a_servers_certificate_is_no_sites(door, keys):
    code, _ = refusal(door, keys.server, [HELLO])
    assert code in ("UNAUTHENTICATED", "UNAVAILABLE")
    undisturbed(door)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ([Message(frames.ASK, 1, b"x")], "it began without a hello"),
        ([b"GET / HTTP/1.1\r\n\r\n"], "begins with b'G'"),
        ([b"\x00"], "a frame of 1 bytes"),
        ([Message(frames.HELLO, 0, b"{" * 50_000)], "words that are not JSON"),
        ([Message(frames.HELLO, 0, b"[]")], "words that are not a table"),
        ([frames.FRONT.pack(frames.HELLO, 0, 2**40)], "a message of 1,099,511,627,776 bytes"),
        ([HELLO, Message(frames.READY, 0, b"{}")], "b builds another run: its method differ"),
        ([HELLO, said(frames.NO, {"why": "no rounds"})], "b does not take part: no rounds"),
        ([HELLO, READY, Message(frames.YES, 7, b"x")], "a reply to question 7, which is not open"),
        ([HELLO, READY, frames.FRONT.pack(frames.YES, 1, 2**40)], "a message of 1,099,511"),
    ],
)  # fmt: skip
def test_what_does_not_fit_closes_its_own_stream_only(door, keys, sent, words, caplog):
    code, said_back = refusal(door, keys.b, sent)
    assert code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION")
    assert words in said_back
    assert any(words in record.getMessage() for record in caplog.records)
    undisturbed(door)


def test_a_frame_that_is_larger_than_a_piece_is_refused(door, keys):
    code, _ = refusal(door, keys.b, [HELLO, bytes(2 * frames.PIECE)])
    assert code == "RESOURCE_EXHAUSTED"
    undisturbed(door)


def test_plain_text_and_noise_on_the_port_disturb_nobody(door, keys, rng):
    """Without TLS, and within TLS without HTTP/2."""
    address = (HOST, door.listener.port)
    for noise in (b"GET / HTTP/1.0\r\n\r\n", rng.bytes(2000), b""):
        with socket.create_connection(address, 5) as plain:
            plain.sendall(noise)
    context = ssl.create_default_context(cadata=Identity.load(keys.a).authority.decode())
    context.load_cert_chain(keys.b / "certificate.pem", keys.b / "key.pem")
    context.set_alpn_protocols(["h2"])
    for noise in (rng.bytes(500), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + rng.bytes(500)):
        with (
            contextlib.suppress(OSError),
            socket.create_connection(address, 5) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as inside,
        ):
            inside.sendall(noise)
            inside.recv(100)
    undisturbed(door)


def test_a_site_is_who_its_certificate_says_whatever_it_says_itself(door, keys):
    """Site b says that it is a, which is in: it is refused as b, and a is not disturbed."""
    words = said(frames.HELLO, {"name": "a", "site": "a", "fit": True})
    code, answer = refusal(door, keys.b, [words, Message(frames.READY, 0, b"{}")])
    assert (code, answer.partition(" builds")[0]) == ("FAILED_PRECONDITION", "b")
    undisturbed(door)


def test_who_trickles_over_tls_is_given_up_and_disturbs_nobody(door, keys, monkeypatch):
    """A frame that announces a megabyte, then a byte now and then, by a site that may come in."""
    monkeypatch.setattr(frames, "GRACE", 0.3)
    monkeypatch.setattr(frames, "SLOWEST", 2**30)
    front = frames.FRONT.pack(frames.HELLO, 0, 2**20)

    async def call():
        me = Identity.load(keys.b)
        credentials = grpc.ssl_channel_credentials(me.authority, me.key, me.certificate)
        address = f"{HOST}:{door.listener.port}"
        async with grpc.aio.secure_channel(address, credentials) as channel:
            stream = channel.stream_stream(frames.METHOD)()
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                while not stream.done():
                    await stream.write(front + b" ")
                    await asyncio.sleep(0.02)
            return (await stream.code()).name, await stream.details()

    calling = asyncio.run_coroutine_threadsafe(call(), listener.streams_loop())
    undisturbed(door)
    code, words = calling.result(30)
    assert code == "INVALID_ARGUMENT"
    assert "of 1,048,576 bytes came, too slowly" in words
    undisturbed(door)


FUZZED = int(os.environ.get("FEDMIN_FUZZ_STREAMS", "60"))


def test_a_fuzzer_inside_tls_disturbs_nobody(door, keys, rng):
    """By a site that may come in: every conversation is a right one with bytes changed or noise."""
    right = [
        frame for m in (HELLO, READY, Message(frames.YES, 1, b"x" * 50)) for frame in pieces(m)
    ]
    for _ in range(FUZZED):
        sent = [bytearray(frame) for frame in right[: rng.integers(1, len(right) + 1)]]
        for frame in sent:
            for _ in range(rng.integers(0, 4)):
                frame[rng.integers(len(frame))] = rng.integers(256)
        if rng.random() < 0.3:
            sent.append(bytearray(rng.bytes(int(rng.integers(1, 300)))))
        code, _ = refusal(door, keys.b, [*map(bytes, sent), Message(frames.YES, 9, b"")])
        # "internal" is what gRPC says here of a write that came too late; a crash is "unknown"
        assert code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "INTERNAL"), bytes(sent[-1])
    undisturbed(door)


def test_too_few_are_named_when_patience_ends(door, monkeypatch):
    monkeypatch.setattr(door, "patience", 0.3)
    assert door.deliver({0: b"abc", 1: b"x"}, deadline=0.1, enough=2) == {0: b"cba"}
    monkeypatch.setattr(door, "interrupt", lambda: "Ctrl-C")
    with pytest.raises(StoppedError, match=r"Ctrl-C while waiting for .*b \(away\)"):
        door.deliver({0: b"abc", 1: b"x"}, enough=2)
    monkeypatch.setattr(door, "interrupt", lambda: "")
    # b was waited for in vain: without it there is enough, and nobody waits for the deadline
    begin = time.monotonic()
    assert door.deliver({0: b"abc", 1: b"x"}, deadline=20, enough=1) == {0: b"cba"}
    assert time.monotonic() - begin < 10
    undisturbed(door)


def test_what_nobody_could_hear_is_in_no_log(keys):
    """A site that waits for its server for days would write a hello every 15 seconds."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))  # and does not listen
        address, said_ = f"{HOST}:{taken.getsockname()[1]}", []
        site = joining.Site(
            Identity.load(keys.a), address, {}, lambda welcome: None, patience=1.0,
            note=lambda kind, words: said_.append(kind),
        )  # fmt: skip
        with pytest.raises(joining.JoinError, match="was not there for 1 s"):
            joining.join(site)
    assert said_ == []


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:99999", ":8443", "8443", "a:b"])
def test_a_place_to_listen_has_a_port(keys, address):
    """gRPC would listen at port 443, or at another one."""
    with pytest.raises(ValueError, match=f"listens at HOST:PORT, .* not '{address}'"):
        listener.Listener(Identity.load(keys.server), NAMES, address)


# ---------------------------------------------------------------- before the run is known


class Asked:
    """Sites that answer questions before a run; those who are cut off call again."""

    def __init__(self, keys, port, tell, names=NAMES):
        self.half = SimpleNamespace(largest=2**20, ready=dict, answer=lambda data: data)
        self.calls = {}
        for name in names:
            site = joining.Site(
                Identity.load(getattr(keys, name)), f"{HOST}:{port}", {}, lambda _: self.half,
                patience=60, tell=functools.partial(tell, name),
            )  # fmt: skip
            run = joining.JoinedSite(site, lambda: "").run()
            self.calls[name] = asyncio.run_coroutine_threadsafe(run, listener.streams_loop())


def test_sites_are_asked_before_the_run_and_again_when_they_were_cut_off(keys):
    port = listener.Listener(Identity.load(keys.server), NAMES, f"{HOST}:0")
    heard = []

    def tell(name, data):
        heard.append((name, data))
        return name.encode() + data

    try:
        # b is there for the hello only: its stream ends, and whoever comes as b is asked
        cut = refusal(SimpleNamespace(listener=port), keys.b, [HELLO, None])
        assert cut[0] == "CANCELLED"
        sites = Asked(keys, port.port, tell)
        port.wait_for_hellos(30, lambda: "")
        everyone = {name: name.encode() + b"1" for name in NAMES}
        assert port.survey(NAMES, b"1", 30, lambda: "") == everyone
        assert port.survey(("c",), b"2", 30, lambda: "") == {"c": b"c2"}
        assert sorted(heard) == [("a", b"1"), ("b", b"1"), ("c", b"1"), ("c", b"2")]
        port.welcome({})
        assert port.stop({"status": "done"}, linger=30) == set(NAMES)
        assert all(call.result(30) == {"status": "done"} for call in sites.calls.values())
    except BaseException:
        port.stop()
        raise


def test_a_site_that_will_not_say_it_is_named_and_disturbs_nobody(keys, caplog):
    port = listener.Listener(Identity.load(keys.server), NAMES, f"{HOST}:0")

    def tell(name, data):
        if name == "b":
            raise ValueError("the policy says no")
        return data

    sites = Asked(keys, port.port, tell)
    with pytest.raises(TimeoutError, match="b did not come within 3 s"):
        port.survey(NAMES, b"1", 3, lambda: "")
    port.stop({"status": "failed"}, linger=1)
    with pytest.raises(joining.JoinError, match="the policy says no"):
        sites.calls["b"].result(30)
    assert sites.calls["a"].result(30) == sites.calls["c"].result(30) == {"status": "failed"}
    assert "refused b: b does not take part: the policy says no" in caplog.text


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Message(frames.TOLD, 7, b"x"), "it did not answer what it was asked"),
        (Message(frames.YES, 0, b"x"), "it did not answer what it was asked"),
        (frames.FRONT.pack(frames.TOLD, 0, 2**40), "a message of 1,099,511,627,776 bytes"),
    ],
)  # fmt: skip
def test_an_answer_that_does_not_fit_closes_its_own_stream_only(keys, answer, words):
    port = listener.Listener(Identity.load(keys.server), ("a", "b"), f"{HOST}:0")
    sites = Asked(keys, port.port, lambda name, data: data, names=("a",))
    try:
        with pytest.raises(TimeoutError, match="b did not come within"):
            port.survey(("a", "b"), b"1", 0.2, lambda: "")
        code, said_back = refusal(SimpleNamespace(listener=port), keys.b, [HELLO, answer])
        assert code == "INVALID_ARGUMENT"
        assert words in said_back
    finally:
        port.stop({"status": "done"}, linger=1)
    assert sites.calls["a"].result(30) == {"status": "done"}


# ---------------------------------------------------------------- messages in pieces


def read(sent, largest=100):
    async def go():
        waiting = list(sent)

        async def next_frame():
            return waiting.pop(0) if waiting else None

        return await Reader(next_frame, largest).next(5)

    return asyncio.run(go())


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100])
def test_pieces_make_the_message_again(size, monkeypatch):
    monkeypatch.setattr(frames, "PIECE", 8)
    message = Message(frames.ASK, 3, bytes(range(size)))
    sent = list(pieces(message))
    assert len(sent) == max(1, -(-size // 8))
    assert read(sent) == message
    assert read(sent[:-1]) is None or size == 0


def test_pieces_that_do_not_belong_together_are_refused(monkeypatch):
    monkeypatch.setattr(frames, "PIECE", 8)
    one, other = (list(pieces(Message(frames.ASK, n, bytes(20)))) for n in (1, 2))
    for sent, words in (
        ([one[0], other[1]], "a piece of another message"),
        ([one[0], one[0][: frames.FRONT.size]], "a piece of another message"),
        ([*one[:2], one[0]], "24 bytes, where 20 were announced"),
        (pieces(Message(frames.ASK, 1, bytes(101))), "a message of 101 bytes"),
    ):
        with pytest.raises(FrameError, match=words):
            read(sent)


def test_a_message_that_trickles_is_given_up(monkeypatch):
    monkeypatch.setattr(frames, "GRACE", 0.05)

    async def slowly():
        await asyncio.sleep(0.02)
        return frames.FRONT.pack(frames.ASK, 1, 50) + b"x"

    with pytest.raises(FrameError, match="of 50 bytes came, too slowly"):
        asyncio.run(Reader(slowly, 100).next())


# ---------------------------------------------------------------- both ends compare


def test_what_differs_is_said_in_one_sentence():
    parts = {"problem": "1", "method": "2", "record": "3"}
    assert difference("b", parts, parts) == ""
    other = {**parts, "method": "5", "record": "6"}
    words = "b builds another run: its method and its record differ from the server's"
    assert difference("b", parts, other) == words
    assert "fedmin 0.0.1, the server" in misfit(
        "b", {"protocol": frames.PROTOCOL, "fedmin": "0.0.1"}
    )
    assert misfit("b", {}).startswith("b has protocol None, the server 2")


def test_a_stream_that_ends_while_a_site_speaks_is_only_cut_off():
    """A server that is killed while a site builds its half: the site calls again, and is no bug."""

    async def write(_):
        raise asyncio.InvalidStateError("RPC already finished.")

    call = SimpleNamespace(write=write)
    with pytest.raises(joining._EndedError):
        asyncio.run(joining._send(call, said(frames.READY, {})))


def test_a_site_that_comes_when_the_run_is_over_is_told_so(keys):
    """Whoever was killed at the end, the server or the site: nobody waits for ever."""
    port = listener.Listener(Identity.load(keys.server), NAMES[:2], f"{HOST}:0")

    def build(name, welcome):
        raise AssertionError("there is nothing to build")

    sites = Sites(keys, build, port.port, NAMES[:2])
    assert port.stop({"status": "done"}, linger=30) == {"a", "b"}
    assert sites.join() == {"a": {"status": "done"}, "b": {"status": "done"}}
