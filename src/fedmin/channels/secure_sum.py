"""SecureSum: the server learns the sum of the replies, and no single one.   [bonawitz2017practical]

client      round(2^(w-2) / c  p_i x_i) modulo 2^w, then under masks that cancel in the sum
server      the sum of those who stayed, exact as integers; times c / 2^(w-2)
bytes       up w/8 an entry, and 176 n + 160 for n clients and cryptography (docs/secure-sums.md)
"""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.channels import fixed_point
from fedmin.channels.secure.legs import WEIGHT, SumProtocol, Terms, Threat
from fedmin.core import checks, payload
from fedmin.core.channel import Channel, Cohort, Learns
from fedmin.core.method import Exchange, Now, Trip
from fedmin.core.protocol import Protocol

CLIPPED, RANGE = "sum_clipped", "sum_range"
OWN = (WEIGHT, CLIPPED, RANGE)
WIDE = 64  # a look's numbers are below 2^64; its grid is 2^-62
LOWEST, STEP, BUCKETS = -38, 2, 50  # exponents of maxima that are told apart: -38, -36, ..., 60
MARGIN = 2  # a bound is so many bits above the last maximum
SPREAD = 10  # and at most so many below the largest of the other parts


class FixedSum(Channel):
    """What sums modulo 2^w have in common; those who use it say w / 32 and each part's bound."""

    hides = True
    signs = True
    shift = 0  # bits of a number that are left empty

    @property
    @abstractmethod
    def limbs(self) -> int:
        """Words of a number."""

    def _ranges(self, count: int, told: Any) -> tuple[Array, Array]:
        """For each part the largest entry, and the exponent of the power of two at or above it."""
        raise NotImplementedError

    def encode(self, up: Any, memory: Any, now: Now) -> tuple[Any, Any]:
        if not isinstance(up, dict) or set(up) & set(OWN):
            raise ValueError(f"a reply must be a dict without the names {', '.join(OWN)}")

        def dense(part):
            found = part.dense() if payload.is_payload(part) else part
            if not jnp.issubdtype(found.dtype, jnp.floating):
                raise ValueError(f"a part of type {found.dtype} has no weighted sum; give floats")
            return found

        return jax.tree.map(dense, up, is_leaf=payload.is_payload), memory

    def weigh_as(self, wire: Any, share: Array, told: Any) -> Any:
        wire = dict(wire)
        whole = {name: wire.pop(name) for name in OWN if name in wire}
        parts, form = jax.tree.flatten(wire)
        bounds, exponents = self._ranges(len(parts), told)
        clipped, found = jnp.zeros((), jnp.uint32), []
        for part, bound, exponent in zip(parts, bounds, exponents, strict=True):
            kind = "float64" if part.dtype == jnp.float64 else "float32"
            x, c = part.astype(kind), bound.astype(kind)
            beyond = jnp.abs(x) > c
            clipped = clipped + jnp.sum(beyond & (c > 0), dtype=jnp.uint32)
            step, fine = (fixed_point.power(k, kind) for k in (self.shift, -self.shift))
            scale = fixed_point.power(32 * self.limbs - 2 - exponent, kind)
            y = jnp.round(jnp.clip(x, -c, c) * share.astype(kind) * scale * fine) * step
            found.append(fixed_point.to_words(y, self.limbs))
        weight = jnp.round(share * fixed_point.power(32 * self.limbs - 2, share.dtype))
        return {
            **jax.tree.unflatten(form, found),
            **whole,
            WEIGHT: fixed_point.to_words(weight, self.limbs),
            CLIPPED: jnp.zeros(self.limbs, jnp.uint32).at[0].set(clipped),
        }

    def weigh(self, wire: Any, share: Array) -> Any:
        return self.weigh_as(wire, share, {})

    def combine(self, wires: Any) -> Any:
        return jax.tree.map(fixed_point.columns, wires)

    def _numbers(self, combined: Any, told: Any, dtype: Any) -> Any:
        parts, form = jax.tree.flatten({k: v for k, v in combined.items() if k not in OWN})
        _, exponents = self._ranges(len(parts), told)
        scales = [fixed_point.power(k - 32 * self.limbs + 2, dtype) for k in exponents]
        found = [fixed_point.to_numbers(a, dtype) * s for a, s in zip(parts, scales, strict=True)]
        return jax.tree.unflatten(form, found)

    def _clipped(self, combined: Any) -> Array:
        return fixed_point.low_word(combined[CLIPPED]).astype(jnp.int32)

    def decode(self, combined: Any, state: Any, cohort: Cohort, now: Now) -> tuple[Any, Any]:
        if cohort.ids.shape[0] > fixed_point.MOST and self.limbs > 1:
            raise ValueError(
                f"a secure sum of more than {fixed_point.MOST:,} clients needs bits=32"
            )
        return self._numbers(combined, state, cohort.shares.dtype), state


class WideSum(FixedSum):
    """What carries a look at the model through a secure sum: 128 bits, so that nothing is clipped.

    Numbers of 2^64 and more, which a run has that diverges, make the sum infinite.

    >>> import fedmin
    >>> fedmin.SecureSum().for_evaluation().limbs
    4
    """

    threshold: Threat = eqx.field(default="lying", static=True)
    least: int = eqx.field(default=3, static=True)

    @property
    def limbs(self) -> int:
        return 4

    def _ranges(self, count: int, told: Any) -> tuple[Array, Array]:
        exponents = jnp.full(count, WIDE, jnp.int32)
        return fixed_point.power(exponents, "float32"), exponents

    def decode(self, combined: Any, state: Any, cohort: Cohort, now: Now) -> tuple[Any, Any]:
        total, state = FixedSum.decode(self, combined, state, cohort, now)
        lost = self._clipped(combined) > 0
        return jax.tree.map(lambda a: jnp.where(lost, jnp.inf, a), total), state

    def protocol(self, sent: Any) -> Protocol:
        return SumProtocol(sent, Terms(self.limbs, self.threshold, self.least))

    @property
    def learns(self) -> Learns:
        return Learns(each=False, least=self.least, how="in fixed point of 128 bits")


class SecureSum(FixedSum):
    """The server learns the sum of all replies of those who stayed to the end, and no single one.

    Entries beyond `bound` are clipped, and counted (`result.info["clipped"]`). Without a bound each
    part has its own, a few times the largest entry of the round before: that maximum, to a factor
    of four, is found by a secure sum as well, and it is all that is learnt of it. The first round
    of a run only finds it, and changes nothing (of a method with two exchanges, the first two).

    Against a server that lies more than 2/3 of a round's clients must stay to the end ("lying"),
    against one that is only curious more than half ("curious"). A sum is of at least `least`
    clients; a round for which fewer are drawn passes. Above 100 clients sums are over groups of
    51 to 100, and the server learns each group's.

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

    def refuses(self, trip: Trip) -> str:
        # to the rounding of the grid replies arrive as they were sent: none is cut or delayed
        return Channel.refuses(self, _altered(trip))

    def protocol(self, sent: Any) -> Protocol:
        return SumProtocol(sent, Terms(self.limbs, self.threshold, self.least))

    def for_evaluation(self) -> Channel:
        return WideSum(self.threshold, self.least)

    @property
    def learns(self) -> Learns:
        how = f"in fixed point of {self.bits} bits"
        return Learns(each=False, least=self.least, how=how)


def _altered(trip: Trip) -> Trip:
    return replace(trip, unchanged=False) if isinstance(trip, Exchange) else trip


def _exponent(bound: Array) -> Array:
    """The exponent of the power of two at or above a number."""
    bits = jax.lax.bitcast_convert_type(bound, jnp.uint32)
    whole = (bits & 0x7FFFFF) == 0
    return (bits >> 23).astype(jnp.int32) - 127 + jnp.where(whole, 0, 1)
