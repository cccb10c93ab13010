"""The catalogue: every public data set we can load, its files, addresses and checksums."""

from __future__ import annotations

from fedmin.data.entries import Entry, Part, Variant
from fedmin.data.entries_images import IMAGES
from fedmin.data.entries_libsvm import LIBSVM
from fedmin.data.entries_parties import PARTIES

__all__ = ["CATALOGUE", "Entry", "Part", "Variant"]

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in (*IMAGES, *LIBSVM, *PARTIES)}
