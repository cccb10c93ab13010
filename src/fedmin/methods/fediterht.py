"""FedIter-HT: Fed-HT whose clients project after every step.   [tong2022federated] Algorithm 2

    client i    y <- x;  K times  y <- H(y - gamma grad f_i(y))
    server      x <- H(mean y)
    bytes       down 2 tau, up 2 tau

What a client sends lies in the domain too, and so travels as compactly as the model does. Theorem 2
has gamma = 1/(6 l_s) with l_s the clients' smoothness on sparse vectors, and growing batches.

With `batches=PrivateChoices(...)` every H of a client is drawn with noise (core/choices.py); what
the server makes of them follows from what it was sent.
"""

from fedmin.core import schedule
from fedmin.core.method import Exchange
from fedmin.methods.fedht import FedHT, cut, spread


class FedIterHT(FedHT):
    """Federated iterative hard thresholding: sparse models both ways.

    >>> import fedmin
    >>> problem = fedmin.over(fedmin.LeastSquares(30), fedmin.L0Ball(3))
    >>> sample = fedmin.data.sparse_regression(200, 30, support=3, noise=0.0, clients=4)
    >>> method = fedmin.FedIterHT(step=0.3, local_steps=3, batches=fedmin.Full())
    >>> result = fedmin.minimize(problem, fedmin.data.partition(sample), method, rounds=50)
    >>> result.solution.nonzero()[0].tolist() == sample.truth["support"].tolist()
    True
    """

    def exchanges(self, problem, roster):
        # the replies are models
        return (Exchange(self.broadcast, self.client, self.server, entire=True),)

    def client(self, problem, rows, state, down, now):
        step = schedule.at(self.step, now.round)

        def advance(y, batch):
            return cut(problem, batch, problem.step(y, batch, step), step)

        y = self.walk(rows, spread(down["model"]), now, advance)
        return {"model": problem.domain.compact(y)}, state
