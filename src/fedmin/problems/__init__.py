"""Problems, one family a file."""

from fedmin.problems.constrained import (
    Constraint,
    GroupLossAtMost,
    LossAtMost,
    NormAtMost,
    RowMean,
    smallest,
    subject_to,
)
from fedmin.problems.linear import LeastSquares, Logistic, Softmax
from fedmin.problems.loss import from_loss
from fedmin.problems.network import CNN, MLP, LeNet
from fedmin.problems.over import over

PROBLEMS = {
    "leastsquares": LeastSquares,
    "logistic": Logistic,
    "softmax": Softmax,
    "mlp": MLP,
    "cnn": CNN,
    "lenet": LeNet,
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
    "LeNet",
    "LeastSquares",
    "Logistic",
    "LossAtMost",
    "NormAtMost",
    "RowMean",
    "Softmax",
    "from_loss",
    "over",
    "smallest",
    "subject_to",
]
