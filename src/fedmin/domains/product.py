"""A set for each tensor of x: the product of sets over a problem's named parts."""

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.core import checks
from fedmin.core.domain import Domain
from fedmin.core.payload import Concatenated


class Product(Domain):
    """A set each for the tensors of x, by name; or one set, the same for every tensor.

    An atom of the product is an atom of each. `over(problem, domain)` looks up the names.

    >>> import fedmin
    >>> sets = fedmin.Product({"weights": fedmin.L1Ball(10.0), "bias": fedmin.Box(-1.0, 1.0)})
    >>> fedmin.over(fedmin.Softmax(4, 3, bias=True), sets).domain.lengths
    (12, 3)
    """

    # by name, or one for all; a tuple once fitted
    sets: Mapping[str, Domain] | Domain | tuple[Domain, ...]
    lengths: tuple[int, ...] | None = eqx.field(default=None, static=True)  # of the tensors

    def __check_init__(self):
        for one in self._each():
            checks.is_a("sets", one, Domain, '{"weights": L1Ball(10.0)}')

    def _each(self) -> tuple[Domain, ...]:
        if isinstance(self.sets, Mapping):
            return tuple(self.sets.values())
        return self.sets if isinstance(self.sets, tuple) else (self.sets,)

    def fitted(self, parts):
        if isinstance(self.sets, Mapping):
            for name in self.sets:
                checks.known("part", name, parts)
            missing = [name for name in parts if name not in self.sets]
            if missing:
                raise ValueError(f"Product has no set for {missing[0]!r}; give one for each part")
            sets: dict[str, Any] = dict(self.sets)
        else:
            sets = dict.fromkeys(parts, self.sets)
        fitted = tuple(sets[name].fitted({name: shape}) for name, shape in parts.items())
        return Product(fitted, tuple(math.prod(shape) for shape in parts.values()))

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        return all(one.bounded for one in self._each())

    @property
    def convex(self) -> bool:  # type: ignore[override]
        return all(one.convex for one in self._each())

    @property
    def can_project(self):
        return all(one.can_project for one in self._each())

    @property
    def can_prox(self):
        return all(one.can_prox for one in self._each())

    @property
    def has_atoms(self):
        return all(one.has_atoms for one in self._each())

    @property
    def searches(self) -> bool:  # type: ignore[override]
        return any(one.searches for one in self._each())

    def cut(self, x: Array) -> list[tuple[Domain, Array]]:
        """Each set with its part of x."""
        if self.lengths is None:
            raise ValueError("Product does not know the parts yet; over(problem, domain) tells it")
        ends = [sum(self.lengths[: i + 1]) for i in range(len(self.lengths))]
        return list(zip(self._each(), jnp.split(x, ends[:-1]), strict=True))

    def contains(self, x, tolerance=1e-6):
        return jnp.all(jnp.stack([one.contains(part, tolerance) for one, part in self.cut(x)]))

    def project(self, x):
        return jnp.concatenate([one.project(part) for one, part in self.cut(x)])

    def value(self, x):
        return jnp.sum(jnp.stack([one.value(part) for one, part in self.cut(x)]))

    def prox(self, x, t):
        return jnp.concatenate([one.prox(part, t) for one, part in self.cut(x)])

    def lmo(self, g, near=None):
        old = [None] * len(self.lengths or ()) if near is None else near.parts
        return Concatenated(tuple(
            one.lmo(part, last) if one.searches else one.lmo(part)
            for (one, part), last in zip(self.cut(g), old, strict=True)
        ))  # fmt: skip

    def noisy_lmo(self, g, scale, key):
        each = self.cut(g)
        keys = jax.random.split(key, len(each))
        return Concatenated(tuple(
            one.noisy_lmo(part, scale, own) for (one, part), own in zip(each, keys, strict=True)
        ))  # fmt: skip

    def vertex_choices(self):
        each = [one.vertex_choices() for one in self._each()]
        return sum(each) if all(each) else 0

    def gap(self, x, g):
        each = zip(self.cut(x), self.cut(g), strict=True)
        return jnp.sum(jnp.stack([one.gap(part, slope) for (one, part), (_, slope) in each]))

    def packed(self, u):
        each = zip(self._each(), u.parts, strict=True)
        return Concatenated(tuple(one.packed(part) for one, part in each))

    def unpacked(self, z, weight):
        return jnp.concatenate([one.unpacked(part, weight) for one, part in self.cut(z)])

    @property
    def diameter(self):
        return jnp.sqrt(sum(one.diameter**2 for one in self._each()))
