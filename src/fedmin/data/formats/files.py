"""Bytes of a data file: plain, compressed, or a member of an archive.

Compression is told from the first bytes, not from the name, so that a renamed file still reads and
a foreign one is recognized as foreign.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["DataFileError", "plain_number", "read_bytes", "read_members"]

_MAGIC: dict[bytes, tuple[str, Callable[[Any], Any]]] = {
    b"\x1f\x8b": ("gzip", lambda file: gzip.GzipFile(fileobj=file)),
    b"BZh": ("bzip2", bz2.BZ2File),
    b"\xfd7zXZ\x00": ("xz", lzma.LZMAFile),
}
# what the readers of archives raise of damaged ones: encrypted, of unknown methods, cut, ...
_DAMAGE = (
    OSError, EOFError, ValueError, LookupError, RuntimeError, OverflowError, MemoryError,
    struct.error, lzma.LZMAError, zlib.error, zipfile.BadZipFile, tarfile.TarError,
)  # fmt: skip
# a small file may become as large as this; a larger one by this factor, which no data reach
LEAST, FACTOR = 1 << 26, 200


class DataFileError(ValueError):
    """A data file is not what it should be: names the file, what was expected and what was found.

    >>> from fedmin.data import DataFileError
    >>> print(DataFileError("a.gz", "images", "labels"))
    a.gz: expected images, found labels
    """

    def __init__(self, path: object, expected: str, found: str):
        path, expected, found = map(_short, (str(path), expected, found))
        self.path, self.expected, self.found = path, expected, found
        super().__init__(f"{path}: expected {expected}, found {found}")


def _short(words: str) -> str:
    """Words that may quote a line or a name of any length."""
    return words if len(words) <= 400 else f"{words[:200]} ... {words[-200:]}"


def read_bytes(path: Path | str, member: str | None = None) -> bytes:
    """The decompressed content of a file, or of one member of a tar or zip archive.

    >>> import gzip, pathlib, tempfile
    >>> from fedmin.data.formats.files import read_bytes
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.gz")
    >>> _ = path.write_bytes(gzip.compress(b"hello"))
    >>> read_bytes(path)
    b'hello'
    """
    if member is not None:
        return read_members(path, [member])[member]
    return _decompressed(path, Path(path).read_bytes())


def read_members(path: Path | str, members: Sequence[str]) -> dict[str, bytes]:
    """Several members of one archive, decompressed, in one pass over it."""
    path = Path(path)
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                found = set(archive.namelist())
                content = {
                    name: _bounded(path, archive.open(name), path.stat().st_size)
                    for name in members
                    if name in found
                }
        elif tarfile.is_tarfile(path):
            content = _from_tar(path, set(members))
        else:
            with path.open("rb") as file:
                head = file.read(8)
            raise DataFileError(path, "a zip or tar archive", f"a file that begins with {head!r}")
    except DataFileError:
        raise
    except FileNotFoundError:
        raise
    except _DAMAGE as error:
        raise DataFileError(path, "a whole archive", f"a damaged one ({error})") from None
    missing = [name for name in members if name not in content]
    if missing:
        raise DataFileError(path, f"the member {missing[0]}", "an archive without it")
    return {name: _decompressed(f"{path}::{name}", content[name]) for name in members}


def _from_tar(path: Path, wanted: set[str]) -> dict[str, bytes]:
    content = {}
    with tarfile.open(path) as archive:
        for info in archive:
            name = info.name.removeprefix("./")
            if name in wanted and info.isfile():
                file = archive.extractfile(info)
                size = path.stat().st_size
                content[name] = b"" if file is None else _bounded(path, file, size)
            if len(content) == len(wanted):  # a gzipped tar has no index: stop as soon as we can
                break
    return content


def _decompressed(where: object, raw: bytes) -> bytes:
    for magic, (kind, opened) in _MAGIC.items():
        if raw.startswith(magic):
            try:
                return _bounded(where, opened(io.BytesIO(raw)), len(raw))
            except DataFileError:
                raise
            except _DAMAGE as error:
                found = f"{len(raw)} bytes that do not decompress ({error})"
                raise DataFileError(where, f"a whole {kind} file", found) from None
    return raw


def _bounded(where: object, file: Any, size: int) -> bytes:
    """What is in a compressed file of this size; a few bytes may be written to become terabytes."""
    most = max(LEAST, FACTOR * size)
    with file:
        content = file.read(most + 1)
    if len(content) > most:
        found = f"{size:,} bytes that become more than {most:,}"
        raise DataFileError(where, f"at most {FACTOR} times its size", found)
    return content


def plain_number(text: str | bytes) -> float:
    """A finite number as others write it too: 1_000, nan and inf are none.

    >>> from fedmin.data.formats.files import plain_number
    >>> plain_number("1e3")
    1000.0
    """
    value = float(text)
    if not math.isfinite(value) or (b"_" if isinstance(text, bytes) else "_") in text:  # type: ignore[operator]
        shown = text.decode("latin-1") if isinstance(text, bytes) else text
        raise ValueError(f"{shown!r} is no finite number")
    return value
