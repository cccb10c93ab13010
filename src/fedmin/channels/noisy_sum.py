"""NoisySum: a secure sum with noise in whole numbers inside.   [kairouz2021distributed]

    client      2^k (round(g p_i x_i) + Z_i)  modulo 2^w,   g = 2^(w-2-k) / c,   |x_i| <= C
                Z_i discrete Gaussian, sigma = multiplier D / sqrt(m) in every entry
    D           max p_i C g + sqrt(d) / 2: the most that a reply of d numbers moves the sum, with
                half a step of rounding in every entry
    sum         of those who stayed: at least m, or it is never opened

A sum of m discrete Gaussians is none; but it is so near to one of m sigma^2 that a reply of length
D is as zero-concentrated private as under a Gaussian of that size, 1 / (2 multiplier^2), but for
less than d times tau = 10 (m - 1) exp(-pi^2 sigma^2) (there). With sigma >= 4 that tau is below
10^-60, and not counted.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin.channels import discrete_gaussian, fixed_point
from fedmin.channels.fixed_sum import CLIPPED, OWN
from fedmin.channels.secure_sum import SecureSum
from fedmin.core.method import Now

DRAWN = "sum_noise"  # the part of a wire that has the noise in it, between a client's own steps
LEAST = 4.0  # of a site's sigma: below it sums of discrete Gaussians differ from one
ROOM = 9.0  # sigmas of the sum's noise that must fit beside the replies


class Grid(NamedTuple):
    """The grid on which noise and replies are whole numbers."""

    shift: int  # k
    moved: float  # D, in its steps
    sigma: float  # of a site's noise, in its steps


class NoisySum(SecureSum):
    """`SecureSum` behind noise of the sites; `engines/private.py` makes it from the two."""

    entries: np.ndarray | Array = eqx.field(default_factory=lambda: discrete_gaussian.table(4.0))
    shift: int = eqx.field(default=0, static=True)  # k

    def encode(self, up: Any, memory: Any, now: Now) -> tuple[Any, Any]:
        wire, memory = SecureSum.encode(self, up, memory, now)
        parts, form = jax.tree.flatten(wire)
        keys = jax.random.split(now.secret, max(len(parts), 1))
        noise = [
            discrete_gaussian.drawn(key, part.shape, jnp.asarray(self.entries))
            for key, part in zip(keys, parts, strict=False)
        ]
        return {**wire, DRAWN: jax.tree.unflatten(form, noise)}, memory

    def weigh_as(self, wire: Any, share: Array, told: Any) -> Any:
        wire = dict(wire)
        noise = wire.pop(DRAWN)
        words = dict(SecureSum.weigh_as(self, wire, share, told))
        own = {name: words.pop(name) for name in OWN if name in words}
        # a reply is no longer than the bound: whoever rounds it beyond is not told of
        own[CLIPPED] = jnp.zeros_like(own[CLIPPED])
        step = fixed_point.power(self.shift, jnp.float32)
        hidden = jax.tree.map(
            lambda y, z: fixed_point.added(
                y, fixed_point.to_words(z.astype(jnp.float32) * step, self.limbs)
            ),
            words,
            noise,
        )
        return {**hidden, **own}


def grid_of(bits: int, exponent: int, moved: float, multiplier: float, m: int, d: int) -> Grid:
    """The finest grid for which there is a table, where one client moves a sum of d numbers by
    `moved` at most."""
    # lengths are computed in single precision: a sum of d squares is off by d last places
    longest = moved * (1 + (d + 8) * 2.0**-24)
    shift, most = 0, longest * 2.0 ** (bits - 2 - exponent)
    while multiplier * (most + math.sqrt(d) / 2) / math.sqrt(m) > discrete_gaussian.LARGEST:
        shift, most = shift + 1, most / 2
        if most < 0.01:
            raise ValueError(
                f"a reply of {d:,} numbers cannot be rounded beside noise of {multiplier:g} times "
                f"what a client can change: give less noise, or Noise at the server"
            )
    most = most + math.sqrt(d) / 2
    return Grid(shift, most, multiplier * most / math.sqrt(m))


def check_grid(grid: Grid, bits: int, exponent: int, clients: int) -> None:
    """Refuse noise that is too small for its grid, or too large for the sum."""
    if grid.sigma < LEAST:
        raise ValueError(
            f"noise of the sites would be {grid.sigma:.2g} steps of the secure sum's grid, and "
            f"must be {LEAST:g}: give SecureSum(bits=64), or a smaller bound"
        )
    noise = ROOM * grid.sigma * math.sqrt(clients) * 2.0 ** (grid.shift + exponent - bits + 2)
    if noise > 2.0**exponent:
        raise ValueError(
            f"noise of the sites does not fit into the secure sum: give it a bound of {noise:.3g} "
            f"or more"
        )
