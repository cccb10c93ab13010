"""Sites on machines of their own align their rows, through a server that cannot read a word of it.

The sites come in by the server's door as for a run. Each makes a key pair for the meeting and signs
its public key, the meeting, the parties and the leader with the key of its certificate; everybody
checks everybody's, so that a server which swaps keys is refused. What the parties say to each other
(privacy/alignment.py) is sealed from end to end. The server sees who takes part, and lengths.

    ready       each site: public key, signature, certificate
    keys        server -> all: everybody's;          leader -> server: its question, sealed to each
    question    server -> others;                    others -> server: answers, sealed to the leader
    answers     server -> leader;                    leader -> server: the order, sealed to each
    order       server -> others
    end         all have it: every site writes its file
"""

import json
import logging
import secrets
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fedmin.core.environment import __version__
from fedmin.engines.sessions.packets import ClientError
from fedmin.engines.sessions.phase import QuorumError
from fedmin.engines.sessions.seal import Sealer
from fedmin.engines.sessions.transport import StoppedError
from fedmin.engines.sessions.wire import MessageError
from fedmin.engines.transports.grpc.frames import PROTOCOL
from fedmin.engines.transports.grpc.joining import JoinError, Site, join
from fedmin.engines.transports.grpc.streams import SLACK, SiteStreams, StreamDoor
from fedmin.privacy.alignment import AlignmentError, Ids, Leader, Member, check_common
from fedmin.privacy.certificates import KeysError
from fedmin.privacy.departures import Departures
from fedmin.privacy.identity import Identity
from fedmin.runs.agreement import only_job
from fedmin.runs.aligning import Aligned, ids_of, write_aligned
from fedmin.runs.config import Config
from fedmin.runs.site_file import SiteFile

log = logging.getLogger("fedmin.align")
KEYS, QUESTION, ANSWERS, ORDER = range(4)  # the steps
PACKET = struct.Struct("<IQ")  # whose or for whom, and its length
A_ROW = 40  # bytes that a message has for each row of a party, at most
LINGER = 3.0  # seconds in which a site that was cut off is still told the end
NEVER: Callable[[], str] = lambda: ""
Packets = dict[int, bytes]


def packed(step: int, packets: Mapping[int, bytes]) -> bytes:
    """A message of some packets."""
    parts = [bytes([step])]
    for i, data in sorted(packets.items()):
        parts += [PACKET.pack(i, len(data)), data]
    return b"".join(parts)


def unpacked(message: bytes) -> tuple[int, Packets]:
    """The step and the packets of a message."""
    found: Packets = {}
    at = 1
    while at + PACKET.size <= len(message):
        i, size = PACKET.unpack_from(message, at)
        at += PACKET.size
        found[i] = message[at : at + size]
        at += size
    if not message or at != len(message):
        raise MessageError("a message of an alignment that is cut off")
    return message[0], found


def _signed(meeting: str, parties: list[str], leader: str, key: str) -> bytes:
    return json.dumps(["fedmin align 1", meeting, parties, leader, key]).encode()


class AligningSite:
    """A site's part in a meeting, as a stream needs it (`Answers`)."""

    def __init__(self, identity: Identity, ids: Ids, departures: Departures, welcome: Any):
        words = welcome.get("align")
        if not isinstance(words, dict):
            raise ValueError("the server has a run and no alignment: join it with `fedmin join`")
        self.identity, self.ids, self.departures = identity, ids, departures
        self.meeting, self.parties = str(words["meeting"]), [str(n) for n in words["parties"]]
        self.leader = str(words["leader"])
        if ids.party not in self.parties or self.leader not in self.parties:
            raise ValueError(f"{ids.party} is not asked to align: {', '.join(self.parties)} are")
        self.me, self.first = self.parties.index(ids.party), self.parties.index(self.leader)
        self.largest = int(words["largest"]) + SLACK
        self.sealer = Sealer(self.me)
        others = [name for name in self.parties if name != self.leader]
        self.role: Leader | Member = (
            Leader(ids, others) if self.me == self.first else Member(ids, self.leader)
        )
        self.next = KEYS
        self._last: tuple[bytes, bytes] | None = None

    def ready(self) -> dict[str, Any]:
        """Its public key for this meeting, signed."""
        key = self.sealer.public.tobytes().hex()
        private: Any = load_pem_private_key(self.identity.key, None)
        words = _signed(self.meeting, self.parties, self.leader, key)
        return {
            "key": key, "certificate": self.identity.certificate.decode(),
            "signature": private.sign(words, ec.ECDSA(SHA256())).hex(),
        }  # fmt: skip

    def answer(self, data: bytes) -> bytes:
        """The reply to a question; asked twice, the same."""
        if self._last is not None and self._last[0] == data:
            return self._last[1]
        step, packets = unpacked(data)
        if step != self.next:
            raise MessageError(f"step {step} of an alignment, where {self.next} comes next")
        try:
            reply = packed(step, self._said(step, packets))
        except AlignmentError as error:
            log.error("%s", error)
            raise ValueError(error.told) from error
        self.departures.add(
            reply, run=self.meeting[:16], round=0, when="alignment", trip=step, asked=data,
            to=", ".join(n for n in self.parties if n != self.ids.party) or "server",
        )  # fmt: skip
        self._last = data, reply
        return reply

    def _said(self, step: int, packets: Packets) -> Packets:
        role, others = self.role, [i for i in range(len(self.parties)) if i != self.me]
        if step == KEYS:
            self._agree({i: json.loads(words) for i, words in packets.items()})
            self.next = ANSWERS if isinstance(role, Leader) else QUESTION
            if not isinstance(role, Leader):
                return {}
            question = role.question()
            return {i: self.sealer.seal(i, 0, step, question) for i in others}
        if isinstance(role, Leader):
            for i in others:
                answer = self.sealer.open(i, 0, QUESTION, packets[i])
                role.took(self.parties[i], answer)
            order, self.next = role.order(), ORDER + 1
            return {i: self.sealer.seal(i, 0, step, order) for i in others}
        if step == QUESTION:
            answer = role.answer(self.sealer.open(self.first, 0, KEYS, packets[self.first]))
            self.next = ORDER
            return {self.first: self.sealer.seal(self.first, 0, step, answer)}
        role.took(self.sealer.open(self.first, 0, ANSWERS, packets[self.first]))
        self.next = ORDER + 1
        return {}

    def _agree(self, said: dict[int, Any]) -> None:
        """Everybody's public key, if everybody has signed it for this meeting."""
        keys = np.zeros((len(self.parties), 32), np.uint8)
        trust = self.identity.trust()
        for i, name in enumerate(self.parties):
            words = said.get(i, {})
            try:
                certificate = str(words["certificate"]).encode()
                signed = _signed(self.meeting, self.parties, self.leader, words["key"])
                if trust.name_of(certificate) != name:
                    raise ValueError("its certificate is another's")
                public: Any = x509.load_pem_x509_certificate(certificate).public_key()
                public.verify(bytes.fromhex(words["signature"]), signed, ec.ECDSA(SHA256()))
                keys[i] = np.frombuffer(bytes.fromhex(words["key"]), np.uint8)
            except (KeyError, ValueError, InvalidSignature, KeysError) as error:
                why = str(error) or "its signature does not fit"
                raise ValueError(f"the key of {name} is not believed: {why}") from None
        if not np.array_equal(keys[self.me], self.sealer.public):
            raise ValueError("the list of keys has another one for this site")
        self.sealer.agree(keys)

    def done(self) -> np.ndarray:
        """The rows that all have, in order; an error where the meeting did not come to its end."""
        if self.next != ORDER + 1:
            raise AlignmentError("the server says the end, and no order of rows has come")
        check_common(self.role.rows, self.parties)
        return self.role.rows


def join_alignment(
    file: SiteFile,
    *,
    address: str = "",
    patience: float = float("inf"),
    interrupt: Callable[[], str] = NEVER,
) -> Aligned:
    """Take part in an alignment at a site's server, and write the site's aligned file."""
    identity = Identity.load(file.keys)
    if identity.role != "site" or identity.name != file.name:
        raise ValueError(
            f"{file.keys} holds the certificate of {identity.role} {identity.name}; the file is "
            f"of site {file.name}"
        )
    ids, built = ids_of(file), []
    with Departures(file.log, file.name) as departures:

        def build(welcome: dict[str, Any]) -> AligningSite:
            built.append(AligningSite(identity, ids, departures, welcome))
            return built[-1]

        hello = {"align": PROTOCOL, "fedmin": __version__, "rows": len(ids.values)}
        site = Site(identity, address or file.server, hello, build, patience)
        end = join(site, interrupt)
    if end.get("status") != "aligned":
        raise JoinError(f"nothing is aligned: {end.get('reason', 'the server did not say why')}")
    if not built:
        raise JoinError("the server says the end before it has said what is aligned")
    return write_aligned(file, built[-1].done())


# ---------------------------------------------------------------- the server


def misfit(name: str, words: Mapping[str, Any]) -> str:
    """Why a site that says this cannot take part, in one sentence; "" if it can."""
    if "align" not in words:
        return "this server aligns rows: call it with `fedmin align`, and join the run later"
    if (words.get("align"), words.get("fedmin")) != (PROTOCOL, __version__):
        return f"{name} has fedmin {words.get('fedmin')}, the server {__version__}"
    rows = words.get("rows")
    return "" if isinstance(rows, int) and rows > 0 else f"{name} does not say how many rows it has"


def serve_alignment(
    config: Config,
    identity: Identity,
    listen: str,
    *,
    told: Callable[[int], None] = lambda port: None,
    interrupt: Callable[[], str] = NEVER,
) -> list[str]:
    """Carry the messages of an alignment of a file's sites; their names, the leader's first."""
    job = only_job(config)
    assert config.terms is not None
    names, given = config.terms.sites, job.words.get("partition", {}).get("labels", "")
    leader = given if given in names else names[0]
    if identity.role != "server":
        raise ValueError(f"the keys are of a {identity.role}, not of a server")
    if len(names) < 2:
        raise ValueError(f"{config.source} names one site: an alignment needs two or more")
    door = StreamDoor(identity, names, listen, misfit)
    told(door.port)
    log.info("aligning %s at port %d; %s leads", ", ".join(names), door.port, leader)
    words: dict[str, Any] = {"status": "failed", "reason": "the server has ended"}
    try:
        hellos = door.wait_for_hellos(config.terms.wait, interrupt)
        _Carried(door, names, leader, sum(h["rows"] for h in hellos.values()), interrupt).run()
        words = {"status": "aligned"}
    except (ClientError, QuorumError, TimeoutError, MessageError) as error:
        words["reason"] = str(error)
        raise ValueError(f"nothing is aligned: {error}") from None
    finally:
        door.stop(words, LINGER)
    return [leader, *(name for name in names if name != leader)]


class _Carried:
    """The messages of one meeting, from one site to another."""

    def __init__(
        self, door: StreamDoor, names: tuple[str, ...], leader: str, rows: int,
        interrupt: Callable[[], str],
    ):  # fmt: skip
        self.door, self.names, self.first = door, names, names.index(leader)
        self.said: dict[str, dict[str, Any]] = {}
        largest = A_ROW * rows * len(names)
        self.streams = SiteStreams(door, names, largest + SLACK, interrupt=interrupt)
        door.check_ready = self._ready
        meeting = {"meeting": secrets.token_hex(16), "parties": list(names), "leader": leader}
        door.welcome({"align": {**meeting, "largest": largest}})

    def _ready(self, name: str, words: dict[str, Any]) -> str:
        if self.said.setdefault(name, words) != words:
            return f"{name} has begun anew in the middle of it: begin the alignment again"
        return ""

    def run(self) -> None:
        """From everybody's key to the order."""
        others = [i for i in range(len(self.names)) if i != self.first]
        everyone = range(len(self.names))
        keys = {i: json.dumps(self.said[self.names[i]]).encode() for i in self._all_ready()}
        questions = self._step(KEYS, dict.fromkeys(everyone, keys))[self.first]
        answers = self._step(QUESTION, {i: {self.first: questions[i]} for i in others})
        gathered = {i: answers[i][self.first] for i in others}
        orders = self._step(ANSWERS, {self.first: gathered})[self.first]
        self._step(ORDER, {i: {self.first: orders[i]} for i in others})

    def _all_ready(self) -> list[int]:
        while len(self.said) < len(self.names):
            if why := self.streams.interrupt():
                raise StoppedError(why, "everybody's key")
            self.door.changed.clear()
            self.door.changed.wait(0.2)
        return [self.names.index(name) for name in self.names]

    def _step(self, step: int, packets: Mapping[int, Packets]) -> dict[int, Packets]:
        messages = {i: packed(step, theirs) for i, theirs in packets.items()}
        replies = self.streams.deliver(messages)
        missing = [self.names[i] for i in messages if i not in replies]
        if missing:
            raise QuorumError(f"{', '.join(missing)} did not answer step {step}")
        found = {}
        for i, reply in replies.items():
            at, theirs = unpacked(reply)
            wanted = {
                (KEYS, True): len(self.names) - 1, (QUESTION, False): 1,
                (ANSWERS, True): len(self.names) - 1,
            }.get((step, i == self.first), 0)  # fmt: skip
            if at != step or len(theirs) != wanted:
                raise MessageError(f"{self.names[i]} says another thing than was asked")
            found[i] = theirs
        return found
