"""The road from a client's reply to the server's aggregate: compression now, privacy later.

A channel has a client half (`encode`, with a memory of its own a client), the one place where two
clients meet (`combine`), and a server half (`decode`). Engines sum what `combine` returns over
groups of clients, so it must be additive.
"""

from typing import Any, ClassVar

import equinox as eqx
from jax import Array

from fedmin.core import payload


class Channel(eqx.Module):
    """A road that changes nothing; subclasses override what they change.

    >>> import jax, jax.numpy as jnp, fedmin
    >>> wire, memory = fedmin.Channel().encode({"update": jnp.ones(2)}, (), jax.random.key(0))
    >>> wire["update"]
    Array([1., 1.], dtype=float32)
    """

    # whether a sum that is finite proves that every reply was
    exact: ClassVar[bool] = False

    def init(self, up: Any) -> Any:
        """A client's channel memory, from the shapes of the reply it will carry."""
        return ()

    def encode(self, up: Any, memory: Any, key: Array) -> tuple[Any, Any]:
        """Client: the weighted reply to what goes on the wire, and the new memory."""
        return up, memory

    def combine(self, wires: Any) -> Any:
        """The sum over a leading client axis of what was on the wire."""
        return payload.total(wires)

    def decode(self, combined: Any) -> Any:
        """Server: from the combined sum to the sum of the replies."""
        return combined
