"""Problems, one family a file.

May import: core. To add one, copy `Huber` in `linear.py`: init, losses, check, and a line in
`PROBLEMS`.
"""

from fedmin.problems.completion import MatrixCompletion
from fedmin.problems.constrained import (
    Constraint,
    LossAtMost,
    NormAtMost,
    RowMean,
    smallest,
    subject_to,
)
from fedmin.problems.groups import GroupLossAtMost
from fedmin.problems.linear import Huber, LeastSquares, Logistic, Poisson, Softmax
from fedmin.problems.loss import from_loss
from fedmin.problems.network import CNN, MLP, LeNet
from fedmin.problems.over import over

PROBLEMS = {
    "leastsquares": LeastSquares,
    "huber": Huber,
    "poisson": Poisson,
    "logistic": Logistic,
    "softmax": Softmax,
    "mlp": MLP,
    "cnn": CNN,
    "lenet": LeNet,
    "matrixcompletion": MatrixCompletion,
}

CONSTRAINTS = {
    "lossatmost": LossAtMost,
    "grouplossatmost": GroupLossAtMost,
    "normatmost": NormAtMost,
}

__all__ = [
    "CNN",
    "CONSTRAINTS",
    "MLP",
    "PROBLEMS",
    "Constraint",
    "GroupLossAtMost",
    "Huber",
    "LeNet",
    "LeastSquares",
    "Logistic",
    "LossAtMost",
    "MatrixCompletion",
    "NormAtMost",
    "Poisson",
    "RowMean",
    "Softmax",
    "from_loss",
    "over",
    "smallest",
    "subject_to",
]
