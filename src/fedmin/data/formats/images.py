"""Readers for the original image formats: idx (MNIST, Fashion-MNIST, EMNIST) and CIFAR-10 binary.

idx      00 00 type ndim | ndim big-endian u32 sizes | data        type 0x08 = unsigned byte
CIFAR    10,000 records of 1 label byte + 3072 pixel bytes: red, green, blue planes of 32 x 32
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedmin.data.formats.files import DataFileError, read_bytes, read_members

__all__ = ["read_cifar10", "read_idx", "read_idx_images"]

_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_CIFAR_RECORD = 1 + 3 * 32 * 32


def read_idx(path: Path | str, member: str | None = None, *, ndim: int | None = None) -> np.ndarray:
    """An idx file (plain or compressed, or inside an archive) as an array.

    Args:
        path: the file.
        member: name inside the archive, when `path` is one.
        ndim: the number of axes it must have (1 for labels, 3 for images), if known.

    >>> import pathlib, tempfile
    >>> from fedmin.data import read_idx
    >>> path = pathlib.Path(tempfile.mkdtemp(), "labels-idx1-ubyte")
    >>> _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
    >>> read_idx(path)
    array([7, 2, 1], dtype=uint8)
    """
    where = path if member is None else f"{path}::{member}"
    raw = read_bytes(path, member)
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _IDX_TYPES or not 1 <= raw[3] <= 8:
        raise DataFileError(where, "an idx file (00 00 type ndim)", f"{raw[:4]!r} at its start")
    axes = raw[3]
    if ndim is not None and axes != ndim:
        raise DataFileError(where, f"an idx file of {ndim} axes", f"one of {axes}")
    start = 4 + 4 * axes
    if len(raw) < start:
        raise DataFileError(where, f"a header of {start} bytes", f"{len(raw)} bytes in all")
    shape = struct.unpack(f">{axes}I", raw[4:start])
    dtype = np.dtype(_IDX_TYPES[raw[2]])
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if len(raw) - start != size:
        raise DataFileError(where, f"{size} bytes for shape {shape}", f"{len(raw) - start} bytes")
    array = np.frombuffer(raw, dtype, offset=start).reshape(shape)
    if dtype.kind == "f" and not np.isfinite(array).all():
        first = ", ".join(map(str, np.argwhere(~np.isfinite(array))[0]))
        raise DataFileError(where, "finite numbers", f"one that is not, at [{first}]")
    return array.astype(dtype.newbyteorder("="))


def read_idx_images(
    path: Path | str, member: str | None = None, *, transposed: bool = False
) -> np.ndarray:
    """Images of an idx file as [n, height, width]; `transposed` turns EMNIST's upright.

    >>> import pathlib, tempfile
    >>> from fedmin.data import read_idx_images
    >>> path = pathlib.Path(tempfile.mkdtemp(), "images-idx3-ubyte")
    >>> _ = path.write_bytes(bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4]))
    >>> read_idx_images(path, transposed=True).tolist()
    [[[1, 3], [2, 4]]]
    """
    images = read_idx(path, member, ndim=3)
    return np.ascontiguousarray(images.transpose(0, 2, 1)) if transposed else images


def read_cifar10(
    paths: Path | str | Sequence[Path | str], members: Sequence[str] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR-10 binary batches as images uint8 [n, 32, 32, 3] and labels uint8 [n].

    Args:
        paths: one or more batch files (plain or compressed), or the official archive.
        members: names inside the archive, when `paths` is one.

    >>> import pathlib, tempfile
    >>> from fedmin.data import read_cifar10
    >>> path = pathlib.Path(tempfile.mkdtemp(), "batch.bin")
    >>> _ = path.write_bytes(bytes([3]) + bytes(3072))
    >>> images, labels = read_cifar10(path)
    >>> images.shape, labels
    ((1, 32, 32, 3), array([3], dtype=uint8))
    """
    if members is not None:
        assert isinstance(paths, (str, Path)), "members belong to one archive"
        content = read_members(paths, members)
        batches = [(f"{paths}::{name}", content[name]) for name in members]
    else:
        several = [paths] if isinstance(paths, (str, Path)) else list(paths)
        batches = [(str(path), read_bytes(path)) for path in several]
    records = np.concatenate([_cifar_records(where, raw) for where, raw in batches])
    planes = records[:, 1:].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), records[:, 0].copy()


def _cifar_records(where: str, raw: bytes) -> np.ndarray:
    if not raw or len(raw) % _CIFAR_RECORD:
        raise DataFileError(
            where, f"CIFAR-10 records of {_CIFAR_RECORD} bytes", f"{len(raw)} bytes in all"
        )
    records = np.frombuffer(raw, np.uint8).reshape(-1, _CIFAR_RECORD)
    bad = np.flatnonzero(records[:, 0] > 9)
    if bad.size:
        found = f"label {records[bad[0], 0]} in record {bad[0]}"
        raise DataFileError(where, "CIFAR-10 labels 0..9", found)
    return records
