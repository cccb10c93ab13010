"""Numbers that may change from round to round: a plain number, or a value called with the round."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin import checks


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


def check(name: str, value: Any) -> None:
    """Refuse a weight outside (0, 1], now or in a later round."""
    if isinstance(value, Power):
        checks.positive(f"{name}'s scale", value.scale)
        checks.between(f"{name}'s exponent", value.exponent, 0.0)
        checks.between(f"{name} in round 0", value.scale, 0.0, 1.0, open_low=True)
    elif callable(value):
        for round in (0, 1, 10, 1000, 100_000):
            now = np.asarray(value(jnp.int32(round)))
            checks.between(f"{name} in round {round}", now, 0.0, 1.0, open_low=True)
    else:
        checks.between(name, value, 0.0, 1.0, open_low=True)


def outside_theorem(rho: Any, gamma: Any) -> tuple[str, ...]:
    """What of the conditions for convergence these two do not meet, in words.

    The conditions [ye2022sample]: both tend to 0 with infinite sums, gamma^2 has a finite sum, and
    gamma/rho tends to 0.
    """

    def exponent(value):
        if callable(value):
            return value.exponent if isinstance(value, Power) else None
        return 0.0

    r, g = exponent(rho), exponent(gamma)
    if r is None or g is None:
        return ("a schedule of your own: the theorem's conditions were not checked",)
    broken = [
        (np.any(r <= 0), "rho does not tend to 0"),
        (np.any(g <= 0), "gamma does not tend to 0"),
        (np.any(r > 1), "the sum of rho is finite"),
        (np.any(g > 1), "the sum of gamma is finite"),
        (np.any(g <= 0.5), "the sum of gamma^2 is infinite"),
        (np.any(g <= r), "gamma/rho does not tend to 0"),
    ]
    return tuple(f"outside the theorem: {words}" for holds, words in broken if holds)
