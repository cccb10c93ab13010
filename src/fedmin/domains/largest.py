"""Which entries of a vector are the largest."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

BLOCK, PAYS = 32, 500  # measured: blocks of 32 entries, where there are 500 entries a wanted one


def largest(magnitudes: Array, count: int) -> Array:
    """i[count]: where the largest are, in any order; of equal ones the first by index.

    In a long vector the wanted ones are looked for only in the `count` blocks with the largest
    maxima. None can be elsewhere: each of those blocks has an entry that comes before it.

    >>> import jax.numpy as jnp
    >>> sorted(largest(jnp.array([1.0, 3.0, 2.0, 3.0, 2.0]), 3).tolist())
    [1, 2, 3]
    """
    size = magnitudes.shape[0]
    if size < PAYS * count:
        return lax.top_k(magnitudes, count)[1]
    blocks = -(-size // BLOCK)
    padded = jnp.pad(magnitudes, (0, blocks * BLOCK - size), constant_values=-jnp.inf)
    padded = padded.reshape(blocks, BLOCK)
    found = jnp.sort(lax.top_k(jnp.max(padded, axis=1), count)[1])  # sorted: ties go by index
    at = lax.top_k(padded[found].ravel(), count)[1]
    return found[at // BLOCK] * BLOCK + at % BLOCK


def among_largest(magnitudes: Array, count: int) -> Array:
    """bool[d]: whether an entry is one of the `count` largest; of equal ones the first by index.

    By halving: the bits of numbers >= 0 are in the numbers' own order, so the least of the wanted
    ones is found bit by bit, and then, among those equal to it, the last index, bit by bit.

    >>> import jax.numpy as jnp
    >>> among_largest(jnp.array([1.0, 3.0, 2.0, 3.0, 2.0]), 3).tolist()
    [False, True, True, True, False]
    """
    width = jnp.finfo(magnitudes.dtype).bits
    bits = lax.bitcast_convert_type(magnitudes, {32: jnp.int32, 64: jnp.int64}[width])
    least = _highest(width - 2, bits.dtype, lambda c: _count(bits >= c) >= count)
    above, equal = bits > least, bits == least
    room, at = count - _count(above), jnp.arange(bits.shape[0], dtype=jnp.int32)
    last = bits.shape[0].bit_length() - 1
    end = _highest(last, at.dtype, lambda c: _count(equal & (at < c)) <= room)
    return above | (equal & (at < end))


def _highest(top: int, dtype: Any, holds: Callable[[Array], Array]) -> Array:
    """The highest whole number of the bits 0..top for which `holds`, which does for 0."""

    def halve(j, low):
        higher = low | (jnp.ones((), dtype) << (top - j).astype(dtype))
        return jnp.where(holds(higher), higher, low)

    return lax.fori_loop(0, top + 1, halve, jnp.zeros((), dtype))


def _count(which: Array) -> Array:
    return jnp.sum(which, dtype=jnp.int32)
