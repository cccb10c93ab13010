"""Convex surrogates of the objective and the constraints, all of the same curvature tau.

    Fbar_m(u) = A_m + G_m.u + tau (|u|^2 - 2 W.u + S)

is a weighted mean of f_m(w) + grad f_m(w).(u - w) + tau |u - w|^2 over points w that were seen.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Surrogates(NamedTuple):
    """A mean of surrogates: of values, slopes and the points they were taken at."""

    levels: Array  # A, f[1 + M], without the first if the objective has no data in it
    slopes: Array  # G, f[1 + M, d], likewise
    center: Array  # W, f[d]
    spread: Array  # S

    @classmethod
    def none(cls, count: int, w: Array) -> "Surrogates":
        """Before anything is known, for `count` functions."""
        zeros = jnp.zeros(count, w.dtype), jnp.zeros((count, len(w)), w.dtype)
        return cls(*zeros, jnp.zeros_like(w), jnp.zeros((), w.dtype))

    def at(self, u: Array, tau: Array) -> Array:
        """Fbar_m(u)."""
        away = u @ u - 2 * self.center @ u + self.spread
        return self.levels + self.slopes @ u + tau * away


def sample(w: Array, values: Array, slopes: Array) -> Surrogates:
    """The surrogates of one round, from estimates of the constraints' values and all gradients."""
    unknown = jnp.zeros(len(slopes) - len(values), w.dtype)  # the objective's: nothing needs it
    return Surrogates(jnp.concatenate([unknown, values]) - slopes @ w, slopes, w, w @ w)


def curvatures(problem, w: Array, v: Array, rows) -> Array:
    """f[1 + M]: v.H_m v / 2 for the means of the losses on some rows, by two forward passes."""

    def means(u):
        return problem.totals(u, rows)[int(problem.bare) :] / jnp.sum(rows.weight)

    def along(u):
        return jax.jvp(means, (u,), (v,))[1]

    return 0.5 * jax.jvp(along, (w,), (v,))[1]
