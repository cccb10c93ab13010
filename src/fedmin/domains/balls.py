"""Balls, boxes and the simplex: atoms in one pass over g, projections in a few over x.

    set             atom of least <g, u>                             as it travels
    L1Ball          -r sign(g_j) e_j,  j the largest |g_j|           an index and a value
    L2Ball          -r g / |g|                                       dense: nothing smaller exists
    LinfBall        -r sign(g)                                       a bit an entry
    Box             lower where g > 0, else upper                    a bit an entry
    Simplex         r e_j,  j the least g_j                          an index and a value

Sets whose size depends on d learn it from the problem: `over(problem, domain)` fits them.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.core import checks
from fedmin.core.domain import Domain
from fedmin.core.payload import Signs, Sparse
from fedmin.domains.largest import largest
from fedmin.domains.noisy import noisy_largest, noisy_signed


def length(parts: dict[str, tuple[int, ...]]) -> int:
    """d, the length of an x of these parts."""
    return sum(math.prod(shape) for shape in parts.values())


def onto_simplex(x: Array, radius: Any) -> Array:
    """The nearest vector of entries >= 0 that add up to `radius`."""
    # theta with sum max(x - theta, 0) = radius: halving finds which entries stay, and they find it
    # (a sort of a million entries takes twenty times as long)
    top = jnp.max(x)

    def halve(_, ends):
        middle = 0.5 * (ends[0] + ends[1])
        over = jnp.sum(jnp.maximum(x - middle, 0)) > radius
        return jnp.where(over, middle, ends[0]), jnp.where(over, ends[1], middle)

    low, _ = lax.fori_loop(0, 50, halve, (top - radius, top))
    stays = x > low
    count = jnp.maximum(jnp.sum(stays), 1).astype(x.dtype)
    theta = (jnp.sum(jnp.where(stays, x, 0)) - radius) / count
    return jnp.maximum(x - theta, 0)


def onto_l1_ball(x: Array, radius: Any) -> Array:
    """The nearest vector whose absolute values add up to at most `radius`."""
    near = jnp.sign(x) * onto_simplex(jnp.abs(x), radius)
    return jnp.where(jnp.sum(jnp.abs(x)) <= radius, x, near)


class Ball(Domain):
    """A ball of some norm around 0."""

    radius: eqx.AbstractVar[float]

    bounded = True
    convex = True
    symmetric = True

    def __check_init__(self):
        checks.positive("radius", self.radius)

    def norm(self, x: Array) -> Array:
        """The norm that is at most `radius`."""
        raise TypeError(f"{type(self).__name__} has no norm")

    def contains(self, x, tolerance=1e-6):
        return self.norm(x) <= self.radius * (1 + tolerance)

    @property
    def diameter(self):
        return 2 * self.radius


class L1Ball(Ball):
    """|x|_1 <= radius: few entries are not 0.

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.L1Ball(2.0).lmo(jnp.array([1.0, -3.0])).dense()
    Array([0., 2.], dtype=float32)
    """

    radius: float

    def norm(self, x):
        return jnp.sum(jnp.abs(x))

    def lmo(self, g, near=None):
        j = _largest(jnp.abs(g))
        value = jnp.where(g[j] > 0, -self.radius, self.radius).astype(g.dtype)
        return Sparse(j[None], value[None], g.shape[0])

    def noisy_lmo(self, g, scale, key):
        j, sign = noisy_signed(g, 1, scale, key)
        return Sparse(j, self.radius * sign, g.shape[0])

    def vertex_choices(self):
        return 1

    def away(self, x, g):
        # x is a mean of the corners on its side and, inside of the ball, of 0
        corner, weight = _given_up(x, jnp.sign(x) * g, self.radius)
        slack = 1 - self.norm(x) / self.radius
        inside = (slack > 1e-6) & (corner.inner(g) <= 0)
        center = Sparse(corner.indices, jnp.zeros_like(corner.values), corner.size)
        return jax.tree.map(partial(jnp.where, inside), (center, slack), (corner, weight))

    def project(self, x):
        return onto_l1_ball(x, self.radius)


class L2Ball(Ball):
    """|x|_2 <= radius.

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.L2Ball(5.0).project(jnp.array([6.0, 8.0]))
    Array([3., 4.], dtype=float32)
    """

    radius: float

    def norm(self, x):
        return jnp.linalg.norm(x)

    def lmo(self, g, near=None):
        size = jnp.linalg.norm(g)
        return g * (-self.radius / jnp.where(size > 0, size, 1.0))

    def project(self, x):
        return x * jnp.minimum(1.0, self.radius / jnp.maximum(jnp.linalg.norm(x), self.radius))


class LinfBall(Ball):
    """|x_j| <= radius for every j.

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.LinfBall(2.0).lmo(jnp.array([1.0, -3.0])).dense()
    Array([-2.,  2.], dtype=float32)
    """

    radius: float
    size: int | None = eqx.field(default=None, static=True, repr=False)  # d, of the problem

    def fitted(self, parts):
        return replace(self, size=length(parts))

    def norm(self, x):
        return jnp.max(jnp.abs(x))

    def lmo(self, g, near=None):
        return _corner(g, -self.radius, self.radius)

    def project(self, x):
        return jnp.clip(x, -self.radius, self.radius)

    @property
    def diameter(self):
        return 2 * self.radius * math.sqrt(_known(self))


def _bound(given: Any) -> Any:
    """A list of numbers, as a file has it, becomes an array."""
    return jnp.asarray(given, float) if isinstance(given, list | tuple) else given


class Box(Domain):
    """lower <= x_j <= upper: two numbers, or a number each for every entry of x.

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.Box(0.0, 1.0).project(jnp.array([-2.0, 0.5]))
    Array([0. , 0.5], dtype=float32)
    >>> fedmin.Box(jnp.zeros(2), jnp.array([1.0, 3.0])).lmo(jnp.array([1.0, -1.0]))
    Array([0., 3.], dtype=float32)
    """

    lower: float | Array = eqx.field(converter=_bound)
    upper: float | Array = eqx.field(converter=_bound)
    size: int | None = eqx.field(default=None, static=True, repr=False)  # d, of the problem

    bounded = True
    convex = True

    def __check_init__(self):
        checks.between("lower", self.lower, -math.inf)
        checks.between("upper", self.upper, -math.inf)
        low, high = (jnp.asarray(bound, float) for bound in (self.lower, self.upper))
        if low.ndim > 1 or high.ndim > 1:
            raise ValueError("lower and upper must be numbers or vectors as long as x")
        if not bool(jnp.all(low < high)):
            raise ValueError(f"lower must be below upper, got {self.lower} and {self.upper}")

    def fitted(self, parts):
        d = length(parts)
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if jnp.ndim(bound) and jnp.shape(bound) != (d,):
                raise ValueError(f"{name} must have {d} numbers, as x has, got {jnp.shape(bound)}")
        return replace(self, size=d)

    def contains(self, x, tolerance=1e-6):
        slack = tolerance * (self.upper - self.lower)
        return jnp.all((x >= self.lower - slack) & (x <= self.upper + slack))

    def lmo(self, g, near=None):
        if self._each:
            return jnp.where(g > 0, self.lower, self.upper).astype(g.dtype)
        return _corner(g, self.lower, self.upper)

    def packed(self, u):
        # whether upper, a bit an entry; both ends know lower and upper
        return _corner(0.5 * (self.lower + self.upper) - u, 0.0, 1.0) if self._each else u

    def unpacked(self, z, weight):
        return weight * self.lower + (self.upper - self.lower) * z if self._each else z

    @property
    def _each(self) -> bool:
        return jnp.ndim(self.lower) + jnp.ndim(self.upper) > 0

    def project(self, x):
        return jnp.clip(x, self.lower, self.upper)

    @property
    def diameter(self):
        return jnp.linalg.norm(jnp.ones(_known(self)) * (self.upper - self.lower))


class Simplex(Domain):
    """x_j >= 0 and sum x_j = radius.

    >>> import jax.numpy as jnp, fedmin
    >>> fedmin.Simplex().project(jnp.array([0.5, 1.5]))
    Array([0., 1.], dtype=float32)
    """

    radius: float = 1.0

    bounded = True
    convex = True

    def __check_init__(self):
        checks.positive("radius", self.radius)

    def contains(self, x, tolerance=1e-6):
        slack = tolerance * self.radius
        return (jnp.min(x) >= -slack) & (jnp.abs(jnp.sum(x) - self.radius) <= slack)

    def lmo(self, g, near=None):
        j = _largest(-g)
        return Sparse(j[None], jnp.asarray(self.radius, g.dtype)[None], g.shape[0])

    def noisy_lmo(self, g, scale, key):
        j = noisy_largest(-g, 1, scale, key)
        return Sparse(j, jnp.asarray(self.radius, g.dtype)[None], g.shape[0])

    def vertex_choices(self):
        return 1

    def away(self, x, g):
        return _given_up(x, g, self.radius)

    def project(self, x):
        return onto_simplex(x, self.radius)

    @property
    def diameter(self):
        return math.sqrt(2.0) * self.radius


def _largest(values: Array) -> Array:
    """Where the largest is; of a million it takes a tenth of argmax's time."""
    return largest(values, 1)[0].astype(jnp.int32)


def _given_up(x: Array, worth: Array, radius: Any) -> tuple[Sparse, Array]:
    """The entry of x that is not 0 and worth the most, and its share of the radius."""
    j = _largest(jnp.where(x != 0, worth, -jnp.inf))
    return Sparse(j[None], x[j][None], x.shape[0]), jnp.abs(x[j]) / radius


def _corner(g: Array, *ends: Any) -> Signs:
    """The corner of least <g, u> between these two ends."""
    low, high = (jnp.asarray(end, g.dtype) for end in ends)
    return Signs(jnp.packbits(g <= 0), low, high, g.shape[0])


def _known(domain: Any) -> int:
    if domain.size is None:
        raise ValueError(f"the diameter of {domain} depends on d; over(problem, domain) fits it")
    return domain.size
