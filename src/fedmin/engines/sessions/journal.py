"""Records that a killed process finds again: appended whole, a torn one at the end is dropped.

    a record:  length 4 | crc32 4 | length of the words 4 | words, JSON | pieces

The words say how long each piece is. A record is given to the operating system before whatever
depends on it leaves the process, so `kill -9` loses nothing; a machine that loses its power may
lose the last records, and its party then goes on from its last checkpoint, which is synced.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FRONT = struct.Struct("<II")
WORDS = struct.Struct("<I")


class Record(NamedTuple):
    """Words and the bytes that belong to them."""

    words: dict[str, Any]
    pieces: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        """The record as bytes."""
        sizes = [len(piece) for piece in self.pieces]
        words = json.dumps({**self.words, "sizes": sizes}).encode()
        body = b"".join([WORDS.pack(len(words)), words, *self.pieces])
        return FRONT.pack(len(body), zlib.crc32(body)) + body


class Journal:
    """A file of records that grows at its end.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from fedmin.engines.sessions.journal import Journal, Record, records
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "journal.bin"
    ...     Journal(path).append(Record({"round": 1}, (b"abc",)))
    ...     [(record.words["round"], record.pieces) for record in records(path)]
    [(1, (b'abc',))]
    """

    def __init__(self, path: Path, first: Sequence[Record] = ()):
        """Begin anew with these records; the file before it is there until this one is whole."""
        data = b"".join(record.encode() for record in first)
        self.path, self.size = path, len(data)
        beside = path.with_name(path.name + ".part")
        beside.write_bytes(data)
        beside.replace(path)

    def append(self, record: Record) -> None:
        """Write one record; it survives this process from here on."""
        data = record.encode()
        with self.path.open("ab", buffering=0) as file:
            written = file.write(data)
        if written != len(data):
            raise OSError(f"{self.path}: only {written} of {len(data)} bytes could be written")
        self.size += len(data)


def records(path: Path) -> Iterator[Record]:
    """The whole records of a file, in order; what comes after a damaged one is not used."""
    if not path.exists():
        return
    data, offset = path.read_bytes(), 0
    while offset + FRONT.size <= len(data):
        length, crc = FRONT.unpack_from(data, offset)
        body = data[offset + FRONT.size : offset + FRONT.size + length]
        if len(body) < max(length, WORDS.size) or zlib.crc32(body) != crc:
            return
        (count,) = WORDS.unpack_from(body)
        words = json.loads(body[WORDS.size : WORDS.size + count])
        at, pieces = WORDS.size + count, []
        for size in words.pop("sizes"):
            pieces.append(body[at : at + size])
            at += size
        yield Record(words, tuple(pieces))
        offset += FRONT.size + length
