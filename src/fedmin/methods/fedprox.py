"""FedProx: FedAvg with a pull towards the server's model.   [li2020fedprox] Algorithm 2

client i    y <- x;  K times  y <- y - eta (grad f_i(y) + mu (y - x))
server      x <- x + mean(y - x)
bytes       down d, up d
"""

from jax import Array

from fedmin.client import LocalSteps, Stepping
from fedmin.core import checks
from fedmin.core.method import Exchange, starting_point


class Pulled(Stepping):
    """Steps on f_i(y) + mu/2 |y - x|^2, with x the server's model: FedProx's and FedDANE's."""

    mu: float = 0.1  # the pull towards x

    def __check_init__(self):
        checks.between("mu", self.mu, 0.0)


class FedProx(LocalSteps, Pulled):
    """FedAvg whose clients minimise f_i(y) + mu/2 |y - x|^2; mu = 0 is FedAvg.

    >>> import fedmin
    >>> fedmin.FedProx(step=0.1, mu=0.01, local_steps=5).mu
    0.01
    """

    citation = "li2020fedprox"

    def init_server(self, problem, roster, key: Array) -> Array:
        return starting_point(problem, key)  # x

    def exchanges(self, problem, roster):
        return (Exchange(self.broadcast, self.client, self.server),)

    def broadcast(self, problem, x, now):
        return {"model": x}

    def client(self, problem, rows, state, down, now):
        x = down["model"]
        y, _ = self.descend(problem, rows, x, now, lambda y: self.mu * (y - x))
        return {"update": y - x}, state

    def server(self, problem, server_rows, x, learnt, now):
        return x + learnt.mean["update"]

    def solution(self, x):
        return x
