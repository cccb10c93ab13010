"""FedFW: Frank-Wolfe steps at the clients, one atom each a round.   [dadras2024federated] Alg. 1

    client i    g_i = grad f_i(x_i) + c_t (x_i - xbar);   s_i = lmo(g_i)
                x_i <- (1 - eta_t) x_i + eta_t s_i                 x_i is never overwritten by xbar
    server      xbar <- (1 - eta_t) xbar + eta_t sum p_i s_i
    bytes       down d or n atoms (the smaller), up an atom

With f = sum p_i f_i the penalized problem is  sum p_i (f_i(x_i) + c/2 |x_i - xbar|^2)  where
xbar = sum p_i x_i; its gradient by x_i is p_i g_i, and lmo does not see p_i. With p_i = 1/n this is
the paper's, whose g_i is ours over n: c_t here is its n lambda_t, with c_0 = `penalty`.

xbar is the mean of ALL x_i, also where some are absent and keep their x_i:
    xbar <- xbar + eta_t sum over present of p_i (s_i - x_i)
The paper's line is that only if all are there. The server cannot know the x_i of those that are:
each is a mean of all atoms this client ever sent, so nothing smaller than d numbers a client says
it anew. But the server was told those atoms: so it keeps a copy of every x_i (n d numbers at the
server), clients still send their atom only, and it must know whose atom it is. Where an atom is no
smaller than x itself (L2Ball), or with `sums_only`, clients send eta (s_i - x_i), d numbers, and
the server learns their sum and keeps nothing.

With `pairwise` a step moves weight from one atom of x_i to another, gamma (s_i - v_i), v_i the atom
of x_i that the gradient would give up first [lacoste2015global]. That is two entries, and xbar
moves by their sum whoever is there: no copies, no dense message, and atoms once taken by mistake
go again.

With everyone there the server need not know who sent what. If n atoms are smaller than xbar, it
sends them down in its place, and clients keep an xbar of their own.
"""

import warnings
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from fedmin.client.atoms import (
    Split,
    added,
    check_atoms,
    check_larger,
    check_steps,
    check_swaps,
    dense,
    short_step,
    swap,
    weights,
)
from fedmin.core import checks, payload
from fedmin.core.domain import Domain
from fedmin.core.method import Exchange, Method, Now, common_start
from fedmin.core.payload import Sparse
from fedmin.core.problem import Problem
from fedmin.core.schedule import ConvexSteps


class Server(NamedTuple):
    x: Array  # xbar
    drift: Array  # sqrt(sum p_i |x_i - xbar|^2) of those present, before the last step
    copies: Any  # x_i, f[n, d], where the server keeps them
    atoms: Any  # of the last round, each times eta p_i, where they are sent down


class Client(NamedTuple):
    x: Array  # x_i
    memory: Any  # y_i of FedFW+, d_i of FedFW-sto
    mean: Any  # xbar, where atoms are sent down
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
    split: Split | None = None
    sums_only: bool = eqx.field(default=False, static=True)  # no copies at the server
    clients: int = eqx.field(default=0, static=True, repr=False)  # n, and
    everyone: bool = eqx.field(default=True, static=True, repr=False)  # who: the engine's to say

    handles = frozenset({"rows", "domain"})
    citation = "dadras2024federated"

    def __check_init__(self):
        checks.between("penalty", self.penalty, 0.0)
        checks.at_least("local_steps", self.local_steps, 1)
        if self.smoothness is not None:
            checks.positive("smoothness", self.smoothness)
        if self.split is not None:
            checks.is_a("split", self.split, Split, "Split(L2Ball(10.0), whose=...)")
        check_steps(self.steps, "eta", "growth")
        if self.pairwise and self.split is not None:
            raise ValueError("give pairwise=True or a split, not both: x_i is in one set only then")

    def check(self, problem):
        name, domain = type(self).__name__, problem.domain
        check_atoms(name, problem)
        if self.pairwise:
            check_swaps(name, problem, self.smoothness)
        if self.split is not None:
            check_larger(domain, self._larger(problem), problem.size())
        if not isinstance(self.penalty, jax.core.Tracer) and not jnp.any(self.penalty > 0):
            warnings.warn(
                f"{name}(penalty=0): nothing keeps the clients' x_i together, so xbar need not go "
                f"to a solution; give penalty > 0",
                stacklevel=4,
            )

    def fitted(self, clients, everyone):
        return replace(self, clients=clients, everyone=everyone)

    # ------------------------------------------------------------ what travels

    def road(self, problem: Problem) -> str:
        """What is sent: "atoms" up, "shared" also down, "copies" at the server, or "moves".

        Moves are dense, or the two entries of each pairwise step.
        """
        if self.pairwise:
            return "moves"
        like = self._atom_like(problem)
        atoms = self.local_steps * sum(_bytes(leaf) for leaf in jax.tree.leaves(like))
        model = _bytes(self._model_like(problem))
        if self.everyone and self.smoothness is None and atoms <= model:
            return "shared" if 0 < self.clients * atoms < model else "atoms"
        return "moves" if self.sums_only or atoms >= model or not self.clients else "copies"

    def exchanges(self, problem, roster):
        reduce = "gather" if self.road(problem) in ("shared", "copies") else "sum"
        return (
            Exchange(self.broadcast, self.client, self.server, reduce, unchanged=True),  # type: ignore
        )

    def _model_like(self, problem) -> Any:
        return jax.eval_shape(problem.init, jax.random.key(0))

    def _atom_like(self, problem) -> Any:
        model = self._model_like(problem)
        return jax.eval_shape(lambda g: self._atom(problem, g, jnp.array(False), None), model)

    def _larger(self, problem) -> Domain:
        assert self.split is not None
        return self.split.domain.fitted(problem.parts)

    # ------------------------------------------------------------ the clients' half

    def init_server(self, problem, roster, key: Array) -> Server:
        x = common_start(problem)
        road = self.road(problem)
        copies: Any = ()
        atoms: Any = ()
        if road == "copies":
            copies = jnp.tile(x, (self.clients, 1))
        if road == "shared":
            like = self._atom_like(problem)
            zeros = jax.tree.map(lambda a: jnp.zeros((self.clients, *a.shape), a.dtype), like)
            atoms = [zeros] * self.local_steps
        return Server(x, jnp.zeros((), x.dtype), copies, atoms)

    def init_client(self, problem, roster, rows, key: Array) -> Client:
        x = common_start(problem)
        near = _zeros(self._atom_like(problem)) if self._searches(problem) else ()
        slow = () if self.split is None else jnp.asarray(self.split.whose(rows), bool)
        mean = x if self.road(problem) == "shared" else ()
        return Client(x, self.first_memory(x), mean, near, slow)

    def first_memory(self, x: Array) -> Any:
        """What a variant remembers besides x_i."""
        return ()

    def slope(self, problem, rows, x, memory, mean, k, now: Now) -> tuple[Array, Any]:
        """The gradient at x_i in the k-th local step, and what is remembered of it."""
        return problem.grad(x, rows), memory

    def asked(self, g: Array, key: Array) -> Array:
        """What the linear minimizer is asked: the one place for noise, which the method bears."""
        return g

    def broadcast(self, problem, server, now):
        return {"atoms": server.atoms} if self.road(problem) == "shared" else {"model": server.x}

    def client(self, problem, rows, own, down, now):
        road = self.road(problem)
        mean = self._mean(problem, own, down, now) if road == "shared" else down["model"]
        etas, growths = self._schedule(now.round)
        start = Client(own.x, own.memory, (), own.near, own.slow)

        def step(carry, at):
            k, eta, growth = at
            x, near = carry.x, carry.near
            slope, memory = self.slope(problem, rows, x, carry.memory, mean, k, now)
            c = self.penalty * growth
            g = self.asked(slope + c * (x - mean), jax.random.fold_in(now.secret, k))
            if self.pairwise:
                move = swap(problem.domain, x, g, self.smoothness + c)
                return Client(x + move.dense(), memory, (), (), own.slow), (move, eta)
            atom = self._atom(problem, g, own.slow, near)
            s = self._point(problem, dense(atom), 1.0)
            if self.smoothness is not None:
                eta = short_step(x, s, g, self.smoothness + c)
            x = (1 - eta) * x + eta * s
            near = atom if self._searches(problem) else ()
            return Client(x, memory, (), near, own.slow), (atom, eta)

        numbers = jnp.arange(self.local_steps, dtype=jnp.int32)
        end, (atoms, taken) = lax.scan(step, start, (numbers, etas, growths))
        away = own.x - mean
        up = self._reply(road, own.x, end.x, atoms, taken, away @ away)
        kept = mean if road == "shared" else ()
        return up, Client(end.x, end.memory, kept, end.near, own.slow)

    def _reply(self, road, before, after, atoms, taken, apart) -> dict[str, Any]:
        if self.pairwise:  # `atoms` are the moves
            move = Sparse(atoms.indices.ravel(), atoms.values.ravel(), atoms.size)
            return {"move": move, "drift": apart}
        if road == "moves":
            return {"move": after - before, "drift": apart}
        shares, keep = weights(taken)
        each = [jax.tree.map(lambda a, k=k: a[k], atoms) for k in range(self.local_steps)]
        sent = [payload.scaled(atom, shares[k]) for k, atom in enumerate(each)]
        also = {} if self.smoothness is None else {"keep": keep}
        return {"atom": sent, "drift": apart, **also}

    def _mean(self, problem, own, down, now):
        """xbar, from the last round's atoms."""
        _, keep = weights(self._schedule(jnp.maximum(now.round - 1, 0))[0])
        new = keep * own.mean + self._point(problem, payload.total(down["atoms"]), 1 - keep)
        return jnp.where(now.round == 0, own.mean, new)

    def _schedule(self, round: Array) -> tuple[Array, Array]:
        """eta and the penalty's growth of the round's local steps."""
        steps: Any = self.steps
        first = self.local_steps * round + 1
        t = (first + jnp.arange(self.local_steps, dtype=jnp.int32)).astype(float)
        one = jnp.ones_like(t)
        return steps.eta(t) * one, steps.growth(t) * one

    def _searches(self, problem) -> bool:
        return self.split is None and problem.domain.searches

    def _atom(self, problem, g, slow, near) -> tuple[Any, ...]:
        """The atom, in the form of the problem's set and, if there is one, of the larger one."""
        domain = problem.domain
        if self.split is None:
            return (domain.packed(domain.lmo(g, near[0]) if near else domain.lmo(g)),)
        larger = self._larger(problem)
        blanks = [_zeros(jax.eval_shape(one.lmo, g)) for one in (domain, larger)]
        return lax.cond(
            slow, lambda g: (blanks[0], larger.lmo(g)), lambda g: (domain.lmo(g), blanks[1]), g
        )

    def _point(self, problem, forms, weight) -> Array:
        """The sum of atoms that weigh so much together, from the sum of what travels of them."""
        total = added(forms)
        return total if self.split is not None else problem.domain.unpacked(total, weight)

    # ------------------------------------------------------------ the server's half

    def server(self, problem, server_rows, server, learnt, now):
        road = self.road(problem)
        if road in ("atoms", "moves"):
            total, apart = learnt.total, learnt.total["drift"]
            new = server._replace(drift=jnp.sqrt(apart / learnt.weight))
            if road == "moves":
                return new._replace(x=server.x + total["move"])
            _, keep = weights(self._schedule(now.round)[0])
            x = keep * server.x + self._point(problem, total["atom"], 1 - keep)
            return new._replace(x=x)
        shares, sent = learnt.shares, learnt.sent
        new = server._replace(drift=jnp.sqrt(shares @ sent["drift"] / learnt.weight))
        weighted = jax.vmap(payload.scaled)(sent["atom"], shares)
        _, keep = weights(self._schedule(now.round)[0])
        if road == "shared":
            x = keep * server.x + self._point(problem, payload.total(weighted), 1 - keep)
            return new._replace(x=x, atoms=weighted)
        keep = sent["keep"] if "keep" in sent else jnp.full_like(shares, keep)
        old = server.copies[learnt.ids]
        # x_i lose what the step takes, all p_i of it, and get their atoms
        taken = shares * (1 - keep)
        got = self._point(problem, payload.total(weighted), jnp.sum(taken))
        each = jax.vmap(partial(self._point, problem))(payload.dense_each(sent["atom"]), 1 - keep)
        x, copies = server.x - taken @ old + got, keep[:, None] * old + each
        there = jnp.where(shares > 0, learnt.ids, self.clients)
        return new._replace(x=x, copies=server.copies.at[there].set(copies, mode="drop"))

    def solution(self, server):
        return server.x

    def report(self, server):
        return {"drift": server.drift}


def _zeros(like: Any) -> Any:
    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)


def _bytes(leaf: Any) -> int:
    return leaf.size * leaf.dtype.itemsize
