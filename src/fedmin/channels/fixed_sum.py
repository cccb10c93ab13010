"""FixedSum: what sums modulo 2^w have in common, whoever adds them up.

client      round(2^(w-2) / c  p_i x_i) modulo 2^w, and beside it p_i and how many were clipped
sum         exact as integers; times c / 2^(w-2)
"""

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedmin.channels import fixed_point
from fedmin.channels.secure.legs import WEIGHT
from fedmin.core import payload
from fedmin.core.channel import Channel, Cohort
from fedmin.core.method import Exchange, Now, Trip

CLIPPED, RANGE = "sum_clipped", "sum_range"
OWN = (WEIGHT, CLIPPED, RANGE)


class FixedSum(Channel):
    """What sums modulo 2^w have in common; those who use it say w / 32 and each part's bound."""

    hides = True
    signs = True
    weighs = True
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
        wire, own = dict(wire), share if jnp.ndim(share) == 0 else share[0]
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
            y = jnp.round(jnp.clip(x, -c, c) * own.astype(kind) * scale * fine) * step
            found.append(fixed_point.to_words(y, self.limbs))
        weight = jnp.round(share * fixed_point.power(32 * self.limbs - 2, share.dtype))
        return {
            **jax.tree.unflatten(form, found),
            **whole,
            WEIGHT: fixed_point.to_words(weight, self.limbs),
            CLIPPED: jnp.zeros(self.limbs, jnp.uint32).at[0].set(clipped),
        }

    def weight_in(self, combined: Any, dtype: Any) -> Array | None:
        found = fixed_point.to_numbers(combined[WEIGHT], dtype)
        return None if found.ndim == 0 else found[0] * fixed_point.power(2 - 32 * self.limbs, dtype)

    def beside(self, sent: Any) -> str:
        return (
            "" if sent[WEIGHT].ndim == 1 else "and how many rows all have together, of none alone"
        )

    def weigh(self, wire: Any, share: Array) -> Any:
        return self.weigh_as(wire, share, {})

    def refuses(self, trip: Trip) -> str:
        # to the rounding of the grid replies arrive as they were sent: none is cut or delayed
        altered = replace(trip, unchanged=False) if isinstance(trip, Exchange) else trip
        return Channel.refuses(self, altered)

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
