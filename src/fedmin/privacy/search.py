"""Searching bytes for numbers that should not be in them.

    exact        the numbers themselves, as floats of 2, 4 or 8 bytes or whole numbers of 1 to 8, in
                 either byte order, at any byte: a piece of 16 bytes of them is enough
    correlated   a copy that was multiplied, shifted, rounded to integers or slightly disturbed:
                 every window of the bytes, read as numbers of any type from any byte on, whose
                 values and ranks go with the wanted ones

A correlation counts if it is at least 0.98 and beyond chance: by Fisher's transform, more than
seven standard deviations. Where the wanted vectors are alike, as rows in raw units are, their mean
goes with each of them, and so does every sum over rows: a window must go with one vector beyond
what both have of the mean (a partial correlation). Vectors of fewer than 8 numbers are searched for
exactly only, single numbers not at all: they are found anywhere.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.stats import rankdata

PIECE = 16  # bytes that are no coincidence
SHORTEST = 8  # numbers whose correlation says something
LEAST, BEYOND = 0.98, 7.0  # of a correlation, and its standard deviations
FORMS = ("<f4", "<f8", "<f2", ">f4", ">f8", "<i4", "<i8", "<i2", "<u1", "<i1", ">i4", ">i8")
READ = ("<f4", "<f8", "<i4", "<i8", "<i2", "<i1", "<u1")  # for correlations
AT_ONCE = 2**22  # numbers in a block of windows


class Found(NamedTuple):
    """A vector that was found, and where."""

    what: str  # the name that it was searched under
    number: int  # which of those of that name
    message: int  # in which of the messages
    byte: int  # where it begins
    form: str  # the type that the bytes were read as
    correlation: float  # 1: exactly these numbers

    def __str__(self) -> str:
        how = "exactly" if self.correlation == 1 else f"with correlation {self.correlation:.4f}"
        return (
            f"{self.what} {self.number} in message {self.message}, byte {self.byte}, as "
            f"{np.dtype(self.form).name}, {how}"
        )


def search(messages: Iterable[bytes], wanted: Mapping[str, Any]) -> list[Found]:
    """Where any of the wanted vectors are in the messages; each once a message and way.

    `wanted` has arrays by name, a vector a row.

    >>> import numpy as np
    >>> from fedmin.privacy.search import search
    >>> rows = np.array([[0.3, -1.5, 2.25, 0.1, 7.0, -0.2, 0.9, 4.0]])
    >>> sent = b"head" + (-3 * rows[0]).astype("<f4").tobytes()
    >>> print(search([sent], {"rows": rows})[0])
    rows 0 in message 0, byte 4, as float32, with correlation -1.0000
    """
    vectors = {name: _vectors(array) for name, array in wanted.items()}
    found: list[Found] = []
    for m, data in enumerate(messages):
        for name, array in vectors.items():
            exact = list(_exact(m, data, name, array))
            found += exact
            told = {each.number for each in exact}
            found += [f for f in _correlated(m, data, name, array) if f.number not in told]
    return found


def _vectors(array: Any) -> np.ndarray:
    array = np.asarray(array, np.float64)
    return array.reshape(1, -1) if array.ndim == 1 else array.reshape(len(array), -1)


def _exact(m: int, data: bytes, name: str, array: np.ndarray) -> Iterator[Found]:
    for number, vector in enumerate(array):
        for form in FORMS:
            at = _place(data, vector, form)
            if at >= 0:
                yield Found(name, number, m, at, form, 1.0)
                break


def _place(data: bytes, vector: np.ndarray, form: str) -> int:
    """Where a piece of the vector is, or -1."""
    kind = np.dtype(form)
    if kind.kind in "iu":
        range_ = np.iinfo(kind)
        whole = (vector == np.round(vector)).all()
        if not whole or vector.min() < range_.min or vector.max() > range_.max:
            return -1
    with np.errstate(over="ignore"):
        numbers = vector.astype(kind)
    length = max(4, PIECE // kind.itemsize)
    for first in range(0, max(len(vector) - length, 0) + 1, length):
        piece = numbers[first : first + length]
        # zeros and ones are everywhere: three different others are not
        told = len(np.unique(piece[piece != 0])) >= 3 and piece.nbytes >= PIECE // 2
        if told and (at := data.find(piece.tobytes())) >= 0:
            return at
    return -1


def _correlated(m: int, data: bytes, name: str, array: np.ndarray) -> Iterator[Found]:
    size = array.shape[1]
    centered = array - array.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(centered, axis=1)
    numbers = np.flatnonzero(lengths > 1e-12 * np.abs(array).max(initial=1e-300))
    if size < SHORTEST or not len(numbers):
        return
    units = centered[numbers] / lengths[numbers, None]
    common = _unit(centered[numbers].mean(axis=0)[None])[0] if len(numbers) > 1 else None
    best: dict[int, Found] = {}
    for form in READ:
        kind = np.dtype(form)
        for shift in range(kind.itemsize):
            count = (len(data) - shift) // kind.itemsize
            if count < size:
                continue
            with np.errstate(invalid="ignore"):  # bytes that are no numbers of this type
                read = np.frombuffer(data, kind, count, shift).astype(np.float64)
            for k, at, r in _along(read, units, common):
                number = int(numbers[k])
                one = Found(name, number, m, shift + at * kind.itemsize, form, r)
                if number not in best or abs(r) > abs(best[number].correlation):
                    best[number] = one
    yield from best.values()


def _along(
    read: np.ndarray, units: np.ndarray, common: np.ndarray | None
) -> Iterator[tuple[int, int, float]]:
    """Which of some vectors go with which window of these numbers, and how well."""
    size = units.shape[1]
    usable = np.where(np.isfinite(read) & (np.abs(read) < 1e30), read, 0.0)
    windows = sliding_window_view(usable, size)
    step = max(1, AT_ONCE // size)
    ranks = np.stack([_unit(rankdata(u)[None])[0] for u in units])
    for first in range(0, len(windows), step):
        some = _unit(windows[first : first + step])
        values = some @ units.T
        for w, k in zip(*np.nonzero(np.abs(values) >= LEAST), strict=True):
            r = float(np.clip(values[w, k], -1, 1))
            # one huge number among garbage goes with anything that has one too; its ranks do not
            also = float(ranks[k] @ _unit(rankdata(windows[first + w])[None])[0])
            told = _beyond(r, size) > BEYOND and _beyond(also, size) > BEYOND / 2
            if told and _apart(some[w], units[k], common):
                yield int(k), int(first + w), r if abs(r) < 1 else r * (1 - 1e-12)


def _apart(window: np.ndarray, unit: np.ndarray, common: np.ndarray | None) -> bool:
    """Whether a window goes with a vector by more than what all vectors have in common."""
    if common is None:
        return True
    a, b = (v - (v @ common) * common for v in (window, unit))
    return bool(abs(a @ b) >= LEAST * np.linalg.norm(a) * np.linalg.norm(b))


def _unit(windows: np.ndarray) -> np.ndarray:
    """Windows without their means, of length one; constant ones are zeros."""
    scale = np.abs(windows).max(axis=1, keepdims=True)
    some = windows / np.where(scale > 0, scale, 1.0)
    some = some - some.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(some, axis=1, keepdims=True)
    return np.where(lengths > 1e-9, some / np.where(lengths > 1e-9, lengths, 1.0), 0.0)


def _beyond(r: float, size: int) -> float:
    """How many standard deviations of chance a correlation of so many numbers is."""
    return float(np.arctanh(min(abs(r), 1 - 1e-15)) * np.sqrt(size - 3))
