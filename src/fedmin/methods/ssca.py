"""SSCA: stochastic successive convex approximation, with constraints.   [ye2022sample] Alg. 1-4

client i    a batch of its rows;  means of f_m(w), grad f_m(w) over it,  m = 0..M
server      running surrogates   Fbar_m <- (1 - rho) Fbar_m
                                           + rho (f_m + grad f_m.(u - w) + tau |u - w|^2)
            wbar = argmin  Fbar_0(u) + r(u) + c sum s_m   s.t.  Fbar_m(u) <= s_m,  s >= 0,  u in D
            w <- (1 - gamma) w + gamma wbar
bytes       down d, up (1 + M) d + M  (an objective without data: M d + M)
on columns  the same estimates by the trips of client/column_trips.py; the server's part is the same

`SSCA()` has nothing to choose: curvatures are measured coordinate by coordinate, the step finds
itself, and an observer of F_m - U_m holds the limits (server/adaptive.py); clients remember their
rows' constraint values, so that the limits' noise dies out (client/row_memory.py). The rule above
with the papers' numbers is `SSCA.printed(batch=100)`. It is also what runs as soon as one of its
own settings is given: rho, gamma, tau, limits="whole", a growing penalty, or local steps.

D is all of space, or the problem's set. A convex set needs a projection, and w stays in it as a
mean of its points (server/qcqp_over.py: the same dual, with projected points). Over an `L0Ball`
wbar is the exact minimum on a support that is chosen by the multipliers, a heuristic, and w <-
H((1 - gamma) w + gamma wbar); from the round on in which the support is settled this is SSCA over
those entries alone.

The surrogates are kept as seen from w (server/surrogates.py): the paper's fhat in other words, and
tau may differ from round to round. Means over clients have weights p_i = N_i/N, so that they are
unbiased whatever the sizes. r(u) is linearized like everything else (the paper) or kept exact. The
penalty c may grow: c_1 < c_2 < .., each from where the last one ended, as long as some slack is
left.

Fbar_m is 0 before round 1, limits U_m included: that is Algorithm 2, of which F_m = F - U is one
function. Eq. (38)-(39) of the same paper average F alone from 0 and subtract U whole, which is
`limits="whole"`. The two differ by U times the weight that no round has had yet, prod (1 - rho_k):
from the first round on if rho_1 < 1, less and less later, and not at all if rho_1 = 1.

Beyond the paper: with `local_steps` K > 1 a client walks K steps of size `local_step` down its own
Lagrangian, divided by 1 + sum nu (client/lagrangian.py), and its surrogate is the mean of those at
the K points it saw (up d + 1 more, down M); with `tau=Tuned(...)` tau follows the largest curvature
v.H_m v / 2 that clients measure along the direction v of the last step (down d more, up 1 + M).
Without constraints the printed rule is heavy-ball descent: G <- (1 - rho)(1 - gamma) G + rho g,
w <- w - gamma/(2 tau) G (docs/constraints.md).
"""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.client import Batches, WithoutReplacement, column_trips, row_memory
from fedmin.client.lagrangian import seen_on_the_way
from fedmin.core import checks, schedule
from fedmin.core.column_problem import OnColumns
from fedmin.core.method import Exchange, Method, Reported, starting_point
from fedmin.core.problem import stacked
from fedmin.methods.fedht import stable_for
from fedmin.server import adaptive, tuning
from fedmin.server.surrogates import Surrogates, curvatures
from fedmin.server.tuning import Penalty, Tuned

PRINTED = {1: (0.4, 0.4, 0.4), 10: (0.6, 0.9, 0.3), 100: (0.9, 0.9, 0.3)}  # B: a_1, a_2, alpha
FIRST = schedule.Power(0.9, 0.3), schedule.Power(0.9, 0.35), 0.1  # rho, gamma, tau, if not given


class Server(NamedTuple):
    w: Array  # the model
    model: Surrogates
    tau: Any  # as its rule keeps it (server/tuning.py); `value` is the number
    penalty: Any  # c, the same
    multipliers: Array  # nu, f[M]; clients need it if K > 1, else it is only looked at
    stable: Array | None  # i[], over an L0Ball: rounds since the support last changed


class SSCA(Method):
    """Successive convex approximation on rows or columns, for any number of constraints.

    On rows also over a convex set with a projection, or over an `L0Ball`; with constraints or not.
    `SSCA()` measures what it needs. Give rho, gamma or tau (or limits="whole", a `Penalty`, or
    local steps) and the rule is the paper's, with 0.9/t^0.3, 0.9/t^0.35 and 0.1 for what is left
    out; `SSCA.printed(batch=100)` has all numbers as printed.

    >>> import fedmin
    >>> problem = fedmin.smallest(fedmin.Logistic(2), loss_at_most=0.5)
    >>> problem.num_constraints, sorted(fedmin.SSCA.handles)
    (1, ['constraints', 'domain', 'features', 'rows'])
    >>> fedmin.SSCA().automatic, fedmin.SSCA(tau=0.1).automatic
    (True, False)
    """

    rho: float | eqx.Module | None = None  # the weight of what is new
    gamma: float | eqx.Module | None = None  # how far to go to wbar
    tau: float | Tuned | None = None  # the surrogates' curvature
    batches: Batches = WithoutReplacement(100)
    penalty: float | Penalty = 1e5  # c
    regularizer: Literal["linear", "exact"] = eqx.field(default="linear", static=True)  # r(x)
    local_steps: int = eqx.field(default=1, static=True)  # K
    local_step: float = 0.1  # of the local steps
    limits: Literal["averaged", "whole"] = eqx.field(default="averaged", static=True)  # U

    citation = "ye2022sample"
    handles = frozenset({"rows", "features", "constraints", "domain"})

    def __check_init__(self):
        for name in ("rho", "gamma"):
            if getattr(self, name) is not None:
                schedule.check(name, getattr(self, name))
        if self.tau is not None:
            tuning.check("tau", self.tau, Tuned)
        tuning.check("penalty", self.penalty, Penalty)
        checks.is_a("batches", self.batches, Batches, "WithoutReplacement(100) or Full()")
        checks.known("regularizer", self.regularizer, ("linear", "exact"))
        checks.known("limits", self.limits, ("averaged", "whole"))
        checks.at_least("local_steps", self.local_steps, 1)
        checks.positive("local_step", self.local_step)

    @classmethod
    def printed(cls, batch: int = 100, **changes: Any) -> "SSCA":
        """The papers' settings for batches of 1, 10 or 100 rows a client.

        >>> import fedmin
        >>> fedmin.SSCA.printed(batch=10).rho
        Power(scale=0.6, exponent=0.3)
        """
        checks.known("batch", str(batch), [str(size) for size in PRINTED])
        a1, a2, alpha = PRINTED[batch]
        rho, gamma = schedule.Power(a1, alpha), schedule.Power(a2, alpha + 0.05)
        return cls(rho, gamma, FIRST[2], **{"batches": WithoutReplacement(batch)} | changes)

    @property
    def automatic(self) -> bool:
        """Whether all is measured: nothing of the printed rule's own was given."""
        own = (self.rho, self.gamma, self.tau)
        plain = self.limits == "averaged" and not isinstance(self.penalty, eqx.Module)
        return all(part is None for part in own) and plain and self.local_steps == 1

    def check(self, problem) -> None:
        if isinstance(problem, OnColumns) and (self.local_steps > 1 or self._tau.measured):
            raise ValueError("local_steps and a tuned tau work on rows only; columns take neither")
        domain = problem.domain
        if not (domain.can_project and (domain.convex or domain.keeps_entries)):
            raise ValueError(
                f"SSCA needs a convex set with a projection, or an L0Ball without groups; "
                f"{type(problem).__name__}(...) has {domain}. Give it one: "
                f"fedmin.over(problem, fedmin.L1Ball(10.0))"
            )
        if self.regularizer == "exact" and problem.ridge_weight() is None:
            raise ValueError(
                f"regularizer='exact' needs a regularizer of the form q |x|^2; that of "
                f"{type(problem).__name__} is not: use 'linear'"
            )

    @property
    def _tau(self) -> Any:
        return tuning.rule(FIRST[2] if self.tau is None else self.tau)

    @property
    def _schedules(self) -> tuple[Any, Any]:
        given = zip((self.rho, self.gamma), FIRST[:2], strict=True)
        rho, gamma = (usual if one is None else one for one, usual in given)
        return rho, gamma

    @property
    def _price(self) -> Any:
        return tuning.rule(self.penalty)

    def init_server(self, problem, roster, key: Array) -> Any:
        w = starting_point(problem, key)
        own = adaptive.start(problem, w) if self.automatic else self._first(problem, w)
        columns = isinstance(problem, OnColumns)
        return column_trips.start(problem, self.batches, own) if columns else own

    def _first(self, problem, w: Array) -> Server:
        return Server(
            w=w,
            model=Surrogates.none(problem, w, self.limits == "whole"),
            tau=self._tau.first(w),
            penalty=self._price.first(w),
            multipliers=jnp.zeros(problem.num_constraints, w.dtype),
            stable=None if problem.domain.convex else jnp.zeros((), jnp.int32),
        )

    def init_client(self, problem, roster, rows, key: Array) -> Any:
        if isinstance(problem, OnColumns) or not self._remembers(problem):
            return ()
        return row_memory.none(problem, rows, starting_point(problem, key).dtype)

    def _remembers(self, problem) -> bool:
        return self.automatic and row_memory.helps(problem, self.batches)

    def exchanges(self, problem, roster):
        if isinstance(problem, OnColumns):
            return column_trips.exchanges(problem, self.batches, lambda own: own.w, self.on_columns)
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, server, now):
        walks = self.local_steps > 1 and problem.num_constraints
        return {
            "model": server.w,
            **({"multipliers": server.multipliers} if walks else {}),
            **({"direction": server.tau.toward} if self._tau.measured else {}),
        }

    def client(self, problem, rows, state, down, now):
        w, drawn = down["model"], self.batches.draw(rows, now.secret, jnp.int32(0))
        batch = self.batches.read(rows, drawn)
        up = {}
        if "direction" in down:
            up["curvatures"] = curvatures(problem, w, down["direction"], batch)
        if self.local_steps > 1:
            nu, like = down.get("multipliers", jnp.zeros(0)), Surrogates.none(problem, w)
            seen = seen_on_the_way(self, problem, rows, w, nu, now, Surrogates.seen, like)
            return up | seen._asdict(), state
        values, up["gradients"] = problem.linearize(w, batch)
        if self._remembers(problem):
            up["values"], state = row_memory.mean(
                problem, self.batches, rows, drawn, batch, w, state
            )
        elif problem.num_constraints:
            up["values"] = problem.limits_of(values)
        return up, state

    def server(self, problem, server_rows, server, learnt, now):
        mean = dict(learnt.mean)
        curves = mean.pop("curvatures", None)
        if self.local_steps > 1:
            return self.advance(problem, server, Surrogates(**mean), now.round, curves)
        values = mean.get("values", jnp.zeros(0, server.w.dtype))
        return self.listen(problem, server, values, stacked(mean["gradients"]), now.round, curves)

    def on_columns(self, problem, server: Any, estimate: column_trips.Estimate, now) -> Reported:
        """The server's part where columns are split."""
        values = problem.limits_of(estimate.values)
        return self.listen(problem, server, values, estimate.gradients, now.round)

    def listen(self, problem, server: Any, values, slopes, t, curves=None) -> Reported:
        """The server's part, given values and gradients at its w."""
        if not self.automatic:
            new = Surrogates.seen(values, slopes, jnp.zeros_like(server.w))
            return self.advance(problem, server, new, t, curves)
        c, exact = jnp.asarray(self.penalty, server.w.dtype), self.regularizer == "exact"
        state, slack = adaptive.advance(problem, server, values, slopes, t, c, exact)
        return Reported(state, {"slack": slack} if problem.num_constraints else {})

    def advance(self, problem, server: Server, new: Surrogates, t, curves=None) -> Reported:
        """The server's part, given a round's estimate of the surrogates."""
        w, age = server.w, self._price.age(server.penalty, t)
        rho, gamma = (jnp.asarray(schedule.at(s, age), w.dtype) for s in self._schedules)
        if self.regularizer == "linear" and not problem.bare:
            slope = jax.grad(problem.regularizer)(w)
            new = new._replace(slopes=new.slopes.at[0].add(slope))
        tau = self._tau.update(server.tau, curves, rho)
        model = server.model.mixed(new, rho)
        exact = self.regularizer == "exact"
        answer = model.lowest(problem, w, tau.value, server.penalty.value, exact)
        way, stable = gamma * answer.w, None
        if server.stable is not None:
            way = problem.domain.project(w + way) - w
            stable = stable_for(server.stable, w, w + way)
        state = Server(
            w=w + way,
            model=model.moved(way),
            tau=self._tau.heading(tau, answer.w),
            penalty=self._price.update(server.penalty, answer.slack, t),
            multipliers=answer.multipliers,
            stable=stable,
        )
        return Reported(state, {"slack": answer.slack} if problem.num_constraints else {})

    def solution(self, server):
        own = column_trips.own(server)
        return own.x if self.automatic else own.w

    def report(self, server) -> dict[str, Any]:
        server = column_trips.own(server)
        if self.automatic:
            price = {"penalty": jnp.asarray(self.penalty, server.w.dtype)}
            limits = {"multiplier": server.multipliers} | price if len(server.level) else {}
            return {"step": server.step} | limits
        found = {"tau": server.tau.value} if self._tau.measured else {}
        if len(server.multipliers):
            found |= {"multiplier": server.multipliers, "penalty": server.penalty.value}
        return found if server.stable is None else found | {"stable": server.stable}

    def notes(self) -> tuple[str, ...]:
        if self.automatic:
            return ("the automatic rule is outside the papers' theorems",)
        return schedule.outside_theorem(*self._schedules)
