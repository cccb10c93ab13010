"""Messages as bytes: a fixed header, a line of shape and type a leaf, the numbers, a checksum.

    magic 4 | version 1 | kind 1 | exchange 2 | round 4 | party 4 | leaves 2 | crc32 4: 22 bytes
    a leaf:  type 1 | axes 1 | 4 an axis
    then the numbers of all leaves, little-endian, in the order of the message's tree

A message from client to client is such a message, sealed (engines/seal.py: 16 bytes more), as one
array of bytes in another, which names its receiver on the way up and its sender on the way down.

The form of a message is known to both ends from the method and the problem, so only numbers travel,
and what arrives is compared with what was expected. No pickle.
"""

import struct
import zlib
from typing import Any, NamedTuple

import jax
import numpy as np

MAGIC = b"FMIN"
VERSION = 1
HEADER = struct.Struct("<4sBBHIiHI")
KINDS = ("down", "up")
SETUP = 2**16 - 1  # the number of the exchange of keys, before any round
SEAL = 16  # what the seal adds to a message
TYPES = tuple(
    np.dtype(t).newbyteorder("<")
    for t in ("f4", "f8", "f2", "i4", "i8", "i2", "i1", "u4", "u8", "u2", "u1", "?")
)


class Envelope(NamedTuple):
    """Who says what when: "down" to or "up" from `party` (a client's id) in this round."""

    kind: str
    round: int
    exchange: int
    party: int


def encode(envelope: Envelope, message: Any) -> bytes:
    """The bytes of a message."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(message)]
    body = bytearray()
    for leaf in leaves:
        body += struct.pack(f"<BB{leaf.ndim}I", _code(leaf.dtype), leaf.ndim, *leaf.shape)
    for leaf in leaves:
        body += np.ascontiguousarray(leaf, leaf.dtype.newbyteorder("<")).tobytes()
    kind = KINDS.index(envelope.kind)
    front = (MAGIC, VERSION, kind, envelope.exchange, envelope.round, envelope.party, len(leaves))
    return HEADER.pack(*front, zlib.crc32(HEADER.pack(*front, 0) + body)) + bytes(body)


def decode(data: bytes, like: Any) -> tuple[Envelope, Any]:
    """The message in these bytes, which must have the shapes and types of `like`."""
    if len(data) < HEADER.size:
        raise ValueError(f"a message has at least {HEADER.size} bytes, got {len(data)}")
    *front, crc = HEADER.unpack_from(data)
    magic, version, kind, exchange, round, party, count = front
    if magic != MAGIC or version != VERSION or kind >= len(KINDS):
        raise ValueError(f"not a fedmin message of version {VERSION}: begins {data[:6]!r}")
    if zlib.crc32(HEADER.pack(*front, 0) + data[HEADER.size :]) != crc:
        raise ValueError("a message was damaged on its way: its checksum does not fit")
    envelope = Envelope(KINDS[kind], round, exchange, party)
    wanted, form = jax.tree.flatten(like)
    if count != len(wanted):
        raise ValueError(f"{envelope}: expected {len(wanted)} arrays, got {count}")
    offset, described = HEADER.size, []
    for _ in range(count):
        try:
            code, axes = struct.unpack_from("<BB", data, offset)
            shape = struct.unpack_from(f"<{axes}I", data, offset + 2)
        except struct.error:
            raise ValueError(f"{envelope}: the description of its arrays ends too early") from None
        if code >= len(TYPES):
            raise ValueError(f"{envelope}: there is no array type number {code}")
        described.append((TYPES[code], shape))
        offset += 2 + 4 * axes
    leaves = []
    for (dtype, shape), want in zip(described, wanted, strict=True):
        if dtype != np.dtype(want.dtype) or shape != tuple(want.shape):
            raise ValueError(
                f"{envelope}: expected {np.dtype(want.dtype)}{list(want.shape)}, "
                f"got {dtype}{list(shape)}"
            )
        size = int(np.prod(shape, dtype=np.int64))
        leaves.append(np.frombuffer(data, dtype, size, offset).reshape(shape))
        offset += size * dtype.itemsize
    if offset != len(data):
        raise ValueError(f"{envelope}: {len(data) - offset} bytes too many")
    return envelope, jax.tree.unflatten(form, leaves)


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
        found[name] = sum(
            int(np.prod(leaf.shape, dtype=np.int64)) * np.dtype(leaf.dtype).itemsize
            for leaf in leaves
        )
    return found


def sealed_like(message: Any) -> dict[str, Any]:
    """The form of what carries a sealed message: its bytes, and who it is for or from."""
    count = sum(sizes(message).values()) + SEAL
    return {"peer": np.zeros((), np.int32), "sealed": np.zeros(count, np.uint8)}


def sealed_sizes(message: Any) -> dict[str, int]:
    """Bytes by part of a message that travels sealed; headers are those within and around it."""
    inside, around = sizes(message), sizes(sealed_like(message))
    header = inside["header"] + around["header"] + around["peer"]
    return {**inside, "header": header, "seal": SEAL}


def _code(dtype: np.dtype) -> int:
    try:
        return TYPES.index(np.dtype(dtype).newbyteorder("<"))
    except ValueError:
        raise TypeError(f"arrays of {dtype} cannot be sent") from None
