"""Noise: the sum of replies with Gaussian noise on it.   [mcmahan2018learning] Algorithm 1

at the server   total <- sum p_i up_i + N(0, (multiplier max p_i C)^2),  |up_i| <= C by Clip
                mean  <- total / q,  whoever came: q is the chance of a client to take part
at the sites    up_i <- up_i + N(0, s^2),  s = multiplier max p_i C / sqrt(P),
                P the sum of the m smallest p_i^2; before a SecureSum in whole numbers instead
                (noisy_sum.py)
bytes           as without it

A client's reply is there or is 0: that moves the sum by max p_i C at most. Noise of the sites is
enough as long as m of them stay. With a weight of the sum that depended on who came, one could see
who did, and being drawn by chance would hide nobody: so the weight is what it is on average, and a
round in which nobody came is a round of noise.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.core import checks, payload
from fedmin.core.channel import Channel, Cohort, Learns
from fedmin.core.method import Exchange
from fedmin.core.release import Private, check_private


class Noise(Channel):
    """Gaussian noise on the sum of replies, behind `Clip`: `chain(Clip(1.0), Noise(1.0))`.

    Its standard deviation is `multiplier` times the most that one client moves the sum; or give
    `epsilon` and `delta` for the whole run, from which the multiplier follows. At the "server",
    which must be trusted, or in shares at the "sites", enough while `survivors` of them stay (if
    not given: all, and before a `SecureSum` as many as it needs). Before a `SecureSum` shares are
    whole numbers. Clients take part by `Bernoulli` or all.

    >>> import fedmin
    >>> fedmin.chain(fedmin.Clip(1.0), fedmin.Noise(epsilon=3.0)).stages[1].delta
    1e-05
    """

    noises = True

    multiplier: float | None = None  # of the noise, relative to what one client can change
    epsilon: float | None = None  # of the whole run, instead of a multiplier
    delta: float = 1e-5  # the other half of epsilon
    at: Literal["server", "sites"] = eqx.field(default="server", static=True)  # who adds it
    survivors: int | None = eqx.field(default=None, static=True)  # m, sites that stay at least

    def __check_init__(self):
        check_private(Private(self.multiplier, self.epsilon, self.delta))
        checks.known("at", self.at, ("server", "sites"))
        if self.survivors is not None:
            checks.at_least("survivors", self.survivors, 1)
            if self.at != "sites":
                raise ValueError('survivors is for noise of the sites: give at="sites"')

    def refuses(self, trip: Any) -> str:
        if isinstance(trip, Exchange) and (trip.reduce == "gather" or trip.only is not None):
            return "shows single replies to the server, and noise is on their sum only"
        return super().refuses(trip)

    @property
    def learns(self) -> Learns:
        if self.at == "server":
            return Learns(how="before the server itself adds noise to the sum")
        return Learns(noisy=True)


class Noised(Noise):
    """`Noise` in a run whose shares and participation are known; `privacy/fitting.py` makes it."""

    sensitivity: float = 1.0  # the most that one client moves the sum
    weight: float = 1.0  # of the sum, on average
    spread: float = 1.0  # sqrt(sum of the m smallest p_i^2)
    whole: bool = eqx.field(default=False, static=True)  # the noise is that of a `NoisySum`

    @property
    def goes_on(self) -> bool:  # type: ignore[override]
        return self.at == "server"

    @property
    def deviation(self) -> Any:
        """The noise's standard deviation in the sum."""
        return jnp.asarray(self.multiplier, float) * jnp.asarray(self.sensitivity, float)

    def encode(self, up: Any, memory: Any, now: Any) -> tuple[Any, Any]:
        if self.at == "server" or self.whole:
            return up, memory
        up = jax.tree.map(_dense, up, is_leaf=payload.is_payload)
        return _noisy(up, self.deviation / jnp.asarray(self.spread, float), now.secret), memory

    def decode(self, combined: Any, state: Any, cohort: Cohort, now: Any) -> tuple[Any, Any]:
        if self.at == "server":
            return _noisy(combined, self.deviation, now.secret), state
        # fewer than m: their noise is not enough, and the run ends
        few = jnp.where(cohort.count < (self.survivors or 0), jnp.nan, 0.0)
        return jax.tree.map(lambda a: a + few.astype(a.dtype), combined), state

    def weighing(self, cohort: Cohort) -> Array:
        if self.at == "sites":  # who came is known to the server
            return cohort.weight
        return jnp.asarray(self.weight).astype(cohort.shares.dtype)


def _dense(part: Any) -> Any:
    return part.dense() if payload.is_payload(part) else part


def _noisy(tree: Any, deviation: Any, key: Array) -> Any:
    """Every number of a tree with noise of its own."""
    leaves, form = jax.tree.flatten(tree)
    keys = jax.random.split(key, max(len(leaves), 1))
    return jax.tree.unflatten(
        form,
        [
            a + deviation.astype(a.dtype) * jax.random.normal(k, a.shape, a.dtype)
            for a, k in zip(leaves, keys, strict=False)
        ],
    )
