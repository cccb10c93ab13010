"""Numbers in fixed point modulo 2^w, in words of 32 bits: exact without 64-bit JAX too.

numbers     y, whole, |y| < 2^(w - 1)
words       uint32[..., w / 32], lowest first, two's complement: what travels
columns     what is added up: words themselves where w = 32; else digits of 16 bits, each in a
            uint32, so that sums of up to 2^16 clients carry nothing from one to the next
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

MOST = 2**16  # clients whose digits are added up


def power(exponent: Array | int, dtype: Any) -> Array:
    """2^exponent as a number, exactly; the exponent is within -126 .. 127."""
    biased = (jnp.asarray(exponent, jnp.int32) + 127).astype(jnp.uint32)
    return jax.lax.bitcast_convert_type(biased << 23, jnp.float32).astype(dtype)


def to_words(y: Array, limbs: int) -> Array:
    """Whole numbers as words."""
    if limbs == 1:
        words = jax.lax.bitcast_convert_type(y.astype(jnp.int32), jnp.uint32)
        return words[..., None]
    left, digits = jnp.abs(y), []
    for k in reversed(range(limbs)):
        digit = jnp.floor(left * power(-32 * k, y.dtype))
        left = left - digit * power(32 * k, y.dtype)  # both exact: it has no more bits than y
        digits.append(digit.astype(jnp.uint32))
    negative, carry, found = y < 0, jnp.uint32(1), []
    for digit in reversed(digits):
        flipped = ~digit + carry
        carry = ((flipped == 0) & (carry == 1)).astype(jnp.uint32)
        found.append(jnp.where(negative, flipped, digit))
    return jnp.stack(found, axis=-1)


def added(a: Array, b: Array) -> Array:
    """The sum of two numbers in words; what overflows 2^w is gone."""
    carry, found = jnp.zeros(a.shape[:-1], jnp.uint32), []
    for k in range(a.shape[-1]):
        once = a[..., k] + b[..., k]
        whole = once + carry
        carry = ((once < a[..., k]) | (whole < once)).astype(jnp.uint32)
        found.append(whole)
    return jnp.stack(found, axis=-1)


def columns(words: Array) -> Array:
    """The sum over a leading client axis, in the form in which such sums are added up."""
    if words.shape[-1] == 1:
        return jnp.sum(words, axis=0, dtype=jnp.uint32)
    low, high = words & 0xFFFF, words >> 16
    digits = jnp.stack([low, high], axis=-1).reshape(*words.shape[:-1], -1)
    return jnp.sum(digits, axis=0, dtype=jnp.uint32)


def _digits(summed: Array) -> list[Array]:
    """The digits of 16 bits of a sum, each below 2^16: what overflows 2^w is gone."""
    if summed.shape[-1] == 1:
        return [summed[..., 0] & 0xFFFF, summed[..., 0] >> 16]
    found, carry = [], jnp.zeros(summed.shape[:-1], jnp.uint32)
    for k in range(summed.shape[-1]):
        whole = summed[..., k] + carry
        carry = whole >> 16
        found.append(whole & 0xFFFF)
    return found


def to_numbers(summed: Array, dtype: Any) -> Array:
    """The numbers that sums stand for, between -2^(w - 1) and 2^(w - 1)."""
    digits = _digits(summed)
    negative, carry = digits[-1] >= 0x8000, jnp.uint32(1)
    magnitude: list[Array] = []
    for digit in digits:
        flipped = (digit ^ 0xFFFF) + carry
        carry = flipped >> 16
        magnitude.append(jnp.where(negative, flipped & 0xFFFF, digit))
    found = jnp.zeros(summed.shape[:-1], dtype)
    for k in reversed(range(len(magnitude))):
        found = found + magnitude[k].astype(dtype) * power(16 * k, dtype)
    return jnp.where(negative, -found, found)


def low_word(summed: Array) -> Array:
    """The lowest 32 bits of sums."""
    low, high, *_ = _digits(summed)
    return low | (high << 16)


def is_zero(summed: Array) -> Array:
    """Whether sums are 0 modulo 2^w."""
    nothing = [digit == 0 for digit in _digits(summed)]
    return jnp.all(jnp.stack(nothing), axis=0)


def weight_words(share: np.ndarray, limbs: int) -> np.ndarray:
    """round(2^(w - 2) p_i) as words, on the host: what a client adds for its weight."""
    seen = np.float64(np.asarray(jnp.asarray(share)))  # as JAX has it: in single precision, or not
    whole = int(np.rint(np.ldexp(seen, 32 * limbs - 2)))
    return np.frombuffer(whole.to_bytes(4 * limbs, "little"), np.uint32)
