"""The forms in which a server keeps the curvature, from pairs (s, y) to a direction H g.

    DenseInverse    H by BFGS, one d x d matrix; a step reads it once, every fourth also writes it
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
from typing import Any, ClassVar, NamedTuple, get_args

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.linalg import cho_factor, cho_solve

from fedmin.core import checks
from fedmin.server.quasi_newton import bfgs, lbfgs
from fedmin.server.quasi_newton.bfgs import Change, Pair

SMALL = 2048  # up to here a matrix is cheap: 16 MB in float32
MOST = 16384  # a matrix of 1 GB in float32; above it d x d is refused
WAIT = 4  # changes of a matrix that it takes in together


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


class QuasiNewton(eqx.Module):
    """A form of the curvature.

    >>> import jax.numpy as jnp
    >>> from fedmin.server.quasi_newton.bfgs import mend
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


class Waiting(NamedTuple):
    """H = factor M + the sum of left_j right_j^T: a matrix, and changes it has not taken in yet."""

    M: Array
    factor: Array
    left: Array  # f[2 WAIT, d], 0 beyond those that wait
    right: Array
    waits: Array  # i[], how many changes
    begin: Array  # f[], H is this times I and M is yet to be; 0 if not
    fresh: Array  # bool, H is a multiple of I

    def matrix(self) -> Array:
        """H, for those who want to see it."""
        H = bfgs.taken_in(self.factor, self.M, self.left, self.right)
        return jnp.where(self.begin > 0, _identity(self.left[0], self.begin), H)


class DenseInverse(QuasiNewton):
    """H = B^-1 by BFGS; for d up to a few thousand.

    A change waits until there are four, and the matrix takes them in together: a pass that reads
    and writes it costs more than the product that every step needs.

    >>> DenseInverse()
    DenseInverse()
    """

    change: ClassVar[Callable[..., Change]] = staticmethod(bfgs.inverse)

    def first(self, x, scale):
        none = jnp.zeros((2 * WAIT, len(x)), x.dtype)
        return Waiting(
            _identity(x, scale), jnp.ones((), x.dtype), none, jnp.copy(none), jnp.int32(0),
            jnp.zeros((), x.dtype), jnp.array(True),
        )  # fmt: skip

    def advance(self, state, pair, g, start, scaled=False):
        state, used = _settled(state), pair.used & ~start.clear
        now = state.factor * state.M[0, 0]
        r = _rescaled(state.fresh & scaled, now, pair.cur / jnp.dot(pair.y, pair.y))
        # both in one pass over M; left to itself the compiler makes a slow loop of the two steps
        both = lax.optimization_barrier(jnp.stack([pair.y, g], 1))
        products = state.factor * lax.optimization_barrier(state.M @ both)
        Hy, Hg = (products + state.left.T @ (state.right @ both)).T
        change = type(self).change(pair, r * Hy, r).only(used)
        p, anew = downhill(change.product(Hg, g), g, start)
        again = start.clear | anew
        return Step(_put(state, change, used, again, start.scale), p, anew)


class DFP(DenseInverse):
    """H by Davidon, Fletcher and Powell, BFGS's dual: what the authors' program has.

    >>> DFP()
    DFP()
    """

    change: ClassVar[Callable[..., Change]] = staticmethod(bfgs.dfp)


class DenseSolve(QuasiNewton):
    """B by BFGS, and B p = g solved; the paper's way for small tasks.

    >>> DenseSolve()
    DenseSolve()
    """

    def first(self, x, scale):
        return Matrix(_identity(x, 1 / scale), jnp.array(True))

    def advance(self, state, pair, g, start, scaled=False):
        B, used = state.M, pair.used & ~start.clear
        r = _rescaled(state.fresh & scaled, B[0, 0], jnp.dot(pair.y, pair.y) / pair.cur)
        new = bfgs.curvature(pair, r * (B @ pair.s), r).only(used).matrix(B)
        p, anew = downhill(cho_solve(cho_factor(new, lower=True), g), g, start)
        again = start.clear | anew
        new = jnp.where(again, _identity(g, 1 / start.scale), new)
        return Step(Matrix(new, again | (state.fresh & ~used)), p, anew)


class LBFGS(QuasiNewton):
    """The last `memory` pairs; for any d.

    >>> LBFGS(memory=5)
    LBFGS(memory=5)
    """

    memory: int = eqx.field(default=10, static=True)  # m
    gamma: lbfgs.Gamma = eqx.field(default="newest", static=True)  # pairs by which H begins

    dense: ClassVar[bool] = False

    def __check_init__(self):
        checks.at_least("memory", self.memory, 1)
        checks.known("gamma", self.gamma, get_args(lbfgs.Gamma))

    def first(self, x, scale):
        return lbfgs.empty(self.memory, x)

    def advance(self, state, pair, g, start, scaled=False):
        pairs = lbfgs.push(
            lbfgs.cleared(state, start.clear), pair.s, pair.y, pair.used & ~start.clear
        )
        p = lbfgs.direction(pairs, g, scaled, start.scale, self.gamma)
        p, anew = downhill(p, g, start)
        return Step(lbfgs.cleared(pairs, anew), p, anew)


CURVATURES = {"denseinverse": DenseInverse, "densesolve": DenseSolve, "dfp": DFP, "lbfgs": LBFGS}


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


def _settled(state: Waiting) -> Waiting:
    """The same H; if as many changes wait as may, or if it begins anew, they are in M."""
    full, begins = state.waits == WAIT, state.begin > 0

    # Loops of no turn or one work on M where it is; a choice between two matrices would copy it.
    # Of what does not depend on the turn the compiler would make matrices before the loop: barriers
    def take_in(turn, M):
        given = (state.factor, M, state.left, state.right)
        return bfgs.taken_in(*lax.optimization_barrier((turn, given))[1])

    def begin(turn, M):
        scale, first = lax.optimization_barrier((turn, (state.begin, jnp.int32(0))))[1]
        row, column = (lax.broadcasted_iota(jnp.int32, M.shape, axis) for axis in (0, 1))
        return jnp.where(row == column + first, scale, 0)

    M = lax.fori_loop(0, (full & ~begins).astype(jnp.int32), take_in, state.M)
    M = lax.fori_loop(0, begins.astype(jnp.int32), begin, M)
    done = full | begins
    left, right, waits = (jnp.where(done, 0, a) for a in (state.left, state.right, state.waits))
    factor = jnp.where(done, 1, state.factor)
    return Waiting(M, factor, left, right, waits, jnp.zeros_like(state.begin), state.fresh)


def _put(state: Waiting, change: Change, used: Array, again: Array, scale: Any) -> Waiting:
    """With one change more that waits; or about to begin anew."""

    def entered(held, new):
        new = lax.dynamic_update_slice(held, new, (2 * state.waits, jnp.int32(0)))
        return jnp.where(again, 0, jnp.where(used, new, held))

    left, right = map(entered, (state.left, state.right), change.sides())
    return Waiting(
        M=state.M,
        factor=state.factor * change.r,
        left=left,
        right=right,
        waits=jnp.where(again, 0, state.waits + used.astype(jnp.int32)),
        begin=jnp.where(again, scale, 0).astype(state.begin.dtype),
        fresh=again | (state.fresh & ~used),
    )


def _rescaled(when: Array, now: Array, wanted: Array) -> Array:
    """By what a multiple of I is multiplied before its first pair: its scale is then the pair's."""
    return jnp.where(when, wanted / now, jnp.ones_like(now))
