"""Whole numbers with the discrete Gaussian law, from random bits alone.   [canonne2020discrete]

P(X = x) in proportion to exp(-x^2 / (2 sigma^2)),  x = 0, 1, -1, 2, ...

|X| is found by inverting its distribution: a table of 2^128 P(|X| <= k), exact to its last bit,
into which 128 random bits fall. So what is drawn is off by less than 2^-110 in total variation,
and nothing of it is a floating-point number, whose gaps would show what was added to it.
"""

from decimal import Decimal, localcontext
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

WORDS = 4  # of 32 random bits, for each number
FINE = 256  # bits with which a table is computed
REACH = 14  # a table ends so many sigmas out: what is beyond has less than 2^-138
LARGEST = 2.0**12  # the largest sigma for which there is a table


@lru_cache(maxsize=8)
def table(sigma: float) -> np.ndarray:
    """uint32[K, WORDS], highest first: 2^128 P(|X| <= k) for k = 0 .. K - 1.

    >>> from fedmin.channels.discrete_gaussian import table
    >>> p0 = int(table(1.0)[0, 0]) / 2**32  # of 0: 1 / (1 + 2 e^-0.5 + 2 e^-2 + ...)
    >>> round(p0, 6)
    0.398942
    """
    if not 0.5 <= sigma <= LARGEST:
        raise ValueError(f"sigma must be within 0.5 and {LARGEST:g}, got {sigma:g}")
    reach, one = int(REACH * sigma) + 1, 1 << FINE
    with localcontext() as context:
        context.prec = 100
        bend = Decimal(1) / (2 * Decimal(sigma) ** 2)
        ratio, shrink = (int((-k * bend).exp() * one) for k in (1, 2))
    # exp(-(x+1)^2 b) is exp(-x^2 b) times exp(-(2x+1) b): two products an entry
    mass, sums = one, [one]
    for _ in range(1, reach):
        mass = mass * ratio >> FINE
        ratio = ratio * shrink >> FINE
        sums.append(sums[-1] + 2 * mass)
    whole, top = sums[-1], 1 << 32 * WORDS
    found = b"".join(min(s * top // whole, top - 1).to_bytes(4 * WORDS, "big") for s in sums)
    return np.frombuffer(found, ">u4").astype(np.uint32).reshape(reach, WORDS)


def drawn(key: Array, shape: tuple[int, ...], entries: Array) -> Array:
    """i32[shape], each by itself from the law of a `table`.

    >>> import jax
    >>> from fedmin.channels.discrete_gaussian import drawn, table
    >>> x = drawn(jax.random.key(0), (1000,), table(3.0))
    >>> 8.0 < float((x**2).mean()) < 10.0
    True
    """
    entries = jnp.asarray(entries)
    size, sign = jax.random.split(key)
    u = jax.random.bits(size, (*shape, WORDS), jnp.uint32)
    low, high = jnp.full(shape, -1, jnp.int32), jnp.full(shape, len(entries) - 1, jnp.int32)
    for _ in range(len(entries).bit_length()):  # entries[low] <= u < entries[high]
        middle = (low + high) // 2
        here = middle > low
        passed = here & _at_most(entries[jnp.maximum(middle, 0)], u)
        low, high = jnp.where(passed, middle, low), jnp.where(here & ~passed, middle, high)
    return jnp.where(jax.random.bits(sign, shape, jnp.uint32) >> 31 == 1, -high, high)


def _at_most(a: Array, b: Array) -> Array:
    """Whether numbers of several words, highest first, are a <= b."""
    found = jnp.ones(b.shape[:-1], bool)
    for k in reversed(range(WORDS)):
        found = jnp.where(a[..., k] == b[..., k], found, a[..., k] < b[..., k])
    return found
