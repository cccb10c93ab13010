"""LIBSVM text: `label index:value index:value ...`, indices from 1, straight to CSR."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fedmin.data.formats.files import DataFileError, plain_number, read_bytes

__all__ = ["read_libsvm"]

MOST_COLUMNS = 2**31 - 1
LARGEST = float(np.finfo(np.float32).max)


def read_libsvm(
    path: Path | str, member: str | None = None, *, features: int | None = None
) -> tuple[sp.csr_matrix, np.ndarray]:
    """LIBSVM text (plain, .gz, .bz2, .xz, or in an archive) as CSR float32 and raw float64 labels.

    Never dense. Explicit zeros in the file stay stored. scikit-learn's parser does the work; where
    it gives up (unsorted indices, an entry written twice, a bad line) a slower one either copes or
    names the line.

    Args:
        path: the file.
        member: name inside the archive, when `path` is one.
        features: number of columns; by default the largest index seen.

    >>> import pathlib, tempfile
    >>> from fedmin.data import read_libsvm
    >>> path = pathlib.Path(tempfile.mkdtemp(), "toy")
    >>> _ = path.write_text("+1 1:0.5 3:2\\n-1 2:1\\n")
    >>> x, y = read_libsvm(path)
    >>> x.toarray().tolist(), y.tolist()
    ([[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]], [1.0, -1.0])
    """
    from sklearn.datasets import load_svmlight_file

    where = path if member is None else f"{path}::{member}"
    raw = read_bytes(path, member)
    if not raw.strip():
        raise DataFileError(where, "LIBSVM text", "an empty file")
    try:
        with np.errstate(over="ignore"):  # it becomes infinite, and its line is looked for
            x, y = load_svmlight_file(io.BytesIO(raw), dtype=np.float32, zero_based=False)
        y = y.astype(np.float64)
        good = b"_" not in raw and _plain(x, y)
    except (ValueError, OverflowError, LookupError):
        good = False
    if not good:
        x, y = _read_by_lines(where, raw)
    if x.shape[0] == 0:
        raise DataFileError(where, "LIBSVM text", "no rows (only comments)")
    seen = int(x.indices.max()) + 1 if x.nnz else 0
    if features is not None and seen > features:
        raise DataFileError(where, f"at most {features} features", f"index {seen}")
    shape = (x.shape[0], features or max(seen, 1))
    return _small_indices(x, shape), y


def _plain(x: sp.csr_matrix, y: np.ndarray) -> bool:
    """Whether all numbers are finite, and columns those that can be counted."""
    finite = bool(np.isfinite(x.data).all() and np.isfinite(y).all())
    return finite and (not x.nnz or bool(0 <= x.indices.min() <= x.indices.max() < MOST_COLUMNS))


def _small_indices(x: sp.csr_matrix, shape: tuple[int, int]) -> sp.csr_matrix:
    # scikit-learn gives int64 indices; int32 halves the memory wherever it can count the entries
    dtype = np.int32 if max(x.nnz, shape[1]) < 2**31 else np.int64
    parts = (x.data, x.indices.astype(dtype), x.indptr.astype(dtype))
    return sp.csr_matrix(parts, shape=shape)


def _read_by_lines(where: object, raw: bytes) -> tuple[sp.csr_matrix, np.ndarray]:
    labels: list[float] = []
    data: list[float] = []
    indices: list[int] = []
    indptr = [0]
    for number, line in enumerate(raw.splitlines(), start=1):
        words = line.split(b"#", 1)[0].split()
        if not words:
            continue
        try:
            labels.append(plain_number(words[0]))
            entries = _entries(words[1:])
        except ValueError as error:
            start = line[:40].decode("latin-1")
            expected = "LIBSVM lines (label index:value ...)"
            raise DataFileError(where, expected, f"line {number}, {start!r} ({error})") from None
        indices.extend(entries)
        data.extend(entries.values())
        indptr.append(len(indices))
    columns = max(indices, default=0) + 1
    parts = (np.array(data, np.float32), np.array(indices, np.int64), np.array(indptr, np.int64))
    return sp.csr_matrix(parts, shape=(len(labels), columns)), np.array(labels)


def _entries(words: list[bytes]) -> dict[int, float]:
    entries: dict[int, float] = {}
    for word in words:
        key, colon, text = word.partition(b":")
        if not colon:
            raise ValueError(f"{word.decode('latin-1')!r} has no colon")
        if key == b"qid":
            continue
        index, value = int(key) - 1, plain_number(text)
        if index < 0 or b"_" in key:
            raise ValueError(f"index {key.decode('latin-1')}; the first column is 1")
        if index >= MOST_COLUMNS:
            raise ValueError(f"index {index + 1}; the last column is {MOST_COLUMNS}")
        if abs(value) > LARGEST:
            raise ValueError(f"{value:g} is beyond single precision")
        # the public Reuters archive repeats some entries, always with the same value
        if entries.get(index, value) != value:
            raise ValueError(f"column {index + 1} twice with different values")
        entries[index] = value
    return dict(sorted(entries.items()))
