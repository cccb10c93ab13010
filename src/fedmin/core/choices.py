"""Choices that protect single rows: which vertex of a set, or which entries of a vector, by chance.

    withheld    g = sum over all n rows of v_j min(1, C / max |v_j|), over n: one row changes no
                entry of it by more than D = C / n; it never leaves the client
    a vertex    Gumbel noise of scale b = multiplier D sqrt(k) on every candidate, and the k best
    entries     the k largest |y_j| so too, y = x - step g; then their m values with N(0, b^2), and
                b = multiplier step D sqrt(k + m)   (peeling)   [dwork2021differentially]

The best of candidates u with Gumbel noise of scale b on their scores is u with probability
P(u) ~ exp(score(u) / b), which is the exponential mechanism; and the k best are k such choices one
after the other, each among those that are left [durfee2019practical].

What one choice costs. A row moves every score by at most D, so L(u) = ln P(u) / P'(u) is within an
interval of width e = 2 D / b for neighbours P, P': D / b either way, and one constant for all u.
Let K(t) = ln E exp(t L(u)) for u drawn by P'. K(0) = 0 and K(1) = 0, since E exp(L) = sum P = 1;
and K'' is the variance of L under some law, at most e^2 / 4 in such an interval. So
K(t) - t (t - 1) e^2 / 8 is concave, is 0 at 0 and 1, and at most 0 beyond: the Renyi divergence
K(a) / (a - 1) of any order a > 1 is at most a e^2 / 8. That is zero-concentrated privacy of
e^2 / 8 = (D / b)^2 / 2 [cesar2021bounding], Lemma 4: what Gaussian noise of size b on one number
costs. Such costs add up, also where a choice depends on those before it: k choices and m numbers
cost (k + m) (D / b)^2 / 2 = 1 / (2 multiplier^2), as a Gaussian of this multiplier does.
"""

from typing import Any, NoReturn

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from fedmin.core import private
from fedmin.core.domain import Domain
from fedmin.core.private import Withheld


class ChoiceBatch(Withheld):
    """All rows of a client, by whose gradient one choice with noise is made."""

    rows: Any  # a Shard, sealed or not
    key: Array
    clip: Array  # C, of the largest entry of a row's gradient
    multiplier: Array
    token: Any = eqx.field(default=None, static=True)  # which batch it is, while one watches

    def gradient(self, problem: Any, x: Array) -> Array:
        """The mean of clipped gradients without noise, for `vertex` or `entries` only."""
        private.withholds(self.token)
        shard = private.opened(self.rows)
        everyone = jnp.arange(shard.capacity, dtype=jnp.int32) < shard.size
        total = private.clipped_sum(
            shard, everyone, private.of_a_row(problem, x), self.clip, lambda v: jnp.max(jnp.abs(v))
        )
        return total / shard.size.astype(total.dtype)

    def linearized(self, problem: Any, x: Array) -> NoReturn:
        raise private.PrivacyError(
            "takes values and gradients of several functions; PrivateChoices covers choices by "
            "one gradient, give batches=PrivateRows(...)"
        )

    def vertex(self, domain: Domain, g: Array) -> Any:
        """The vertex of a set with the least <g, u>, up to noise, where g has this batch's gradient
        in it with a weight of at most one."""
        private.tells(self.token)
        return domain.noisy_lmo(g, self._scale(domain.vertex_choices(), g), self.key)

    def entries(self, domain: Domain, y: Array, step: Array) -> Array:
        """The projection of y onto a set of sparse vectors, up to noise, where y has this batch's
        gradient in it with a weight of at most `step`."""
        private.tells(self.token)
        scale = step * self._scale(domain.entry_choices(y.shape[0]), y)
        return domain.noisy_project(y, scale.astype(y.dtype), self.key)

    def _scale(self, times: int, like: Array) -> Array:
        """b, for a step of one."""
        size = private.opened(self.rows).size.astype(like.dtype)
        scale = self.multiplier * self.clip * jnp.sqrt(jnp.asarray(times, float))
        return scale.astype(like.dtype) / size


def refuse_vertices(domain: Domain) -> None:
    """Refuse a set whose vertices cannot be drawn."""
    if not domain.vertex_choices():
        raise ValueError(
            f"PrivateChoices draws vertices of an L1Ball, a Simplex, a KSparsePolytope, or a "
            f"Product of these; got {domain}: give one of these, or "
            f"FedFWSto(batches=PrivateRows(...)), whose gradients have noise"
        )


def refuse_entries(domain: Domain, size: int) -> None:
    """Refuse a set onto which one does not project by choosing entries."""
    if not domain.entry_choices(size):
        raise ValueError(
            f"PrivateChoices draws the entries of an L0Ball without groups; got {domain}: give "
            f"such a set, or batches=PrivateRows(...), whose gradients have noise"
        )
