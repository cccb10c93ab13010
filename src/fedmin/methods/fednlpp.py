"""FedNLPP: FedNL where some clients are absent.   [safaryan2021fednl] Algorithm 2, FedNL-PP

    server      x = (H + l)^-1 g
    client i    S_i = C(grad^2 f_i(x) - H_i);   H_i <- H_i + alpha S_i
                l_i <- |grad^2 f_i(x) - H_i|_F;   g_i <- (H_i + l_i) x - grad f_i(x)
                sends S_i and the changes of l_i and g_i
    server      H, l, g <- themselves + sum over present of p_i (alpha S_i, changes of l_i, g_i)
    bytes       down d, up d + 1 + k (d + 1) of rank k, or d + 1 + 2 k of k entries

H, l, g are the sums of p_i H_i, p_i l_i, p_i g_i over all clients, those absent with what they last
sent. All start at 0: a client that was never asked counts for nothing, where the paper lets
everyone send once before the first round. In `warmup` rounds x stays, as in FedNL: if everyone has
been asked by then, that is the paper's start. Where a share q of the clients is there in a round it
takes a few times 1/q rounds; if all are always there, none.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from fedmin.client import Compressor, TopRank
from fedmin.core import checks
from fedmin.core.method import Exchange, Method, starting_point
from fedmin.methods.fednl import check_learning, check_size, solve


class Learned(NamedTuple):
    H: Array  # f[d, d] the Hessian, as learned
    ell: Array  # f[] l, how far off it is
    g: Array  # f[d] (H + l) x - gradient


class Server(NamedTuple):
    x: Array  # the model
    sums: Learned  # over all clients


class FedNLPP(Method):
    """FedNL with memory of the absent; for functions that are strongly convex at every client.

    >>> import fedmin
    >>> fedmin.FedNLPP(fedmin.TopRank(2)).compress
    TopRank(k=2)
    """

    compress: Compressor = TopRank(1)  # C
    alpha: float = 1.0  # the rate at which Hessians are learned
    largest: int = eqx.field(default=4096, static=True)  # d above which d x d is refused
    warmup: int = eqx.field(default=0, static=True)  # rounds before x moves

    citation = "safaryan2021fednl"

    def __check_init__(self):
        check_learning(self)
        checks.at_least("warmup", self.warmup, 0)

    def check(self, problem):
        check_size(self, problem.size())

    def init_server(self, problem, roster, key: Array) -> Server:
        return Server(starting_point(problem, key), self.init_client(problem, roster, None, key))

    def init_client(self, problem, roster, rows, key: Array) -> Learned:
        x = starting_point(problem, key)
        zeros = jnp.zeros_like(x)
        return Learned(jnp.zeros((x.size, x.size), x.dtype), jnp.zeros((), x.dtype), zeros)

    def exchanges(self, problem, roster):
        # the sums are those of the clients only if all that is sent arrives
        return (Exchange(self.broadcast, self.client, self.server, entire=True),)

    def broadcast(self, problem, server, now):
        return {"model": server.x}

    def client(self, problem, rows, old, down, now):
        x = down["model"]
        true = problem.hessian(x, rows)
        S = self.compress(true - old.H, now.key)
        H = old.H + self.alpha * self.compress.matrix(S.dense())
        ell = jnp.linalg.norm(H - true)
        g = H @ x + ell * x - problem.grad(x, rows)
        return {"hessian": S, "error": ell - old.ell, "target": g - old.g}, Learned(H, ell, g)

    def server(self, problem, server_rows, server, learnt, now):
        old, change = server.sums, learnt.total
        H = old.H + self.alpha * self.compress.matrix(change["hessian"])
        sums = Learned(H, old.ell + change["error"], old.g + change["target"])
        return Server(jnp.where(now.round < self.warmup, server.x, solve(*sums)), sums)

    def solution(self, server):
        return server.x
