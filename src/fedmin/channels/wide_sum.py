"""Sums modulo 2^w so wide that nothing is clipped: what looks and embeddings are carried by.

WideSum         of a look at the model: 128 bits, numbers below 2^64, in steps of 2^-62
EmbeddingSum    of embeddings where columns are split: 64 bits, numbers below 2^24, in steps of
                2^-38 N or finer. Clients add them up among themselves, under pads that cancel in
                the sum; or the server does, where it has the labels
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.channels import fixed_point
from fedmin.channels.fixed_sum import FixedSum
from fedmin.channels.plain import Plain
from fedmin.channels.secure import masks
from fedmin.channels.secure.legs import WEIGHT, SumProtocol, Terms, Threat
from fedmin.core.channel import Among, Channel, Cohort, Learns
from fedmin.core.method import Now, Trip
from fedmin.core.protocol import Protocol


class UnclippedSum(FixedSum):
    """A sum with room for all numbers of a run that does not diverge; larger ones make it
    infinite."""

    threshold: Threat = eqx.field(default="lying", static=True)
    least: int = eqx.field(default=3, static=True)

    words = 4  # of a number
    top = 64  # numbers are below 2^top

    @property
    def limbs(self) -> int:
        return self.words

    def _ranges(self, count: int, told: Any) -> tuple[Array, Array]:
        exponents = jnp.full(count, self.top, jnp.int32)
        return fixed_point.power(exponents, "float32"), exponents

    def decode(self, combined: Any, state: Any, cohort: Cohort, now: Now) -> tuple[Any, Any]:
        total, state = FixedSum.decode(self, combined, state, cohort, now)
        lost = self._clipped(combined) > 0
        return jax.tree.map(lambda a: jnp.where(lost, jnp.inf, a), total), state

    def protocol(self, sent: Any) -> Protocol:
        return SumProtocol(sent, Terms(self.limbs, self.threshold, self.least))

    def for_trip(self, trip: Trip) -> Channel:
        return on_trip(self, trip)

    @property
    def learns(self) -> Learns:
        return Learns(each=False, least=self.least, how=f"in fixed point of {32 * self.words} bits")


class WideSum(UnclippedSum):
    """What carries a look at the model through a secure sum: 128 bits, so that nothing is clipped.

    Numbers of 2^64 and more, which a run has that diverges, make the sum infinite.

    >>> import fedmin
    >>> fedmin.SecureSum().for_evaluation().limbs
    4
    """


class EmbeddingSum(UnclippedSum, Among):
    """What carries embeddings where columns are split: nobody opens a single one.

    >>> import fedmin
    >>> relay = fedmin.Relay(None, None, embeds=True)
    >>> print(fedmin.SecureSum().for_trip(relay).learns)
    the sum of at least 3 clients' replies, each in fixed point of 64 bits
    """

    words = 2
    top = 24

    def relayed(self, up: Any, share: Array) -> Any:
        wire, _ = self.encode(up, (), None)  # type: ignore[arg-type]
        return self.weigh(wire, fixed_point.power(_room(share), share.dtype))

    def covered(self, wire: Any, pads: Any) -> Any:
        words = masks.joined(wire)
        masks.add_pads(words, pads, self.limbs)
        return masks.parted(words, wire)

    def joined(self, combined: Any, shares: Array) -> Any:
        """Not finite where an entry was too large, or where a pad is still on the sum."""
        room = _room(shares[0])
        total = self._numbers(combined, {}, shares.dtype)
        weight = fixed_point.power(62 + room, shares.dtype) * len(shares)
        found = fixed_point.to_numbers(combined[WEIGHT], shares.dtype)
        wrong = (self._clipped(combined) > 0) | (found != weight)
        back = fixed_point.power(-room, shares.dtype)
        return jax.tree.map(lambda a: jnp.where(wrong, jnp.inf, a * back), total)


def _room(share: Array) -> Array:
    """The exponent of the power of two at or below 1/N: N numbers times that leave a sum room."""
    bits = jax.lax.bitcast_convert_type(share.astype(jnp.float32), jnp.uint32)
    return (bits >> 23).astype(jnp.int32) - 127


def on_trip(channel: Any, trip: Trip) -> Channel:
    """What carries a trip's replies, where `channel` carries a run's."""
    if trip.embeds and trip.summed:
        return EmbeddingSum(channel.threshold, channel.least)
    return Plain() if trip.open else channel
