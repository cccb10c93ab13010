"""Numbers that may change from round to round: a plain number, or a value called with the round."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array


class Power(eqx.Module):
    """scale / (1 + round)^exponent, rounds counted from 0.

    >>> import fedmin
    >>> float(fedmin.Power(1.0, 0.5)(3))
    0.5
    """

    scale: float
    exponent: float

    def __call__(self, round: Array) -> Array:
        return self.scale / (1.0 + jnp.asarray(round, float)) ** self.exponent


def at(value: Any, round: Array) -> Any:
    """A setting's value at this round."""
    return value(round) if callable(value) else value
