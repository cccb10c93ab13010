"""SSCA: stochastic successive convex approximation, with constraints.   [ye2022sample] Alg. 1-4

client i    a batch of its rows;  means of f_m(w), grad f_m(w) over it,  m = 0..M
server      running surrogates   Fbar_m <- (1 - rho) Fbar_m
                                           + rho (f_m + grad f_m.(u - w) + tau |u - w|^2)
            wbar = argmin  Fbar_0(u) + r(u) + c sum s_m   s.t.  Fbar_m(u) <= s_m,  s >= 0
            w <- (1 - gamma) w + gamma wbar
bytes       down d, up (1 + M) d + M  (an objective without data: M d + M)
on columns  the same estimates by the trips of client/column_trips.py; the server's part is the same

The surrogates are kept as seen from w (server/surrogates.py): the paper's fhat in other words, and
tau may differ from round to round. Means over clients have weights p_i = N_i/N, so that they are
unbiased whatever the sizes. r(u) is linearized like everything else (the paper) or kept exact. The
penalty c may grow: c_1 < c_2 < .., each from where the last one ended, as long as some slack is
left.

Beyond the paper: with `local_steps` K > 1 a client walks K steps of size `local_step` down its own
Lagrangian, and its surrogate is the mean of those at the K points it saw (up d + 1 more, down M);
with `tau=Tuned(...)` tau follows the largest curvature v.H_m v / 2 that clients measure along the
direction v of the last step (down d more, up 1 + M).
"""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.client import Batches, WithoutReplacement, column_trips
from fedmin.core import checks, schedule
from fedmin.core.column_problem import OnColumns
from fedmin.core.method import Exchange, Method, starting_point
from fedmin.core.problem import stacked
from fedmin.server import qcqp
from fedmin.server.surrogates import Surrogates, curvatures


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
    """A tau that follows the curvature: `factor` times what clients measure along the last step.

    >>> import fedmin
    >>> fedmin.Tuned(start=0.1).factor
    1.0
    """

    start: float = 0.1
    factor: float = 1.0
    slowly: float = 0.95  # it falls by no more a round: one flat spot is not a flat valley
    least: float = 1e-3
    most: float = 1e3

    def __check_init__(self):
        for name in ("start", "factor", "least", "most"):
            checks.positive(name, getattr(self, name))
        checks.between("slowly", self.slowly, 0.0, 1.0, open_low=True)


class Server(NamedTuple):
    w: Array  # the model
    model: Surrogates
    tau: Array
    toward: Array  # v, the direction of the last step, if tau is tuned
    multipliers: Array  # nu, f[M]
    slack: Array  # s, f[M]
    penalty: Array  # c
    since: Array  # the round at which c last grew


class SSCA(Method):
    """Successive convex approximation on rows or columns, for any number of constraints.

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
    regularizer: Literal["linear", "exact"] = eqx.field(default="linear", static=True)  # r(x)
    local_steps: int = eqx.field(default=1, static=True)  # K
    local_step: float = 0.1  # of the local steps

    citation = "ye2022sample"
    handles = frozenset({"rows", "features", "constraints"})

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
        if isinstance(problem, OnColumns) and (self.local_steps > 1 or isinstance(self.tau, Tuned)):
            raise ValueError("local_steps and a tuned tau work on rows only; columns take neither")
        if self.regularizer == "exact" and problem.curvature() is None:
            raise ValueError(
                f"regularizer='exact' needs a regularizer of the form q |x|^2; that of "
                f"{type(problem).__name__} is not: use 'linear'"
            )

    def init_server(self, problem, roster, key: Array) -> Any:
        own = self._first(problem, key)
        return (
            column_trips.start(problem, self.batches, own)
            if isinstance(problem, OnColumns)
            else own
        )

    def _first(self, problem, key: Array) -> Server:
        w, count = starting_point(problem, key), problem.num_constraints
        price = self.penalty.start if isinstance(self.penalty, Penalty) else self.penalty
        tau = self.tau.start if isinstance(self.tau, Tuned) else self.tau
        return Server(
            w=w,
            model=Surrogates.none(problem, w),
            tau=jnp.asarray(tau, w.dtype),
            toward=jnp.zeros(len(w) if isinstance(self.tau, Tuned) else 0, w.dtype),
            multipliers=jnp.zeros(count, w.dtype),
            slack=jnp.zeros(count, w.dtype),
            penalty=jnp.asarray(price, w.dtype),
            since=jnp.zeros((), jnp.int32),
        )

    def exchanges(self, problem, roster):
        if isinstance(problem, OnColumns):
            return column_trips.exchanges(problem, self.batches, lambda own: own.w, self.on_columns)
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, server, now):
        walks = self.local_steps > 1 and problem.num_constraints
        return {
            "model": server.w,
            **({"multipliers": server.multipliers} if walks else {}),
            **({"direction": server.toward} if isinstance(self.tau, Tuned) else {}),
        }

    def client(self, problem, rows, state, down, now):
        w, drawn = down["model"], self.batches.draw(rows, now.secret, jnp.int32(0))
        batch = self.batches.read(rows, drawn)
        curved = {}
        if isinstance(self.tau, Tuned):
            curved = {"curvatures": curvatures(problem, w, down["direction"], batch)}
        if self.local_steps > 1:
            return self._walk(problem, rows, down, now) | curved, state
        values, slopes = problem.linearize(w, batch)
        known = {"values": problem.limits_of(values)} if problem.num_constraints else {}
        return {"gradients": slopes} | known | curved, state

    def _walk(self, problem, rows, down, now) -> dict[str, Array]:
        """K steps down the client's own Lagrangian; the mean of the surrogates on the way."""
        w, nu = down["model"], down.get("multipliers", jnp.zeros(0))
        price = nu if problem.bare else jnp.concatenate([jnp.ones(1, nu.dtype), nu])

        def step(k, carry):
            y, total = carry
            batch = self.batches.read(rows, self.batches.draw(rows, now.secret, k))
            values, each = problem.linearize(y, batch)
            slopes = stacked(each)
            new = Surrogates.seen(problem.limits_of(values), slopes, w - y)
            slope = price.astype(y.dtype) @ slopes + jax.grad(problem.regularizer)(y)
            return y - self.local_step * slope, jax.tree.map(jnp.add, total, new)

        start = (w, jax.tree.map(jnp.zeros_like, Surrogates.none(problem, w)))
        total = jax.lax.fori_loop(0, self.local_steps, step, start)[1]
        return jax.tree.map(lambda a: a / self.local_steps, total)._asdict()

    def server(self, problem, server_rows, server, learnt, now):
        mean = dict(learnt.mean)
        curves = mean.pop("curvatures", None)
        if self.local_steps > 1:
            new = Surrogates(**mean)
        else:
            values = mean.get("values", jnp.zeros(0, server.w.dtype))
            new = Surrogates.seen(values, stacked(mean["gradients"]), jnp.zeros_like(server.w))
        return self.advance(problem, server, new, now.round, curves)

    def on_columns(self, problem, server: Server, estimate: column_trips.Estimate, now) -> Server:
        """The server's part where columns are split."""
        values = problem.limits_of(estimate.values)
        new = Surrogates.seen(values, estimate.gradients, jnp.zeros_like(server.w))
        return self.advance(problem, server, new, now.round)

    def advance(self, problem, server: Server, new: Surrogates, t, curves=None) -> Server:
        """The server's part, given a round's estimate of the surrogates."""
        w = server.w
        rho, gamma = (
            jnp.asarray(schedule.at(s, t - server.since), w.dtype) for s in (self.rho, self.gamma)
        )
        if self.regularizer == "linear" and not problem.bare:
            slope = jax.grad(problem.regularizer)(w)
            new = new._replace(slopes=new.slopes.at[0].add(slope))
        tau = self._tuned(server, curves, rho)
        model = server.model.mixed(new, rho)
        answer = self._solve(problem, w, model, tau, server.penalty)
        way = gamma * answer.w
        moved = Server(
            w=w + way,
            model=model.moved(way),
            tau=tau,
            toward=self._direction(answer.w),
            multipliers=answer.multipliers,
            slack=answer.slack,
            penalty=server.penalty,
            since=server.since,
        )
        return self._raise(moved, t)

    def _direction(self, way: Array) -> Array:
        if not isinstance(self.tau, Tuned):
            return way[:0]
        return way / jnp.maximum(jnp.linalg.norm(way), jnp.finfo(way.dtype).tiny)

    def _tuned(self, server: Server, curves, rho) -> Array:
        """tau, moved towards the largest of the curvatures."""
        rule = self.tau
        if not isinstance(rule, Tuned):
            return jnp.asarray(rule, server.w.dtype)
        wanted = jnp.clip(rule.factor * jnp.max(jnp.abs(curves)), rule.least, rule.most)
        new = (1 - rho) * server.tau + rho * wanted
        known = jnp.any(server.toward != 0)  # not before the first step
        return jnp.where(known, jnp.maximum(new, rule.slowly * server.tau), server.tau)

    def _solve(self, problem, w, model: Surrogates, tau, penalty) -> qcqp.Solution:
        """The convex problem for the way from w to wbar."""
        exact = problem.bare or self.regularizer == "exact"
        curve = problem.curvature() if exact else 0.0
        vectors = model.slopes + 2 * tau * model.away
        if problem.bare:
            vectors = jnp.concatenate([2 * curve * w[None], vectors])
        else:
            vectors = vectors.at[0].add(2 * curve * w) if exact else vectors
            curve = curve + tau
        levels = model.levels + tau * model.spread
        return qcqp.solve(vectors, curve, levels, tau, penalty)

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
        return _own(server).w

    def report(self, server) -> dict[str, Any]:
        server = _own(server)
        limits = {
            "multiplier": server.multipliers,
            "slack": server.slack,
            "penalty": server.penalty,
        }
        tuned = {"tau": server.tau} if isinstance(self.tau, Tuned) else {}
        return {**(limits if len(server.slack) else {}), **tuned}

    def notes(self) -> tuple[str, ...]:
        return schedule.outside_theorem(self.rho, self.gamma)


def _own(server: Any) -> Server:
    """The method's own state: on columns the server keeps more than that."""
    return server.own if isinstance(server, column_trips.Server) else server
