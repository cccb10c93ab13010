"""FedSSO: quasi-Newton steps at the server, from FedAvg's messages alone.   [ma2023fedsso] Alg. 1

client i    z <- x_k;  tau times  z <- z - alpha grad f_i(z);   g_i = (x_k - z)/(alpha tau)
server      g_k = mean of g_i;  s = x_k - x_{k-1},  y = g_k - g_{k-1}
            every R rounds B <- I, else B by BFGS from (s, y);   x_{k+1} = x_k - eta B^-1 g_k
bytes       down d, up d

The matrix never travels (the paper's sentence that sends it is a slip). Clients send (z - x)/tau_i
with their own number of steps: with `epochs` and unequal sizes the mean of z - x would weigh client
i by p_i tau_i, and g_k would be the gradient of another function than f.

B is kept in one of the forms of server/quasi_newton/forms.py, a bad pair has one of the rules of
server/quasi_newton/bfgs.py. `scaled` starts from B = I/gamma with gamma = y.s/|y|^2 (alpha tau
before the first pair: that step is FedAvg's; alpha times the epochs if they are given). A guard
stands before the model: where B^-1 g is not finite, not downhill or longer than |g|/lambda, B
begins anew; a step longer than reach max(1, |x|) is cut.

Where not all clients take part, g_k is some clients' gradient, and y has the difference between two
cohorts in it, which does not vanish with s. So there are two remedies, and both are needed:

    remember               g_k = mean of all clients' last g_i [gu2021fast]: clients keep theirs and
                           send its change, so the server keeps one vector, not one a client;
                           up 1 more
    pairs="both points"    y = mean over those present of g_i at x_k less g_i at x_{k-1}, from the
                           same rows [schraudolph2007stochastic]: twice the work of a client;
                           down 2d, up 2d
    pairs="same clients"   y from those that were there in the last round too; up 2d + 1

With `drift` the local steps are corrected as SCAFFOLD's are, so that the fixed point is exact with
any number of them:

    client i    tau times  z <- z - alpha (grad f_i(z) - c_i + c);   c_i <- g_i - c + c_i
    server      c = g_{k-1}, which it has: the mean of all c_i
    bytes       down 2d, up d;   for all clients in all rounds

A remembered gradient is old: with clients in a share q of the rounds take eta of about q/2 or less.
How far each gets is measured in experiments/fedsso (sso-absent).
"""

from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin.client import Blocks
from fedmin.core import checks, schedule
from fedmin.core.method import Exchange, Reported, starting_point
from fedmin.core.schedule import Stages
from fedmin.methods.guarded import Guarded
from fedmin.server.quasi_newton import bfgs
from fedmin.server.quasi_newton.forms import LBFGS, SMALL, DenseInverse, QuasiNewton, Start

Pairs = Literal["rounds", "same clients", "both points"]


class Points(NamedTuple):
    """Where the next pair begins."""

    x: Array  # x_{k-1}
    g: Array  # g_{k-1}
    known: Array  # bool: there are such


class Server(NamedTuple):
    x: Array  # x_k
    curvature: Any  # the form's own
    points: Points
    along: Array  # the last step was -along B^-1 g
    age: Array  # rounds since B = I
    memory: Any  # of what clients sent before, if it is remembered


class Memory(NamedTuple):
    """All clients' last gradients."""

    sum: Array  # of p_i g_i
    seen: Array  # of p_i, of those that have sent one


class Last(NamedTuple):
    """What a client keeps."""

    g: Array  # its g_i
    round: Array  # of when; below 0 before the first


class FedSSO(Guarded):
    """Quasi-Newton steps at the server.

    >>> import fedmin
    >>> sample = fedmin.data.quadratics(clients=4, dim=6, condition=100.0, heterogeneity=0.0)
    >>> method = fedmin.FedSSO(0.1, batches=fedmin.Full(), server_step=1.0)
    >>> result = fedmin.minimize(
    ...     fedmin.LeastSquares(6), fedmin.data.partition(sample), method, rounds=30
    ... )
    >>> bool(result.final("objective") < 1e-3 * result.history["objective"][0])
    True
    """

    # alpha, a number or a schedule; or "auto"
    step: float | eqx.Module | Literal["auto"] = eqx.field(default=0.1, converter=schedule.step)
    local_steps: int | Stages = eqx.field(default=1, static=True)  # tau
    epochs: int | None = eqx.field(default=None, static=True)  # tau as passes over the rows
    server_step: float | eqx.Module = 1.0  # eta
    curvature: QuasiNewton | None = None  # left out: DenseInverse() for small d, else LBFGS()
    reset: int = eqx.field(default=200, static=True)  # R
    least: float = 1e-4  # lambda
    most: float = 9999.0  # Lambda
    bad_pairs: bfgs.Rule = eqx.field(default="damp", static=True)  # y.s too small
    scaled: bool = eqx.field(default=True, static=True)  # B begins at a pair's scale
    reach: float = 1.0  # steps are at most this times max(1, |x|) long
    pairs: Pairs = eqx.field(default="rounds", static=True)  # what y is the change of
    remember: bool = eqx.field(default=False, static=True)  # absent clients' gradients
    drift: bool = eqx.field(default=False, static=True)  # clients' local steps are corrected

    citation = "ma2023fedsso"

    def __check_init__(self):
        for name in ("server_step", "least", "reach"):
            checks.positive(name, getattr(self, name))
        if not np.all(np.asarray(self.least) < np.asarray(self.most)):
            raise ValueError(
                f"least (lambda) must be below most (Lambda), got {self.least} and {self.most}"
            )
        checks.at_least("reset", self.reset, 1)
        checks.known("rule for bad pairs", self.bad_pairs, bfgs.RULES)
        checks.known("kind of pairs", self.pairs, get_args(Pairs))
        if self.drift and (self.remember or self.pairs != "rounds"):
            raise ValueError(
                "drift=True is for all clients in all rounds: pairs='rounds', remember=False"
            )
        if self.curvature is not None:
            checks.is_a("curvature", self.curvature, QuasiNewton, "DenseInverse() or LBFGS(10)")

    @classmethod
    def printed(cls, step: float = 0.1, server_step: float = 1.0, **others: Any) -> "FedSSO":
        """The paper's Algorithm 1 and settings: tau = 5, batches of 100, B as a matrix from I on,
        its rule for bad pairs, steps of any length; alpha and eta are those of its search.

        >>> import fedmin
        >>> fedmin.FedSSO.printed(0.3).bad_pairs
        'printed'
        """
        settings = {"local_steps": 5, "batches": Blocks(100), "server_step": server_step}
        form = {"curvature": DenseInverse(), "bad_pairs": "printed", "scaled": False, "reach": 1e9}
        return cls(step, **settings | form | others)

    def check(self, problem) -> None:
        self._form(problem.size()).check(problem.size())
        if self.bad_pairs == "printed" and not self._form(problem.size()).dense:
            raise ValueError(
                "bad_pairs='printed' changes the matrix and not the pair, so there must be one: "
                "use DenseInverse() or DenseSolve(), or another rule"
            )

    def _form(self, size: int) -> QuasiNewton:
        if self.curvature is not None:
            return self.curvature
        return DenseInverse() if size <= SMALL else LBFGS()

    def _scale(self, round: Array, x: Array) -> Array:
        """gamma before there is a pair: B = I, or a step like FedAvg's."""
        if not self.scaled:
            return jnp.ones((), x.dtype)
        tau = self.epochs or schedule.at(self.local_steps, round)
        return jnp.asarray(schedule.at(self.step, round), x.dtype) * jnp.asarray(tau, x.dtype)

    def start(self, problem, roster, key: Array) -> Server:
        x = starting_point(problem, key)
        none, zero = jnp.zeros((), jnp.int32), jnp.zeros((), x.dtype)
        return Server(
            x=x,
            curvature=self._form(len(x)).first(x, 1.0 if self._auto else self._scale(none, x)),
            points=Points(jnp.copy(x), jnp.zeros_like(x), jnp.array(False)),
            along=zero,
            age=none
            + self.reset * self._auto,  # B begins with the first step whose length is known
            memory=Memory(jnp.zeros_like(x), zero) if self.remember else (),
        )

    def memory(self, problem, roster, rows, key: Array) -> Any:
        if self.drift:
            return jnp.zeros_like(starting_point(problem, key))  # c_i
        if not self._keeps:
            return ()
        return Last(jnp.zeros_like(starting_point(problem, key)), jnp.int32(-2))

    def trip(self) -> Exchange:
        # a pair is a difference of two rounds: what a channel brings later is in it as curvature
        entire = self.remember or self.drift
        return Exchange(self.broadcast, self.client, self.server, prompt=True, entire=entire)

    def exchanges(self, problem, roster):
        if self.drift and not roster.everyone:
            raise ValueError(
                "FedSSO(drift=True) needs all clients in every round: c is the mean of their c_i; "
                "with absent clients give remember=True and pairs='both points' instead"
            )
        return super().exchanges(problem, roster)

    def at_pace(self, eta, scale):
        # longer steps than 1/L are the curvature's to make; its bounds are in units of L
        L = 1 / jnp.where(eta > 0, eta, 1)
        numbers = {"least": self.least * L, "most": self.most * L, "reach": self.reach * scale}
        return self.having(step=eta * jnp.minimum(scale, 1), **numbers)

    def shortened(self, own, x, by):
        """B begins anew, since it led there; the next pair begins at the next model."""
        points = own.points._replace(known=jnp.array(False))
        age = jnp.full_like(own.age, self.reset)
        return own._replace(x=x + by * (own.x - x), points=points, age=age)

    @property
    def _keeps(self) -> bool:
        """Whether clients keep their last gradient."""
        return self.remember or self.pairs == "same clients"

    def broadcast(self, problem, server, now):
        if self.drift:
            return {"model": server.x, "control": server.points.g}
        before = {"before": server.points.x} if self.pairs == "both points" else {}
        return {"model": server.x, **before}

    def client(self, problem, rows, last, down, now):
        if self.drift:
            correction = down["control"] - last
            update = self._update(problem, rows, down["model"], now, lambda z: correction)
            return {"update": update}, -update / schedule.at(self.step, now.round) - correction
        update = self._update(problem, rows, down["model"], now)
        g = -update / schedule.at(self.step, now.round)
        up = {"update": update}
        if self.remember:
            new = (last.round < 0).astype(g.dtype)
            up = {"change": g - (1 - new) * last.g, "new": new}
        if self.pairs == "same clients":
            both = (last.round == now.round - 1).astype(g.dtype)
            up |= {"y": both * (g - last.g), "both": both}
        if self.pairs == "both points":
            earlier = self._update(problem, rows, down["before"], now)
            up |= {"y": (earlier - update) / schedule.at(self.step, now.round)}
        return up, Last(g, now.round) if self._keeps else last

    def _update(self, problem, rows, x: Array, now, also: Any = None) -> Array:
        """(z - x)/tau, from the round's batches."""
        z, steps = self.descend(problem, rows, x, now, also)
        return (z - x) / steps.astype(x.dtype)

    def alone(self):
        if self.pairs != "same clients":
            return ""
        return (
            "with pairs='same clients' adds up those who were there in two rounds, often a single "
            "one; give pairs='rounds' or 'both points'"
        )

    def concerns(self, info):
        good = sum(int(info.get(name, 0)) for name in ("pairs_accepted", "pairs_repaired"))
        skipped = int(info.get("pairs_skipped", 0))
        if good or skipped < 3:
            return ""
        return (
            f"all {skipped} pairs were refused, so that no curvature was learnt; "
            f'bad_pairs="damp" repairs them, and pairs="same clients" makes better ones'
        )

    def server(self, problem, server_rows, server, learnt, now):
        x, age, total, memory = server.x, server.age, learnt.total, server.memory
        if self.remember:
            memory = Memory(memory.sum + total["change"], memory.seen + total["new"])
            g = memory.sum / jnp.where(memory.seen > 0, memory.seen, 1)
        else:
            g = -learnt.mean["update"] / schedule.at(self.step, now.round)
        s, y, due = self._pair(server, g, learnt)
        Bs = -server.along * server.points.g
        pair = bfgs.mend(self.bad_pairs, s, y, Bs, self.least, self.most)
        pair = pair._replace(used=pair.used & due)
        start = Start(self._scale(now.round, x), age == self.reset, 1 / self.least)
        step = self._form(len(x)).advance(server.curvature, pair, g, start, self.scaled)
        along, cut = self._cut(x, step.p, now)
        again = start.clear | step.anew
        state = Server(
            x=x - along * step.p,
            curvature=step.state,
            points=Points(x, g, jnp.array(True)),
            along=along,
            age=jnp.where(again, 1, age + 1),
            memory=memory,
        )
        used, repaired = pair.used & ~start.clear, pair.used & pair.repaired & ~start.clear
        info = {
            "pairs_accepted": used & ~repaired,
            "pairs_repaired": repaired,
            "pairs_skipped": due & ~start.clear & ~used,
            "resets": again,  # begun anew, by the clock R or by the guard
            "steps_cut": cut,
            "curvature": _ratio(s, y),  # of the last pair
            "step_norm": along * jnp.linalg.norm(step.p),
        }
        return Reported(state, info)

    def _pair(self, server: Server, g: Array, learnt) -> tuple[Array, Array, Array]:
        """s, y, and whether they are a pair at all."""
        old, total = server.points, learnt.total
        s = server.x - old.x
        if self.pairs == "rounds":
            return s, g - old.g, old.known
        weight = total["both"] if self.pairs == "same clients" else learnt.weight
        there = weight > 0
        return s, total["y"] / jnp.where(there, weight, 1), old.known & there

    def _cut(self, x: Array, p: Array, now) -> tuple[Array, Array]:
        """By how much p is multiplied, and whether that is less than eta."""
        eta = jnp.asarray(schedule.at(self.server_step, now.round), x.dtype)
        farthest = self.reach * jnp.maximum(1, jnp.linalg.norm(x))
        length = eta * jnp.linalg.norm(p)
        cut = length > farthest
        return jnp.where(cut, eta * farthest / length, eta), cut


def _ratio(s: Array, y: Array) -> Array:
    """|y|^2/(y.s), 0 if y.s is."""
    cur = jnp.dot(y, s)
    return jnp.where(cur == 0, 0, jnp.dot(y, y) / jnp.where(cur == 0, 1, cur))
