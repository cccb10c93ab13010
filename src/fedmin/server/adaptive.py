"""SSCA's server step without a number to choose: measured curvatures, and an observer of limits.

With k = 1, 2, .. the round, f_m and g_m the batch's values and gradients at w, and r_k(a) =
max(a, 1/k), so that means begin as plain means:

    G_m    += r_k(.1) (g_m - G_m);   V_m += r_k(.01) (g_m^2 - V_m)
    step   *= exp(-.2 cos),   cos = g_L.v / (|g_L|_1/K |v|_K),   g_L = g_0 + sum nu_m g_m
    D_m     = (sqrt(V_m) + .1 sqrt(mean V_m)) / (2 step)              curvatures by coordinate
    b       = r_k(.2 (1 + k/100)^-.75)
    pred    = A_m + u_m + d_m (k = 1: f_m);   inn = f_m - pred
    A_m     = pred + b inn;   d_m += (b^2/4) inn  (k > 10)            an observer of F_m
    e_m     = A_m + se_m,     se_m^2 = b/(2 - b) mean of (inn - inn before)^2 / 2
    v       = argmin G_0.v + v.D_0 v  s.t.  G_m.v + v.D_m v <= -.2 e_m - d_m    (diagonal.py)
    u_m     = G_m.v + v.D_m v;   w += v;   x += r_k(.1 (1 + k/100)^-.5) (w - x)     the answer is x

The step. v would end where the Lagrangian falls no further along it, if D were its curvature: the
slope g_L.v that the next batch shows there is then 0. Below it the curvature was too large and the
step grows, above it shrinks. Near a minimum all that w does is noise; E[F(w + v) - F(w)] = 0 then
makes E[g_L.v] = v.H v/2 > 0, so the step falls like 1/k by itself. It begins at .1 max(rms(w), .01)
and moves by up to a fifth a round, which is why the start hardly matters.

The observer. A_m follows F_m at w by what the surrogate said it would change (u_m) and by what it
changed (inn); d_m is the drift between the two, what the surrogate mispredicts a round, and is
subtracted from the room there is. A fifth of the distance to the limit is asked for a round, and
one standard error of A_m is kept away from it.

Over a set (`domain`), projections want one curvature for all coordinates: sqrt(mean V_m) in the
place of sqrt(V_m), and constraint m is multiplied by what makes its curvature that of the others.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedmin.core.domain import Free
from fedmin.server import diagonal, qcqp_over
from fedmin.server.qcqp import Solution

FIRST = 0.1, 0.01  # the first step, relative to the model, and the least a model counts as
SPEED = 0.2  # of the step: how far it moves a round at most, as a power of e
SLOPES, SQUARES, FLOOR = 0.1, 0.01, 0.1  # weights of what is new, and the least curvature
OBSERVED, AFTER = 0.2, 10  # weight of what is new in A; rounds before d moves
REACH, MARGIN = 0.2, 1.0  # how much of the distance to a limit a round; standard errors away
AVERAGED = 0.1  # weight of what is new in x


class State(NamedTuple):
    """What the server knows; M numbers each where no shape is said."""

    w: Array  # f[d], where clients look
    x: Array  # f[d], the mean of w that is the answer
    slopes: Array  # G, f[1 + M, d], without the first if the objective has no data in it
    squares: Array  # V, the same
    level: Array  # A
    foreseen: Array  # u
    drift: Array  # d
    missed: Array  # inn of the last round
    spread: Array  # mean of (inn - inn before)^2 / 2
    multipliers: Array  # nu
    step: Array  # one number
    way: Array  # v, f[d]
    curve: Array  # K, f[d]: of the last round's Lagrangian


def start(problem: Any, w: Array) -> State:
    """Before round 0: nothing is known."""
    zeros = jnp.zeros(problem.num_constraints, w.dtype)
    empty = jnp.zeros((problem.num_sums, len(w)), w.dtype)
    scale, least = FIRST
    step = scale * jnp.maximum(_rms(w), least)
    begin = (jnp.zeros_like(w), jnp.ones_like(w))
    return State(w, jnp.array(w), empty, empty, *(zeros,) * 6, step, *begin)


def advance(
    problem: Any, state: State, values: Array, slopes: Array, t: Array, c: Array, exact: bool
) -> tuple[State, Array]:
    """The state after round t, and the constraints' slack; `exact`: r(x) is kept as it is."""
    w, k = state.w, jnp.asarray(t + 1, state.w.dtype)
    exact = exact or problem.bare
    ridge = problem.ridge_weight() if exact else 0.0
    if not exact:
        slopes = slopes.at[0].add(jax.grad(problem.regularizer)(w))
    step = state.step * jnp.exp(-SPEED * _overshoot(problem, state, slopes, 2 * ridge * w))
    G = _mixed(state.slopes, slopes, k, SLOPES)
    V = _mixed(state.squares, slopes**2, k, SQUARES)
    seen = _observed(state, values, k)
    needed = REACH * (seen.level + MARGIN * seen.error) + seen.drift

    own = len(G) - len(values)  # 1, or 0 if the objective is r(x) alone
    curves = _curves(V, step, isinstance(problem.domain, Free))
    g = 2 * ridge * w + (G[0] if own else 0)
    q = jnp.full_like(w, ridge) + (curves[0] if own else 0)
    answer = _lowest(problem, state, g, q, needed, G[own:], curves[own:], c)
    v, nu = answer.w, answer.multipliers
    new = w + v
    x = _mixed(state.x, new, k, AVERAGED * (1 + k / 100) ** -0.5)
    after = State(
        w=new,
        x=x if problem.domain.convex else problem.domain.project(x),
        slopes=G,
        squares=V,
        level=seen.level,
        foreseen=G[own:] @ v + curves[own:] @ v**2,
        drift=seen.drift,
        missed=seen.missed,
        spread=seen.spread,
        multipliers=nu,
        step=step,
        way=v,
        curve=q + nu @ curves[own:],
    )
    return after, answer.slack


def _rms(a: Array, axis: Any = None) -> Array:
    return jnp.sqrt(jnp.mean(a**2, axis=axis, keepdims=axis is not None))


def _mixed(mean: Array, new: Array, k: Array, weight: Any) -> Array:
    return mean + jnp.maximum(weight, 1 / k) * (new - mean)


def _overshoot(problem: Any, state: State, slopes: Array, ridge: Array) -> Array:
    """The cosine between the last way and the slope of its Lagrangian where it ended."""
    nu = state.multipliers
    price = nu if problem.bare else jnp.concatenate([jnp.ones(1, nu.dtype), nu])
    slope = price @ slopes + ridge
    long = jnp.sqrt(jnp.sum(slope**2 / state.curve)) * jnp.sqrt(jnp.sum(state.way**2 * state.curve))
    return jnp.where(long > 0, (slope @ state.way) / jnp.where(long > 0, long, 1), 0)


class _Seen(NamedTuple):
    """What the observer makes of a round's values."""

    level: Array
    drift: Array
    missed: Array
    spread: Array
    error: Array  # se


def _observed(state: State, values: Array, k: Array) -> _Seen:
    beta = jnp.maximum(OBSERVED * (1 + k / 100) ** -0.75, 1 / k)
    foreseen = jnp.where(k > 1, state.level + state.foreseen + state.drift, values)
    missed = values - foreseen
    drift = state.drift + jnp.where(k > AFTER, beta**2 / 4, 0) * missed
    noise = (missed - state.missed) ** 2 / 2
    later = jnp.maximum(0.05, 1 / jnp.maximum(k - 1, 1))
    spread = state.spread + jnp.where(k > 2, later, 0) * (noise - state.spread)
    error = jnp.sqrt(spread * beta / (2 - beta))
    return _Seen(foreseen + beta * missed, drift, missed, spread, error)


def _curves(squares: Array, step: Array, free: bool) -> Array:
    """D, f[1 + M, d]: one number a function over a set."""
    mean = jnp.sqrt(jnp.mean(squares, axis=1, keepdims=True))
    each = jnp.sqrt(squares) if free else jnp.broadcast_to(mean, squares.shape)
    # a function without a slope, such as a group that no batch has had yet, curves a little too
    return (each + FLOOR * mean) / (2 * step) + jnp.finfo(squares.dtype).tiny ** 0.5


def _lowest(problem, state, g, q, needed, G, curves, c) -> Solution:
    """The way to the lowest point of the surrogates, within the problem's set."""
    domain, w = problem.domain, state.w
    if isinstance(domain, Free):
        return diagonal.solve(g, q, needed, G, curves, c, state.multipliers)
    each = curves[:, 0]
    tau = jnp.max(each, initial=0.0)  # constraint m times tau / each_m has the curvature tau
    scale = tau / each
    vectors = jnp.concatenate([g[None], scale[:, None] * G])
    problem_of = (vectors, q[0], scale * needed, tau, c)
    if domain.convex:
        found = qcqp_over.solve(*problem_of, lambda v: domain.project(w + v) - w)
    else:
        found = qcqp_over.solve_sparse(*problem_of, w, domain.project)
    return Solution(found.w, found.multipliers * scale, found.slack / scale)
