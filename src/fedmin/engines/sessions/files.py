"""The files of what a party keeps: used if they are whole, named and passed over if not.

    magic 8 | version 2 | length of the words 4 | length of the arrays 8
    words, JSON | all arrays, as a message of wire.py
    SHA-256 of all of that 32

The words say what the file belongs to and how far it came; the arrays are the state of whoever
keeps them. The form of the state is known from the run itself, so only numbers are stored. Nothing
of a file is believed before its digest fits, and nothing is allocated for it before its length is
the one that this run writes; the digest is computed piece by piece. A file is written beside its
place and moved there when it is whole; the newest whole one before it is kept.
"""

import contextlib
import hashlib
import json
import os
import re
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import jax

from fedmin.core.files import write_whole
from fedmin.engines.sessions import wire

MAGIC = b"fmin3\x00\xff\n"  # bits away from EARLIER: a flipped bit makes no older version of it
EARLIER = b"FMINCKPT"  # versions 1 and 2, without a digest
VERSION = 3
FRONT = struct.Struct("<8sHIQ")
DIGEST = hashlib.sha256().digest_size
PIECE = 1 << 20
NAME = re.compile(r"checkpoint-(\d{9,18})\.bin")

Shapes = Callable[[dict[str, Any]], Any]  # from a file's words to the shapes of its arrays


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, and why."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint that is not whole: an older one may be."""


class LostError(CheckpointError):
    """Other parties have nothing whole of a round: all must go back further."""


class Files:
    """The checkpoints of one party: the newest two whole ones of this run in a folder.

    `belongs` says what they belong to, by name: short values, or hashes of long ones.
    """

    def __init__(self, folder: str | os.PathLike, belongs: Mapping[str, Any]):
        self.folder, self.belongs = Path(folder), dict(belongs)
        self.folder.mkdir(parents=True, exist_ok=True)
        for torn in self.folder.glob("checkpoint-*.part"):  # of a process that was killed
            torn.unlink(missing_ok=True)

    def write(self, done: int, words: dict[str, Any], arrays: Any) -> None:
        """Keep these arrays as what there was after so many rounds."""
        said = json.dumps({"belongs": self.belongs, "done": done, **words}).encode()
        body = wire.encode(wire.Envelope("state", done, 0, 0, 0), jax.device_get(arrays))
        data = FRONT.pack(MAGIC, VERSION, len(said), len(body)) + said + body
        write_whole(self.path(done), data + hashlib.sha256(data).digest())
        # later ones are of a future that will not be: after a damaged checkpoint a run goes back,
        # and kept for being the newest they would crowd out what it can go on from
        before = (path for path in self.found() if round_of(path) < done)
        kept = {self.path(done), next(filter(self._is_whole, before), None)}
        for old in set(self.found()) - kept:
            old.unlink(missing_ok=True)

    def path(self, done: int) -> Path:
        """The file of what there was after so many rounds."""
        return self.folder / f"checkpoint-{done:09d}.bin"

    def found(self) -> list[Path]:
        """Checkpoints, newest first."""
        named = (path for path in self.folder.glob("checkpoint-*.bin") if path.is_file())
        return sorted(filter(_is_named, named), key=round_of, reverse=True)

    def refuse_others(self) -> None:
        """Refuse a folder with whole files of another run in it."""
        for path in self.found():
            with contextlib.suppress(DamagedCheckpointError):
                self.words(path)

    def whole(self, form: Shapes) -> Iterator[tuple[dict[str, Any], Any]]:
        """Words and arrays of those that are whole, newest first; the others are named."""
        for path in self.found():
            try:
                yield self.read(path, form)
            except DamagedCheckpointError as error:
                warnings.warn(f"{error}; it is passed over", RuntimeWarning, stacklevel=5)

    def at(self, done: int, form: Shapes) -> tuple[dict[str, Any], Any]:
        """Words and arrays of the checkpoint after so many rounds."""
        path = self.path(done)
        if not path.exists():
            raise DamagedCheckpointError(f"{path} is not there: nothing was kept of round {done}")
        return self.read(path, form)

    def read(self, path: Path, form: Shapes) -> tuple[dict[str, Any], Any]:
        """Words and arrays of one file."""
        words, length = self.words(path)
        with _named(path), path.open("rb") as file:
            like = form(words)
            wanted = sum(wire.sizes({"all": like}).values())
            if length != wanted:
                raise ValueError(f"its arrays have {length} bytes, this run's {wanted}")
            file.seek(-DIGEST - length, os.SEEK_END)
            return words, wire.decode(file.read(length), like)[1]

    def words(self, path: Path) -> tuple[dict[str, Any], int]:
        """The words of one file that is whole and this run's, and the length of its arrays."""
        with _named(path), path.open("rb") as file:
            words, length = _checked(file, round_of(path))
            self._is_ours(path, words["belongs"])
            return words, length

    def _is_whole(self, path: Path) -> bool:
        """Whether this run can go on from a file."""
        with contextlib.suppress(CheckpointError):
            return bool(self.words(path))
        return False

    def _is_ours(self, path: Path, belongs: Mapping[str, Any]) -> None:
        """Refuse what belongs to another run: to go on would be to overwrite it."""
        names = dict.fromkeys([*self.belongs, *belongs])
        other = [name for name in names if self.belongs.get(name) != belongs.get(name)]
        if other:
            words = ", ".join(_difference(n, belongs.get(n), self.belongs.get(n)) for n in other)
            raise CheckpointError(
                f"{path} belongs to another run: {words}; give another folder, or delete it"
            )


class _OtherVersion(Exception):  # noqa: N818
    """A file of another version of fedmin."""


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Whatever is wrong with a file is said with its name."""
    try:
        yield
    except CheckpointError:
        raise
    except _OtherVersion as error:
        raise CheckpointError(f"{path} {error}; give another folder, or delete it") from None
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        raise DamagedCheckpointError(f"{path} is not a whole checkpoint: {error}") from error


def round_of(path: Path) -> int:
    """The rounds that a file's name says were done."""
    found = NAME.fullmatch(path.name)
    assert found is not None
    return int(found[1])


def _is_named(path: Path) -> bool:
    return NAME.fullmatch(path.name) is not None


def _checked(file: BinaryIO, done: int) -> tuple[dict[str, Any], int]:
    """The words of a file that is whole, and the length of its arrays; else why it is not."""
    size = os.fstat(file.fileno()).st_size
    front = file.read(FRONT.size)
    if front[:8] == EARLIER and front[8:10] in (b"\x01\x00", b"\x02\x00"):
        raise _OtherVersion(f"is of an earlier fedmin (version {front[8]}): it has no digest")
    if len(front) < FRONT.size or size < FRONT.size + DIGEST:
        raise ValueError(f"it has {size} bytes")
    magic, version, words, arrays = FRONT.unpack(front)
    if magic != MAGIC:
        raise ValueError(f"it begins with {magic!r}")
    if size != FRONT.size + words + arrays + DIGEST:
        raise ValueError(f"it has {size} bytes, and says {FRONT.size + words + arrays + DIGEST}")
    content, left = hashlib.sha256(front), words + arrays
    while left:
        piece = file.read(min(left, PIECE))
        if not piece:
            raise ValueError("it became shorter while it was read")
        content.update(piece)
        left -= len(piece)
    if file.read(DIGEST) != content.digest():
        raise ValueError("its SHA-256 does not fit")
    if version != VERSION:
        raise _OtherVersion(
            f"was written by another fedmin (version {version} of the file, not {VERSION})"
        )
    file.seek(FRONT.size)
    said = json.loads(file.read(words))
    if said["done"] != done:
        raise ValueError(f"it is of round {said['done']}, and its name says {done}")
    return said, arrays


def _difference(name: str, found: Any, here: Any) -> str:
    """What of a run differs, in words; hashes say nothing to a reader."""
    if any(value is None or len(str(value)) > 32 for value in (found, here)):
        return f"its {name} differ" if name.endswith("s") else f"its {name} differs"
    hint = " (FEDMIN_DEVICES sets how many there are)" if name == "devices" else ""
    return f"its {name} is {found}, here {here}{hint}"
