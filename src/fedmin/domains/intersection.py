"""What several convex sets have in common, onto which one projects by Dykstra's algorithm.

    x <- z;  y_i <- 0;   over and over, for i = 1..m:
        p_i <- P_i(x + y_i);   y_i <- x + y_i - p_i;   x <- p_i

After each p_i, y_i is a normal vector of set i at p_i, and x = z - sum y_i. So x is the exact
projection of z onto what the sets have in common when each is moved by x - p_i, and with all p_i
= x it is what is wanted: the sweeps end when no p_i is farther from x than rounding. How far x
moves says nothing: it may stand still for many sweeps long before the end [birgin2005robust].
"""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from fedmin.core import checks
from fedmin.core.domain import Domain
from fedmin.domains.balls import length

SWEEPS = 20_000  # at most; where two sets touch under a flat angle they may not suffice


class Intersection(Domain):
    """The points that lie in all of several convex sets, each with a projection.

    `Intersection(one, other)`, or `Intersection(sets=[...])` as in a file. Sets without a common
    point are refused by `over(problem, domain)`.

    >>> import jax.numpy as jnp, fedmin
    >>> both = fedmin.Intersection(fedmin.L1Ball(2.0), fedmin.Box(0.0, 1.5))
    >>> both.project(jnp.array([3.0, 1.0, -1.0])).round(4)
    Array([1.5, 0.5, 0. ], dtype=float32)
    """

    sets: tuple[Domain, ...]

    convex = True

    def __init__(self, *several: Domain, sets: Any = ()):
        self.sets = (*several, *sets)

    def __check_init__(self):
        checks.at_least("sets", len(self.sets), 2)
        for one in self.sets:
            checks.is_a("sets", one, Domain, "L1Ball(10.0), Box(0.0, 1.0)")
            if not (one.convex and one.can_project):
                lacks = "has no projection" if one.convex else "is not convex"
                raise ValueError(f"Intersection is of convex sets with projections; {one} {lacks}")

    def fitted(self, parts):
        found = Intersection(*(one.fitted(parts) for one in self.sets))
        near = found.project(jnp.zeros(length(parts)))
        if not bool(found.contains(near, 1e-4)):
            raise ValueError(
                f"{' and '.join(map(str, self.sets))} have no common point, or none that was found "
                f"in {SWEEPS:,} sweeps"
            )
        return found

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        return any(one.bounded for one in self.sets)

    def contains(self, x, tolerance=1e-6):
        return jnp.all(jnp.stack([one.contains(x, tolerance) for one in self.sets]))

    def project(self, x):
        enough = 8 * jnp.finfo(x.dtype).eps * (1 + jnp.max(jnp.abs(x)))

        def sweep(carry):
            at, normals, _, i = carry
            points, kept = [], []
            for one, y in zip(self.sets, normals, strict=True):
                points.append(one.project(at + y))
                kept.append(at + y - points[-1])
                at = points[-1]
            apart = jnp.max(jnp.stack([jnp.max(jnp.abs(point - at)) for point in points]))
            return at, tuple(kept), apart, i + 1

        def going(carry):
            return (carry[2] > enough) & (carry[3] < SWEEPS)

        zeros = tuple(jnp.zeros_like(x) for _ in self.sets)
        far: Array = jnp.full((), jnp.inf, x.dtype)
        return lax.while_loop(going, sweep, (x, zeros, far, jnp.int32(0)))[0]

    @property
    def diameter(self):
        """No two of its points are farther apart: the least of the sets' diameters."""
        return jnp.min(jnp.stack([jnp.asarray(one.diameter, float) for one in self.sets]))
