"""Convex surrogates of the objective and the constraints, all of the same curvature tau.

A surrogate is a weighted mean of f_m(w_k) + grad f_m(w_k).(u - w_k) + tau |u - w_k|^2 over points
w_k that were seen. It is kept as it looks from the newest w, so that nothing large cancels:

    Fbar_m(w + v) = A_m + G_m.v + tau (|v|^2 + 2 D.v + S),    D = mean of w - w_k,  S of |w - w_k|^2
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedmin.core.domain import Free
from fedmin.server import qcqp, qcqp_over


class Surrogates(NamedTuple):
    """Means over the points that were seen, from the newest w. Levels are the constraints' only."""

    levels: Array  # A, f[M]
    slopes: Array  # G, f[1 + M, d], without the first if the objective has no data in it
    away: Array  # D, f[d]
    spread: Array  # S, where M > 0: nothing else needs it

    @classmethod
    def none(cls, problem, w: Array, whole: bool = False) -> "Surrogates":
        """Before anything is known: tau |u|^2 for every function, as in the paper's Algorithm 2.

        Or tau |u|^2 - U_m if `whole`: what is averaged from then on is the function without U_m,
        and U_m is subtracted whole in every round.
        """
        bounds = problem.bounds() if whole else (0.0,) * problem.num_constraints
        levels = jnp.array([-bound for bound in bounds], w.dtype)
        slopes = jnp.zeros((problem.num_sums, len(w)), w.dtype)
        return cls(levels, slopes, jnp.array(w), _square(levels, w))

    @classmethod
    def seen(cls, values: Array, slopes: Array, away: Array) -> "Surrogates":
        """From the constraints' values and all gradients at one point, w - `away`."""
        levels = values + _limits(values, slopes) @ away if len(values) else values
        return cls(levels, slopes, away, _square(levels, away))

    def moved(self, by: Array) -> "Surrogates":
        """The same, from w + `by`."""
        levels, spread = self.levels, self.spread
        if len(levels):
            levels = levels + _limits(levels, self.slopes) @ by
            spread = spread + 2 * self.away @ by + by @ by
        return Surrogates(levels, self.slopes, self.away + by, spread)

    def mixed(self, new: "Surrogates", rho: Array) -> "Surrogates":
        """1 - rho of these and rho of the new ones."""
        return jax.tree.map(lambda a, b: (1 - rho) * a + rho * b, self, new)

    def lowest(self, problem, w: Array, tau: Array, c: Array, exact: bool) -> qcqp.Solution:
        """The way from w to where Fbar_0 + r + c sum s_m is least subject to Fbar_m <= s_m, within
        the problem's set; over one that is not convex, to a low point of it.

        r is in it as it is if `exact`, or if the objective is r only; else it is in the slopes.
        """
        exact = exact or problem.bare
        curve = problem.ridge_weight() if exact else 0.0
        vectors = self.slopes + 2 * tau * self.away
        if problem.bare:
            vectors = jnp.concatenate([2 * curve * w[None], vectors])
        else:
            vectors = vectors.at[0].add(2 * curve * w) if exact else vectors
            curve = curve + tau
        levels, domain = self.levels + tau * self.spread, problem.domain
        if isinstance(domain, Free):
            return qcqp.solve(vectors, curve, levels, tau, c)
        if not domain.convex:
            return qcqp_over.solve_sparse(vectors, curve, levels, tau, c, w, domain.project)
        within = lambda v: domain.project(w + v) - w
        return qcqp_over.solve(vectors, curve, levels, tau, c, within)


def _limits(levels: Array, slopes: Array) -> Array:
    return slopes[len(slopes) - len(levels) :]


def _square(levels: Array, v: Array) -> Array:
    return v @ v if len(levels) else jnp.zeros((), v.dtype)


def curvatures(problem, w: Array, v: Array, rows) -> Array:
    """f[1 + M]: v.H_m v / 2 for the means of the losses on some rows, by two forward passes."""

    def means(u):
        return problem.totals(u, rows)[int(problem.bare) :] / jnp.sum(rows.weight)

    def along(u):
        return jax.jvp(means, (u,), (v,))[1]

    return 0.5 * jax.jvp(along, (w,), (v,))[1]
