"""SSCA: stochastic successive convex approximation, with constraints.   [ye2022sample] Alg. 1, 2

client i    a batch of its rows;  means of f_m(w), grad f_m(w) over it,  m = 0..M
server      running surrogates   G_m <- (1 - rho) G_m + rho grad f_m,  A_m likewise of f_m - grad.w,
                                 W <- (1 - rho) W + rho w,  S <- (1 - rho) S + rho |w|^2
            Fbar_m(u) = A_m + G_m.u + tau (|u|^2 - 2 W.u + S)
            wbar = argmin  Fbar_0(u) + r(u) + c sum s_m   s.t.  Fbar_m(u) <= s_m,  s >= 0
            w <- (1 - gamma) w + gamma wbar
bytes       down d, up (1 + M) d + M  (an objective without data: M d + M)

G and W apart are the paper's fhat = G - 2 tau W; apart, tau may differ from round to round. Means
over clients have weights p_i = N_i/N, so that they are unbiased whatever the sizes. r(u) is
linearized like everything else (the paper) or kept exact. The penalty c may grow: c_1 < c_2 < ..,
each from where the last one ended, as long as some slack is left.
"""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin import checks, schedule
from fedmin.inner import dual_qp
from fedmin.local import Batches, WithoutReplacement
from fedmin.method import Exchange, Method, starting_point


class Penalty(eqx.Module):
    """The price c of slack: `start`, times `growth` after every `every` rounds that left slack.

    The schedules of the method begin anew each time it grows.

    >>> import fedmin
    >>> fedmin.Penalty(10.0, growth=10.0, every=100).every
    100
    """

    start: float = 1e5  # c_1
    growth: float = 1.0
    every: int = eqx.field(default=100, static=True)
    slack: float = 1e-3  # what is small enough
    most: float = 1e9

    def __check_init__(self):
        checks.positive("penalty", self.start)
        checks.between("growth", self.growth, 1.0)
        checks.at_least("every", self.every, 1)
        checks.positive("slack", self.slack)
        checks.between("most", self.most, float(jnp.max(jnp.asarray(self.start))))


class Server(NamedTuple):
    w: Array  # the model
    slopes: Array  # G, f[1 + M, d], without the first row if the objective has no data in it
    levels: Array  # A, f[M]
    center: Array  # W
    spread: Array  # S
    multipliers: Array  # nu, f[M]
    slack: Array  # s, f[M]
    penalty: Array  # c
    since: Array  # the round at which c last grew


class SSCA(Method):
    """Successive convex approximation on rows, for any number of constraints.

    >>> import fedmin
    >>> problem = fedmin.smallest(fedmin.Logistic(2), loss_at_most=0.5)
    >>> [exchange.reduce for exchange in fedmin.SSCA().exchanges(problem)]
    ['sum']
    """

    rho: float | eqx.Module = schedule.Power(0.9, 0.3)  # the weight of what is new
    gamma: float | eqx.Module = schedule.Power(0.9, 0.35)  # how far to go to wbar
    tau: float = 0.1  # the surrogates' curvature
    batches: Batches = WithoutReplacement(100)
    penalty: float | Penalty = 1e5  # c
    regularizer: Literal["linear", "exact"] = eqx.field(default="linear", static=True)

    citation = "ye2022sample"
    handles = frozenset({"rows", "constraints"})

    def __check_init__(self):
        schedule.check("rho", self.rho)
        schedule.check("gamma", self.gamma)
        checks.positive("tau", self.tau)
        if not isinstance(self.penalty, Penalty):
            checks.positive("penalty", self.penalty)
        checks.is_a("batches", self.batches, Batches, "WithoutReplacement(100) or Full()")
        checks.known("regularizer", self.regularizer, ("linear", "exact"))

    def check(self, problem) -> None:
        if self.regularizer == "exact" and problem.curvature() is None:
            raise ValueError(
                f"regularizer='exact' needs a regularizer of the form q |x|^2; that of "
                f"{type(problem).__name__} is not: use 'linear'"
            )

    def init_server(self, problem, key: Array) -> Server:
        w, count = starting_point(problem, key), problem.num_constraints
        zeros = jnp.zeros(count, w.dtype)
        price = self.penalty.start if isinstance(self.penalty, Penalty) else self.penalty
        return Server(
            w=w,
            slopes=jnp.zeros((1 + count - problem.bare, len(w)), w.dtype),
            levels=zeros,
            center=jnp.zeros_like(w),
            spread=jnp.zeros((), w.dtype),
            multipliers=zeros,
            slack=jnp.zeros_like(zeros),
            penalty=jnp.asarray(price, w.dtype),
            since=jnp.zeros((), jnp.int32),
        )

    def exchanges(self, problem):
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, server, now):
        return {"model": server.w}

    def client(self, problem, rows, state, down, now):
        batch = self.batches.read(rows, self.batches.draw(rows, now.key, jnp.int32(0)))
        values, slopes = problem.linearize(down["model"], batch)
        limits = {"values": values[1 - problem.bare :]} if problem.num_constraints else {}
        return {"gradients": slopes, **limits}, state

    def server(self, problem, server_rows, server, aggregate, now):
        mean = aggregate.mean
        return self.advance(problem, server, mean.get("values"), mean["gradients"], now.round)

    def advance(self, problem, server: Server, values: Any, slopes: Array, t) -> Server:
        """The server's part, from estimates of the constraints' values and of all gradients."""
        count, w = problem.num_constraints, server.w
        rho, gamma = (
            jnp.asarray(schedule.at(s, t - server.since), w.dtype) for s in (self.rho, self.gamma)
        )
        if self.regularizer == "linear" and not problem.bare:
            slopes = slopes.at[0].add(jax.grad(problem.regularizer)(w))

        def blend(old, new):
            return (1 - rho) * old + rho * new

        limits = slopes[len(slopes) - count :]
        new = server._replace(
            slopes=blend(server.slopes, slopes),
            levels=blend(server.levels, values - limits @ w) if count else server.levels,
            center=blend(server.center, w),
            spread=blend(server.spread, w @ w),
        )
        answer = self._solve(problem, new)
        new = new._replace(
            w=w + gamma * answer.w, multipliers=answer.multipliers, slack=answer.slack
        )
        return self._raise(new, t) if count else new

    def _solve(self, problem, server: Server) -> dual_qp.Solution:
        """The convex problem, written for the way from w, so that nothing large cancels."""
        w, count = server.w, problem.num_constraints
        drift = 2 * self.tau * (w - server.center)
        limits = server.slopes[len(server.slopes) - count :]
        away = w @ w - 2 * server.center @ w + server.spread
        exact = problem.bare or self.regularizer == "exact"
        curve = problem.curvature() if exact else 0.0
        slope = 2 * curve * w if exact else jnp.zeros_like(w)
        if not problem.bare:
            slope, curve = slope + server.slopes[0] + drift, curve + self.tau
        return dual_qp.solve(
            slope,
            curve,
            limits + drift,
            server.levels + limits @ w + self.tau * away,
            self.tau,
            server.penalty,
        )

    def _raise(self, server: Server, t) -> Server:
        """A higher price where the last stage left slack."""
        if not isinstance(self.penalty, Penalty):
            return server
        rule = self.penalty
        ended = (t + 1 - server.since) >= rule.every
        left = jnp.max(server.slack) > rule.slack
        grows = ended & left & (server.penalty * rule.growth <= rule.most) & (rule.growth > 1)
        return server._replace(
            penalty=jnp.where(grows, server.penalty * rule.growth, server.penalty),
            since=jnp.where(grows, t + 1, server.since).astype(jnp.int32),
        )

    def solution(self, server):
        return server.w

    def report(self, server) -> dict[str, Any]:
        if not len(server.levels):
            return {}
        return {
            "multiplier": server.multipliers,
            "slack": server.slack,
            "penalty": server.penalty,
        }

    def notes(self) -> tuple[str, ...]:
        return schedule.outside_theorem(self.rho, self.gamma)
