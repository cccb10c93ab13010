"""BFGS and DFP on full matrices, and what becomes of a pair (s, y) that is no curvature.

    B <- B + y y^T/cur - B s s^T B/(s.B s)                          BFGS, the curvature
    H <- H - (H y s^T + s y^T H)/c + (cur + y.H y) s s^T/c^2        its exact inverse,  c = y.s
    H <- H + s s^T/cur - H y y^T H/(y.H y)                          DFP, the inverse by its own name

With cur = c these are the textbook's. All three are M <- r M + w_uu u u^T + w_uv (u v^T + v u^T) +
w_vv v v^T, one pass over the matrix (`Change`), in place where the caller gives up the old one, and
the product of the new matrix with a vector follows from that of the old one.

A pair is good if y.s > least |s|^2 and |y|^2 < most y.s (lambda and Lambda). The paper asks for
least < |y|^2/(y.s) in place of the first: that follows from it, but does not bound H, whose new
part is s s^T/(y.s). Of a pair that is not good:

    printed   cur = 2 |y|^2/(least + most) and (s, y) as they are, by the paper's own test
              [ma2023fedsso]. The H that belongs to it has 1/c^2 in it and breaks as c -> 0
    change    s = 2 y/(least + most), so that cur = y.s again
    damp      y = theta y + (1 - theta) B s with y.s = 0.2 s.B s [powell1978algorithms], for every
              pair below that; skipped if it is not good even so
    skip      nothing
"""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

Rule = Literal["printed", "change", "damp", "skip"]
RULES = ("printed", "change", "damp", "skip")


class Pair(NamedTuple):
    """A step and what it did to the gradient, as they are used."""

    s: Array
    y: Array
    cur: Array  # y.s, or what stands for it
    used: Array  # bool
    repaired: Array  # bool


def mend(
    rule: Rule, s: Array, y: Array, Bs: Array, least: Array | float, most: Array | float
) -> Pair:
    """The pair by a rule; B s (where the matrix before this pair takes s) is for damping only.

    >>> import jax.numpy as jnp
    >>> s, y = jnp.array([1.0, 0.0]), jnp.array([-2.0, 1.0])
    >>> [bool(mend(rule, s, y, s, 1e-4, 1e4).used) for rule in RULES]
    [True, True, True, False]
    >>> f"{mend('damp', s, y, s, 1e-4, 1e4).cur:.3f}"
    '0.200'
    """
    cur, size, no = jnp.dot(y, s), jnp.dot(y, y), jnp.array(False)
    weight = 2 / (least + most)
    if rule == "printed":
        good = (cur > 0) & (least * cur < size) & (size < most * cur)
        return Pair(s, y, jnp.where(good, cur, weight * size), ~no, ~good)
    good = _good(s, y, least, most)
    if rule == "skip":
        return Pair(s, y, cur, good, no)
    if rule == "damp":
        curve = jnp.dot(s, Bs)
        low = cur < 0.2 * curve
        theta = jnp.where(low, 0.8 * curve / (curve - cur), 1)
        y = theta * y + (1 - theta) * Bs
        good = _good(s, y, least, most)
        return Pair(s, y, jnp.dot(y, s), good, good & low)
    cur = jnp.where(good, cur, weight * size)
    some = (cur > 0) & jnp.isfinite(cur)
    return Pair(jnp.where(good, s, weight * y), y, cur, good | some, some & ~good)


def _good(s: Array, y: Array, least: Array | float, most: Array | float) -> Array:
    cur = jnp.dot(y, s)
    return (cur > 0) & (least * jnp.dot(s, s) < cur) & (jnp.dot(y, y) < most * cur)


class Change(NamedTuple):
    """M <- r M + w_uu u u^T + w_uv (u v^T + v u^T) + w_vv v v^T."""

    u: Array
    v: Array
    w_uu: Array
    w_uv: Array
    w_vv: Array
    r: Array | float = 1.0

    def product(self, Mg: Array, g: Array) -> Array:
        """The new matrix times g, from the old one's.

        >>> import jax.numpy as jnp
        >>> u, v, g = jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0]), jnp.array([3.0, 1.0])
        >>> change = Change(u, v, 0.5, 0.0, 2.0)
        >>> bool(jnp.all(change.product(g, g) == change.matrix(jnp.eye(2)) @ g))
        True
        """
        by_u, by_v = jnp.dot(self.u, g), jnp.dot(self.v, g)
        along_u = self.w_uu * by_u + self.w_uv * by_v
        along_v = self.w_uv * by_u + self.w_vv * by_v
        return self.r * Mg + along_u * self.u + along_v * self.v

    def sides(self) -> tuple[Array, Array]:
        """Rows u, v and a, b with which it is r M + u a^T + v b^T."""
        left = jnp.stack([self.u, self.v])
        weights = jnp.array([[self.w_uu, self.w_uv], [self.w_uv, self.w_vv]], left.dtype)
        return left, weights @ left

    def matrix(self, M: Array) -> Array:
        """The new matrix, in one pass.

        >>> import jax.numpy as jnp
        >>> Change(jnp.array([1.0, 2.0]), jnp.zeros(2), 0.5, 0.0, 0.0).matrix(jnp.eye(2)).tolist()
        [[1.5, 1.0], [1.0, 3.0]]
        """
        return taken_in(self.r, M, *self.sides())

    def only(self, when: Array, r: Array | float = 1.0) -> "Change":
        """This change, or only the factor `r`; then nothing in it matters, were it NaN."""

        def keep(a):
            return jnp.where(when, a, 0)

        kept = Change(*(keep(a) for a in self))
        return kept._replace(r=jnp.where(when, self.r, r))


def taken_in(r: Array | float, M: Array, left: Array, right: Array) -> Array:
    """r M + the sum of left_j right_j^T, in one pass over M."""
    # behind the barrier stand vectors as they are: what made them the compiler would work out anew
    # for every entry of the matrix
    left, right = lax.optimization_barrier((left, right))
    M = r * M
    for u, a in zip(left, right, strict=True):
        M = M + u[:, None] * a
    return M


def inverse(pair: Pair, Hy: Array, r: Array | float = 1.0) -> Change:
    """The change of H = B^-1 by a pair (H first scaled by r; Hy is of the scaled one).

    >>> import jax.numpy as jnp
    >>> s, y, yes = jnp.array([1.0, 0.0]), jnp.array([2.0, 1.0]), jnp.array(True)
    >>> pair = Pair(s, y, jnp.dot(y, s), yes, ~yes)
    >>> (inverse(pair, y).matrix(jnp.eye(2)) @ y).tolist()  # H y = s, the secant equation
    [1.0, 0.0]
    >>> B = curvature(pair, s).matrix(jnp.eye(2))
    >>> (B @ inverse(pair, y).matrix(jnp.eye(2))).round(5).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    c = jnp.dot(pair.y, pair.s)
    weight = (pair.cur + jnp.dot(pair.y, Hy)) / c / c
    return Change(pair.s, Hy, weight, -1 / c, jnp.zeros_like(c), r)


def dfp(pair: Pair, Hy: Array, r: Array | float = 1.0) -> Change:
    """The change of H by Davidon, Fletcher and Powell.

    >>> import jax.numpy as jnp
    >>> s, y, yes = jnp.array([1.0, 0.0]), jnp.array([2.0, 1.0]), jnp.array(True)
    >>> pair = Pair(s, y, jnp.dot(y, s), yes, ~yes)
    >>> (dfp(pair, y).matrix(jnp.eye(2)) @ y).round(5).tolist()
    [1.0, 0.0]
    """
    curve = jnp.dot(pair.y, Hy)
    return Change(pair.s, Hy, 1 / pair.cur, jnp.zeros_like(curve), -1 / curve, r)


def curvature(pair: Pair, Bs: Array, r: Array | float = 1.0) -> Change:
    """The change of B by a pair, as printed in the paper.

    >>> import jax.numpy as jnp
    >>> s, y, yes = jnp.array([1.0, 0.0]), jnp.array([2.0, 1.0]), jnp.array(True)
    >>> pair = Pair(s, y, jnp.dot(y, s), yes, ~yes)
    >>> (curvature(pair, s).matrix(jnp.eye(2)) @ s).tolist()  # B s = y
    [2.0, 1.0]
    """
    curve = jnp.dot(pair.s, Bs)
    return Change(pair.y, Bs, 1 / pair.cur, jnp.zeros_like(curve), -1 / curve, r)
