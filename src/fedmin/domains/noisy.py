"""Choices by chance: noisy maxima, for sets whose vertices or entries are drawn (core/choices.py).

Gumbel noise of scale b on every score, and the largest: a score s wins with chance ~ exp(s / b).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedmin.domains.largest import largest


def gumbel(key: Array, like: Array, scale: Any) -> Array:
    """Noise of this scale, one for each of these numbers; its tail is not cut at 1e-7."""
    drawn = jax.random.gumbel(key, like.shape, like.dtype, mode="high")
    return jnp.asarray(scale, like.dtype) * drawn


def noisy_largest(scores: Array, count: int, scale: Any, key: Array) -> Array:
    """i[count]: where the scores are the largest, up to noise."""
    return largest(scores + gumbel(key, scores, scale), count).astype(jnp.int32)


def noisy_signed(g: Array, count: int, scale: Any, key: Array) -> tuple[Array, Array]:
    """The `count` best of the 2 d candidates (j, sign) by -sign g_j up to noise, each j once: where
    they are, and their signs.

    Of a pair j the better one stays in; the pair's best noisy score and which one it is are
    independent, so this is to choose candidates one after the other, without the pairs chosen.
    """
    scores = jnp.stack([-g, g])
    noisy = scores + gumbel(key, scores, scale)
    places = largest(jnp.max(noisy, axis=0), count).astype(jnp.int32)
    up = noisy[0, places] >= noisy[1, places]
    return places, jnp.where(up, 1, -1).astype(g.dtype)
