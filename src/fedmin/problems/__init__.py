"""Problems, one family a file."""

from fedmin.problems.linear import LeastSquares, Logistic, Softmax
from fedmin.problems.loss import from_loss
from fedmin.problems.network import CNN, MLP, LeNet

PROBLEMS = {
    "leastsquares": LeastSquares,
    "logistic": Logistic,
    "softmax": Softmax,
    "mlp": MLP,
    "cnn": CNN,
    "lenet": LeNet,
}

__all__ = ["CNN", "MLP", "PROBLEMS", "LeNet", "LeastSquares", "Logistic", "Softmax", "from_loss"]
