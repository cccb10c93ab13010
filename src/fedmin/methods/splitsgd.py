"""SplitSGD: gradient descent where each client holds columns.   [ye2022sample]

    server      draws a batch; to client i: the batch, the head w_0 and its own block w_i
    clients     h_i to each other, sealed; gradients of the batch mean by w_i, and one by w_0
    server      w <- w - eta (gradient + grad r(w))
    bytes       down block, head and h of the others, up h to the others and the gradient

With the same batches it is gradient descent on all columns at once, whoever holds them.
"""

import equinox as eqx
import jax
from jax import Array

from fedmin.client import Batches, Full, column_trips
from fedmin.core import checks, schedule
from fedmin.core.method import Method, starting_point


class SplitSGD(Method):
    """(Stochastic) gradient descent on data split by columns, for any number of clients.

    >>> import fedmin
    >>> table = fedmin.data.load("wine").standardized()
    >>> federation = fedmin.data.partition(table, fedmin.data.EvenColumns(3))
    >>> method = fedmin.SplitSGD(step=0.5, batches=fedmin.Blocks(32))
    >>> result = fedmin.minimize(fedmin.Softmax(13, 3), federation, method, rounds=30)
    >>> result.final("accuracy") > 0.9
    True
    """

    step: float | eqx.Module = 0.1  # eta
    batches: Batches = Full()  # which rows, drawn by the server

    handles = frozenset({"features"})
    citation = "ye2022sample"

    def __check_init__(self):
        checks.positive("step", self.step)
        checks.is_a("batches", self.batches, Batches, "Blocks(100) or Full()")

    def init_server(self, problem, roster, key: Array) -> column_trips.Server:
        return column_trips.start(problem, self.batches, starting_point(problem, key))  # w

    def exchanges(self, problem, roster):
        return column_trips.exchanges(problem, self.batches, lambda w: w, self.advance)

    def advance(self, problem, w, estimate, now):
        """The server's step, from the values and gradients that the clients have sent."""
        gradient = estimate.gradients[0] + jax.grad(problem.regularizer)(w)
        return w - schedule.at(self.step, now.round) * gradient

    def solution(self, server):
        return server.own
