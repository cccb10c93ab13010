"""EF21FW: Frank-Wolfe at the server, on gradients learned by an atom a round.   [richtarik2021ef21]

    client i    D = grad f_i(x) - h_i;   a_i = the multiple of an atom of the set nearest to D
                h_i <- h_i + a_i;   sends a_i
    server      h <- h + sum over present of p_i a_i                    h = sum p_i h_i, always
                s = lmo(h);   x <- x + eta (s - x),  eta = min(1, <h, x - s> / (L |x - s|^2))
                pairwise      x <- x + gamma (s - v),  v the worst atom of x    [lacoste2015global]
    bytes       down an atom and a number (pairwise two entries), up an atom and a number;
                where some are absent, down d

An atom of an l1 ball is an entry, of a nuclear ball a singular pair: what FedFW sends. But FedFW's
clients send where they went, and their x_i must be pulled together; here clients send what the
server does not know yet of their gradients, there is one x, and the rate is that of the central
method once h_i have caught up. Classic error feedback (TopK) adds up what was not sent and sends it
late; EF21 sends differences, which go to 0 as x settles.

L is the mean of the clients' largest curvatures l_i at the start, unless `smoothness` is given.
Absent clients keep h_i, and the server needs no copy of anything. What is sent is a compressed
gradient, not only an atom: its size and its sign are those of the gradient (docs/privacy.md).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.client import curvature
from fedmin.client.atoms import check_atoms, check_swaps, dense, short_step, swap, zeros
from fedmin.core import checks
from fedmin.core.method import Exchange, Method, Reported, common_start
from fedmin.core.payload import Payload, is_payload


class Server(NamedTuple):
    x: Array  # the model
    h: Array  # sum of p_i h_i
    move: Any  # what the clients have not been told yet of x: an atom and eta, or two entries
    L: Array


class Client(NamedTuple):
    x: Array  # the model, as the moves made it
    h: Array  # h_i
    steep: Array  # l_i


class EF21FW(Method):
    """Frank-Wolfe with learned gradients, an atom up and an atom down; no step and no penalty.

    `pairwise` is the default over an L1Ball and a Simplex. `atoms` are sent a round, each of what
    those before it left.

    >>> import fedmin
    >>> sample = fedmin.data.sparse_regression(200, 20, support=3, noise=0.0, clients=4)
    >>> problem = fedmin.over(fedmin.LeastSquares(20), fedmin.L1Ball(5.0))
    >>> method, federation = fedmin.EF21FW(), fedmin.data.partition(sample)
    >>> result = fedmin.minimize(problem, federation, method, rounds=60)
    >>> bool(result.final("objective") < 1e-2 * result.history["objective"][0])
    True
    """

    atoms: int = eqx.field(default=1, static=True)  # up, a round
    smoothness: float | None = None  # L; left out: measured
    pairwise: bool | None = eqx.field(default=None, static=True)  # left out: where the set can

    handles = frozenset({"rows", "domain"})
    citation = "richtarik2021ef21"

    def __check_init__(self):
        checks.at_least("atoms", self.atoms, 1)
        if self.smoothness is not None:
            checks.positive("smoothness", self.smoothness)

    def check(self, problem):
        check_atoms("EF21FW", problem)
        if self.pairwise:
            check_swaps("EF21FW", problem, 1.0)

    def _swaps(self, problem) -> bool:
        return problem.domain.knows_atoms if self.pairwise is None else self.pairwise

    def init_server(self, problem, roster, key: Array) -> Server:
        x = common_start(problem)
        zero, like = jnp.zeros((), x.dtype), jax.eval_shape(lambda: common_start(problem))
        move = zeros(jax.eval_shape(lambda g: self._move(problem, g, g, 1.0)[1], like))
        return Server(x, jnp.zeros_like(x), move, zero)

    def init_client(self, problem, roster, rows, key: Array) -> Client:
        x = common_start(problem)
        return Client(x, jnp.zeros_like(x), curvature.steepest(problem, x, rows))

    def exchanges(self, problem, roster):
        down = self.tell_move if roster.everyone else self.tell_model
        return (Exchange(down, self.client, self.server, unchanged=True),)

    def tell_move(self, problem, server, now):
        return server.move

    def tell_model(self, problem, server, now):
        return {"model": server.x}

    def client(self, problem, rows, own, down, now):
        x = down["model"] if "model" in down else self._moved(problem, own.x, down)
        g, h, up = problem.grad(x, rows), own.h, {}
        for k in range(self.atoms):
            up[f"gradient {k + 1}"] = nearest(problem.domain, g - h)
            h = h + _dense(up[f"gradient {k + 1}"])
        return up | {"steep": own.steep}, Client(x, h, own.steep)

    def server(self, problem, server_rows, server, learnt, now):
        total = dict(learnt.total)
        L = jnp.maximum(server.L, total.pop("steep") / learnt.weight)
        if self.smoothness is not None:
            L = jnp.full_like(L, self.smoothness)
        h = server.h + sum(total.values())
        x, move = self._move(problem, server.x, h, L)
        gap = h @ server.x - _dense(problem.domain.lmo(h)) @ h
        return Reported(Server(x, h, move, L), {"learned_gap": gap})

    def _move(self, problem, x, h, L) -> tuple[Array, dict[str, Any]]:
        """The new x, and what clients must know to make the same move."""
        if self._swaps(problem):
            told: dict[str, Any] = {"move": swap(problem.domain, x, h, L)}
        else:
            atom = problem.domain.packed(problem.domain.lmo(h))
            s = problem.domain.unpacked(_dense(atom), 1.0)
            told = {"atom": atom, "eta": short_step(x, s, h, L)}
        return self._moved(problem, x, told), told

    def _moved(self, problem, x: Array, told: dict[str, Any]) -> Array:
        if "move" in told:
            return x + told["move"].dense()
        s = problem.domain.unpacked(_dense(told["atom"]), 1.0)
        return x + told["eta"] * (s - x)

    def solution(self, server):
        return server.x


def nearest(domain: Any, D: Array) -> Any:
    """The multiple of an atom of the set that is nearest to D, in the atom's compact form.

    Of an l1 ball it is the largest entry, of a nuclear ball the best matrix of rank one, of an
    l-inf ball sign(D) times the mean of |D|.

    >>> import jax.numpy as jnp, fedmin
    >>> nearest(fedmin.L1Ball(5.0), jnp.array([1.0, -3.0])).dense().tolist()
    [0.0, -3.0]
    >>> nearest(fedmin.LinfBall(5.0), jnp.array([1.0, -3.0])).dense().tolist()
    [2.0, -2.0]
    """
    one, gain = _multiple(domain.lmo(D), D)
    if domain.symmetric:
        return one
    other, more = _multiple(domain.lmo(-D), D)
    return jax.tree.map(lambda a, b: jnp.where(gain >= more, a, b), one, other)


def _multiple(atom: Any, D: Array) -> tuple[Any, Array]:
    """The multiple of this atom that is nearest to D, and how much of |D|^2 it takes away."""
    flat = _dense(atom)
    square, along = flat @ flat, flat @ D
    factor = along / jnp.where(square > 0, square, 1)
    return (atom.scaled(factor) if is_payload(atom) else factor * atom), factor * along


def _dense(atom: Array | Payload) -> Array:
    return dense((atom,))
