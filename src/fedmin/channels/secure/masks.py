"""Numbers modulo 2^w on the host: pads from a key, and sums. w is 32, 64 or 128.

A wire is a dict of arrays uint32[..., w / 32], lowest word first. All of them together are one row
of words, in the order of their names; a pad is as long and comes from ChaCha20 with a counter of 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

CHUNK = 1 << 18  # words of a pad that are made at a time: they stay in the cache
ZEROS = bytes(4 * CHUNK)


def joined(wire: Any) -> np.ndarray:
    """A copy of a wire as one row of words."""
    return np.concatenate([np.asarray(a).ravel() for a in jax.tree.leaves(wire)])


def parted(words: np.ndarray, like: Any) -> Any:
    """The wire of this form that a row of words is."""
    leaves, form = jax.tree.flatten(like)
    sizes = [int(np.prod(a.shape)) for a in leaves]
    cuts = np.split(words, np.cumsum(sizes)[:-1])
    parts = [cut.reshape(a.shape) for cut, a in zip(cuts, leaves, strict=True)]
    return jax.tree.unflatten(form, parts)


def add(words: np.ndarray, other: np.ndarray, limbs: int, sign: int = 1) -> None:
    """Add to a row of words, or take away, modulo 2^(32 limbs), in place."""
    if limbs == 1:
        (np.add if sign > 0 else np.subtract)(words, other, out=words)
        return
    a, b = words.view(np.uint64), other.view(np.uint64)
    if limbs == 2:
        (np.add if sign > 0 else np.subtract)(a, b, out=a)
        return
    low, high = a[0::2], a[1::2]
    if sign > 0:
        low += b[0::2]
        high += b[1::2] + (low < b[0::2])
    else:
        borrow = low < b[0::2]
        low -= b[0::2]
        high -= b[1::2] + borrow


def add_pads(words: np.ndarray, pads: Sequence[tuple[bytes, int]], limbs: int) -> None:
    """Add pads, or take them away, in place: pairs of a key and a sign."""
    streams = [(Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor(), sign)
               for key, sign in pads]  # fmt: skip
    room = np.empty(CHUNK, np.uint32)
    for start in range(0, len(words), CHUNK):
        part = words[start : start + CHUNK]
        pad = room[: len(part)]
        for stream, sign in streams:
            stream.update_into(ZEROS[: 4 * len(part)], pad.view(np.uint8).data)
            add(part, pad, limbs, sign)


def summed(rows: Sequence[np.ndarray], limbs: int) -> np.ndarray:
    """The sum of rows of words."""
    total = rows[0].copy()
    for row in rows[1:]:
        add(total, row, limbs)
    return total


def number(words: Mapping[str, Any], name: str) -> int:
    """A single number of a wire, as a Python integer."""
    return int.from_bytes(np.asarray(words[name], np.uint32).tobytes(), "little")
