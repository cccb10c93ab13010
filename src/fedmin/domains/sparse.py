"""Vectors with few non-zeros: the l0 ball, whose projection is hard thresholding.

    H_tau(x)    the tau entries of largest magnitude, the rest 0; of equal ones the first by index
    each="all"  tau entries of all that is in the budget;  "row": tau in every row (softmax: class)
    groups      tau groups of entries, those of largest norm;  an entry's group is a number
    free        parts that are left out of the budget by name: biases, masks

The set is not convex. A point of it travels as its indices and values, always as many.
"""

import math
from dataclasses import replace
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedmin.core import checks
from fedmin.core.domain import Domain, Truncation
from fedmin.core.payload import Sparse
from fedmin.domains.largest import among_largest, largest
from fedmin.domains.noisy import gumbel

BEFORE = 1e15  # larger than any slope, and its square is still a number
MANY = 8  # measured: from one wanted entry in 8 on, halving is faster than sorting


def names(given: Any) -> tuple[str, ...]:
    """One name, or several."""
    return (given,) if isinstance(given, str) else tuple(given)


class L0Ball(Truncation):
    """At most `tau` non-zeros: in all, in every row, or `tau` groups of entries.

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.L0Ball(2).project(jnp.array([1.0, -3.0, 2.0]))
    Array([ 0., -3.,  2.], dtype=float32)
    >>> per_class = fedmin.L0Ball(1, each="row", free=("bias",))
    >>> problem = fedmin.over(fedmin.Softmax(2, 2, bias=True), per_class)
    >>> problem.domain.project(jnp.array([1.0, 2.0, 4.0, 3.0, 5.0, 6.0]))
    Array([0., 2., 4., 0., 5., 6.], dtype=float32)
    """

    tau: int = eqx.field(static=True)
    each: Literal["all", "row"] = eqx.field(default="all", static=True)
    free: tuple[str, ...] = eqx.field(default=(), static=True, converter=names)
    groups: np.ndarray | Array | None = None  # i[entries in the budget], 0 .. number of groups - 1
    parts: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(default=(), static=True)
    reach: tuple[int, int] | None = eqx.field(default=None, static=True)  # see `_reach`

    def __check_init__(self):
        checks.at_least("tau", self.tau, 1)
        checks.known("each", self.each, ("all", "row"))
        if self.groups is not None and self.each == "row":
            raise ValueError('give groups or each="row", not both')
        if self.groups is not None and self.reach is None:
            _reach(self.groups, self.tau)

    def fitted(self, parts):
        for name in self.free:
            checks.known("part", name, parts)
        budget = [shape for name, shape in parts.items() if name not in self.free]
        entries = sum(map(math.prod, budget))
        most, what, reach = entries, "entries that the budget is for", None
        if self.groups is not None:
            reach = _reach(self.groups, self.tau)
            most, what = reach[0], "groups that there are"
            if len(self.groups) != entries:
                raise ValueError(
                    f"groups must have a number for each of the {entries} entries in the budget, "
                    f"got {len(self.groups)}"
                )
        elif self.each == "row":
            most, what = min((_rows(shape)[1] for shape in budget), default=0), "entries of a row"
        if self.tau > most:
            raise ValueError(f"tau must be at most {most}, the {what}, got {self.tau}")
        return replace(self, parts=tuple(parts.items()), reach=reach)

    @property
    def keeps_entries(self):
        return self.groups is None  # groups may differ in size

    @property
    def keeps_support(self):
        return True

    def compact(self, x):
        """The entries that the projection keeps; always as many, some may be 0."""
        i, kept = self.support(x)
        return Sparse(i, jnp.where(kept, x[i], 0), x.shape[0])

    def support(self, x):
        spans = self._spans(x.shape[0])
        if self.groups is not None:
            marked, count = self._marked(x, spans)
            i = largest(marked, count)
            kept = marked[i] >= 0  # fewer entries than that may be in the groups
        else:
            i = jnp.concatenate(self._found(jnp.abs(x), spans))
            kept = jnp.ones(i.shape, bool)
        free = [a + jnp.arange(math.prod(s), dtype=jnp.int32) for a, s, out in spans if out]
        i = jnp.concatenate([i, *free])
        return i, jnp.concatenate([kept, jnp.ones(i.shape[0] - kept.shape[0], bool)])

    def project(self, x):
        spans = self._spans(x.shape[0])
        inside = [shape for _, shape, out in spans if not out]
        of = min(_rows(s)[1] for s in inside) if self.each == "row" else sum(map(math.prod, inside))
        if self.groups is not None or MANY * self.tau < of:
            return super().project(x)
        if self.each == "all":
            kept = among_largest(self._budget(jnp.abs(x), spans), self.tau)
            parts = [kept[a : a + math.prod(s)] | out for a, s, out in spans]
        else:
            parts = [self._rows_kept(x, *span) for span in spans]
        return jnp.where(jnp.concatenate(parts), x, 0)

    def noisy_project(self, x, scale, key):
        chosen, noise = jax.random.split(key)
        scores = jnp.abs(x) + gumbel(chosen, x, scale)
        spans = self._spans(x.shape[0])
        found = self._found(scores - jnp.min(scores), spans)  # what is left out stays below 0
        free = [a + jnp.arange(math.prod(s), dtype=jnp.int32) for a, s, out in spans if out]
        i = jnp.concatenate([*found, *free])
        told = x[i] + scale * jax.random.normal(noise, i.shape, x.dtype)
        return jnp.zeros_like(x).at[i].set(told)

    def entry_choices(self, size):
        if self.groups is not None:
            return 0
        spans = self._spans(size)
        inside = [_rows(shape)[0] for _, shape, out in spans if not out]
        kept = self.tau * (sum(inside) if self.each == "row" else 1)
        return 2 * kept + sum(math.prod(shape) for _, shape, out in spans if out)

    def residual(self, x, g):
        """|g| over the entries that x may move in without losing one of its non-zeros."""
        return jnp.linalg.norm(jnp.where(self._open(x, g), g, 0))

    def settled(self, x, g):
        """By the smallest non-zero of x and the largest slope elsewhere in the budget; inf if there
        is none. Where it is above 1/L, L the curvature, x is stationary in the sense of Beck and
        Eldar: hard thresholding would not leave it."""
        inside = [jnp.full(math.prod(s), not out) for _, s, out in self._spans(x.shape[0])]
        budget = jnp.concatenate(inside)
        least = jnp.min(jnp.where(budget & (x != 0), jnp.abs(x), jnp.inf))
        most = jnp.max(jnp.where(budget & ~self._open(x, g), jnp.abs(g), 0))
        return jnp.where(most > 0, least / jnp.where(most > 0, most, 1), jnp.inf)

    def _open(self, x: Array, g: Array) -> Array:
        """The non-zeros of x; and where the budget has room, the entries of largest slope."""
        return self.project(jnp.where(x != 0, BEFORE, jnp.abs(g))) != 0

    def _rows_kept(self, x: Array, start: int, shape: tuple[int, ...], out: bool) -> Array:
        if out:
            return jnp.ones(math.prod(shape), bool)
        part = jnp.abs(x[start : start + math.prod(shape)]).reshape(_rows(shape))
        return jax.vmap(lambda row: among_largest(row, self.tau))(part).ravel()

    def _budget(self, magnitudes: Array, spans: list) -> Array:
        """The magnitudes, -1 for what is left out of the budget."""
        for a, shape, out in spans:
            if out:
                magnitudes = magnitudes.at[a : a + math.prod(shape)].set(-1)
        return magnitudes

    def _found(self, magnitudes: Array, spans: list) -> list[Array]:
        """Where the largest entries in the budget are."""
        if self.each == "row":
            return [self._by_row(magnitudes, a, shape) for a, shape, out in spans if not out]
        return [largest(self._budget(magnitudes, spans), self.tau)]

    def _by_row(self, magnitudes: Array, start: int, shape: tuple[int, ...]) -> Array:
        rows, width = _rows(shape)
        part = lax.dynamic_slice(magnitudes, (start,), (rows * width,)).reshape(rows, width)
        first = start + width * jnp.arange(rows, dtype=jnp.int32)
        return (first[:, None] + jax.vmap(lambda row: largest(row, self.tau))(part)).ravel()

    def _marked(self, x: Array, spans: list) -> tuple[Array, int]:
        """Magnitudes in the tau groups of largest norm, -1 elsewhere; and how many there may be."""
        number, count = self.reach or _reach(self.groups, self.tau)
        cuts = [(a, a + math.prod(shape)) for a, shape, out in spans if not out]
        groups, inside = jnp.asarray(self.groups), jnp.concatenate([x[a:b] for a, b in cuts])
        sizes = jnp.zeros(number, x.dtype).at[groups].add(inside**2)
        chosen = jnp.zeros(number, bool).at[largest(sizes, self.tau)].set(True)
        marks, marked = jnp.where(chosen[groups], jnp.abs(inside), -1), jnp.full_like(x, -1)
        done = 0
        for a, b in cuts:
            marked = marked.at[a:b].set(marks[done : done + b - a])
            done += b - a
        return marked, count

    def _spans(self, size: int) -> list[tuple[int, tuple[int, ...], bool]]:
        """Where each part begins, its shape, and whether it is left out of the budget."""
        parts = self.parts or (("x", (size,)),)
        sizes = [math.prod(shape) for _, shape in parts]
        if sum(sizes) != size:
            raise ValueError(f"{self} is for x of {sum(sizes)} entries, got {size}")
        starts = np.cumsum([0, *sizes]).tolist()
        return [
            (a, shape, name in self.free)
            for a, (name, shape) in zip(starts[:-1], parts, strict=True)
        ]


class Entries(Domain):
    """Vectors that are 0 outside the entries with these indices: a support that was found.

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.Entries([0, 2]).project(jnp.array([1.0, 2.0, 3.0]))
    Array([1., 0., 3.], dtype=float32)
    """

    indices: np.ndarray = eqx.field(converter=lambda a: np.unique(np.asarray(a)).astype(np.int32))

    bounded = False
    convex = True
    keeps_entries = True

    def __check_init__(self):
        if not self.indices.size or self.indices[0] < 0:
            raise ValueError(f"indices must name at least one entry, got {self.indices.tolist()}")

    def fitted(self, parts):
        size = sum(map(math.prod, parts.values()))
        if self.indices[-1] >= size:
            raise ValueError(f"x has {size} entries; there is none {self.indices[-1]}")
        return self

    def contains(self, x, tolerance=1e-6):
        return jnp.all(jnp.abs(x - self.project(x)) <= tolerance)

    def project(self, x):
        return self.compact(x).dense()

    def projected(self, x):
        return self.compact(x)

    def compact(self, x):
        i = jnp.asarray(self.indices)
        return Sparse(i, x[i], x.shape[0])


def _rows(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and their width; a vector is one row."""
    return (1, shape[0]) if len(shape) == 1 else (shape[0], math.prod(shape[1:]))


def _reach(groups: Any, tau: int) -> tuple[int, int]:
    """How many groups there are, and how many entries any tau of them have at most."""
    numbers = np.asarray(groups)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not len(numbers):
        raise TypeError(f"groups must be whole numbers, one an entry, got {groups!r}")
    found, sizes = np.unique(numbers, return_counts=True)
    if found[0] != 0 or found[-1] != len(found) - 1:
        raise ValueError(f"groups must be numbered 0..{len(found) - 1} without gaps")
    if tau > len(found):
        raise ValueError(f"tau must be at most {len(found)}, the groups that there are, got {tau}")
    return len(found), int(np.sort(sizes)[-tau:].sum())
