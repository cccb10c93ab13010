"""FedAvg: clients take steps of their own, the server averages.   [mcmahan2017fedavg] Algorithm 1

client i    y <- x;  K times  y <- y - eta grad f_i(y)
server      x <- x + eta_s mean(y - x)
bytes       down d, up d
"""

from jax import Array

from fedmin.core import checks
from fedmin.core.method import starting_point
from fedmin.methods.guarded import Guarded


class FedAvg(Guarded):
    """Federated averaging; `server_step` 1 is the classic method.

    >>> import fedmin
    >>> fedmin.FedAvg(step=0.1, local_steps=5, batches=fedmin.Blocks(100)).local_steps
    5
    """

    server_step: float = 1.0  # eta_s

    citation = "mcmahan2017fedavg"

    def __check_init__(self):
        checks.positive("server_step", self.server_step)

    def start(self, problem, roster, key: Array) -> Array:
        return starting_point(problem, key)  # x

    def broadcast(self, problem, x, now):
        return {"model": x}

    def client(self, problem, rows, state, down, now):
        x = down["model"]
        y, _ = self.descend(problem, rows, x, now)
        return {"update": y - x}, state

    def server(self, problem, server_rows, x, learnt, now):
        return x + self.server_step * learnt.mean["update"]
