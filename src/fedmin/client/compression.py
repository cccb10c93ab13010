"""What a client sends of a symmetric matrix: its largest eigenvalues, or its largest entries.

Both are contractions, which is all that learning a Hessian from them needs [safaryan2021fednl]:
|C(M) - M|^2 <= (1 - delta) |M|^2 in Frobenius' norm, with delta = k/d for the k eigenvalues and
k/(d (d+1)/2) for the k entries on and above the diagonal.
"""

import math
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.core import checks
from fedmin.core.payload import Eigenpairs, Payload, Sparse

SPARE = 8  # directions more than asked for, and
TURNS = 4  # products, by which a subspace is found where k is small against d


class Compressor(eqx.Module):
    """A compact form of a symmetric matrix.

    >>> import fedmin
    >>> isinstance(fedmin.TopRank(1), fedmin.Compressor)
    True
    """

    @abstractmethod
    def check(self, d: int) -> None:
        """Refuse to keep more than a d x d matrix has."""

    @abstractmethod
    def __call__(self, M: Array, key: Array) -> Payload:
        """What is sent of M, f[d, d]."""

    @abstractmethod
    def matrix(self, total: Array) -> Array:
        """f[d, d] from what was sent, made dense, or from a sum of such."""


class TopRank(Compressor):
    """The k eigenvalues of largest magnitude with their vectors: k (d + 1) numbers.

    Where d is more than eight times k they are found by subspace iteration, four products from
    random directions: a little less than the best k, and still a contraction.

    >>> import jax, jax.numpy as jnp, fedmin
    >>> sent = fedmin.TopRank(1)(jnp.diag(jnp.array([1.0, -3.0])), jax.random.key(0))
    >>> sent.values.tolist()
    [-3.0]
    """

    k: int = eqx.field(static=True)

    def __check_init__(self):
        checks.at_least("k", self.k, 1)

    def check(self, d):
        if self.k > d:
            raise ValueError(f"TopRank(k) has k at most d, the length of x, {d}; got {self.k}")

    def __call__(self, M, key):
        d = M.shape[0]
        if d <= 8 * (self.k + SPARE):
            return self._largest(*jnp.linalg.eigh(M))
        directions = jax.random.normal(key, (d, self.k + SPARE), M.dtype)

        def turn(_, Q):
            return jnp.linalg.qr(M @ Q)[0]

        Q = lax.fori_loop(0, TURNS, turn, jnp.linalg.qr(directions)[0])
        values, inside = jnp.linalg.eigh(Q.T @ M @ Q)
        return self._largest(values, Q @ inside)

    def _largest(self, values: Array, vectors: Array) -> Eigenpairs:
        best = lax.top_k(jnp.abs(values), self.k)[1]
        return Eigenpairs(vectors[:, best], values[best])

    def matrix(self, total):
        return _square(total)


class TopEntries(Compressor):
    """The k entries on and above the diagonal that hold most of the matrix: k indices, k numbers.

    One off the diagonal stands for two, so its square counts twice.

    >>> import jax, jax.numpy as jnp, fedmin
    >>> two = fedmin.TopEntries(2)
    >>> sent = two(jnp.array([[1.0, 4.0], [4.0, -5.0]]), jax.random.key(0))
    >>> two.matrix(sent.dense()).tolist()
    [[0.0, 4.0], [4.0, -5.0]]
    """

    k: int = eqx.field(static=True)

    def __check_init__(self):
        checks.at_least("k", self.k, 1)

    def check(self, d):
        most = d * (d + 1) // 2
        if self.k > most:
            raise ValueError(
                f"TopEntries(k) has k at most d (d + 1)/2 = {most}, the entries on and above "
                f"the diagonal; got {self.k}"
            )

    def __call__(self, M, key):
        d = M.shape[0]
        row, column = (lax.broadcasted_iota(jnp.int32, (d, d), axis) for axis in (0, 1))
        held = jnp.where(row < column, 2 * M**2, jnp.where(row == column, M**2, -1))
        indices = lax.top_k(held.ravel(), self.k)[1].astype(jnp.int32)
        return Sparse(indices, M.ravel()[indices], d * d)

    def matrix(self, total):
        upper = _square(total)
        return upper + upper.T - jnp.diag(jnp.diag(upper))


COMPRESSORS = {"toprank": TopRank, "topentries": TopEntries}


def _square(flat: Array) -> Array:
    d = math.isqrt(flat.shape[0])
    return flat.reshape(d, d)
