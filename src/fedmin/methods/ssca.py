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

Beyond the paper: with `local_steps` K > 1 a client walks K steps of size `local_step` down its own
Lagrangian, and its surrogate is the mean of those at the K points it saw (up d + 1 more, down M);
with `tau=Tuned(...)` the server raises tau when a new value is above what the surrogates foretold
and lowers it when not.
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


class Tuned(eqx.Module):
    """A tau that follows the data: times `grow` after a bad forecast, `shrink` after a good one.

    >>> import fedmin
    >>> fedmin.Tuned(start=0.1).grow
    1.1
    """

    start: float = 0.1
    shrink: float = 0.98
    grow: float = 1.1
    least: float = 1e-3
    most: float = 1e3

    def __check_init__(self):
        for name in ("start", "least", "most"):
            checks.positive(name, getattr(self, name))
        checks.between("shrink", self.shrink, 0.0, 1.0, open_low=True)
        checks.between("grow", self.grow, 1.0)


class Model(NamedTuple):
    """A mean of surrogates: of values, slopes and the points they were taken at."""

    levels: Array  # A, f[1 + M], without the first if the objective has no data in it
    slopes: Array  # G, f[1 + M, d], likewise
    center: Array  # W, f[d]
    spread: Array  # S

    def at(self, u: Array, tau: Array) -> Array:
        """Fbar_m(u)."""
        away = u @ u - 2 * self.center @ u + self.spread
        return self.levels + self.slopes @ u + tau * away


class Server(NamedTuple):
    w: Array  # the model
    model: Model
    tau: Array
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
    tau: float | Tuned = 0.1  # the surrogates' curvature
    batches: Batches = WithoutReplacement(100)
    penalty: float | Penalty = 1e5  # c
    regularizer: Literal["linear", "exact"] = eqx.field(default="linear", static=True)
    local_steps: int = eqx.field(default=1, static=True)  # K
    local_step: float = 0.1

    citation = "ye2022sample"
    handles = frozenset({"rows", "constraints"})

    def __check_init__(self):
        schedule.check("rho", self.rho)
        schedule.check("gamma", self.gamma)
        if not isinstance(self.tau, Tuned):
            checks.positive("tau", self.tau)
        if not isinstance(self.penalty, Penalty):
            checks.positive("penalty", self.penalty)
        checks.is_a("batches", self.batches, Batches, "WithoutReplacement(100) or Full()")
        checks.known("regularizer", self.regularizer, ("linear", "exact"))
        checks.at_least("local_steps", self.local_steps, 1)
        checks.positive("local_step", self.local_step)

    def check(self, problem) -> None:
        if self.regularizer == "exact" and problem.curvature() is None:
            raise ValueError(
                f"regularizer='exact' needs a regularizer of the form q |x|^2; that of "
                f"{type(problem).__name__} is not: use 'linear'"
            )

    def init_server(self, problem, key: Array) -> Server:
        w, count = starting_point(problem, key), problem.num_constraints
        rows = 1 + count - problem.bare
        price = self.penalty.start if isinstance(self.penalty, Penalty) else self.penalty
        tau = self.tau.start if isinstance(self.tau, Tuned) else self.tau
        return Server(
            w=w,
            model=Model(
                jnp.zeros(rows, w.dtype),
                jnp.zeros((rows, len(w)), w.dtype),
                jnp.zeros_like(w),
                jnp.zeros((), w.dtype),
            ),
            tau=jnp.asarray(tau, w.dtype),
            multipliers=jnp.zeros(count, w.dtype),
            slack=jnp.zeros(count, w.dtype),
            penalty=jnp.asarray(price, w.dtype),
            since=jnp.zeros((), jnp.int32),
        )

    def exchanges(self, problem):
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, server, now):
        walks = self.local_steps > 1 and problem.num_constraints
        return {"model": server.w, **({"multipliers": server.multipliers} if walks else {})}

    def client(self, problem, rows, state, down, now):
        if self.local_steps > 1:
            return self._walk(problem, rows, down, now), state
        batch = self.batches.read(rows, self.batches.draw(rows, now.key, jnp.int32(0)))
        values, slopes = problem.linearize(down["model"], batch)
        return self.reply(problem, values, slopes), state

    def reply(self, problem, values: Array, slopes: Array) -> dict[str, Array]:
        """What is sent: the objective's value only where something depends on it."""
        if not isinstance(self.tau, Tuned):
            values = values[len(values) - problem.num_constraints :]
        return {"gradients": slopes, **({"values": values} if len(values) else {})}

    def _walk(self, problem, rows, down, now) -> dict[str, Array]:
        """K steps down the client's own Lagrangian; the mean of the surrogates on the way."""
        nu = down.get("multipliers", jnp.zeros(0))
        price = nu if problem.bare else jnp.concatenate([jnp.ones(1, nu.dtype), nu])

        def step(k, carry):
            y, total = carry
            batch = self.batches.read(rows, self.batches.draw(rows, now.key, k))
            values, slopes = problem.linearize(y, batch)
            new = Model(values - slopes @ y, slopes, y, y @ y)
            slope = price.astype(y.dtype) @ slopes + jax.grad(problem.regularizer)(y)
            return y - self.local_step * slope, jax.tree.map(jnp.add, total, new)

        w = down["model"]
        count = 1 + problem.num_constraints - problem.bare
        zeros = Model(
            jnp.zeros(count, w.dtype),
            jnp.zeros((count, len(w)), w.dtype),
            jnp.zeros_like(w),
            jnp.zeros((), w.dtype),
        )
        total = jax.lax.fori_loop(0, self.local_steps, step, (w, zeros))[1]
        return jax.tree.map(lambda a: a / self.local_steps, total)._asdict()

    def server(self, problem, server_rows, server, aggregate, now):
        mean, w = aggregate.mean, server.w
        if self.local_steps > 1:
            return self.advance(problem, server, Model(**mean), now.round)
        slopes, values = mean["gradients"], mean.get("values", jnp.zeros(0, w.dtype))
        return self.advance(problem, server, self.sample(w, values, slopes), now.round)

    def sample(self, w: Array, values: Array, slopes: Array) -> Model:
        """The surrogates of one round; a value that was not sent (the objective's) counts as 0."""
        unknown = jnp.zeros(len(slopes) - len(values), w.dtype)
        return Model(jnp.concatenate([unknown, values]) - slopes @ w, slopes, w, w @ w)

    def advance(self, problem, server: Server, new: Model, t) -> Server:
        """The server's part, given a round's estimate of the surrogates."""
        w = server.w
        rho, gamma = (
            jnp.asarray(schedule.at(s, t - server.since), w.dtype) for s in (self.rho, self.gamma)
        )
        if self.regularizer == "linear" and not problem.bare:
            value, slope = jax.value_and_grad(problem.regularizer)(w)
            levels = new.levels.at[0].add(value - slope @ w)
            new = new._replace(levels=levels, slopes=new.slopes.at[0].add(slope))
        tau = self._tuned(server, new, t)
        model = jax.tree.map(lambda a, b: (1 - rho) * a + rho * b, server.model, new)
        answer = self._solve(problem, w, model, tau, server.penalty)
        moved = Server(
            w=w + gamma * answer.w,
            model=model,
            tau=tau,
            multipliers=answer.multipliers,
            slack=answer.slack,
            penalty=server.penalty,
            since=server.since,
        )
        return self._raise(moved, t)

    def _tuned(self, server: Server, new: Model, t) -> Array:
        """tau after a look at how well the surrogates foretold the new values."""
        if not isinstance(self.tau, Tuned):
            return jnp.asarray(self.tau, server.w.dtype)
        rule, w = self.tau, server.w
        found, foretold = new.at(w, jnp.zeros_like(server.tau)), server.model.at(w, server.tau)
        factor = jnp.where(jnp.all(found <= foretold), rule.shrink, rule.grow)
        tuned = jnp.clip(server.tau * factor, rule.least, rule.most).astype(w.dtype)
        return jnp.where(t == 0, server.tau, tuned)

    def _solve(self, problem, w, model: Model, tau, penalty) -> dual_qp.Solution:
        """The convex problem, written for the way from w, so that nothing large cancels."""
        count = problem.num_constraints
        drift = 2 * tau * (w - model.center)
        exact = problem.bare or self.regularizer == "exact"
        curve = problem.curvature() if exact else 0.0
        slope = 2 * curve * w if exact else jnp.zeros_like(w)
        if not problem.bare:
            slope, curve = slope + model.slopes[0] + drift, curve + tau
        first = len(model.slopes) - count
        limits, levels = model.slopes[first:] + drift, model.at(w, tau)[first:]
        return dual_qp.solve(slope, curve, limits, levels, tau, penalty)

    def _raise(self, server: Server, t) -> Server:
        """A higher price where the last stage left slack."""
        rule = self.penalty
        if not isinstance(rule, Penalty) or not len(server.slack):
            return server
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
        limits = {
            "multiplier": server.multipliers,
            "slack": server.slack,
            "penalty": server.penalty,
        }
        tuned = {"tau": server.tau} if isinstance(self.tau, Tuned) else {}
        return {**(limits if len(server.slack) else {}), **tuned}

    def notes(self) -> tuple[str, ...]:
        return schedule.outside_theorem(self.rho, self.gamma)
