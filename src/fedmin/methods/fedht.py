"""Fed-HT: local steps, then the server projects the mean.   [tong2022federated] Algorithm 1

    client i    y <- x;  K times  y <- y - gamma grad f_i(y)
    server      x <- H(mean y)
    bytes       down 2 tau, up d

H is the projection onto the problem's domain: of an `L0Ball` it keeps the tau largest entries
(H_tau of the paper), of a `RankBall` the r leading directions, which the paper's theory covers too;
any other set with a projection will do. The model travels as the set's points do.

The printed loop runs k = 1..K from x_{t,1} but sends x_{t,K}, one step short; here K steps are K.
Theorem 1 has gamma = 1/(6 l) with l the clients' smoothness, and batches that grow (`Growing`).
"""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from fedmin.client import LocalSteps, PrivateChoices
from fedmin.core import schedule
from fedmin.core.choices import ChoiceBatch, refuse_entries
from fedmin.core.domain import Free
from fedmin.core.method import Exchange, Method, starting_point
from fedmin.core.payload import Payload, is_payload


class Server(NamedTuple):
    x: Array | Payload  # the model, as it travels
    stable: Array  # i[], rounds since its support last changed


def spread(x: Any) -> Array:
    """The model as a vector."""
    return x.dense() if is_payload(x) else x


def check_projection(method: Method, problem: Any) -> None:
    """Refuse a problem whose domain has no projection."""
    domain = problem.domain
    if isinstance(domain, Free) or not domain.can_project:
        raise ValueError(
            f"{type(method).__name__} needs a domain with a projection; "
            f"{type(problem).__name__}(...) has {domain}. Give it one: "
            f"fedmin.over(problem, fedmin.L0Ball(200))"
        )


def cut(problem: Any, batch: Any, y: Array, step: Any) -> Array:
    """H(y) after a step on a batch; with noise where the batch's choices have some."""
    if isinstance(batch, ChoiceBatch):
        return batch.entries(problem.domain, y, jnp.asarray(step, y.dtype))
    return problem.domain.project(y)


class Thresholding(Method):
    """What the methods that project at the server share; a subclass says what a client does."""

    handles = frozenset({"rows", "domain"})
    citation = "tong2022federated"

    def check(self, problem):
        check_projection(self, problem)
        if isinstance(getattr(self, "batches", None), PrivateChoices):
            refuse_entries(problem.domain, problem.size())

    def init_server(self, problem, roster, key: Array) -> Server:
        x = problem.domain.projected(starting_point(problem, key))
        return Server(x, jnp.zeros((), jnp.int32))

    def exchanges(self, problem, roster):
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, server, now):
        return {"model": server.x}

    def client(self, problem, rows, state, down, now):
        raise TypeError(f"{type(self).__name__} does not say what a client does")

    def server(self, problem, server_rows, server, learnt, now):
        old, mean = spread(server.x), learnt.mean
        x = problem.domain.projected(mean["model"] if "model" in mean else old + mean["update"])
        return Server(x, stable_for(server.stable, old, spread(x)))

    def solution(self, server):
        return spread(server.x)

    def report(self, server):
        return {"stable": server.stable}


def stable_for(rounds: Array, old: Array, new: Array) -> Array:
    """One round more since the support changed, or 0 if it just did."""
    return jnp.where(jnp.all((old != 0) == (new != 0)), rounds + 1, 0).astype(jnp.int32)


class FedHT(LocalSteps, Thresholding):
    """Federated hard thresholding: FedAvg whose server projects onto the problem's domain.

    >>> import fedmin
    >>> sample = fedmin.data.sparse_regression(200, 30, support=3, noise=0.0, clients=4)
    >>> problem = fedmin.over(fedmin.LeastSquares(30), fedmin.L0Ball(3))
    >>> method = fedmin.FedHT(step=0.3, local_steps=3, batches=fedmin.Full())
    >>> result = fedmin.minimize(problem, fedmin.data.partition(sample), method, rounds=50)
    >>> result.solution.nonzero()[0].tolist() == sample.truth["support"].tolist()
    True
    """

    # gamma, a number or a schedule
    step: float | eqx.Module | Literal["auto"] = eqx.field(default=0.1, converter=schedule.step)

    def client(self, problem, rows, state, down, now):
        x = spread(down["model"])
        y, _ = self.descend(problem, rows, x, now)
        return {"update": y - x}, state
