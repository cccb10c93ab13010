"""Where a solution may lie: a closed set of flat vectors; or what is added to an objective.

A set answers `contains` and `diameter`, and what it can of
    project(x)   the nearest point of the set
    lmo(g)       an atom, the point u of the set with the least <g, u>, in a compact form
    packed(u)    an atom as it travels, and unpacked(z, w) its way back
    compact(x)   a point of the set as it travels: what can be left out is
    away(x, g)   of the atoms that x is made of, the one that g would give up first
    prox(x, t)   argmin over u of |u - x|^2/2 + t value(u): of a set, its projection
The sets are in `domains/`, one family a file. A penalty is a domain that is all of space and adds
its `value` to the objective; it has a `prox` and no projection.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from fedmin.core.payload import Payload, Sparse


class Domain(eqx.Module):
    """A closed set of flat vectors.

    >>> import fedmin
    >>> isinstance(fedmin.Free(), fedmin.Domain), fedmin.Free().bounded
    (True, False)
    """

    bounded: eqx.AbstractClassVar[bool]
    convex: eqx.AbstractClassVar[bool]
    symmetric: ClassVar[bool] = False  # whether -u is in it for every u that is
    pairs: ClassVar[bool] = False  # whether its atoms are pairs of directions of a matrix
    searches: ClassVar[bool] = False  # whether lmo(g, near) begins its search at an atom `near`

    def fitted(self, parts: dict[str, tuple[int, ...]]) -> "Domain":
        """This set for an x of these parts; refuses parts that it does not fit."""
        return self

    def contains(self, x: Array, tolerance: float = 1e-6) -> Array:
        """Whether x lies in the set, up to a tolerance."""
        raise TypeError(f"{type(self).__name__} cannot tell whether a point lies in it")

    def project(self, x: Array) -> Array:
        """The nearest point of the set."""
        raise TypeError(f"{type(self).__name__} has no projection")

    def value(self, x: Array) -> Array:
        """What is added to the objective: 0 in a set, more than that by a penalty."""
        return jnp.zeros((), x.dtype)

    def prox(self, x: Array, t: Array | float) -> Array:
        """The u with the least |u - x|^2/2 + t value(u); in a set that is its projection."""
        return self.project(x)

    def lmo(self, g: Array, near: Any = None) -> Array | Payload:
        """The atom u of the set with the least <g, u>; `near` only where the set searches."""
        raise TypeError(f"{type(self).__name__} has no linear minimizer")

    def noisy_lmo(self, g: Array, scale: Any, key: Array) -> Any:
        """A vertex drawn by chance, those with small <g, u> rather: core/choices.py says how."""
        raise TypeError(f"{type(self).__name__} has no vertices that can be drawn")

    def vertex_choices(self) -> int:
        """How many choices make a vertex of `noisy_lmo`; 0 where there is none."""
        return 0

    def noisy_project(self, x: Array, scale: Any, key: Array) -> Array:
        """The projection with entries chosen by noisy maxima, and noise on their values."""
        raise TypeError(f"{type(self).__name__} does not project by choosing entries")

    def entry_choices(self, size: int) -> int:
        """How many choices and numbers `noisy_project` tells of an x of this size; 0 where there
        is none."""
        return 0

    def packed(self, u: Any) -> Any:
        """An atom as it travels, a form of some vector z: both ends know the set."""
        return u

    def unpacked(self, z: Array, weight: Array | float) -> Array:
        """The weighted sum of atoms, from that of their z and the sum of their weights."""
        return z

    def away(self, x: Array, g: Array) -> tuple[Sparse, Array]:
        """Of the atoms v that x is a mean of, the one with the largest <g, v>: the part of x that
        is made of it, and its weight in the mean."""
        raise TypeError(f"{type(self).__name__} cannot tell which atoms a point is made of")

    @property
    def diameter(self) -> Any:
        """The largest distance of two of its points."""
        return jnp.inf

    def compact(self, x: Array) -> Array | Payload:
        """A point of the set, as it travels."""
        return x

    def projected(self, x: Array) -> Array | Payload:
        """The nearest point of the set, as it travels."""
        return self.compact(self.project(x))

    def gap(self, x: Array, g: Array) -> Array:
        """The most that <g, x - u> can be over the set: for a convex F with gradient g at x, no
        less than F(x) - min F."""
        u = self.lmo(g)
        return g @ x - (u.inner(g) if isinstance(u, Payload) else g @ u)

    def residual(self, x: Array, g: Array) -> Array:
        """How far x is from a stationary point of a function with gradient g there: |x - P(x - g)|,
        0 at one only if the set is convex; |g| where the set is all of space, or has no projection.
        """
        return jnp.linalg.norm(x - self.project(x - g) if self.can_project else g)

    def settled(self, x: Array, g: Array) -> Array | None:
        """The longest step eta for which P(x - eta g) has the non-zeros of x, where a set is about
        those."""
        return None

    @property
    def can_project(self) -> bool:
        """Whether it has a projection."""
        return type(self).project is not Domain.project

    @property
    def can_prox(self) -> bool:
        """Whether it has a proximal map."""
        return self.can_project or type(self).prox is not Domain.prox

    @property
    def keeps_entries(self) -> bool:
        """Whether its projection keeps some entries, always as many, and makes the others 0."""
        return False

    @property
    def keeps_support(self) -> bool:
        """Whether its projection keeps entries, at most so many, and makes the others 0."""
        return self.keeps_entries

    def support(self, x: Array) -> tuple[Array, Array]:
        """The entries that the projection keeps, as indices, always as many, and a bool each:
        whether this one is kept."""
        indices = self.compact(x).indices  # type: ignore[union-attr]
        return indices, jnp.ones(indices.shape, bool)

    @property
    def has_atoms(self) -> bool:
        """Whether it has a linear minimizer."""
        return type(self).lmo is not Domain.lmo

    @property
    def knows_atoms(self) -> bool:
        """Whether it can tell which atoms a point is made of."""
        return type(self).away is not Domain.away


class Truncation(Domain):
    """A set onto which one projects by leaving out: what is left is the compact form itself."""

    bounded = False
    convex = False

    def project(self, x):
        return self.projected(x).dense()  # type: ignore[union-attr]

    def projected(self, x):
        return self.compact(x)

    def contains(self, x, tolerance=1e-6):
        return jnp.all(jnp.abs(x - self.project(x)) <= tolerance)


class Free(Domain):
    """All of space: no restriction.

    >>> import jax.numpy as jnp, fedmin
    >>> bool(fedmin.Free().contains(jnp.ones(3)))
    True
    """

    bounded = False
    convex = True

    def contains(self, x, tolerance=1e-6):
        return jnp.all(jnp.isfinite(x))

    def project(self, x):
        return x

    def residual(self, x, g):
        return jnp.linalg.norm(g)
