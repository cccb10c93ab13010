"""Messages: whatever arrives is refused with a `MessageError`, or is read as exactly what it says.

The halves of a run, which look further than at bytes, are tried in test_sessions.py.
"""

import functools
import struct
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from fedmin.engines.sessions import wire

from .campaign import DifferentError, Target
from .mutation import change_bytes
from .reducing import reduced

CRC = wire.HEADER.size - 4


@functools.cache
def forms() -> list[tuple[wire.Envelope, Any]]:
    """Messages of every kind of number, and of none."""
    numbers = [np.arange(6).reshape(2, 3).astype(dtype) for dtype in wire.TYPES]
    messages = [{"model": np.ones(5, np.float32)}, {}, {"a": numbers[0], "b": numbers[3:]}]
    messages += [{"x": each} for each in numbers]
    places = [(kind, k % 7, k % 3, k - 1, k % 5) for k, kind in enumerate(wire.KINDS)]
    return [(wire.Envelope(*place), each) for place in places for each in messages]


def case(rng: Random) -> tuple[int, bytes]:
    """A message that was changed, half of the time with a checksum that fits; and what it was."""
    which = rng.randrange(len(forms()))
    data = wire.encode(*forms()[which])
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = change_bytes(rng, data)
    if rng.random() < 0.7 and len(data) >= wire.HEADER.size:
        whole = data[:CRC] + bytes(4) + data[CRC + 4 :]
        data = data[:CRC] + struct.pack("<I", zlib.crc32(whole)) + data[CRC + 4 :]
    return which, data


def attempt(case: tuple[int, bytes]) -> str:
    """Refused, or the same bytes again when what was read is written."""
    which, data = case
    try:
        envelope, message = wire.decode(data, forms()[which][1])
    except wire.MessageError:
        return "refused"
    if wire.encode(envelope, message) != data:
        raise DifferentError("a message that is written otherwise than it was read")
    return "accepted"


def _reduce(case: tuple[int, bytes], fails: Callable[[Any], bool]) -> tuple[int, bytes]:
    return case[0], reduced(case[1], lambda some: fails((case[0], some)))


TARGET = Target(case, attempt, _reduce, repr)
