"""DFW-Trace: Frank-Wolfe over a nuclear ball by a distributed power method.   [zheng2018dfw]

    client i    G_i = grad f_i(X);   G = sum p_i G_i is never sent
    K times     server: v (at first random, the same at all)    clients: G_i v
                server: u = G v/|G v|                           clients: G_i^T u
                v <- G^T u/|G^T u|
    then        server: v    clients: <G_i, D> and <D, H_i D>,  D = S - X,  S = -r u v^T
                X <- X + eta D,  eta = min(1, -<G, D>/<D, H D>)
    bytes       down K m + K n + 1 numbers (where some are absent m n more), up K (m + n) + 2

A matrix m x n, H_i the Hessian of f_i. All that is added up are products with vectors of length 1:
sums are enough. The paper takes eta by line search where there is one in closed form; this is it
for a quadratic f, and a Newton step on the line for others. Where f bends down on it, eta = 1.
K = 2 is the paper's choice; `turns` may be higher for gradients without a leading pair.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.client.atoms import check_steps
from fedmin.core import checks
from fedmin.core.method import Exchange, Method, Reported, common_start
from fedmin.core.schedule import AtomSteps


class Server(NamedTuple):
    x: Array  # the model
    u: Array  # f[m], the newest pair
    v: Array  # f[n]
    eta: Array  # how far the last step went


class Client(NamedTuple):
    x: Array  # the model
    g: Array  # the gradient there
    u: Array  # the newest pair, with whose eta x goes on in the next round
    v: Array


class DFWTrace(Method):
    """Frank-Wolfe over a `NuclearBall` where gradients stay at home: vectors travel both ways, and
    nothing is to be set. Made for all clients in all rounds: if some are absent G is the others'.

    >>> import fedmin
    >>> seen = fedmin.data.matrix_completion(20, 12, rank=2, clients=3)
    >>> ball = fedmin.NuclearBall(seen.truth["nuclear"])
    >>> problem = fedmin.over(fedmin.MatrixCompletion(20, 12), ball)
    >>> federation = fedmin.data.partition(seen)
    >>> result = fedmin.minimize(problem, federation, fedmin.DFWTrace(), rounds=20)
    >>> result.ledger.by_kind()["up left 1"]  # rounds, clients, rows of the matrix, bytes
    4800
    """

    turns: int = eqx.field(default=2, static=True)  # K, of the power method
    steps: AtomSteps | None = None  # eta_t; left out: a line search

    handles = frozenset({"rows", "domain"})
    citation = "zheng2018dfw"

    def __check_init__(self):
        checks.at_least("turns", self.turns, 1)
        if self.steps is not None:
            check_steps(self.steps, "eta")

    def check(self, problem):
        if not problem.domain.pairs:
            raise ValueError(
                f"DFWTrace is for a NuclearBall, whose atoms are pairs of directions; "
                f"{type(problem).__name__}(...) has {problem.domain}. Give it one: "
                f"fedmin.over(problem, fedmin.NuclearBall(10.0))"
            )

    def init_server(self, problem, roster, key: Array) -> Server:
        x, (m, n) = common_start(problem), problem.domain.shape
        return Server(x, jnp.zeros(m, x.dtype), jnp.zeros(n, x.dtype), jnp.zeros((), x.dtype))

    def init_client(self, problem, roster, rows, key: Array) -> Client:
        x, (m, n) = common_start(problem), problem.domain.shape
        return Client(x, jnp.zeros_like(x), jnp.zeros(m, x.dtype), jnp.zeros(n, x.dtype))

    def exchanges(self, problem, roster):
        trips = []
        for k in range(1, self.turns + 1):
            begin = self.tell_eta if roster.everyone else self.tell_model
            tell = begin if k == 1 else partial(self.tell_right, f"right {k - 1}")
            left, right = f"left {k}", f"right {k}"
            trips += [
                Exchange(tell, partial(self.times, k), partial(self.take_left, left), prompt=True),
                Exchange(
                    partial(self.tell_left, left), partial(self.back, left, right),
                    partial(self.take_right, right), prompt=True,
                ),
            ]  # fmt: skip
        last = f"right {self.turns}"
        tell = partial(self.tell_right, last)
        # a slope and a bend are numbers of this very direction
        trips.append(Exchange(tell, partial(self.line, last), self.move, prompt=True, entire=True))
        return tuple(trips)

    # what the server says

    def tell_eta(self, problem, server, now):
        return {"eta": server.eta}

    def tell_model(self, problem, server, now):
        return {"model": server.x}

    def tell_left(self, name, problem, server, now):
        return {name: server.u}

    def tell_right(self, name, problem, server, now):
        return {name: server.v}

    # what clients answer

    def times(self, k, problem, rows, own, down, now):
        if k > 1:
            v = down[f"right {k - 1}"]
        else:
            x = down["model"] if "model" in down else own.x + down["eta"] * _way(problem, own)
            v = _unit(jax.random.normal(now.key, own.v.shape, x.dtype))
            own = own._replace(x=x, g=problem.grad(x, rows))
        return {f"left {k}": _matrix(problem, own.g) @ v}, own

    def back(self, left, right, problem, rows, own, down, now):
        u = down[left]
        return {right: u @ _matrix(problem, own.g)}, own._replace(u=u)

    def line(self, name, problem, rows, own, down, now):
        own = own._replace(v=down[name])
        D = _way(problem, own)
        return {"slope": own.g @ D, "bend": D @ problem.hvp(own.x, D, rows)}, own

    # what the server makes of it

    def take_left(self, name, problem, server_rows, server, learnt, now):
        return server._replace(u=_unit(learnt.mean[name]))

    def take_right(self, name, problem, server_rows, server, learnt, now):
        return server._replace(v=_unit(learnt.mean[name]))

    def move(self, problem, server_rows, server, learnt, now):
        slope, bend = learnt.mean["slope"], learnt.mean["bend"]
        newton = jnp.where(bend > 0, -slope / jnp.where(bend > 0, bend, 1), 1)
        eta = jnp.where(slope < 0, jnp.clip(newton, 0, 1), 0)
        if self.steps is not None:
            given: Any = self.steps.eta((now.round + 1).astype(float))
            eta = jnp.asarray(given, eta.dtype)
        x = server.x + eta * _way(problem, server)
        return Reported(server._replace(x=x, eta=eta), {"learned_gap": -slope, "eta": eta})

    def solution(self, server):
        return server.x


def _matrix(problem: Any, x: Array) -> Array:
    return x.reshape(problem.domain.shape)


def _way(problem: Any, own: Any) -> Array:
    """From x to the atom of the pair."""
    return (-problem.domain.radius * jnp.outer(own.u, own.v)).ravel() - own.x


def _unit(v: Array) -> Array:
    length = jnp.linalg.norm(v)
    return v / jnp.where(length > 0, length, 1)
