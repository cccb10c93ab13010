"""FedFW: Frank-Wolfe steps at the clients, one atom each a round.   [dadras2024federated] Alg. 1

    client i    g_i = grad f_i(x_i) + c_t (x_i - xbar);   s_i = lmo(g_i)
                x_i <- (1 - eta_t) x_i + eta_t s_i                 x_i is never overwritten by xbar
    server      xbar <- (1 - eta_t) xbar + eta_t sum p_i s_i
    bytes       down d or n atoms (the smaller), up an atom

With f = sum p_i f_i the penalized problem is  sum p_i (f_i(x_i) + c/2 |x_i - xbar|^2)  where
xbar = sum p_i x_i; its gradient by x_i is p_i g_i, and lmo does not see p_i. With p_i = 1/n this is
the paper's, whose g_i is ours over n: c_t here is its n lambda_t, with c_0 = `penalty`.

xbar is the mean of ALL x_i, also where some are absent and keep their x_i: the paper's line is that
only if all are there. How the server comes to know it, and what travels, is in client/routes.py.

With `pairwise` a step moves weight from one atom of x_i to another, gamma (s_i - v_i), v_i the atom
of x_i that the gradient would give up first [lacoste2015global]. That is two entries, and xbar
moves by their sum whoever is there; atoms once taken by mistake go again.

With `batches=PrivateChoices(...)` atoms are drawn with noise, and all that leaves a client follows
from its atoms: x_i, xbar and the drift are made of nothing else [talwar2015nearly].
"""

import warnings
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.client import Batches, Full, PrivateChoices, atoms, routes
from fedmin.client.atoms import LargerSet, Sets
from fedmin.core import checks
from fedmin.core.choices import refuse_vertices
from fedmin.core.method import Exchange, Method, Now, Reported, common_start
from fedmin.core.private import repeated
from fedmin.core.roster import Roster
from fedmin.core.schedule import ConvexSteps


class Server(NamedTuple):
    x: Array  # xbar
    kept: Any  # what the route keeps: copies of the x_i, or the last round's atoms


class Client(NamedTuple):
    x: Array  # x_i
    memory: Any  # y_i of FedFW+, d_i of FedFW-sto
    kept: Any  # what the route keeps: an xbar, where atoms are sent down
    near: Any  # the last atom, where the next is searched from it
    slow: Any  # whether this client has the larger set, where there is one


class FedFW(Method):
    """Federated Frank-Wolfe: no projections, and x_i that a growing penalty pulls together.

    `steps` are eta_t and the penalty's growth; `local_steps` K takes K steps a round towards K
    atoms; `smoothness`, an L of all f_i, lets each client choose its steps by its own gap,
    min(1, gap / ((L + c_t) |s - x|^2)), and is sent along. `pairwise` steps, over an L1Ball or a
    Simplex, need it. History has `drift`, how far the x_i are from xbar.

    >>> import fedmin
    >>> fedmin.FedFW(penalty=0.1, steps=fedmin.NonconvexSteps(rounds=100)).local_steps
    1
    """

    penalty: float = 0.1  # c_0 = n lambda_0
    steps: eqx.Module = ConvexSteps()  # eta_t, and c_t / c_0
    local_steps: int = eqx.field(default=1, static=True)  # K
    smoothness: float | None = None  # L
    pairwise: bool = eqx.field(default=False, static=True)  # swap atoms
    split: LargerSet | None = None
    sums_only: bool = eqx.field(default=False, static=True)  # no copies at the server
    batches: Batches = Full()  # or PrivateChoices(...), which draw atoms with noise

    takes_batches: ClassVar[bool] = False
    handles = frozenset({"rows", "domain"})
    citation = "dadras2024federated"
    sums = "sums_only=True"

    def __check_init__(self):
        checks.between("penalty", self.penalty, 0.0)
        checks.at_least("local_steps", self.local_steps, 1)
        if self.smoothness is not None:
            checks.positive("smoothness", self.smoothness)
        if self.split is not None:
            checks.is_a("split", self.split, LargerSet, "LargerSet(L2Ball(10.0), whose=...)")
        atoms.check_steps(self.steps, "eta", "growth")
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

    def check(self, problem):
        name = type(self).__name__
        atoms.check_atoms(name, problem)
        if self._draws:
            refuse_vertices(problem.domain)
        sets = self._sets(problem)
        if self.pairwise:
            atoms.check_swaps(name, problem, self.smoothness)
        if sets.larger is not None:
            atoms.check_larger(sets.domain, sets.larger, problem.size())
        if not isinstance(self.penalty, jax.core.Tracer) and not jnp.any(self.penalty > 0):
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
        return Server(x, route.server_memory(x))

    def init_client(self, problem, roster, rows, key: Array) -> Client:
        x, route = common_start(problem), self.route(problem, roster)
        sets = self._sets(problem)
        near = atoms.zeros(sets.like(x)) if sets.searches else ()
        slow = () if self.split is None else jnp.asarray(self.split.whose(rows), bool)
        return Client(x, self.first_memory(x), route.client_memory(x), near, slow)

    def chance(self):
        if not hasattr(self.steps, "p"):
            return None
        return 1.0 if self.steps.p is None else float(self.steps.p)

    def exchanges(self, problem, roster):
        route = self.route(problem, roster)
        down, client, server = (
            partial(f, route) for f in (self.broadcast, self.client, self.server)
        )
        return (Exchange(down, client, server, route.reduce, unchanged=True),)

    def broadcast(self, route, problem, server, now):
        return route.down(server.x, server.kept)

    def client(self, route, problem, rows, own, down, now):
        mean, kept = route.mean(own.kept, down, now.round)
        sets, L = self._sets(problem), self.smoothness

        def step(carry, at):
            x, memory, near = carry
            k, eta, growth = at
            batch = self._read(rows, k, now)
            slope, memory = self.slope(problem, batch, x, memory, mean, k, now)
            c = self.penalty * growth
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
        return up, Client(x, memory, kept, near, own.slow)

    def behind(self, problem, roster, rows, state, down, now):
        """g_i of the first local step, without the noise by which an atom may be drawn."""
        mean, _ = self.route(problem, roster).mean(state.kept, down, now.round)
        first = jnp.zeros((), jnp.int32)
        batch = self._read(rows, first, now)
        slope, _ = self.slope(problem, batch, state.x, state.memory, mean, first, now)
        return slope + self.penalty * self._pace.at(now.round)[1][0] * (state.x - mean)

    def server(self, route, problem, server_rows, server, learnt, now):
        x, kept = route.take(server.x, server.kept, learnt, now.round)
        # sqrt(sum p_i |x_i - xbar|^2) of those present, before the step
        drift = jnp.sqrt(routes.total(learnt, "drift") / learnt.weight)
        return Reported(Server(x, kept), {"drift": drift})

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
    def _pace(self) -> routes.Pace:
        return routes.Pace(self.steps, self.local_steps)
