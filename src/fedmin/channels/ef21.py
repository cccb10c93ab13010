"""EF21: the change of a reply, compressed, added up at both ends.   [richtarik2021ef21]

client      c <- C(up - h);   h <- h + c;   wire <- c                h = 0 at first
server      H <- H + sum over present of p_i c_i;   the mean of the replies is H = sum p_i h_i
C           `k`: the k entries of largest magnitude;  `shape` [m, n]: a pair u, v with u v^T near D
bytes       up k indices and k values for each vector of the reply, or m + n numbers a matrix

As replies settle, what is left to send goes to 0, so that a method comes to where it would come
without compression, with steps that are short enough. TopK's error feedback sends each reply's
rest later: the clients' differences stay in it for ever, and the model stops at a distance. H is
the mean over ALL clients of what they sent last, also where some are absent and keep their h.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.core import checks
from fedmin.core.channel import Channel, Cohort, Learns
from fedmin.core.method import Now, Trip
from fedmin.core.payload import LowRank, Sparse, is_payload

TURNS = 8  # of the power method; a pair that is not yet the best still takes some of D away


def _pair(given: Any) -> Any:
    """A list of two numbers, as a file has it, becomes a tuple."""
    return tuple(given) if isinstance(given, list) else given


class EF21(Channel):
    """The `k` largest entries of what changed in each vector of a reply, or its nearest rank-one
    matrix where vectors are matrices of this `shape`; both ends add up what was sent.

    Parts that are no longer than their compressed form travel as they are.

    >>> import fedmin
    >>> made = fedmin.data.quadratics(clients=4, dim=9, condition=4.0, heterogeneity=1.0)
    >>> result = fedmin.minimize(
    ...     fedmin.LeastSquares(9), fedmin.data.partition(made), fedmin.FedSGD(0.2), rounds=300,
    ...     channel=fedmin.EF21(1),
    ... )
    >>> bool(abs(result.solution - made.truth["solution"]).max() < 1e-4)
    True
    """

    k: int | None = eqx.field(default=None, static=True)
    shape: tuple[int, int] | None = eqx.field(default=None, static=True, converter=_pair)

    shortens = True
    remembers = True

    def __check_init__(self):
        if (self.k is None) == (self.shape is None):
            raise ValueError("give EF21 either k, a number of entries, or shape, of a matrix")
        if self.k is not None:
            checks.at_least("k", self.k, 1)
        elif not (isinstance(self.shape, tuple) and len(self.shape) == 2):
            raise TypeError(f"shape must be two numbers, like (60, 40), got {self.shape!r}")
        else:
            for side in self.shape:
                checks.at_least("shape", side, 1)

    def init(self, up: Any) -> Any:
        return jax.tree.map(self._zeros, up, is_leaf=is_payload)

    init_server = init

    def encode(self, up: Any, memory: Any, now: Now) -> tuple[Any, Any]:
        form: Any  # jaxlib says nothing of its types
        parts, form = jax.tree.flatten(up, is_leaf=is_payload)
        known = form.flatten_up_to(memory)
        wires, kept = zip(*map(self._change, parts, known), strict=True)
        return jax.tree.unflatten(form, wires), jax.tree.unflatten(form, kept)

    def decode(self, combined: Any, state: Any, cohort: Cohort, now: Now) -> tuple[Any, Any]:
        form: Any
        parts, form = jax.tree.flatten(combined)
        known = form.flatten_up_to(state)
        # parts that travel as they are: the mean of those present stands for all
        weight = jnp.where(cohort.weight > 0, cohort.weight, 1)
        whole = [
            part / weight.astype(part.dtype) if h is None else h + part
            for part, h in zip(parts, known, strict=True)
        ]
        kept = [None if h is None else new for new, h in zip(whole, known, strict=True)]
        return jax.tree.unflatten(form, whole), jax.tree.unflatten(form, kept)

    def weighing(self, cohort: Cohort) -> Array:
        return jnp.ones_like(cohort.weight)  # the sum is over all clients, whoever came

    def refuses(self, trip: Trip) -> str:
        if trip.embeds:
            return "sends embeddings, of other rows each time: there is no change to compress"
        if not trip.summed:
            return "gathers every reply, and the channel brings the mean of all"
        return super().refuses(trip)

    @property
    def learns(self) -> Learns:
        what = "entries" if self.k is not None else "pair of directions"
        return Learns(how=f"told by the largest {what} of each change")

    def _zeros(self, part: Any) -> Array | None:
        """Before the first reply; None for a part that travels as it is."""
        if is_payload(part) or not jnp.issubdtype(part.dtype, jnp.floating) or part.ndim != 1:
            return None
        fits = part.shape[0] > self.k if self.k is not None else self._fits(part.shape[0])
        return jnp.zeros(part.shape, part.dtype) if fits else None

    def _fits(self, size: int) -> bool:
        m, n = self.shape or (0, 0)
        return m * n == size and m + n < size

    def _change(self, part: Any, known: Array | None) -> tuple[Any, Array | None]:
        if known is None:
            return part, None
        sent = self._nearest(part - known)
        return sent, known + sent.dense()

    def _nearest(self, D: Array) -> Sparse | LowRank:
        if self.k is not None:
            indices = lax.top_k(jnp.abs(D), self.k)[1].astype(jnp.int32)
            return Sparse(indices, D[indices], D.shape[0])
        return leading_pair(D.reshape(self.shape))


def leading_pair(matrix: Array) -> LowRank:
    """A v v^T with v near the leading right direction: never farther from A than 0 is.

    >>> import jax.numpy as jnp
    >>> leading_pair(jnp.diag(jnp.array([3.0, 1.0]))).dense().round(2).tolist()
    [3.0, 0.0, 0.0, 0.0]
    """
    tiny = jnp.finfo(matrix.dtype).tiny

    def unit(v):
        return v / jnp.maximum(jnp.linalg.norm(v), tiny)

    # the longest row is never at a right angle to all of the matrix
    first = matrix[jnp.argmax(jnp.sum(matrix**2, axis=1))]
    v = lax.fori_loop(0, TURNS, lambda _, v: unit(matrix.T @ unit(matrix @ v)), unit(first))
    return LowRank((matrix @ v)[:, None], v[:, None])
