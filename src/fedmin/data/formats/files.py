"""Bytes of a data file: plain, compressed, or a member of an archive.

Compression is told from the first bytes, not from the name, so that a renamed file still reads and
a foreign one is recognized as foreign.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

__all__ = ["DataFileError", "read_bytes", "read_members"]

_MAGIC = {
    b"\x1f\x8b": ("gzip", gzip.decompress),
    b"BZh": ("bzip2", bz2.decompress),
    b"\xfd7zXZ\x00": ("xz", lzma.decompress),
}
_DAMAGE = (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error, zipfile.BadZipFile)


class DataFileError(ValueError):
    """A data file is not what it should be: names the file, what was expected and what was found.

    >>> from fedmin.data import DataFileError
    >>> print(DataFileError("a.gz", "images", "labels"))
    a.gz: expected images, found labels
    """

    def __init__(self, path: object, expected: str, found: str):
        self.path, self.expected, self.found = str(path), expected, found
        super().__init__(f"{path}: expected {expected}, found {found}")


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
                content = {name: archive.read(name) for name in members if name in found}
        elif tarfile.is_tarfile(path):
            content = _from_tar(path, set(members))
        else:
            with path.open("rb") as file:
                head = file.read(8)
            raise DataFileError(path, "a zip or tar archive", f"a file that begins with {head!r}")
    except DataFileError:
        raise
    except (*_DAMAGE, tarfile.TarError) as error:
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
                content[name] = b"" if file is None else file.read()
            if len(content) == len(wanted):  # a gzipped tar has no index: stop as soon as we can
                break
    return content


def _decompressed(where: object, raw: bytes) -> bytes:
    for magic, (kind, decompress) in _MAGIC.items():
        if raw.startswith(magic):
            try:
                return decompress(raw)
            except _DAMAGE as error:
                found = f"{len(raw)} bytes that do not decompress ({error})"
                raise DataFileError(where, f"a whole {kind} file", found) from None
    return raw
