"""FedSSO: quasi-Newton steps at the server, from FedAvg's messages alone.   [ma2023fedsso] Alg. 1

client i    z <- x_k;  tau times  z <- z - alpha grad f_i(z)
server      g_k = mean of (x_k - z)/(alpha tau);  s = x_k - x_{k-1},  y = g_k - g_{k-1}
            every R rounds B <- I, else B by BFGS from (s, y);   x_{k+1} = x_k - eta B^-1 g_k
bytes       down d, up d  (pairs="same clients": up 2d + 1)

The matrix never travels (the paper's sentence that sends it is a slip). Clients send (z - x)/tau_i
with their own number of steps: with `epochs` and unequal sizes the mean of z - x would weigh client
i by p_i tau_i, and g_k would be the gradient of another function than f.

B is kept in one of the forms of inner/curvature.py, a bad pair has one of the rules of
inner/bfgs.py. `scaled` starts from B = I/gamma with gamma = y.s/|y|^2 (alpha tau before the first
pair: that step is FedAvg's). A guard stands before the model: where B^-1 g is not finite, not
downhill or longer than |g|/lambda, B begins anew; a step longer than reach max(1, |x|) is cut.

Where not all clients take part, g_k and g_{k-1} come from different ones, and y has their
difference in it, which does not vanish with s. Two remedies: pairs="same clients" takes y from the
clients that were there in both rounds (they keep their last gradient and send its change too);
average=L takes pairs from the means of x and g over L rounds [byrd2016stochastic], at no bytes.
Neither is a cure as measured in experiments/fedsso: with better pairs the steps are those of Newton
on a gradient that still is some clients' only.
"""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin import checks, schedule
from fedmin.inner import bfgs
from fedmin.inner.curvature import LBFGS, SMALL, Curvature, DenseInverse, Start
from fedmin.local import Batches, Blocks, check_local, descend
from fedmin.method import Exchange, Method, starting_point


class Points(NamedTuple):
    """Where the next pair begins, and what of its end is known."""

    x: Array  # x_{k-1}, or the mean of L of them
    g: Array  # g_{k-1}
    sum_x: Array  # of the rounds since, if pairs are of means (else of length 0)
    sum_g: Array
    rounds: Array  # i[], how many were summed
    known: Array  # bool: there is an x and g to begin with


class Counts(NamedTuple):
    """What became of pairs and steps so far."""

    accepted: Array
    repaired: Array
    skipped: Array
    resets: Array  # begun anew, by the clock R or by the guard
    cut: Array  # steps that were too long


class Server(NamedTuple):
    x: Array  # x_k
    curvature: Any  # the form's own
    points: Points
    along: Array  # the last step was -along B^-1 g
    age: Array  # rounds since B = I
    counts: Counts
    ratio: Array  # |y|^2/(y.s) of the last pair, 0 if y.s is
    length: Array  # of the last step


class Last(NamedTuple):
    """What a client keeps for pairs of the same clients."""

    g: Array
    round: Array


class FedSSO(Method):
    """Quasi-Newton steps at the server.

    >>> import fedmin
    >>> made = fedmin.data.quadratics(clients=4, dim=6, condition=100.0, heterogeneity=0.0)
    >>> method = fedmin.FedSSO(0.1, batches=fedmin.Full(), server_step=1.0)
    >>> result = fedmin.minimize(
    ...     fedmin.LeastSquares(6), fedmin.data.partition(made), method, rounds=30
    ... )
    >>> bool(result.final("objective") < 1e-3 * result.history["objective"][0])
    True
    """

    step: float | eqx.Module = 0.1  # alpha
    local_steps: int = eqx.field(default=1, static=True)  # tau
    epochs: int | None = eqx.field(default=None, static=True)  # tau as passes over the rows
    batches: Batches = Blocks(32)
    server_step: float | eqx.Module = 1.0  # eta
    curvature: Curvature | None = None  # None: DenseInverse() for small d, else LBFGS()
    reset: int = eqx.field(default=200, static=True)  # R
    least: float = 1e-4  # lambda
    most: float = 9999.0  # Lambda
    bad_pairs: bfgs.Rule = eqx.field(default="damp", static=True)
    scaled: bool = eqx.field(default=True, static=True)
    reach: float = 1.0
    pairs: Literal["rounds", "same clients"] = eqx.field(default="rounds", static=True)
    average: int = eqx.field(default=1, static=True)  # L

    citation = "ma2023fedsso"

    def __check_init__(self):
        check_local(self)
        for name in ("server_step", "least", "reach"):
            checks.positive(name, getattr(self, name))
        if not np.all(np.asarray(self.least) < np.asarray(self.most)):
            raise ValueError(
                f"least (lambda) must be below most (Lambda), got {self.least} and {self.most}"
            )
        checks.at_least("reset", self.reset, 1)
        checks.at_least("average", self.average, 1)
        checks.known("rule for bad pairs", self.bad_pairs, bfgs.RULES)
        checks.known("kind of pairs", self.pairs, ("rounds", "same clients"))
        if self.curvature is not None:
            checks.is_a("curvature", self.curvature, Curvature, "DenseInverse() or LBFGS(10)")
        if self.average > 1 and (self.pairs != "rounds" or self.bad_pairs == "damp"):
            raise ValueError(
                "average > 1 goes with pairs='rounds' and not with bad_pairs='damp': B s is known "
                "for the step of one round only"
            )

    def check(self, problem) -> None:
        self._form(problem.size()).check(problem.size())
        if self.bad_pairs == "printed" and not self._form(problem.size()).dense:
            raise ValueError(
                "bad_pairs='printed' changes the matrix and not the pair, so there must be one: "
                "use DenseInverse() or DenseSolve(), or another rule"
            )

    def _form(self, size: int) -> Curvature:
        if self.curvature is not None:
            return self.curvature
        return DenseInverse() if size <= SMALL else LBFGS()

    def _scale(self, round: Array, x: Array) -> Array:
        """gamma before there is a pair: B = I, or a step like FedAvg's."""
        alpha = schedule.at(self.step, round) * self.local_steps
        return jnp.asarray(alpha if self.scaled else 1.0, x.dtype)

    def init_server(self, problem, key: Array) -> Server:
        x = starting_point(problem, key)
        some = jnp.zeros_like(x) if self.average > 1 else jnp.zeros(0, x.dtype)
        none, zero = jnp.zeros((), jnp.int32), jnp.zeros((), x.dtype)
        return Server(
            x=x,
            curvature=self._form(len(x)).first(x, self._scale(none, x)),
            points=Points(
                jnp.copy(x), jnp.zeros_like(x), some, jnp.copy(some), none, jnp.array(False)
            ),
            along=zero,
            age=none,
            counts=Counts(*[none] * len(Counts._fields)),
            ratio=zero,
            length=zero,
        )

    def init_client(self, problem, rows, key: Array) -> Any:
        if self.pairs == "rounds":
            return ()
        return Last(jnp.zeros_like(starting_point(problem, key)), jnp.int32(-2))

    def exchanges(self, problem):
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, server, now):
        return {"model": server.x}

    def client(self, problem, rows, state, down, now):
        x = down["model"]
        z, steps = descend(self, problem, rows, x, now)
        update = (z - x) / steps.astype(x.dtype)
        if self.pairs == "rounds":
            return {"update": update}, state
        g = -update / schedule.at(self.step, now.round)
        both = (state.round == now.round - 1).astype(x.dtype)
        return {"update": update, "change": both * (g - state.g), "both": both}, Last(g, now.round)

    def server(self, problem, server_rows, server, aggregate, now):
        x, age = server.x, server.age
        g = -aggregate.mean["update"] / schedule.at(self.step, now.round)
        s, y, due, points = self._pair(server, g, aggregate)
        Bs = -server.along * server.points.g
        pair = bfgs.mend(self.bad_pairs, s, y, Bs, self.least, self.most)
        pair = pair._replace(used=pair.used & due)
        start = Start(self._scale(now.round, x), age == self.reset, 1 / self.least)
        step = self._form(len(x)).advance(server.curvature, pair, g, start, self.scaled)
        along, cut = self._cut(x, step.p, now)
        again = start.clear | step.anew
        return Server(
            x=x - along * step.p,
            curvature=step.state,
            points=points,
            along=along,
            age=jnp.where(again, 1, age + 1),
            counts=_counted(server.counts, pair, due & ~start.clear, again, cut),
            ratio=jnp.where(due, _ratio(s, y), server.ratio),
            length=along * jnp.linalg.norm(step.p),
        )

    def _pair(self, server: Server, g: Array, aggregate) -> tuple[Array, Array, Array, Points]:
        """s, y, whether they are a pair at all, and where the next one begins."""
        x, old = server.x, server.points
        begun = old._replace(x=x, g=g, known=jnp.array(True))
        if self.pairs == "same clients":
            both = aggregate.total["both"]
            y = aggregate.total["change"] / jnp.where(both > 0, both, 1)
            return x - old.x, y, old.known & (both > 0), begun
        if self.average == 1:
            return x - old.x, g - old.g, old.known, begun
        rounds = old.rounds + 1
        full = rounds == self.average
        sums = [old.sum_x + x, old.sum_g + g]
        mean_x, mean_g = (a / self.average for a in sums)
        left = [jnp.where(full, 0, a) for a in (*sums, rounds)]
        points = Points(
            x=jnp.where(full, mean_x, old.x),
            g=jnp.where(full, mean_g, old.g),
            sum_x=left[0],
            sum_g=left[1],
            rounds=left[2],
            known=old.known | full,
        )
        return mean_x - old.x, mean_g - old.g, old.known & full, points

    def _cut(self, x: Array, p: Array, now) -> tuple[Array, Array]:
        """By how much p is multiplied, and whether that is less than eta."""
        eta = jnp.asarray(schedule.at(self.server_step, now.round), x.dtype)
        farthest = self.reach * jnp.maximum(1, jnp.linalg.norm(x))
        length = eta * jnp.linalg.norm(p)
        cut = length > farthest
        return jnp.where(cut, eta * farthest / length, eta), cut

    def solution(self, server):
        return server.x

    def report(self, server) -> dict[str, Array]:
        counts = server.counts
        return {
            "pairs_accepted": counts.accepted,
            "pairs_repaired": counts.repaired,
            "pairs_skipped": counts.skipped,
            "resets": counts.resets,
            "steps_cut": counts.cut,
            "curvature": server.ratio,
            "step_norm": server.length,
        }


def _counted(counts: Counts, pair: bfgs.Pair, due: Array, again: Array, cut: Array) -> Counts:
    used, repaired = due & pair.used, due & pair.used & pair.repaired
    new = Counts(used & ~repaired, repaired, due & ~used, again, cut)
    return Counts(*(n + one.astype(n.dtype) for n, one in zip(counts, new, strict=True)))


def _ratio(s: Array, y: Array) -> Array:
    cur = jnp.dot(y, s)
    return jnp.where(cur == 0, 0, jnp.dot(y, y) / jnp.where(cur == 0, 1, cur))
