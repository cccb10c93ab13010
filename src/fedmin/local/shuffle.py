"""A random order of 0..size-1 that is computed place by place, without sorting.

The swap-or-not shuffle [hoang2012swap]: each pass pairs every place with its mirror image around a
random point and swaps the pair or not by a coin that both sides see alike. A batch asks for its own
few places only, and `size` may be a traced number, so that unequal clients share one program.
"""

import jax
import jax.numpy as jnp
from jax import Array

PASSES = 24


def shuffled(key: Array, places: Array, size: Array) -> Array:
    """Which of 0..size-1 stands at each of these places (each below size) in a random order."""
    size = jnp.asarray(size, jnp.uint32)
    bits = jax.random.bits(key, (PASSES, 2), jnp.uint32)

    def swap(i, bit):
        mirror = bit[0] % size + size - i
        mirror = jnp.where(mirror >= size, mirror - size, mirror)
        coin = _mix(jnp.maximum(i, mirror) ^ bit[1]) >> 31
        return jnp.where(coin == 1, mirror, i)

    i = jnp.asarray(places).astype(jnp.uint32)
    for bit in bits:  # unrolled: one fused loop over the places
        i = swap(i, bit)
    return i.astype(jnp.int32)


def _mix(u: Array) -> Array:
    """A 32-bit mixer: every input bit moves every output bit."""
    u = (u ^ (u >> 16)) * jnp.uint32(0x7FEB352D)
    u = (u ^ (u >> 15)) * jnp.uint32(0x846CA68B)
    return u ^ (u >> 16)
