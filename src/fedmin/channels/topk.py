"""Top-k with error feedback.   [stich2018sparsified]

client      m <- e + up;   wire <- the k entries of m of largest magnitude;   e <- m - wire
bytes       up k indices and k values for each vector of the reply
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from fedmin.core import checks
from fedmin.core.channel import Channel, Learns
from fedmin.core.payload import Sparse, is_payload


class TopK(Channel):
    """The k largest entries of each vector of a reply; the rest is remembered for the next round.

    >>> import fedmin
    >>> fedmin.TopK(100)
    TopK(k=100)
    """

    k: int = eqx.field(static=True)

    delays = True

    def __check_init__(self):
        checks.at_least("k", self.k, 1)

    def init(self, up: Any) -> Any:
        return jax.tree.map(
            lambda a: None if self._as_is(a) else jnp.zeros(a.shape, a.dtype),
            up,
            is_leaf=is_payload,
        )

    def encode(self, up, memory, now):
        form: Any  # jaxlib says nothing of its types
        parts, form = jax.tree.flatten(up, is_leaf=is_payload)
        errors = form.flatten_up_to(memory)
        wires, kept = zip(*map(self._cut, parts, errors), strict=True)
        return jax.tree.unflatten(form, wires), jax.tree.unflatten(form, kept)

    @property
    def learns(self) -> Learns:
        return Learns(how="its largest entries only")

    def _as_is(self, part: Any) -> bool:
        """Parts that are compact already, whole numbers, or no longer than their sparse form."""
        return (
            is_payload(part)
            or not jnp.issubdtype(part.dtype, jnp.floating)
            or part.ndim != 1
            or part.shape[0] <= self.k
        )

    def _cut(self, part, error):
        if error is None:
            return part, None
        whole = error + part
        indices = jax.lax.top_k(jnp.abs(whole), self.k)[1].astype(jnp.int32)
        return Sparse(indices, whole[indices], whole.shape[0]), whole.at[indices].set(0.0)
