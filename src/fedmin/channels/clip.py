"""Clip: no reply is longer than a bound.   [abadi2016deep] Algorithm 1

client      up <- up min(1, C / |up|),   |up|^2 the sum of squares of all its floating-point parts
bytes       as without it
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedmin.core import checks, payload
from fedmin.core.channel import Channel, Learns


class Clip(Channel):
    """Replies longer than `norm` are shortened to it, as a whole: no client moves the sum further.

    The reply itself is clipped, before it is weighted. What clients remember is not clipped with
    it, so methods whose server must know the same (SCAFFOLD's c_i, FedNL's Hessians) refuse it.

    >>> import jax, jax.numpy as jnp, fedmin
    >>> now = fedmin.Now(jnp.int32(0), jax.random.key(0), jax.random.key(1))
    >>> up = {"update": jnp.array([3.0, 0.0]), "control": jnp.array([4.0])}
    >>> wire, _ = fedmin.Clip(1.0).encode(up, (), now)
    >>> [round(float(a), 3) for a in (*wire["update"], *wire["control"])]
    [0.6, 0.0, 0.8]
    """

    norm: float  # C

    shortens = True

    def __check_init__(self):
        checks.positive("norm", self.norm)

    def encode(self, up: Any, memory: Any, now: Any) -> tuple[Any, Any]:
        parts = [part for part in _parts(up) if _is_float(part)]
        if not parts:
            return up, memory
        length = jnp.sqrt(sum(_square(part) for part in parts))
        # a reply that is not finite stays so, and is noticed
        factor = jnp.where(length > self.norm, self.norm / length, jnp.ones_like(length))

        def shorten(part):
            if not _is_float(part):
                return part
            return payload.scaled(part, factor.astype(_type(part)))

        return jax.tree.map(shorten, up, is_leaf=payload.is_payload), memory

    def longest(self, entering: float | None) -> float:
        return self.norm if entering is None else min(self.norm, entering)

    @property
    def learns(self) -> Learns:
        return Learns(how="shortened to a bound")


def _parts(up: Any) -> list[Any]:
    return jax.tree.leaves(up, is_leaf=payload.is_payload)


def _type(part: Any) -> Any:
    return jax.eval_shape(lambda: part.dense()).dtype if payload.is_payload(part) else part.dtype


def _is_float(part: Any) -> bool:
    return jnp.issubdtype(_type(part), jnp.floating)


def _square(part: Any) -> Array:
    dense = part.dense() if payload.is_payload(part) else part
    return jnp.sum(dense.astype(jnp.result_type(float)) ** 2)
