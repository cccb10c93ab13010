"""Methods, one a file, one line each here."""

from fedmin.methods.fedavg import FedAvg
from fedmin.methods.fedopt import Adagrad, Adam, FedOpt, Yogi
from fedmin.methods.fedprox import FedProx
from fedmin.methods.fedsgd import FedSGD
from fedmin.methods.fedsso import FedSSO
from fedmin.methods.scaffold import Scaffold
from fedmin.methods.splitsgd import SplitSGD
from fedmin.methods.ssca import SSCA, Penalty, Tuned

METHODS = {
    "fedsgd": FedSGD,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "fedopt": FedOpt,
    "ssca": SSCA,
    "fedsso": FedSSO,
    "splitsgd": SplitSGD,
}

__all__ = [
    "METHODS",
    "SSCA",
    "Adagrad",
    "Adam",
    "FedAvg",
    "FedOpt",
    "FedProx",
    "FedSGD",
    "FedSSO",
    "Penalty",
    "Scaffold",
    "SplitSGD",
    "Tuned",
    "Yogi",
]
