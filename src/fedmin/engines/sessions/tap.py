"""A wire tap: every byte that a party sent or got, kept in a file as it went over its wire.

    FMINTAP1 | a record: 4 bytes of length, the message | ...

A message names its sender, receiver, run, round and trip itself (wire.py). The file has all that an
eavesdropper at this end would have, so nobody but its owner may read it.
"""

import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fedmin.core.kept import DamagedError
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.transport import Transport

MAGIC = b"FMINTAP1"
LENGTH = struct.Struct("<I")


class Heard(NamedTuple):
    """A message on the wire: who said it to whom, when, and all of its bytes."""

    envelope: wire.Envelope
    data: bytes

    def __str__(self) -> str:
        return str(self.envelope)


class Tap:
    """A file to which messages are added; one that is there already is added to."""

    def __init__(self, path: str | Path):
        path = Path(path)
        begins = path.read_bytes()[:8] if path.exists() else b""
        if begins not in (b"", MAGIC):
            raise ValueError(f"{path} is there and is no tap; give another name")
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.file = os.fdopen(number, "ab")
        if self.file.tell() == 0:
            self.file.write(MAGIC)
            self.file.flush()

    def keep(self, data: bytes) -> None:
        """Add a message."""
        self.file.write(LENGTH.pack(len(data)) + data)
        self.file.flush()  # a party that is killed has kept what it sent

    def close(self) -> None:
        """Nothing more will come."""
        self.file.close()


def heard(path: str | Path) -> Iterator[Heard]:
    """The messages of a tap, in their order; the last one may have been cut off by a crash."""
    content = Path(path).read_bytes()
    if content[:8] != MAGIC:
        raise DamagedError(Path(path), "it is no tap: it does not begin like one")
    place = len(MAGIC)
    while place + LENGTH.size <= len(content):
        (length,) = LENGTH.unpack_from(content, place)
        data = content[place + LENGTH.size : place + LENGTH.size + length]
        place += LENGTH.size + length
        if len(data) == length:
            try:
                yield Heard(wire.envelope_of(data), data)
            except wire.MessageError as error:
                raise DamagedError(Path(path), str(error)) from None


class Tapped(Transport):
    """A transport whose every message is kept on its way."""

    def __init__(self, transport: Transport, tap: Tap):
        self.transport, self.tap = transport, tap

    def deliver(
        self,
        messages: dict[int, bytes],
        deadline: float | None = None,
        enough: int | None = None,
        before: Mapping[int, bytes] = {},
    ) -> dict[int, bytes]:
        for i, data in messages.items():
            if i in before:
                self.tap.keep(before[i])
            self.tap.keep(data)
        replies = self.transport.deliver(messages, deadline, enough, before)
        for data in replies.values():
            self.tap.keep(data)
        return replies

    @property
    def replaying(self) -> bool:  # type: ignore[override]
        return self.transport.replaying

    @property
    def full(self) -> bool:  # type: ignore[override]
        return self.transport.full

    def here(self) -> set[int] | None:
        return self.transport.here()

    def states(self):
        return self.transport.states()

    def go_on(self, done: int) -> None:
        self.transport.go_on(done)

    def checkpointed(self) -> None:
        self.transport.checkpointed()

    def close(self) -> None:
        self.transport.close()
        self.tap.close()
