"""The arithmetic of a certificate: multipliers, stationarity over a set, and the reach."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from fedmin.core.domain import Domain, Free

TURNS = 30  # of the search for multipliers over a convex set


def stationarity(domain: Domain, x: Any, g: np.ndarray) -> float:
    """How far x is from a stationary point over the set, g being the Lagrangian's gradient."""
    if isinstance(domain, Free):
        return float(np.linalg.norm(g))
    at = jnp.asarray(x)
    return float(domain.residual(at, jnp.asarray(g, at.dtype)))


def best_multipliers(
    domain: Domain, x: Any, slope: np.ndarray, slopes: np.ndarray, active: np.ndarray, near: Any
) -> np.ndarray:
    """The nu >= 0, 0 where no constraint is active, with the least stationarity.

    In all of space, or on a support, by least squares. Over a convex set slope + nu slopes is to be
    minus a normal vector of the set: the one at P(x - g) and nu are found in turns, from the
    multipliers `near`, and the best of all is kept.
    """
    found = np.zeros(len(slopes))
    if not active.any():
        return found
    if not domain.convex:
        support = np.asarray(x) != 0
        found[active] = nnls(slopes[active][:, support].T, -slope[support])
        return found
    found[active] = nnls(slopes[active].T, -slope)
    if isinstance(domain, Free) or not domain.can_project:
        return found
    tried = [found] if near is None else [np.where(active, np.maximum(near, 0), 0), found]
    best = min(tried, key=lambda nu: stationarity(domain, x, slope + nu @ slopes))
    least, nu = stationarity(domain, x, slope + best @ slopes), best
    at = jnp.asarray(x)
    for _ in range(TURNS):
        g = jnp.asarray(slope + nu @ slopes, at.dtype)
        normal = np.asarray(at - g - domain.project(at - g), float)
        nu = np.zeros(len(slopes))
        nu[active] = nnls(slopes[active].T, -slope - normal)
        now = stationarity(domain, x, slope + nu @ slopes)
        if now >= least:
            break
        best, least = nu, now
    return best


def duality_gap(
    domain: Domain, x: Any, slope: np.ndarray, limits: np.ndarray, slopes: np.ndarray, nus: Any
) -> float | None:
    """The most that F_0 can be above its least under the constraints, where all is convex.

    For nu >= 0 and any u of the set that meets them, F_0(u) >= F_0(u) + nu.F(u) >= F_0(x) + nu.F(x)
    + <g, u - x> with g the Lagrangian's gradient at x: the gap over the set minus nu.F(x). Each nu
    gives such a number, and the least of them is taken. Without constraints it is the gap alone.
    """
    if not domain.has_atoms:
        return None
    at = jnp.asarray(x)

    def bound(nu):
        g = jnp.asarray(slope + nu @ slopes, at.dtype)
        return float(domain.gap(at, g)) - float(nu @ limits)

    return min(bound(np.maximum(nu, 0)) for nu in nus)


def reach(values: np.ndarray, slopes: np.ndarray) -> float:
    """|v| of the shortest v with values + slopes v <= 0, or inf if there is none.

    Least distance programming by non-negative least squares (Lawson and Hanson, chapter 23), in the
    M numbers that matter: v = q z with the rows of `slopes` in the span of q's columns.
    """
    scale = np.linalg.norm(slopes, axis=1)
    flat = scale <= np.finfo(float).tiny
    if (values[flat] > 0).any():  # what no step changes
        return np.inf
    values, slopes = values[~flat] / scale[~flat], slopes[~flat] / scale[~flat, None]
    unit = values.max()  # no constraint alone is further away
    values = values / unit
    r = np.linalg.qr(slopes.T)[1]
    matrix = np.vstack([-r, values])
    target = np.append(np.zeros(len(r)), 1.0)
    found = nnls(matrix, target)
    rest = target - matrix @ found
    if rest[-1] <= 1e-12:
        return np.inf
    return float(unit * np.linalg.norm(rest[:-1]) / rest[-1])


def nnls(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The w >= 0 for which |matrix w - target| is least."""
    from scipy.optimize import nnls as solved  # a sixth of the time of `import fedmin`

    return solved(matrix, target)[0]
