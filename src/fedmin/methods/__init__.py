"""Methods: one paper a file, one line each in `METHODS`.

May import: core, client, server; never an engine, never another party's rows. To add one, follow
CONTRIBUTING.md, "Add a method", or copy `fedavg.py`.
"""

from fedmin.methods.centralfw import CentralFW
from fedmin.methods.dfwtrace import DFWTrace
from fedmin.methods.distributediht import DistributedIHT
from fedmin.methods.done import DONE
from fedmin.methods.ef21fw import EF21FW
from fedmin.methods.fedac import FedAC
from fedmin.methods.fedavg import FedAvg
from fedmin.methods.fedavgm import FedAvgM
from fedmin.methods.feddane import FedDANE
from fedmin.methods.feddr import FedDR
from fedmin.methods.feddualavg import FedDualAvg
from fedmin.methods.fedfw import FedFW
from fedmin.methods.fedfwplus import FedFWPlus
from fedmin.methods.fedfwsto import FedFWSto
from fedmin.methods.fedht import FedHT
from fedmin.methods.fediterht import FedIterHT
from fedmin.methods.fedmid import FedMid
from fedmin.methods.fednl import FedNL
from fedmin.methods.fednlpp import FedNLPP
from fedmin.methods.fedopt import Adagrad, Adam, FedOpt, Yogi
from fedmin.methods.fedprox import FedProx
from fedmin.methods.fedsgd import FedSGD
from fedmin.methods.fedsgm import FedSGM
from fedmin.methods.fedsso import FedSSO
from fedmin.methods.primaldualavg import PrimalDualAvg
from fedmin.methods.scaffold import Scaffold
from fedmin.methods.scaffoldht import ScaffoldHT
from fedmin.methods.sparsenewton import SparseNewton
from fedmin.methods.splitsgd import SplitSGD
from fedmin.methods.ssca import SSCA
from fedmin.server.tuning import Penalty, Tuned

METHODS = {
    "fedsgd": FedSGD,
    "fedavg": FedAvg,
    "fedavgm": FedAvgM,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "fedopt": FedOpt,
    "fedht": FedHT,
    "fediterht": FedIterHT,
    "distributediht": DistributedIHT,
    "scaffoldht": ScaffoldHT,
    "sparsenewton": SparseNewton,
    "ssca": SSCA,
    "fedsgm": FedSGM,
    "primaldualavg": PrimalDualAvg,
    "fedsso": FedSSO,
    "splitsgd": SplitSGD,
    "fedac": FedAC,
    "feddane": FedDANE,
    "fednl": FedNL,
    "fednlpp": FedNLPP,
    "done": DONE,
    "fedfw": FedFW,
    "fedfwplus": FedFWPlus,
    "fedfwsto": FedFWSto,
    "centralfw": CentralFW,
    "ef21fw": EF21FW,
    "dfwtrace": DFWTrace,
    "feddr": FedDR,
    "fedmid": FedMid,
    "feddualavg": FedDualAvg,
}

# values that a field of one method takes
SECOND_MOMENTS = {"adagrad": Adagrad, "adam": Adam, "yogi": Yogi}  # FedOpt's `second`
TAU_RULES = {"tuned": Tuned}  # SSCA's `tau`
PENALTIES = {"penalty": Penalty}  # SSCA's `penalty`

__all__ = [
    "DONE",
    "EF21FW",
    "METHODS",
    "PENALTIES",
    "SECOND_MOMENTS",
    "SSCA",
    "TAU_RULES",
    "Adagrad",
    "Adam",
    "CentralFW",
    "DFWTrace",
    "DistributedIHT",
    "FedAC",
    "FedAvg",
    "FedAvgM",
    "FedDANE",
    "FedDR",
    "FedDualAvg",
    "FedFW",
    "FedFWPlus",
    "FedFWSto",
    "FedHT",
    "FedIterHT",
    "FedMid",
    "FedNL",
    "FedNLPP",
    "FedOpt",
    "FedProx",
    "FedSGD",
    "FedSGM",
    "FedSSO",
    "Penalty",
    "PrimalDualAvg",
    "Scaffold",
    "ScaffoldHT",
    "SparseNewton",
    "SplitSGD",
    "Tuned",
    "Yogi",
]
