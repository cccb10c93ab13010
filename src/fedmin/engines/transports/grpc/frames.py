"""Messages over a stream, in pieces: one letter for the kind, a number, the whole length, a piece.

A piece is at most PIECE bytes, so no peer makes the other hold more than it is ready for: the whole
length is in the first piece and is refused there if it is more than can be meant, and a message
that has begun must come faster than SLOWEST.
"""

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

FRONT = struct.Struct("<cIQ")
PIECE = 2**20
WORDS = 2**22  # bytes of what is said in words, at most
GRACE = 20.0  # seconds that any message may take
SLOWEST = 2**12  # bytes a second beyond that
PROTOCOL = 2  # of this conversation; both ends must speak the same
METHOD = "/fedmin.Run/Talk"
# hello, welcome and ready are words; query is a question before the run is known, told the reply;
# before and ask are questions of the run, yes is the reply to one of them; no: it must not be
# answered, failed: it could not be; end: there is nothing more to ask
HELLO, QUERY, TOLD, WELCOME, READY, BEFORE, ASK, YES, NO, FAILED, END = (
    bytes([letter]) for letter in b"HQTWRBAYNFE"
)
SAID = (HELLO, QUERY, TOLD, WELCOME, READY, NO, FAILED, END)  # never longer than WORDS

PINGS = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_receive_message_length", PIECE + FRONT.size),
    ("grpc.max_send_message_length", PIECE + FRONT.size),
    ("grpc.default_compression_algorithm", 0),
    ("grpc.max_metadata_size", 2**14),
]


class FrameError(ValueError):
    """What came is not this conversation; its stream is closed."""


class Message(NamedTuple):
    """One whole message."""

    kind: bytes
    number: int
    data: bytes

    def words(self) -> dict[str, Any]:
        """What it says, where it is words."""
        try:
            found = json.loads(self.data)
        except (ValueError, RecursionError):
            raise FrameError("words that are not JSON") from None
        if not isinstance(found, dict):
            raise FrameError("words that are not a table")
        return found


def said(kind: bytes, words: dict[str, Any]) -> Message:
    """A message of words."""
    return Message(kind, 0, json.dumps(words).encode())


NAMES = {HELLO: "hello", READY: "ready", NO: "refusal", FAILED: "failure"}  # what a site says


def pieces(message: Message) -> Iterator[bytes]:
    """The frames of a message.

    >>> from fedmin.engines.transports.grpc.frames import Message, pieces
    >>> [len(frame) for frame in pieces(Message(b"A", 1, bytes(3)))]
    [16]
    """
    front = FRONT.pack(message.kind, message.number, len(message.data))
    view = memoryview(message.data)
    for at in range(0, max(len(view), 1), PIECE):
        yield front + view[at : at + PIECE]


class Reader:
    """Whole messages from a stream of frames."""

    def __init__(self, read: Callable[[], Awaitable[Any]], largest: int = WORDS):
        self.read, self.largest = read, largest  # bytes of a question or a reply

    async def next(self, seconds: float | None = None) -> Message | None:
        """The next message; None at the end of the stream. `seconds` are for it to begin."""
        frame = await asyncio.wait_for(self.read(), seconds)
        if not isinstance(frame, bytes):
            return None
        kind, number, total = self._front(frame)
        most = WORDS if kind in SAID else self.largest
        if total > most:
            raise FrameError(f"a message of {total:,} bytes, where {most:,} can be meant")
        parts, have = [memoryview(frame)[FRONT.size :]], len(frame) - FRONT.size
        try:
            async with asyncio.timeout(GRACE + total / SLOWEST):
                while have < total:
                    frame = await self.read()
                    if not isinstance(frame, bytes):
                        return None
                    if self._front(frame) != (kind, number, total) or len(frame) == FRONT.size:
                        raise FrameError("a piece of another message")
                    parts.append(memoryview(frame)[FRONT.size :])
                    have += len(frame) - FRONT.size
        except TimeoutError:
            raise FrameError(f"{have:,} of {total:,} bytes came, too slowly") from None
        if have != total:
            raise FrameError(f"{have:,} bytes, where {total:,} were announced")
        return Message(kind, number, b"".join(parts))

    def _front(self, frame: bytes) -> tuple[bytes, int, int]:
        if len(frame) < FRONT.size:
            raise FrameError(f"a frame of {len(frame)} bytes")
        kind, number, total = FRONT.unpack_from(frame)
        if kind not in (*SAID, BEFORE, ASK, YES):
            raise FrameError(f"a frame that begins with {kind!r}")
        return kind, number, total
