"""FedFW: Frank-Wolfe steps at the clients, one atom each a round.   [dadras2024federated] Alg. 1

    client i    g_i = grad f_i(x_i) + c_t (x_i - xbar);   s_i = lmo(g_i)
                x_i <- (1 - eta_t) x_i + eta_t s_i                 x_i is never overwritten by xbar
    server      xbar <- (1 - eta_t) xbar + eta_t sum p_i s_i
    bytes       down d or n atoms (the smaller), up an atom; without a penalty given one number
                more down, two more up

With f = sum p_i f_i the penalized problem is  sum p_i (f_i(x_i) + c/2 |x_i - xbar|^2)  where
xbar = sum p_i x_i; its gradient by x_i is p_i g_i, and lmo does not see p_i. With p_i = 1/n this is
the paper's, whose g_i is ours over n: c_t here is its n lambda_t, with c_0 = `penalty`.

xbar is the mean of ALL x_i, also where some are absent and keep their x_i: the paper's line is that
only if all are there. How the server comes to know it, and what travels, is in client/routes.py.

c_0 left out is  rms |grad f_i(x_0) - grad F(x_0)| / diameter of the set,  in a penalty's units:
there the pull c_0 |x_i - xbar| of clients as far apart as the set allows is as long as what their
gradients differ by. It is measured from sums (client/differences.py). x_i = xbar in the first
round, so that the penalty does nothing before it is known.

With `pairwise` a step moves weight from one atom of x_i to another, gamma (s_i - v_i), v_i the atom
of x_i that the gradient would give up first [lacoste2015global]. That is two entries, and xbar
moves by their sum whoever is there; atoms once taken by mistake go again.

With `batches=PrivateChoices(...)` atoms are drawn with noise, and all that leaves a client follows
from its atoms: x_i, xbar and the drift are made of nothing else [talwar2015nearly]. The penalty
must be given then: noise does not cover what would be measured.
"""

import warnings
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.client import (
    Batches,
    Full,
    PrivateChoices,
    PrivateRows,
    atoms,
    differences,
    routes,
)
from fedmin.client.atoms import LargerSet, Sets
from fedmin.core import checks
from fedmin.core.choices import refuse_vertices
from fedmin.core.method import Exchange, Method, Now, Reported, common_start
from fedmin.core.private import repeated
from fedmin.core.roster import Roster
from fedmin.core.schedule import AtomSteps, ConvexSteps


class Server(NamedTuple):
    x: Array  # xbar
    kept: Any  # what the route keeps: copies of the x_i, or the last round's atoms
    apart: Any  # what is known of how the clients differ, where it is to say the penalty


class Client(NamedTuple):
    x: Array  # x_i
    memory: Any  # y_i of FedFW+, d_i of FedFW-sto
    kept: Any  # what the route keeps: an xbar, where atoms are sent down
    near: Any  # the last atom, where the next is searched from it
    slow: Any  # whether this client has the larger set, where there is one
    sketch: Any  # of its first gradient, where the penalty is measured


class FedFW(Method):
    """Federated Frank-Wolfe: no projections, and x_i that a growing penalty pulls together.

    Nothing is to be set: the penalty is measured, the steps are the convex ones of the
    participation. `FedFW.printed()` has the paper's with a number.

    `steps` are eta_t and the penalty's growth; `local_steps` K takes K steps a round towards K
    atoms; `smoothness`, an L of all f_i, lets each client choose its steps by its own gap,
    min(1, gap / ((L + c_t) |s - x|^2)), and is sent along. `pairwise` steps, over an L1Ball or a
    Simplex, need it. History has `drift`, how far the x_i are from xbar.

    >>> import fedmin
    >>> sample = fedmin.data.sparse_regression(200, 20, support=3, noise=0.0, clients=4)
    >>> problem = fedmin.over(fedmin.LeastSquares(20), fedmin.L1Ball(5.0))
    >>> method, federation = fedmin.FedFW(), fedmin.data.partition(sample)
    >>> result = fedmin.minimize(problem, federation, method, rounds=300)
    >>> bool(result.final("objective") < 0.1 * result.history["objective"][0])
    True
    """

    penalty: float | None = None  # c_0 = n lambda_0; left out: measured
    # eta_t, and c_t / c_0; left out: ConvexSteps of the participation
    steps: AtomSteps | None = None
    local_steps: int = eqx.field(default=1, static=True)  # K
    smoothness: float | None = None  # L
    pairwise: bool = eqx.field(default=False, static=True)  # swap atoms
    split: LargerSet | None = None
    sums_only: bool = eqx.field(default=False, static=True)  # no copies at the server
    batches: Batches = Full()  # or PrivateChoices(...), which draw atoms with noise

    takes_batches: ClassVar[bool] = False
    _printed_steps: ClassVar[Any] = ConvexSteps()
    handles = frozenset({"rows", "domain"})
    citation = "dadras2024federated"
    sums = "sums_only=True"

    def __check_init__(self):
        if self.penalty is not None:
            checks.between("penalty", self.penalty, 0.0)
        checks.at_least("local_steps", self.local_steps, 1)
        if self.smoothness is not None:
            checks.positive("smoothness", self.smoothness)
        if self.split is not None:
            checks.is_a("split", self.split, LargerSet, "LargerSet(L2Ball(10.0), whose=...)")
        atoms.check_steps(self._schedule, "eta", "growth")
        if self.pairwise and self.split is not None:
            raise ValueError("give pairwise=True or a split, not both: x_i is in one set only then")
        if not self.takes_batches and not isinstance(self.batches, Full | PrivateChoices):
            raise ValueError(
                f"{type(self).__name__} takes gradients on all rows, Full() or "
                f"PrivateChoices(...); FedFWSto takes batches, got {self.batches}"
            )
        if self._draws and (self.pairwise or self.smoothness is not None or self.split is not None):
            raise ValueError(
                f"{type(self).__name__} with PrivateChoices takes neither smoothness, pairwise nor "
                f"split: they read more of the rows than noise covers; leave them out"
            )

    @classmethod
    def printed(cls, penalty: float = 0.1, **others: Any) -> Any:
        """The paper's settings: a penalty that was searched for, and the steps of its theorems for
        clients that are all there, unless `steps` says others.

        >>> import fedmin
        >>> fedmin.FedFW.printed(0.01).steps
        ConvexSteps()
        """
        return cls(penalty, **({"steps": cls._printed_steps} | others))

    def for_chance(self, chance):
        return self if self.steps is not None else replace(self, steps=ConvexSteps(chance))

    def check(self, problem):
        name = type(self).__name__
        atoms.check_atoms(name, problem)
        if self._draws:
            refuse_vertices(problem.domain)
        if self._measures and isinstance(self.batches, PrivateChoices | PrivateRows):
            raise ValueError(
                f"{name} with {type(self.batches).__name__} needs a penalty, a number such as 0.1: "
                f"what would be measured of the rows has no noise"
            )
        sets = self._sets(problem)
        if self.pairwise:
            atoms.check_swaps(name, problem, self.smoothness)
        if sets.larger is not None:
            atoms.check_larger(sets.domain, sets.larger, problem.size())
        penalty: Any = 1.0 if self._measures else self.penalty
        if not isinstance(penalty, jax.core.Tracer) and not jnp.any(penalty > 0):
            warnings.warn(
                f"{name}(penalty=0): nothing keeps the clients' x_i together, so xbar need not go "
                f"to a solution; give penalty > 0",
                stacklevel=4,
            )

    def route(self, problem, roster: Roster) -> routes.Route:
        """What travels, for so many clients of whom all are always there or not."""
        if self.pairwise:
            return routes.Moves(pairwise=True)
        sets, pace, own_steps = self._sets(problem), self._pace, self.smoothness is not None
        model = jax.eval_shape(problem.init, jax.random.key(0))
        whole, part = atoms.size(model), self.local_steps * atoms.size(sets.like(model))
        n = roster.clients
        if roster.everyone and not own_steps and part <= whole:
            shared = n * part < whole and not self.sums_only
            return routes.SharedAtoms(sets, pace, n) if shared else routes.Atoms(sets, pace)
        if self.sums_only or part >= whole:
            return routes.Moves()
        return routes.Copies(sets, pace, n, own_steps)

    def init_server(self, problem, roster, key: Array) -> Server:
        x, route = common_start(problem), self.route(problem, roster)
        apart = differences.nothing(x) if self._measures else ()
        return Server(x, route.server_memory(x), apart)

    def init_client(self, problem, roster, rows, key: Array) -> Client:
        x, route = common_start(problem), self.route(problem, roster)
        sets = self._sets(problem)
        near = atoms.zeros(sets.like(x)) if sets.searches else ()
        slow = () if self.split is None else jnp.asarray(self.split.whose(rows), bool)
        sketch = differences.sketch(problem, x, rows) if self._measures else ()
        return Client(x, self.first_memory(x), route.client_memory(x), near, slow, sketch)

    def chance(self):
        if self.steps is None or not hasattr(self.steps, "p"):
            return None
        return 1.0 if self.steps.p is None else float(self.steps.p)

    def exchanges(self, problem, roster):
        route = self.route(problem, roster)
        down, client, server = (
            partial(f, route) for f in (self.broadcast, self.client, self.server)
        )
        return (Exchange(down, client, server, route.reduce, unchanged=True),)

    def broadcast(self, route, problem, server, now):
        down = route.down(server.x, server.kept)
        if not self._measures:
            return down
        return down | {"penalty": differences.rms(server.apart) / self._width(problem, server.x)}

    def client(self, route, problem, rows, own, down, now):
        if "penalty" in down:
            up, own = self._with(down).client(route, problem, rows, own, _but(down), now)
            return up | {"sketch": differences.told(own.sketch, self._turn(now))}, own
        mean, kept = route.mean(own.kept, down, now.round)
        sets, L = self._sets(problem), self.smoothness
        penalty: Any = self.penalty

        def step(carry, at):
            x, memory, near = carry
            k, eta, growth = at
            batch = self._read(rows, k, now)
            slope, memory = self.slope(problem, batch, x, memory, mean, k, now)
            c = penalty * growth
            g = slope + c * (x - mean)
            bend = None if L is None else L + c
            s: Any
            if self.pairwise:
                s = atoms.swap(problem.domain, x, g, bend)
                x = x + s.dense()
            else:
                drawn = batch if self._draws else None
                x, s, eta = sets.step(x, g, eta, bend, own.slow, near, drawn)
                near = s if sets.searches else ()
            return (x, memory, near), (s, eta)

        numbers = jnp.arange(self.local_steps, dtype=jnp.int32)
        start, each = (own.x, own.memory, own.near), (numbers, *self._pace.at(now.round))
        with repeated(self.local_steps):
            (x, memory, near), (taken, etas) = lax.scan(step, start, each)
        away = own.x - mean
        up = {**route.up(routes.Walk(own.x, x, taken, etas)), "drift": away @ away}
        return up, Client(x, memory, kept, near, own.slow, own.sketch)

    def behind(self, problem, roster, rows, state, down, now):
        """g_i of the first local step, without the noise by which an atom may be drawn."""
        if "penalty" in down:
            measured = self._with(down)
            return measured.behind(problem, roster, rows, state, _but(down), now)
        mean, _ = self.route(problem, roster).mean(state.kept, down, now.round)
        first = jnp.zeros((), jnp.int32)
        batch = self._read(rows, first, now)
        slope, _ = self.slope(problem, batch, state.x, state.memory, mean, first, now)
        penalty: Any = self.penalty
        return slope + penalty * self._pace.at(now.round)[1][0] * (state.x - mean)

    def server(self, route, problem, server_rows, server, learnt, now):
        x, kept = route.take(server.x, server.kept, learnt, now.round)
        # sqrt(sum p_i |x_i - xbar|^2) of those present, before the step
        drift = jnp.sqrt(routes.total(learnt, "drift") / learnt.weight)
        apart = server.apart
        if self._measures:
            some = routes.total(learnt, "sketch")
            apart = differences.added(apart, self._turn(now), some, learnt.weight)
        return Reported(Server(x, kept, apart), {"drift": drift})

    def solution(self, server):
        return server.x

    def first_memory(self, x: Array) -> Any:
        """What a variant remembers besides x_i."""
        return ()

    def slope(self, problem, batch, x, memory, mean, k, now: Now) -> tuple[Array, Any]:
        """The gradient at x_i in the k-th local step, and what is remembered of it."""
        return problem.grad(x, batch), memory

    def _read(self, rows, k, now: Now) -> Any:
        """The rows of the k-th local step."""
        if isinstance(self.batches, Full):
            return rows
        return self.batches.read(rows, self.batches.draw(rows, now.secret, k))

    @property
    def _draws(self) -> bool:
        return isinstance(self.batches, PrivateChoices)

    def _sets(self, problem) -> Sets:
        larger = None if self.split is None else self.split.domain.fitted(problem.parts)
        return Sets(problem.domain, larger)

    @property
    def _schedule(self) -> Any:
        return ConvexSteps() if self.steps is None else self.steps

    @property
    def _pace(self) -> routes.Pace:
        return routes.Pace(self._schedule, self.local_steps)

    @property
    def _measures(self) -> bool:
        """Whether the penalty is measured."""
        return self.penalty is None

    def _with(self, down: dict[str, Any]) -> Any:
        """The same method with the penalty that was told, known only as a program runs."""
        none = lambda a: a is None
        return eqx.tree_at(lambda m: m.penalty, self, down["penalty"], is_leaf=none)

    def _turn(self, now: Now) -> Array:
        chance = getattr(self._schedule, "p", None)
        return differences.turn(now.round, 1.0 if chance is None else chance)

    def _width(self, problem, x: Array) -> Array:
        return jnp.asarray(problem.domain.diameter, x.dtype)


def _but(down: dict[str, Any]) -> dict[str, Any]:
    """What was told without the penalty."""
    return {name: part for name, part in down.items() if name != "penalty"}
