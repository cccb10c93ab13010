"""What travels: arrays, or compact forms of arrays that are summed without becoming dense a client.

A message is a dict of named parts; a part is an array or a `Payload`. The names are the message
kinds of the ledger.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array


class Payload(eqx.Module):
    """A compact form of one array; its leaves are what is sent.

    >>> import jax.numpy as jnp, fedmin
    >>> one = fedmin.Sparse(jnp.array([1]), jnp.array([2.0]), 3)
    >>> isinstance(one, fedmin.Payload), one.scaled(10.0).dense()
    (True, Array([ 0., 20.,  0.], dtype=float32))
    """

    @abstractmethod
    def dense(self) -> Array:
        """The array it stands for."""

    @abstractmethod
    def scaled(self, factor: Array) -> "Payload":
        """The same form of `factor` times the array."""

    @abstractmethod
    def total(self) -> Array:
        """The dense sum over a leading client axis on every leaf."""

    def inner(self, g: Array) -> Array:
        """<g, the array>."""
        return g @ self.dense()


class Sparse(Payload):
    """A vector of `size` entries by its `indices` and `values`; repeated indices add up.

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.Sparse(jnp.array([2, 0]), jnp.array([5.0, 1.0]), 4).dense()
    Array([1., 0., 5., 0.], dtype=float32)
    """

    indices: Array  # i[k]
    values: Array  # f[k]
    size: int = eqx.field(static=True)

    def dense(self):
        return jnp.zeros(self.size, self.values.dtype).at[self.indices].add(self.values)

    def scaled(self, factor):
        return Sparse(self.indices, factor * self.values, self.size)

    total = dense  # a scatter does not mind how many axes its indices have

    def inner(self, g):
        return g[self.indices] @ self.values


class LowRank(Payload):
    """A matrix left right^T, rows one after the other, by its factors [m, k] and [n, k].

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.LowRank(jnp.array([[1.0], [2.0]]), jnp.array([[3.0], [4.0]])).dense()
    Array([3., 4., 6., 8.], dtype=float32)
    """

    left: Array
    right: Array

    def dense(self):
        return (self.left @ self.right.T).ravel()

    def scaled(self, factor):
        return LowRank(factor * self.left, self.right)

    def total(self):
        return jnp.einsum("cmk,cnk->mn", self.left, self.right).ravel()

    def inner(self, g):
        matrix = g.reshape(self.left.shape[0], self.right.shape[0])
        return jnp.sum(self.left * (matrix @ self.right))


class Eigenpairs(Payload):
    """A symmetric matrix V diag(s) V^T, rows one after the other: `vectors` V [d, k], `values` s.

    Half of what the same matrix takes as `LowRank`.

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.Eigenpairs(jnp.array([[1.0], [2.0]]), jnp.array([3.0])).dense()
    Array([ 3.,  6.,  6., 12.], dtype=float32)
    """

    vectors: Array
    values: Array

    def dense(self):
        return ((self.vectors * self.values) @ self.vectors.T).ravel()

    def scaled(self, factor):
        return Eigenpairs(self.vectors, factor * self.values)

    def total(self):
        weighted = self.vectors * self.values[:, None, :]
        return jnp.einsum("cmk,cnk->mn", weighted, self.vectors).ravel()

    def inner(self, g):
        d = self.vectors.shape[0]
        return jnp.sum(self.vectors * self.values * (g.reshape(d, d) @ self.vectors))


class Signs(Payload):
    """A vector with two values only, a bit an entry: `high` where the bit is set, else `low`.

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.Signs.of(jnp.array([True, False, True]), -2.0, 2.0).dense()
    Array([ 2., -2.,  2.], dtype=float32)
    """

    bits: Array  # u1[size / 8]
    low: Array
    high: Array
    size: int = eqx.field(static=True)

    @classmethod
    def of(cls, up: Array, low: Any, high: Any) -> "Signs":
        """`high` where up, else `low`."""
        low, high = (jnp.asarray(number, float) for number in (low, high))
        return cls(jnp.packbits(up), low, high, up.shape[0])

    def dense(self):
        return jnp.where(self._up(self.bits), self.high, self.low)

    def scaled(self, factor):
        return Signs(self.bits, factor * self.low, factor * self.high, self.size)

    def total(self):
        def add(i, sum):
            return sum + jnp.where(self._up(self.bits[i]), self.high[i], self.low[i])

        zeros = jnp.zeros(self.size, self.low.dtype)
        return jax.lax.fori_loop(0, self.bits.shape[0], add, zeros)

    def _up(self, bits: Array) -> Array:
        return jnp.unpackbits(bits, count=self.size).astype(bool)


class Block(Payload):
    """A vector of `size` entries that is 0 but for `values`, one after the other from `start` on.

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.Block(jnp.int32(1), jnp.array([5.0, 6.0]), 4).dense()
    Array([0., 5., 6., 0.], dtype=float32)
    """

    start: Array  # i[]
    values: Array  # f[k]
    size: int = eqx.field(static=True)

    def dense(self):
        return jnp.zeros(self.size, self.values.dtype).at[self._places()].set(self.values)

    def scaled(self, factor):
        return Block(self.start, factor * self.values, self.size)

    def total(self):
        return jnp.zeros(self.size, self.values.dtype).at[self._places()].add(self.values)

    def inner(self, g):
        return g[self._places()] @ self.values

    def _places(self) -> Array:
        return self.start[..., None] + jnp.arange(self.values.shape[-1], dtype=self.start.dtype)


class Concatenated(Payload):
    """Vectors one after the other, each an array or a compact form of its own.

    >>> import jax.numpy as jnp, fedmin
    >>> one = fedmin.Sparse(jnp.array([1]), jnp.array([2.0]), 3)
    >>> fedmin.Concatenated((one, jnp.ones(2))).dense()
    Array([0., 2., 0., 1., 1.], dtype=float32)
    """

    parts: tuple[Any, ...]

    def dense(self):
        return jnp.concatenate([part.dense() if is_payload(part) else part for part in self.parts])

    def scaled(self, factor):
        return Concatenated(scaled(self.parts, jnp.asarray(factor)))

    def total(self):
        return jnp.concatenate(total(self.parts))


class Tally(Payload):
    """How many rows are right and how many are wrong, by their weight: f[2] once it is added up.

    Counts are whole numbers, which a sum does not round, and they are divided once, at the end.
    They are not multiplied by p_i: a client sends them only where p_i is its share of the rows.

    >>> import jax.numpy as jnp
    >>> from fedmin.core.payload import Tally
    >>> Tally.of(jnp.array([True, False, True]), jnp.ones(3)).dense()
    Array([2., 1.], dtype=float32)
    """

    right: Array
    wrong: Array

    @classmethod
    def of(cls, right: Array, weight: Array) -> "Tally":
        """What is right, bool[n], of rows of these weights."""
        return cls(jnp.sum(jnp.where(right, weight, 0)), jnp.sum(jnp.where(right, 0, weight)))

    def dense(self):
        return jnp.stack([self.right, self.wrong])

    def scaled(self, factor):
        return self

    def total(self):
        return jnp.stack([jnp.sum(self.right, axis=0), jnp.sum(self.wrong, axis=0)])


def is_payload(part: Any) -> bool:
    return isinstance(part, Payload)


def scaled(message: Any, factor: Array) -> Any:
    """Every part of a message times a number."""

    def scale(part):
        return part.scaled(factor) if is_payload(part) else factor.astype(part.dtype) * part

    return jax.tree.map(scale, message, is_leaf=is_payload)


def means(sums: Any, weight: Array) -> Any:
    """Sums over rows divided by the rows' weight; compact parts, as counts are, only as arrays."""

    def mean(part):
        return part.dense() if is_payload(part) else part / weight.astype(part.dtype)

    return jax.tree.map(mean, sums, is_leaf=is_payload)


def total(messages: Any) -> Any:
    """The sum over the leading client axis, compact parts straight into a dense one."""

    def add(part):
        return part.total() if is_payload(part) else jnp.sum(part, axis=0, dtype=part.dtype)

    return jax.tree.map(add, messages, is_leaf=is_payload)


def dense_each(messages: Any) -> Any:
    """Every compact part of a stack of messages as a dense array, one a client."""

    def each(part):
        return jax.vmap(lambda one: one.dense())(part) if is_payload(part) else part

    return jax.tree.map(each, messages, is_leaf=is_payload)


def all_finite(message: Any) -> Array:
    """Whether every number in a message is finite."""
    leaves = [a for a in jax.tree.leaves(message) if jnp.issubdtype(a.dtype, jnp.inexact)]
    # 0 times a number is 0, but not of Inf or NaN: one sum, where a mask would be three loops
    zeros = [jnp.sum(a * 0) == 0 for a in leaves]
    return jnp.all(jnp.stack(zeros)) if zeros else jnp.array(True)
