"""SecureSum: the server learns the sum of the replies, and no single one.   [bonawitz2017practical]

client      round(2^(w-2) / c  p_i x_i) modulo 2^w, then under masks that cancel in the sum
server      the sum of those who stayed, exact as integers; times c / 2^(w-2)
bytes       up w/8 an entry, and 176 n + 160 for n clients and cryptography (docs/secure-sums.md)
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.channels import fixed_point
from fedmin.channels.fixed_sum import RANGE, FixedSum
from fedmin.channels.secure.legs import SumProtocol, Terms, Threat
from fedmin.channels.wide_sum import WideSum, on_trip
from fedmin.core import checks, payload
from fedmin.core.channel import Channel, Cohort, Learns
from fedmin.core.method import Now, Trip
from fedmin.core.protocol import Protocol

LOWEST, STEP, BUCKETS = -38, 2, 50  # exponents of maxima that are told apart: -38, -36, ..., 60
MARGIN = 2  # a bound is so many bits above the last maximum
SPREAD = 10  # and at most so many below the largest of the other parts


class SecureSum(FixedSum):
    """The server learns the sum of all replies of those who stayed to the end, and no single one.

    Entries beyond `bound` are clipped, and counted (`result.info["clipped"]`). Without a bound each
    part has its own, a few times the largest entry of the round before: that maximum, to a factor
    of four, is found by a secure sum as well, and it is all that is learnt of it. The first round
    of a run only finds it, and changes nothing (of a method with two exchanges, the first two).

    Against a server that lies more than 2/3 of a round's clients must stay to the end ("lying"),
    against one that is only curious more than half ("curious"). A sum is of at least `least`
    clients; a round for which fewer are drawn passes. Above 100 clients sums are over groups of
    50 to 100, and the server learns each group's.

    >>> import fedmin
    >>> print(fedmin.SecureSum().learns)
    the sum of at least 3 clients' replies, each in fixed point of 32 bits
    """

    named: ClassVar[str] = "secure_sum"

    bits: int = eqx.field(default=32, static=True)  # w, 32 or 64: of every number that travels
    bound: float | None = None  # c, of entries of a reply; None: agreed on, round by round
    threshold: Threat = eqx.field(default="lying", static=True)  # the server: "lying", "curious"
    least: int = eqx.field(default=3, static=True)  # clients in a sum, at least

    def __check_init__(self):
        if self.bits not in (32, 64):
            raise ValueError(f"bits must be 32 or 64, got {self.bits!r}")
        checks.known("threshold", self.threshold, ("lying", "curious"))
        checks.at_least("least", self.least, 3)
        if self.bound is not None:
            checks.positive("bound", self.bound)
            if isinstance(self.bound, float | int) and not 2.0**-40 <= self.bound <= 2.0**62:
                raise ValueError(f"bound must be within 2^-40 and 2^62, got {self.bound:g}")

    @property
    def limbs(self) -> int:
        return self.bits // 32

    @property
    def fewest(self) -> int:  # type: ignore[override]
        return self.least

    # ------------------------------------------------------------ the bound

    def _ranges(self, count: int, told: Any) -> tuple[Array, Array]:
        if self.bound is not None:
            bound = jnp.asarray(self.bound, jnp.float32)
            exponent = _exponent(bound)
            return jnp.full(count, bound), jnp.full(count, exponent)
        if not isinstance(told, dict):
            told = {"range": told}
        # 0: not agreed on yet, nothing but zeros is sent
        known = told["range"] > 0
        exponents = jnp.where(known, told["range"] - 128, 0)
        return jnp.where(known, fixed_point.power(exponents, "float32"), 0), exponents

    def init_server(self, up: Any) -> Any:
        if self.bound is not None:
            return ()
        parts = jax.tree.leaves(up, is_leaf=payload.is_payload)
        return jnp.zeros(len(parts), jnp.int32)

    def tells(self, state: Any) -> dict[str, Array]:
        return {} if self.bound is not None else {"range": state}

    def waits(self, told: Any) -> Array | bool:
        return False if self.bound is not None else jnp.any(told["range"] == 0)

    def encode(self, up: Any, memory: Any, now: Now) -> tuple[Any, Any]:
        wire, memory = FixedSum.encode(self, up, memory, now)
        if self.bound is not None:
            return wire, memory
        parts = jax.tree.leaves(wire)
        largest = jnp.stack([jnp.max(jnp.abs(p), initial=0.0).astype(jnp.float32) for p in parts])
        steps = LOWEST + STEP * jnp.arange(BUCKETS, dtype=jnp.int32)
        above = largest[:, None] > fixed_point.power(steps - STEP, "float32")
        # of numbers drawn at random the sum is random too: it says that there is one, not how many
        shape = (*above.shape, self.limbs)
        drawn = jax.random.bits(now.secret, shape, jnp.uint32)
        return {**wire, RANGE: jnp.where(above[..., None], drawn, jnp.uint32(0))}, memory

    def decode(self, combined: Any, state: Any, cohort: Cohort, now: Now) -> tuple[Any, Any]:
        total, _ = FixedSum.decode(self, combined, state, cohort, now)
        if self.bound is not None:
            return total, state
        there = ~fixed_point.is_zero(combined[RANGE])  # bool[parts, BUCKETS]
        top = jnp.sum(jnp.cumsum(there[:, ::-1], axis=1) > 0, axis=1, dtype=jnp.int32)
        found = LOWEST + STEP * (top - 1) + MARGIN + 128
        most = jnp.max(found)  # a part that is 0 or small may become as large as the others
        found = jnp.where(top == 0, most, jnp.maximum(found, most - SPREAD))
        return total, jnp.maximum(found, state - 1)

    # ------------------------------------------------------------ the rest

    def report(self, combined: Any) -> dict[str, Array]:
        return {"clipped": self._clipped(combined)}

    def concerns(self, info: Any) -> str:
        count = int(info.get("clipped", 0))
        if not count:
            return ""
        entries = "entry was" if count == 1 else "entries were"
        todo = "give a larger bound" if self.bound is not None else "give a bound"
        return f"{count} {entries} clipped by the secure sum; {todo}, or Clip before it"

    def protocol(self, sent: Any) -> Protocol:
        return SumProtocol(sent, Terms(self.limbs, self.threshold, self.least))

    def for_trip(self, trip: Trip) -> Channel:
        return on_trip(self, trip)

    def for_evaluation(self) -> Channel:
        return WideSum(self.threshold, self.least)

    @property
    def learns(self) -> Learns:
        how = f"in fixed point of {self.bits} bits"
        return Learns(each=False, least=self.least, how=how)


def _exponent(bound: Array) -> Array:
    """The exponent of the power of two at or above a number."""
    bits = jax.lax.bitcast_convert_type(bound, jnp.uint32)
    whole = (bits & 0x7FFFFF) == 0
    return (bits >> 23).astype(jnp.int32) - 127 + jnp.where(whole, 0, 1)
