"""Messages as bytes: a fixed header, a line of shape and type a leaf, the numbers, a checksum.

    magic 4 | version 1 | kind 1 | trip 2 | run 8 | round 4 | sender 4 | receiver 4 | leaves 2 |
    crc32 4
    a leaf:  type 1 | axes 1 | 4 an axis
    then the numbers of all leaves, little-endian, in the order of the message's tree

The header has 34 bytes. The form of a message is known to both ends from the run and the roster, so
only numbers travel, and what arrives is compared with what was expected. No pickle.

A packet from client to client is such a message too, sealed (seal.py: 16 bytes more) and carried as
an array of bytes in another one.
"""

import math
import struct
import zlib
from typing import Any, NamedTuple

import jax
import numpy as np

MAGIC = b"FMIN"
VERSION = 2
HEADER = struct.Struct("<4sBBH8sIiiHI")
CHECKSUM = slice(HEADER.size - 4, HEADER.size)
# ask and reply are a trip's; fault: the reply is not finite; keep: remember this round, back: be
# there again, kept: so it is, lost: nothing whole is left of it; packet: from client to client;
# state: in a file
KINDS = ("ask", "reply", "fault", "keep", "back", "kept", "packet", "state", "lost")
EVALUATION = 0x4000  # the numbers of its trips begin here
CERTIFICATE = 0x6000  # and those of the look that a certificate takes
STATISTICS = 0x7000  # and those of its statistics
SETUP = 0x8000  # and those of the exchange of keys, before any round
PREPARE = 0xA000  # and those of preparing columns, before there is a run
NO_RUN = bytes(8)
TYPES = tuple(
    np.dtype(t).newbyteorder("<")
    for t in ("f4", "f8", "f2", "i4", "i8", "i2", "i1", "u4", "u8", "u2", "u1", "?")
)


class MessageError(ValueError):
    """A message that is not what was expected; it is refused and changes nothing."""


class Envelope(NamedTuple):
    """Who says what to whom, when, in which run."""

    kind: str
    round: int
    trip: int
    sender: int
    receiver: int
    run: bytes = NO_RUN

    def __str__(self) -> str:
        return f"{self.kind} of round {self.round}, trip {self.trip}"


def encode(envelope: Envelope, message: Any) -> bytes:
    """The bytes of a message."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(message)]
    body = bytearray()
    for leaf in leaves:
        body += struct.pack(f"<BB{leaf.ndim}I", _code(leaf.dtype), leaf.ndim, *leaf.shape)
    for leaf in leaves:
        body += np.ascontiguousarray(leaf, leaf.dtype.newbyteorder("<")).tobytes()
    front = (
        MAGIC, VERSION, KINDS.index(envelope.kind), envelope.trip, envelope.run, envelope.round,
        envelope.sender, envelope.receiver, len(leaves),
    )  # fmt: skip
    return HEADER.pack(*front, zlib.crc32(HEADER.pack(*front, 0) + body)) + bytes(body)


def envelope_of(data: bytes) -> Envelope:
    """The envelope of a message that has arrived whole."""
    if len(data) < HEADER.size:
        raise MessageError(f"a message has at least {HEADER.size} bytes, got {len(data)}")
    *front, crc = HEADER.unpack_from(data)
    magic, version, kind, trip, run, round, sender, receiver, _ = front
    if magic != MAGIC or version != VERSION or kind >= len(KINDS):
        raise MessageError(f"not a fedmin message of version {VERSION}: begins {data[:6]!r}")
    if zlib.crc32(HEADER.pack(*front, 0) + data[HEADER.size :]) != crc:
        raise MessageError("a message was damaged on its way: its checksum does not fit")
    return Envelope(KINDS[kind], round, trip, sender, receiver, run)


def decode(data: bytes, like: Any, finite: bool = False) -> tuple[Envelope, Any]:
    """The message in these bytes, which must have the shapes and types of `like`."""
    envelope = envelope_of(data)
    wanted, form = jax.tree.flatten(like)
    described, offset = _described(envelope, data, len(wanted))
    leaves = []
    for (dtype, shape), want in zip(described, wanted, strict=True):
        if dtype != np.dtype(want.dtype) or shape != tuple(want.shape):
            raise MessageError(
                f"{envelope}: expected {np.dtype(want.dtype)}{list(want.shape)}, "
                f"got {dtype}{list(shape)}"
            )
        size = math.prod(shape)
        if offset + size * dtype.itemsize > len(data):
            raise MessageError(f"{envelope}: its numbers end too early")
        leaves.append(np.frombuffer(data, dtype, size, offset).reshape(shape))
        offset += size * dtype.itemsize
    if offset != len(data):
        raise MessageError(f"{envelope}: {len(data) - offset} bytes too many")
    if finite and not all(np.isfinite(a).all() for a in leaves if a.dtype.kind == "f"):
        raise NotFiniteError(f"{envelope}: not all of its numbers are finite")
    return envelope, jax.tree.unflatten(form, leaves)


def leaves(data: bytes) -> tuple[Envelope, list[np.ndarray]]:
    """The arrays of a message whose form is not known before, by its own description."""
    envelope = envelope_of(data)
    described, _ = _described(envelope, data, HEADER.unpack_from(data)[-2])
    like = [np.broadcast_to(np.zeros((), dtype), shape) for dtype, shape in described]
    return decode(data, like)


class NotFiniteError(MessageError):
    """A message whose numbers are not all finite."""


def _described(envelope: Envelope, data: bytes, wanted: int) -> tuple[list, int]:
    """Type and shape of each leaf, and where the numbers begin."""
    count = HEADER.unpack_from(data)[-2]
    if count != wanted:
        raise MessageError(f"{envelope}: expected {wanted} arrays, got {count}")
    offset, described = HEADER.size, []
    for _ in range(count):
        try:
            code, axes = struct.unpack_from("<BB", data, offset)
            shape = struct.unpack_from(f"<{axes}I", data, offset + 2)
        except struct.error:
            words = f"{envelope}: the description of its arrays ends too early"
            raise MessageError(words) from None
        if code >= len(TYPES):
            raise MessageError(f"{envelope}: there is no array type number {code}")
        described.append((TYPES[code], shape))
        offset += 2 + 4 * axes
    return described, offset


def sizes(message: Any) -> dict[str, int]:
    """Bytes of a message by part, from its shapes alone; they add up to the encoded length."""
    parts = message if isinstance(message, dict) else {"message": message}
    if "header" in parts:
        raise ValueError(
            "a message cannot have a part named 'header': the ledger has one of its own"
        )
    found = {"header": HEADER.size}
    for name in sorted(parts):
        leaves = jax.tree.leaves(parts[name])
        found["header"] += sum(2 + 4 * len(leaf.shape) for leaf in leaves)
        found[name] = sum(math.prod(a.shape) * np.dtype(a.dtype).itemsize for a in leaves)
    return found


def _code(dtype: np.dtype) -> int:
    try:
        return TYPES.index(np.dtype(dtype).newbyteorder("<"))
    except ValueError:
        raise TypeError(f"arrays of {dtype} cannot be sent") from None
