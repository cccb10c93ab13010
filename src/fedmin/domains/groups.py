"""Polytopes of sparse and of group-sparse vectors.

set             atom of least <g, u>                             as it travels
KSparsePolytope -r sign(g_j) at the k largest |g_j|              k indices and values
GroupL1Ball     -r g_G / |g_G|,  G the group of largest |g_G|    where G begins, and its values
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.core import checks
from fedmin.core.payload import Block, Sparse
from fedmin.domains.balls import Ball, length, onto_l1_ball
from fedmin.domains.largest import largest
from fedmin.domains.noisy import noisy_signed


class KSparsePolytope(Ball):
    """All means of vectors with k entries of +-radius: |x|_1 <= k radius and |x_j| <= radius.

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.KSparsePolytope(2, 1.0).lmo(jnp.array([1.0, -3.0, 0.5, 2.0])).dense()
    Array([ 0.,  1.,  0., -1.], dtype=float32)
    """

    k: int = eqx.field(static=True)  # type: ignore[misc]
    radius: float = 1.0

    def __check_init__(self):
        checks.at_least("k", self.k, 1)

    def fitted(self, parts):
        if self.k > length(parts):
            raise ValueError(f"k must be at most the length of x, {length(parts)}, got {self.k}")
        return self

    def norm(self, x):
        size = jnp.abs(x)
        return jnp.maximum(jnp.max(size), jnp.sum(size) / self.k)

    def lmo(self, g, near=None):
        places = largest(jnp.abs(g), self.k).astype(jnp.int32)
        values = jnp.where(g[places] > 0, -self.radius, self.radius).astype(g.dtype)
        return Sparse(places, values, g.shape[0])

    def noisy_lmo(self, g, scale, key):
        places, signs = noisy_signed(g, self.k, scale, key)
        return Sparse(places, self.radius * signs, g.shape[0])

    def vertex_choices(self):
        return self.k

    def project(self, x):
        size, most = jnp.abs(x), self.k * self.radius

        def cut(theta):
            return jnp.clip(size - theta, 0, self.radius)

        def halve(_, ends):
            middle = 0.5 * (ends[0] + ends[1])
            over = jnp.sum(cut(middle)) > most
            return jnp.where(over, middle, ends[0]), jnp.where(over, ends[1], middle)

        # theta with sum cut(theta) = k radius: halving finds which entries it cuts, they find it
        low, high = jax.lax.fori_loop(0, 50, halve, (jnp.zeros_like(size[0]), jnp.max(size)))
        theta = 0.5 * (low + high)
        free = (size > theta) & (size < theta + self.radius)
        full = jnp.sum(size >= theta + self.radius).astype(x.dtype)
        count = jnp.sum(free).astype(x.dtype)
        left = jnp.sum(jnp.where(free, size, 0)) + full * self.radius - most
        theta = jnp.where(count > 0, left / jnp.maximum(count, 1), theta)
        theta = jnp.where(jnp.sum(cut(jnp.zeros_like(theta))) <= most, 0, theta)
        return jnp.sign(x) * cut(theta)

    @property
    def diameter(self):
        return 2 * self.radius * math.sqrt(self.k)


class GroupL1Ball(Ball):
    """Lengths |x_G| of groups that add up to at most radius; a group is `group` entries in a row.

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.GroupL1Ball(1.0, group=2).lmo(jnp.array([0.0, 1.0, 3.0, 4.0])).dense()
    Array([ 0. ,  0. , -0.6, -0.8], dtype=float32)
    """

    radius: float
    group: int = eqx.field(default=1, static=True)

    def __check_init__(self):
        checks.at_least("group", self.group, 1)

    def fitted(self, parts):
        if length(parts) % self.group:
            raise ValueError(f"x has {length(parts)} entries, no groups of {self.group}")
        return self

    def lengths(self, x: Array) -> Array:
        """|x_G|, one a group."""
        return jnp.linalg.norm(x.reshape(-1, self.group), axis=1)

    def norm(self, x):
        return jnp.sum(self.lengths(x))

    def lmo(self, g, near=None):
        lengths = self.lengths(g)
        j = jnp.argmax(lengths)
        start = j.astype(jnp.int32) * self.group
        size = jnp.where(lengths[j] > 0, lengths[j], 1.0)
        values = jax.lax.dynamic_slice_in_dim(g, start, self.group) * (-self.radius / size)
        return Block(start, values, g.shape[0])

    def project(self, x):
        lengths = self.lengths(x)
        scale = onto_l1_ball(lengths, self.radius) / jnp.where(lengths > 0, lengths, 1.0)
        return (x.reshape(-1, self.group) * scale[:, None]).ravel()
