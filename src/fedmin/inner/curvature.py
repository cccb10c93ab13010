"""The forms in which a server keeps the curvature, from pairs (s, y) to a direction H g.

    DenseInverse    H by BFGS, one d x d matrix; a step reads it twice and writes it once
    DenseSolve      B by BFGS and a Cholesky solve, d^3/3 operations a step: for small d
    DFP             H by DFP
    LBFGS           the last m pairs, 2 m d numbers

A form is a value; what it remembers is its `first`, and `advance` takes in one pair. No direction
leaves it that is not finite, not downhill or longer than |g| times a limit: the form then begins
anew at scale I. The limit matters: bounds on single pairs do not bound H, which may grow by a
factor with every pair that it takes in.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import cho_factor, cho_solve

from fedmin import checks
from fedmin.inner import bfgs, lbfgs
from fedmin.inner.bfgs import Change, Pair

SMALL = 2048  # up to here a matrix is cheap: 16 MB in float32
MOST = 16384  # a matrix of 1 GB in float32; above it d x d is refused


class Step(NamedTuple):
    """What a form makes of a pair and a gradient."""

    state: Any
    p: Array  # H g
    anew: Array  # bool, p was no direction and the form began anew: p = scale g


class Start(NamedTuple):
    """Where a form begins anew, and when."""

    scale: Array | float  # H = scale I
    clear: Array  # bool: now
    most: Array | float = jnp.inf  # |H g| is at most so much times |g|


class Curvature(eqx.Module):
    """A form of the curvature.

    >>> import jax.numpy as jnp
    >>> from fedmin.inner.bfgs import mend
    >>> form, g, s = LBFGS(memory=5), jnp.array([2.0, 1.0]), jnp.array([1.0, 0.0])
    >>> state = form.first(g, scale=1.0)
    >>> pair = mend("skip", s, 4 * s, s, 1e-4, 1e4)
    >>> form.advance(state, pair, g, Start(1.0, jnp.array(False))).p.tolist()
    [0.5, 1.0]
    """

    dense: ClassVar[bool] = True  # whether it keeps a d x d matrix

    @abstractmethod
    def first(self, x: Array, scale: Array | float) -> Any:
        """What is remembered before any pair: H = scale I."""

    @abstractmethod
    def advance(
        self, state: Any, pair: Pair, g: Array, start: "Start", scaled: bool = False
    ) -> Step:
        """Take in a pair, or begin anew; then H g. `scaled`: H begins at the first pair's scale."""

    def check(self, size: int) -> None:
        """Refuse a matrix that is too large, before there is any."""
        if self.dense and size > MOST:
            raise ValueError(
                f"{type(self).__name__} keeps a matrix of d x d numbers and d is {size}, more than "
                f"{MOST}; use LBFGS(memory=10), which keeps 20 vectors"
            )


class Matrix(NamedTuple):
    """A matrix, and whether it still is a multiple of I."""

    M: Array
    fresh: Array  # bool


class DenseInverse(Curvature):
    """H = B^-1 by BFGS; for d up to a few thousand.

    >>> DenseInverse()
    DenseInverse()
    """

    change: ClassVar[Callable[..., Change]] = staticmethod(bfgs.inverse)

    def first(self, x, scale):
        return Matrix(_identity(x, scale), jnp.array(True))

    def advance(self, state, pair, g, start, scaled=False):
        H, used = state.M, pair.used & ~start.clear
        r = _rescaled(state, pair, scaled, pair.cur / jnp.dot(pair.y, pair.y))
        # both in one pass over H; left to itself the compiler makes a slow loop of the two steps
        both = lax.optimization_barrier(jnp.stack([pair.y, g], 1))
        Hy, Hg = lax.optimization_barrier(H @ both).T
        change = type(self).change(pair, r * Hy, r).only(used)
        p, anew = downhill(change.product(Hg, g), g, start)
        again = start.clear | anew
        new = change.only(~again, r=0.0).matrix(H)
        new = _diagonal(new, again, start.scale)
        return Step(Matrix(new, again | (state.fresh & ~used)), p, anew)


class DFP(DenseInverse):
    """H by Davidon, Fletcher and Powell, BFGS's dual: what the authors' program has.

    >>> DFP()
    DFP()
    """

    change: ClassVar[Callable[..., Change]] = staticmethod(bfgs.dfp)


class DenseSolve(Curvature):
    """B by BFGS, and B p = g solved; the paper's way for small tasks.

    >>> DenseSolve()
    DenseSolve()
    """

    def first(self, x, scale):
        return Matrix(_identity(x, 1 / scale), jnp.array(True))

    def advance(self, state, pair, g, start, scaled=False):
        B, used = state.M, pair.used & ~start.clear
        r = _rescaled(state, pair, scaled, jnp.dot(pair.y, pair.y) / pair.cur)
        new = bfgs.curvature(pair, r * (B @ pair.s), r).only(used).matrix(B)
        p, anew = downhill(cho_solve(cho_factor(new, lower=True), g), g, start)
        again = start.clear | anew
        new = jnp.where(again, _identity(g, 1 / start.scale), new)
        return Step(Matrix(new, again | (state.fresh & ~used)), p, anew)


class LBFGS(Curvature):
    """The last `memory` pairs; for any d.

    >>> LBFGS(memory=5)
    LBFGS(memory=5)
    """

    memory: int = eqx.field(default=10, static=True)  # m

    dense: ClassVar[bool] = False

    def __check_init__(self):
        checks.at_least("memory", self.memory, 1)

    def first(self, x, scale):
        return lbfgs.empty(self.memory, x)

    def advance(self, state, pair, g, start, scaled=False):
        pairs = lbfgs.push(
            lbfgs.cleared(state, start.clear), pair.s, pair.y, pair.used & ~start.clear
        )
        p, anew = downhill(lbfgs.direction(pairs, g, scaled, start.scale), g, start)
        return Step(lbfgs.cleared(pairs, anew), p, anew)


def downhill(p: Array, g: Array, start: Start) -> tuple[Array, Array]:
    """p, or scale g if it is time for that, or if p is no direction of descent or too long.

    >>> import jax.numpy as jnp
    >>> g, start = jnp.array([1.0, 0.0]), Start(0.5, jnp.array(False), most=100.0)
    >>> found = [downhill(jnp.array(p), g, start) for p in ([2.0, 1.0], [-2.0, 1.0], [2.0, 1e3])]
    >>> [p.tolist() for p, _ in found]
    [[2.0, 1.0], [0.5, 0.0], [0.5, 0.0]]
    """
    slope, size = jnp.dot(g, p), jnp.linalg.norm(g)  # not finite if anything in p is not
    flat = (slope == 0) & (size == 0)  # at the end: nothing is wrong, nothing moves
    fine = (slope > 0) & jnp.isfinite(slope) & (jnp.linalg.norm(p) <= start.most * size)
    anew = ~(fine | flat) & ~start.clear
    return jnp.where(anew | start.clear, start.scale * g, p), anew


def _identity(x: Array, scale: Array | float) -> Array:
    return jnp.asarray(scale, x.dtype) * jnp.eye(len(x), dtype=x.dtype)


def _diagonal(M: Array, when: Array, scale: Array | float) -> Array:
    """scale on the diagonal; M is 0 then."""
    row, column = (lax.broadcasted_iota(jnp.int32, M.shape, axis) for axis in (0, 1))
    return M + jnp.where(row == column, jnp.where(when, scale, 0).astype(M.dtype), 0)


def _rescaled(state: Matrix, pair: Pair, scaled: bool, wanted: Array) -> Array:
    """By what the matrix is multiplied before its first pair, so that its scale is the pair's."""
    now = state.M[0, 0]
    return jnp.where(state.fresh & scaled, wanted / now, jnp.ones_like(now))
