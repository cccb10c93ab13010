"""SparseNewton: the server's curvature, on the support it chooses.   beyond [tong2022federated]

    client i    g_i = grad f_i(z), f_i(z)
    server      g = mean g_i;   s = z - x, y = g - g(x) go into the pairs of B (L-BFGS)
                z is no worse, F(z) <= F(x):   x <- z, mu <- max(1, mu/2);   else mu <- 4 mu
                for each eta in (1, 1/4, .., 1/256)/sigma:   T = support of H(x - eta g(x)),
                    z = the minimizer of g(x).(z - x) + (z - x).B(z - x)/2 with support in T
                z <- the one with the least model value, to be asked about in the next round
    bytes       down 2 tau, up d + 1 (d + 2 where no step is given)

B is built on sigma I, sigma = mu y.s/|s|^2 of the newest pair; before there is one sigma is
mu/step, or without it mu times the mean of the clients' g_i.H_i g_i/|g_i|^2 at the start (where
f_i bends down, |H_i g_i|/|g_i|).
So no step is to be chosen. Where F(z) - F(x) is within rounding, (g + g(x)).s/2 tells it: exactly
if F is quadratic, and near enough for short s. So it does where clients are absent, whose values at
two models are not to be compared.

Why: a step of Distributed-IHT is as long as the steepest direction allows, and with Simulation I of
the paper the steepest direction is a million times steeper than the median one. See docs/sparse.md.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.client import curvature
from fedmin.core import checks
from fedmin.core.method import Exchange, Method, starting_point
from fedmin.core.payload import Payload
from fedmin.methods.fedht import spread, stable_for
from fedmin.server.quasi_newton import compact, lbfgs

ETAS = tuple(4.0**-k for k in range(5))  # lengths that are tried, times 1/sigma
STRAIGHT = 1e-6  # a pair whose s and y are closer to a right angle says nothing in single precision
ROUNDING = 10.0  # units in the last place of F within which values do not tell


class Server(NamedTuple):
    x: Array  # the best model
    value: Array  # F there
    g: Array  # the gradient there
    z: Payload  # the model that clients are asked about
    pairs: lbfgs.Pairs  # of length |s| = 1
    mu: Array  # how much more cautious than the newest pair
    stable: Array  # rounds since the support of x last changed


class SparseNewton(Method):
    """Sparse quasi-Newton steps at the server; for an `L0Ball`: entries in all, in every row, or
    groups. Made for all clients in all rounds.

    >>> import fedmin
    >>> sample = fedmin.data.sparse_regression(200, 30, support=3, noise=0.0, clients=4)
    >>> problem = fedmin.over(fedmin.LeastSquares(30), fedmin.L0Ball(3))
    >>> federation = fedmin.data.partition(sample)
    >>> result = fedmin.minimize(problem, federation, fedmin.SparseNewton(), rounds=15)
    >>> result.solution.nonzero()[0].tolist() == sample.truth["support"].tolist()
    True
    """

    step: float | None = None  # of the first move; left out: by the curvature
    memory: int = eqx.field(default=10, static=True)  # pairs

    handles = frozenset({"rows", "domain"})
    citation = "tong2022federated"

    def __check_init__(self):
        if self.step is not None:
            checks.positive("step", self.step)
        checks.at_least("memory", self.memory, 1)

    def check(self, problem):
        if not problem.domain.keeps_support:
            raise ValueError(
                f"SparseNewton is for an L0Ball; {type(problem).__name__}(...) has "
                f"{problem.domain}. Give it one: fedmin.over(problem, fedmin.L0Ball(200))"
            )

    def init_server(self, problem, roster, key: Array) -> Server:
        z = problem.domain.projected(starting_point(problem, key))
        x = spread(z)
        pairs = lbfgs.empty(self.memory, x)
        one = jnp.ones((), x.dtype)
        none = jnp.zeros((), jnp.int32)
        return Server(x, jnp.inf * one, jnp.zeros_like(x), z, pairs, one, none)

    def init_client(self, problem, roster, rows, key: Array) -> Any:
        if not self._auto:
            return ()
        x = spread(problem.domain.projected(starting_point(problem, key)))
        return curvature.along_gradient(problem, x, rows)

    @property
    def _auto(self) -> bool:
        return self.step is None

    def exchanges(self, problem, roster):
        # a pair is a difference of two rounds, and so is what F is told by: what a channel brings
        # later would be curvature, and what it cuts off a fall of F
        client = partial(self.client, roster.everyone)
        return (Exchange(self.broadcast, client, self.server, prompt=True, entire=True),)

    def broadcast(self, problem, server, now):
        return {"model": server.z}

    def client(self, everyone: bool, problem, rows, state, down, now):
        z = spread(down["model"])
        up = {"gradient": problem.grad(z, rows)}
        if everyone:
            up["value"] = curvature.value(problem, z, rows)
        return up | ({"curvature": state} if self._auto else {}), state

    def server(self, problem, server_rows, server, learnt, now):
        z, mean = spread(server.z), learnt.mean
        g, value = mean["gradient"], mean.get("value", server.value)
        s, y = z - server.x, g - server.g
        pairs = taken_in(server.pairs, s, y)
        better = no_worse(server, value, jnp.dot(server.g + g, s))
        x, g = (jnp.where(better, a, b) for a, b in ((z, server.x), (g, server.g)))
        mu = jnp.where(better, jnp.maximum(1, server.mu / 2), 4 * server.mu)
        newest = pairs.rho[(pairs.taken - 1) % self.memory]
        known = newest > 0
        guess: Any = self.step
        first = 1 / guess if not self._auto else mean["curvature"]
        first = jnp.where(first > 0, first, 1)  # every gradient is 0 at the start
        sigma = mu * jnp.where(known, 1 / jnp.where(known, newest, 1), first)
        asked = best_move(problem.domain, compact.curvature(pairs, sigma.astype(x.dtype)), x, g)
        value = jnp.where(better, value, server.value)
        return Server(x, value, g, asked, pairs, mu, stable_for(server.stable, server.x, x))

    def solution(self, server):
        return server.x

    def report(self, server):
        return {"stable": server.stable}


def no_worse(server: Server, value: Array, slope: Array) -> Array:
    """Whether F is no higher than at the best model: by values, or within rounding by slopes."""
    rounding = ROUNDING * jnp.finfo(value.dtype).eps * jnp.abs(value)
    lower, higher = value < server.value - rounding, value > server.value + rounding
    return jnp.where(lower | higher, lower, slope <= 0)  # slope = 0 in the first round


def taken_in(pairs: lbfgs.Pairs, s: Array, y: Array) -> lbfgs.Pairs:
    """The pairs with (s, y), both divided by |s|, if y.s is clearly above 0."""
    length, height = jnp.linalg.norm(s), jnp.linalg.norm(y)
    size = 1 / jnp.where(length > 0, length, 1)
    clear = jnp.dot(y, s) > STRAIGHT * length * height
    return lbfgs.push(pairs, size * s, size * y, clear)


def best_move(domain: Any, B: compact.Curvature, x: Array, g: Array) -> Payload:
    """Of the minimizers of the model on the supports that are tried, the best; x if none is."""

    def on_support(eta):
        i, kept = domain.support(x - eta * g)
        inside = jnp.zeros(x.shape, bool).at[i].set(kept)
        away = jnp.where(inside, 0, -x)  # what leaves the support goes to 0
        step = compact.solve_on(B, i, -(g + compact.times(B, away))[i], kept)
        s = away.at[i].add(jnp.where(kept, step, 0))
        change = jnp.dot(g, s) + jnp.dot(s, compact.times(B, s)) / 2
        return jnp.where(jnp.isfinite(change), change, jnp.inf), s

    changes, moves = jax.lax.map(on_support, jnp.asarray(ETAS, x.dtype) / B.sigma)
    best = jnp.argmin(changes)
    return domain.compact(jnp.where(changes[best] < 0, x + moves[best], x))
