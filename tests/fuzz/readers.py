"""Files of data, each by its reader: LIBSVM, idx, CIFAR, parties' tables, a site's columns, plays.

Plain, compressed, or in archives. What is accepted is finite, and no larger than its file allows.
"""

import bz2
import functools
import gzip
import io
import lzma
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from fedmin.data import (
    DataFileError,
    read_cifar10,
    read_idx,
    read_libsvm,
    read_party,
    read_speeches,
)
from fedmin.data.formats import files
from fedmin.data.formats.columns import read_columns

from .campaign import DifferentError, Target
from .mutation import change_bytes, change_text
from .reducing import reduced

LIBSVM = "+1 1:0.5 3:2 # a\n-1 2:1e-3 7:-4\n2.5 qid:3 1:1\n" * 3
PARTY = "id,y,age,weight\n7,1,50,70.5\n9,0,-3e2,80\n11,1,0,.5\n"
PLAY = "All:\nSpeak, speak.\n\nBrutus:\nAy.\nNo.\n\nAll:\nHail!\n"
ODD = ("nan", "-inf", "1e39", "1e400", "2147483648", "9" * 25, "-1", "0", "1_0", "", "x", "१")
MOST = 1 << 20  # the bound on what is unpacked, so small that it is met
LARGE = 3_000_000  # bytes that some files are unpacked to
PACKED = (gzip.compress, bz2.compress, functools.partial(lzma.compress, preset=0))


class Case(NamedTuple):
    """A file, who reads it, and the member of it, if it is an archive."""

    reader: str
    content: bytes
    member: str | None


def _columns(path: Path, member: str | None) -> Any:
    return read_columns([path], ["age", "y"]).numbers(["age", "y"])


def _cifar(path: Path, member: str | None) -> Any:
    return read_cifar10(path, None if member is None else [member])


READERS: dict[str, Callable[[Path, str | None], Any]] = {
    "libsvm": read_libsvm,
    "idx": read_idx,
    "cifar": _cifar,
    "party": lambda path, member: read_party(path)[1:3],
    "columns": _columns,
    "speeches": lambda path, member: len(read_speeches(path)) * [1.0],
}
ARCHIVED = ("libsvm", "idx", "cifar")


@functools.cache
def whole() -> dict[str, list[bytes]]:
    """Valid files of each reader."""
    idx = [
        struct.pack(">BBBB2I", 0, 0, code, 2, 2, 3) + np.arange(6.0).astype(kind).tobytes()
        for code, kind in ((8, "u1"), (12, ">i4"), (13, ">f4"), (14, ">f8"))
    ]  # fmt: skip
    texts = {"libsvm": LIBSVM, "party": PARTY, "columns": PARTY, "speeches": PLAY}
    found = {name: [text.encode()] for name, text in texts.items()}
    return {**found, "idx": idx, "cifar": [(bytes([3]) + bytes(range(256)) * 12) * 2]}


def case(rng: Random) -> Case:
    """A file that is changed before or after it is packed."""
    reader = rng.choice(sorted(READERS))
    content = rng.choice(whole()[reader])
    member = None
    changes = rng.choice((1, 1, 2, 4))
    inside = rng.random() < 0.7
    if inside:
        for _ in range(changes):
            content = _changed(rng, reader, content)
    packing = rng.randrange(7)
    if packing < len(PACKED):
        content = _bomb(reader, packing) if rng.random() < 0.03 else PACKED[packing](content)
    elif packing < 5 and reader in ARCHIVED:
        content, member = _archived(content, tar=packing == 3), "a/b"
    if not inside:
        for _ in range(changes):
            content = change_bytes(rng, content)
    return Case(reader, content, member)


def _changed(rng: Random, reader: str, content: bytes) -> bytes:
    if reader in ("idx", "cifar") or rng.random() < 0.2:
        return change_bytes(rng, content)
    text = content.decode("utf-8", "replace")
    if rng.random() < 0.5:
        return change_text(rng, text).encode("utf-8", "replace")
    cuts = [i for i, letter in enumerate(text) if letter in " ,:\n"]  # another word between two
    at = rng.randrange(len(cuts)) if cuts else 0
    first, last = (cuts[at], ([*cuts, len(text)])[at + 1]) if cuts else (0, len(text))
    return (text[: first + 1] + rng.choice(ODD) + text[last:]).encode()


@functools.cache
def _bomb(reader: str, packing: int) -> bytes:
    """A small file that is unpacked to a large one."""
    content = whole()[reader][0]
    return PACKED[packing](content * (LARGE // len(content)))


@functools.cache
def _place() -> tempfile.TemporaryDirectory:
    """A folder of this process: one a case would take longer than reading it."""
    return tempfile.TemporaryDirectory()


def _archived(content: bytes, tar: bool) -> bytes:
    out = io.BytesIO()
    if tar:
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            info = tarfile.TarInfo("a/b")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    else:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.writestr("a/b", content)
    return out.getvalue()


def attempt(case: Case) -> str:
    """Refused with the name of its file, or numbers that are all finite."""
    path = Path(_place().name) / "case"
    path.write_bytes(case.content)
    try:
        with mock.patch.object(files, "LEAST", MOST):
            found = READERS[case.reader](path, case.member)
    except DataFileError as error:
        if "case" not in str(error) or len(str(error)) > 2000:
            raise DifferentError(f"an error of {len(str(error))} letters") from error
        return "refused"
    most = max(MOST, files.FACTOR * len(case.content))
    for each in found if isinstance(found, tuple) else (found,):
        numbers = np.asarray(getattr(each, "data", each) if hasattr(each, "nnz") else each)
        if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
            raise DifferentError("numbers that are not finite")
        if numbers.nbytes > 8 * most:
            raise DifferentError("more numbers than its file can hold")
    return "accepted"


def _reduce(case: Case, fails: Callable[[Case], bool]) -> Case:
    return case._replace(
        content=reduced(case.content, lambda some: fails(case._replace(content=some)))
    )


def _show(case: Case) -> str:
    return f"{case.reader}, member {case.member}: {case.content[:1500]!r}"


TARGET = Target(case, attempt, _reduce, _show)
