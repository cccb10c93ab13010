"""Frames over a pipe: one letter for the kind, four bytes for the length, the bytes."""

import struct
from typing import BinaryIO

FRONT = struct.Struct("<cI")
LARGEST = 2**31  # a length above is not a length
OPEN, ROWS, ASK, REPLY, REFUSED, FAILED = b"O", b"R", b"A", b"Y", b"N", b"F"


def send(pipe: BinaryIO, kind: bytes, data: bytes) -> None:
    """Write one frame."""
    pipe.write(FRONT.pack(kind, len(data)) + data)
    pipe.flush()


def receive(pipe: BinaryIO) -> tuple[bytes, bytes] | None:
    """Read one frame; None at the end of the pipe."""
    front = pipe.read(FRONT.size)
    if len(front) < FRONT.size:
        return None
    kind, length = FRONT.unpack(front)
    if length > LARGEST:
        raise ValueError(f"a frame of {length} bytes: this is not fedmin's pipe")
    data = pipe.read(length)
    return (kind, data) if len(data) == length else None
