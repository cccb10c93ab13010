"""A random order of 0..size-1 that is computed place by place, without sorting.

The swap-or-not shuffle [hoang2012swap]: each pass pairs every place with its mirror image around a
random point and swaps the pair or not by a coin that both sides see alike. A batch asks for its own
few places only, and `size` may be a traced number, so that unequal clients share one program.
"""

import jax
import jax.numpy as jnp
from jax import Array

PASSES = 24


def shuffled(key: Array, turn: Array, places: Array, size: Array) -> Array:
    """Which of 0..size-1 stands at each of these places (each below size) of the turn's order."""
    size = jnp.asarray(size, jnp.uint32)
    turn = jnp.asarray(turn, jnp.uint32)
    words = jax.random.key_data(key).ravel()
    seed = _mix(words[0] ^ _mix(words[-1] + turn))
    seeds = _mix(seed + jnp.arange(1, PASSES + 1, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9))

    def swap(i, seed):
        mirror = seed % size + size - i
        mirror = jnp.where(mirror >= size, mirror - size, mirror)
        coin = _mix(jnp.maximum(i, mirror) ^ _mix(seed)) >> 31
        return jnp.where(coin == 1, mirror, i), None

    # six at a time: a chain of all passes makes XLA compile for minutes in a sweep
    start = jnp.asarray(places).astype(jnp.uint32)
    return jax.lax.scan(swap, start, seeds, unroll=6)[0].astype(jnp.int32)


def _mix(u: Array) -> Array:
    """A 32-bit mixer: every input bit moves every output bit."""
    u = (u ^ (u >> 16)) * jnp.uint32(0x7FEB352D)
    u = (u ^ (u >> 15)) * jnp.uint32(0x846CA68B)
    return u ^ (u >> 16)
