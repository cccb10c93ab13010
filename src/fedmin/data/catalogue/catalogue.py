"""The catalogue: every public data set we can load, its files, addresses and checksums."""

from __future__ import annotations

from fedmin.data.catalogue.entries import Entry, Part, Variant
from fedmin.data.catalogue.images import IMAGES
from fedmin.data.catalogue.libsvm import LIBSVM
from fedmin.data.catalogue.parties import PARTIES

__all__ = ["CATALOGUE", "Entry", "Part", "Variant"]

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in (*IMAGES, *LIBSVM, *PARTIES)}
