"""Matrices of rows: dense, or sparse in a layout that a compiled round can read.

A matrix knows three things: `x @ w`, `x.T @ r`, and how to hand out some of its rows. Sparse rows
are stored padded (every row has as many slots as the fullest row; an empty slot has value 0): the
product is then a gather and a sum, its transpose a scatter, both plain loops for XLA. Measured
against SciPy's CSR and JAX's BCOO/BCSR in benchmarks/sparse.py.
"""

import math
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import Array, lax

# With few columns (the classes of a softmax) XLA's product on a CPU is up to three times faster the
# other way round, w.T @ x.T; with many it is not (docs/performance.md).
NARROW = 64


class Matrix(eqx.Module):
    """Rows of features, dense or sparse; one of `Dense` and `SparseRows`.

    >>> import jax.numpy as jnp, numpy as np, fedmin
    >>> fedmin.matrix(np.eye(3)) @ jnp.array([1.0, 2.0, 3.0])
    Array([1., 2., 3.], dtype=float32)
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(rows, features)."""

    @property
    @abstractmethod
    def dtype(self) -> jnp.dtype:
        """The type of the values."""

    @abstractmethod
    def __matmul__(self, w: Array) -> Array:
        """x @ w for w of shape [features] or [features, columns]."""

    @abstractmethod
    def transpose_matmul(self, r: Array) -> Array:
        """x.T @ r for r of shape [rows] or [rows, columns]."""

    @property
    def T(self) -> "Transposed":
        """The transpose, to be multiplied: x.T @ r."""
        return Transposed(self)

    def take(self, rows: Array) -> "Matrix":
        """The rows with these indices, which must be in range."""
        return jax.tree.map(lambda a: a.at[rows].get(mode="promise_in_bounds"), self)

    @abstractmethod
    def columns(self, first: Array | int, count: Array | int, width: int) -> "Matrix":
        """`width` columns: `count` of its own from `first` on, and the others zero."""

    def take_columns(
        self, rows: Array, first: Array | int, count: Array | int, width: int
    ) -> "Matrix":
        """`columns` of the rows with these indices."""
        return self.take(rows).columns(first, count, width)

    def window(self, start: Array, size: int) -> "Matrix":
        """`size` rows in sequence, from `start` on: a plain copy, faster than `take`."""
        return jax.tree.map(lambda a: window(a, start, size), self)


class Transposed(eqx.Module):
    """x.T, which can only be multiplied."""

    matrix: Matrix

    def __matmul__(self, r: Array) -> Array:
        return self.matrix.transpose_matmul(r)


class Dense(Matrix):
    """Rows stored one after the other.

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.Dense(jnp.eye(2)).T @ jnp.array([3.0, 4.0])
    Array([3., 4.], dtype=float32)
    """

    values: Array | np.ndarray  # f[rows, features]

    @property
    def shape(self) -> tuple[int, int]:
        return (self.values.shape[-2], self.values.shape[-1])

    @property
    def dtype(self):
        return self.values.dtype

    def __matmul__(self, w):
        if w.ndim == 2 and w.shape[1] < NARROW:
            return (w.T @ self.values.T).T
        return self.values @ w

    def transpose_matmul(self, r):
        return self.values.T @ r

    def columns(self, first, count, width):
        return Dense(self._cut(0, self.shape[0], first, count, width))

    def take_columns(self, rows, first, count, width):
        # only what is wanted of each row is read: XLA would copy whole rows before cutting them
        return Dense(jax.vmap(lambda row: self._cut(row, 1, first, count, width)[0])(rows))

    def _cut(self, row, rows: int, first, count, width: int) -> Array:
        """`rows` rows from `row` on, of these columns."""
        row, first, count = (jnp.asarray(a, jnp.int32) for a in (row, first, count))
        # a window at the right edge is moved back to fit, and what it has turned into its place
        at = jnp.minimum(first, self.shape[1] - width)
        values = lax.dynamic_slice(jnp.asarray(self.values), (row, at), (rows, width))
        mine = jnp.arange(width, dtype=jnp.int32) < count
        return jnp.where(mine, jnp.roll(values, at - first, axis=1), 0)


class SparseRows(Matrix):
    """Rows stored as the same number of (feature, value) slots; unused slots have value 0.

    >>> import scipy.sparse, numpy as np, fedmin
    >>> x = fedmin.matrix(scipy.sparse.csr_matrix(np.diag([1.0, 2.0])))
    >>> x.T @ np.array([1.0, 1.0])
    Array([1., 2.], dtype=float32)
    """

    features: Array | np.ndarray  # i[rows, slots]
    values: Array | np.ndarray  # f[rows, slots]
    num_features: int = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.values.shape[-2], self.num_features)

    @property
    def dtype(self):
        return self.values.dtype

    def __matmul__(self, w):
        read = jnp.asarray(w).at[self.features].get(mode="promise_in_bounds")
        values = self.values.astype(read.dtype)
        return jnp.sum((values if w.ndim == 1 else values[..., None]) * read, axis=1)

    def transpose_matmul(self, r):
        kind = jnp.result_type(self.values, r)
        return self.scatter(r, jnp.zeros((self.num_features, *r.shape[1:]), kind))

    def columns(self, first, count, width):
        first, count = (jnp.asarray(a, jnp.int32) for a in (first, count))
        place = jnp.asarray(self.features) - first
        mine = (place >= 0) & (place < count)
        return SparseRows(jnp.where(mine, place, 0), jnp.where(mine, self.values, 0), width)

    def scatter(self, r: Array, onto: Array) -> Array:
        """onto + x.T @ r; `onto` may have more rows than there are features."""
        r = jnp.asarray(r)
        terms = self.values * r[:, None] if r.ndim == 1 else self.values[..., None] * r[:, None, :]
        return onto.at[self.features].add(terms, mode="promise_in_bounds")


def matrix(values, order: np.ndarray | None = None) -> Matrix:
    """A `Matrix` from a NumPy array or any SciPy sparse matrix; a sparse one is never made dense.

    `order` picks rows, in that order.

    >>> import numpy as np, fedmin
    >>> fedmin.matrix(np.zeros((4, 2))).shape
    (4, 2)
    """
    if isinstance(values, Matrix):
        return values if order is None else jax.tree.map(lambda a: a[order], values)
    if scipy.sparse.issparse(values):
        return _sparse_rows(values.tocsr(), order)
    values = np.asarray(values)
    if values.ndim != 2:
        raise ValueError(f"data must be a matrix of rows and features, got shape {values.shape}")
    if order is None:
        order = np.arange(len(values))
    dense = _aligned((len(order), values.shape[1]), float_type())
    for some in _blocks(len(order)):
        dense[some] = values[order[some]]
    return Dense(dense)


def _sparse_rows(csr: scipy.sparse.csr_matrix, order: np.ndarray | None) -> SparseRows:
    order = np.arange(csr.shape[0]) if order is None else order
    slots = max(int(np.diff(csr.indptr)[order].max(initial=0)), 1)
    features = _aligned((len(order), slots), np.dtype(np.int32))
    values = _aligned((len(order), slots), float_type())
    features[:], values[:] = 0, 0
    for some in _blocks(len(order)):
        part = csr[order[some]]
        counts = np.diff(part.indptr)
        row = np.repeat(np.arange(part.shape[0]), counts) + some.start
        slot = np.arange(part.nnz) - np.repeat(part.indptr[:-1], counts)
        features[row, slot], values[row, slot] = part.indices, part.data
    return SparseRows(features, values, int(csr.shape[1]))


def _blocks(count: int, size: int = 512) -> list[slice]:
    """Rows a few hundred at a time, so that no second copy of a large matrix is made."""
    return [slice(a, min(a + size, count)) for a in range(0, count, size)]


def _aligned(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """An array at an address that JAX's CPU devices can use as it is, without a copy."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + 64, np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + size].view(dtype).reshape(shape)


def window(a: Array | np.ndarray, start: Array, size: int) -> Array:
    """`size` entries of the leading axis from `start` (at least 0) on."""
    start = jnp.asarray(start, jnp.int32)
    starts = (start, *(jnp.zeros_like(start) for _ in a.shape[1:]))
    sizes = (size, *a.shape[1:])
    return lax.dynamic_slice(a, starts, sizes, allow_negative_indices=False)


def float_type() -> np.dtype:
    """What JAX computes in: single precision, unless double is switched on (jax_enable_x64)."""
    return np.dtype(jnp.result_type(float))
