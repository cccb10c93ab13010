"""FedNL: Newton's method by Hessians learned from compressed changes.   [safaryan2021fednl] Alg. 1

    client i    S_i = C(grad^2 f_i(x) - H_i);   l_i = |grad^2 f_i(x) - H_i|_F
                sends grad f_i(x), S_i, l_i;    H_i <- H_i + alpha S_i
    server      g = mean grad f_i(x);   l = mean l_i
                x <- x - [H]_mu^-1 g     option 1: eigenvalues of H below mu are raised to mu
                x <- x - (H + l)^-1 g    option 2: H + l is never below the true Hessian
                H <- H + alpha sum over present of p_i S_i
    bytes       down d, up d + 1 + k (d + 1) of rank k, or d + 1 + 2 k of k entries

H_i and H start at 0, so that nothing is known that was not sent, and H = sum p_i H_i always. From
0, option 2 begins with a short gradient step; option 1 would begin with 1/mu of the gradient, so it
should wait: in `warmup` rounds x stays, and with alpha = 1 the d/k first of them send the whole of
grad^2 f_i(x), the paper's own start. Among absent clients g is a guess: then take FedNLPP.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.scipy.linalg
from jax import Array

from fedmin.client import Compressor, TopRank
from fedmin.core import checks
from fedmin.core.method import Exchange, Method, starting_point


class Server(NamedTuple):
    x: Array  # the model
    H: Array  # f[d, d] sum of p_i H_i


class FedNL(Method):
    """Federated Newton Learn: d numbers a round and a compressed change of the Hessian.

    >>> import fedmin
    >>> fedmin.FedNL(fedmin.TopEntries(100)).alpha
    1.0
    """

    compress: Compressor = TopRank(1)  # C
    alpha: float = 1.0  # the rate at which Hessians are learned
    mu: float | None = None  # option 1; None is option 2
    warmup: int = eqx.field(default=0, static=True)  # rounds before x moves
    largest: int = eqx.field(default=4096, static=True)  # d above which d x d is refused

    citation = "safaryan2021fednl"

    def __check_init__(self):
        check_learning(self)
        if self.mu is not None:
            checks.positive("mu", self.mu)
        checks.at_least("warmup", self.warmup, 0)

    def check(self, problem):
        check_size(self, problem.size())

    def init_server(self, problem, roster, key: Array) -> Server:
        x = starting_point(problem, key)
        return Server(x, jnp.zeros((x.size, x.size), x.dtype))

    def init_client(self, problem, roster, rows, key: Array) -> Array:
        return self.init_server(problem, roster, key).H  # H_i

    def exchanges(self, problem, roster):
        # H is the sum of p_i H_i only if all that is sent arrives; and a Newton step takes a late
        # gradient as far as one of its own round
        trip = Exchange(self.broadcast, self.client, self.server, entire=True, prompt=True)
        return (trip,)

    def broadcast(self, problem, server, now):
        return {"model": server.x}

    def client(self, problem, rows, H_i, down, now):
        x = down["model"]
        change = problem.hessian(x, rows) - H_i
        S = self.compress(change, now.key)
        H_i = H_i + self.alpha * self.compress.matrix(S.dense())
        up = {"gradient": problem.grad(x, rows), "hessian": S, "error": jnp.linalg.norm(change)}
        return up, H_i

    def server(self, problem, server_rows, server, learnt, now):
        x, H = server
        mean = learnt.mean
        if self.mu is None:
            move = solve(H, mean["error"], mean["gradient"])
        else:
            values, V = jnp.linalg.eigh(H)
            move = V @ ((V.T @ mean["gradient"]) / jnp.maximum(values, self.mu))
        x = jnp.where(now.round < self.warmup, x, x - move)
        return Server(x, H + self.alpha * self.compress.matrix(learnt.total["hessian"]))

    def solution(self, server):
        return server.x


def check_learning(method) -> None:
    """Refuse settings with which no Hessian can be learned."""
    checks.is_a("compress", method.compress, Compressor, "TopRank(1) or TopEntries(100)")
    checks.between("alpha", method.alpha, 0.0, 1.0, open_low=True)
    checks.at_least("largest", method.largest, 1)


def check_size(method, d: int) -> None:
    """Refuse d x d matrices that were not meant to be, before they are made."""
    if d > method.largest:
        size = d * d * jnp.result_type(float).itemsize / 2**20
        raise ValueError(
            f"{type(method).__name__} keeps a d x d matrix at every client and at the server; with "
            f"d = {d} each has {size:,.0f} MiB, and largest is {method.largest}. FedSSO in its "
            f"L-BFGS form or DONE need no such matrix; or raise largest"
        )
    method.compress.check(d)


def solve(H: Array, ell: Array, b: Array) -> Array:
    """(H + ell)^-1 b; not a number if H + ell is not positive definite."""
    return jax.scipy.linalg.solve(H + ell * jnp.eye(len(b), dtype=b.dtype), b, assume_a="pos")
