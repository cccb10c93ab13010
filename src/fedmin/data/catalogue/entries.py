"""The catalogue: every public data set we can load, its files, addresses and checksums.

A data set has parts (training images, test labels, one party's columns ...). A part may exist in
several variants with the same content: a plain file on its site, a compressed copy, a member of an
archive. The first variant found in the cache is used; the first with an address is downloaded.
A checksum we could not confirm is None, never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Entry", "Part", "Variant"]


@dataclass(frozen=True)
class Variant:
    """One file that holds a part: name in the cache, checksum, address, member of an archive.

    >>> from fedmin.data import CATALOGUE
    >>> CATALOGUE["mnist"].parts[1].variants[0].name
    'mnist/train-labels-idx1-ubyte.gz'
    """

    name: str
    sha256: str | None = None
    bytes: int | None = None
    url: str | None = None  # None: only ever found in a cache
    member: str | None = None


@dataclass(frozen=True)
class Part:
    """One part of a data set and the variants that hold it, best first.

    >>> from fedmin.data import CATALOGUE
    >>> [part.role for part in CATALOGUE["a9a"].parts]
    ['train', 'test']
    """

    role: str
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class Entry:
    """One data set of the catalogue.

    >>> from fedmin.data import CATALOGUE
    >>> CATALOGUE["mnist"].classes
    10
    """

    name: str
    summary: str
    kind: str  # which reader: images, cifar, libsvm, parties, play, counts
    task: str  # classification, regression, partition
    rows: int
    features: int
    classes: int | None
    parts: tuple[Part, ...]
    source: str
    license: str
    citation: str


def one_file(role, name, sha256=None, size=None, url=None, member=None) -> Part:
    """A part that exists in one variant."""
    return Part(role, (Variant(name, sha256, size, url, member),))


def plain_or_packed(
    role: str, packed: tuple[str, str, int], plain: tuple[str, str, int, str]
) -> Part:
    """A file that is plain at its address and compressed in some caches."""
    return Part(role, (Variant(*packed), Variant(*plain)))
