"""The sets a solution may be confined to.

A domain answers `contains(x)` and, where it can, `project(x)`. Later domains (balls, simplices,
low-rank and l0 sets, products) add `lmo(g)`, the atom minimising <g, u> over the set, and
`gap(x, g)`, how much a linear step over the set could still gain. One class each, one line in
`DOMAINS`.
"""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jax import Array


class Domain(eqx.Module):
    """A closed set of flat vectors.

    >>> import fedmin
    >>> isinstance(fedmin.Free(), fedmin.Domain), fedmin.Free().bounded
    (True, False)
    """

    bounded: eqx.AbstractClassVar[bool]

    @abstractmethod
    def contains(self, x: Array, tolerance: float = 1e-6) -> Array:
        """Whether x lies in the set, up to a tolerance."""

    @abstractmethod
    def project(self, x: Array) -> Array:
        """The nearest point of the set."""


class Free(Domain):
    """All of space: no restriction.

    >>> import jax.numpy as jnp, fedmin
    >>> bool(fedmin.Free().contains(jnp.ones(3)))
    True
    """

    bounded = False

    def contains(self, x, tolerance=1e-6):
        return jnp.all(jnp.isfinite(x))

    def project(self, x):
        return x


DOMAINS = {"free": Free}
