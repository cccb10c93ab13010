"""fedmin: minimize a function of data that may not leave its owners."""

from fedmin.engines import devices as _devices

_devices.spread()

from typing import TYPE_CHECKING as _TYPES

from fedmin import data
from fedmin.channels import EF21, Chain, Clip, HomomorphicSum, Noise, Plain, SecureSum, TopK, chain
from fedmin.client import (
    Batches,
    Blocks,
    Compressor,
    Full,
    Growing,
    LargerSet,
    PrivateChoices,
    PrivateRows,
    Shuffled,
    TopEntries,
    TopRank,
    WithoutReplacement,
    WithReplacement,
)
from fedmin.core.certificate import Certificate, certify
from fedmin.core.channel import Channel, Cohort, Learns
from fedmin.core.column_problem import SplitProblem
from fedmin.core.constants import Constants, constants
from fedmin.core.domain import Domain, Free
from fedmin.core.environment import __version__ as __version__
from fedmin.core.federation import Federation
from fedmin.core.ledger import Ledger
from fedmin.core.matrix import matrix
from fedmin.core.method import Exchange, Gathered, Method, Now, Relay, Reported, Sum
from fedmin.core.metrics import (
    GradientNorm,
    Measure,
    Metric,
    Objective,
    Optimality,
    Scores,
    Support,
    WolfeGap,
)
from fedmin.core.model import Model
from fedmin.core.participation import Bernoulli, Cyclic, Everyone, Participation, Uniform
from fedmin.core.problem import Problem
from fedmin.core.result import Result
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows, rows
from fedmin.core.schedule import Auto, ConvexSteps, NonconvexSteps, Power, Stages, StochasticSteps
from fedmin.core.stopping import KKT, Budget, Gap, Rule, Stop
from fedmin.domains import (
    Box,
    Entries,
    GroupL1Ball,
    Intersection,
    KSparsePolytope,
    L0Ball,
    L1Ball,
    L1Penalty,
    L2Ball,
    LinfBall,
    NuclearBall,
    NuclearPenalty,
    Product,
    RankBall,
    Simplex,
)
from fedmin.engines.sessions.checkpoint import Checkpoint, CheckpointError
from fedmin.engines.sessions.packets import ClientError
from fedmin.engines.simulator.simulator import Simulator
from fedmin.engines.transports.memory import Loopback
from fedmin.engines.transports.processes import Processes
from fedmin.methods import (
    DONE,
    EF21FW,
    SSCA,
    Adagrad,
    Adam,
    CentralFW,
    DFWTrace,
    DistributedIHT,
    FedAC,
    FedAvg,
    FedAvgM,
    FedDANE,
    FedDR,
    FedDualAvg,
    FedFW,
    FedFWPlus,
    FedFWSto,
    FedHT,
    FedIterHT,
    FedMid,
    FedNL,
    FedNLPP,
    FedOpt,
    FedProx,
    FedSGD,
    FedSGM,
    FedSSO,
    Penalty,
    PrimalDualAvg,
    Scaffold,
    ScaffoldHT,
    SparseNewton,
    SplitSGD,
    Tuned,
    Yogi,
)
from fedmin.minimizing import Path, audit, minimize, path, refit, sweep
from fedmin.problems import (
    CNN,
    MLP,
    Constraint,
    GroupLossAtMost,
    Huber,
    LeastSquares,
    LeNet,
    Logistic,
    LossAtMost,
    MatrixCompletion,
    NormAtMost,
    Poisson,
    RowMean,
    Softmax,
    from_loss,
    over,
    smallest,
    subject_to,
)

if _TYPES:
    from fedmin.sklearn import FederatedClassifier, FederatedRegressor  # see __getattr__

__all__ = [
    "data",
    "Channel",
    "Plain",
    "SecureSum",
    "TopK",
    "Clip",
    "HomomorphicSum",
    "Noise",
    "Chain",
    "chain",
    "Cohort",
    "Learns",
    "Domain",
    "Free",
    "Box",
    "GroupL1Ball",
    "KSparsePolytope",
    "L1Ball",
    "L1Penalty",
    "L2Ball",
    "LinfBall",
    "NuclearBall",
    "NuclearPenalty",
    "Product",
    "Simplex",
    "Entries",
    "L0Ball",
    "RankBall",
    "ClientError",
    "Loopback",
    "Processes",
    "Simulator",
    "Federation",
    "Roster",
    "rows",
    "Ledger",
    "Batches",
    "Blocks",
    "PrivateChoices",
    "PrivateRows",
    "Compressor",
    "TopEntries",
    "TopRank",
    "Full",
    "Growing",
    "Shuffled",
    "WithoutReplacement",
    "WithReplacement",
    "matrix",
    "Exchange",
    "Relay",
    "Sum",
    "Gathered",
    "Reported",
    "Method",
    "Now",
    "Adagrad",
    "Adam",
    "Auto",
    "DistributedIHT",
    "FedAvg",
    "FedAvgM",
    "CentralFW",
    "FedDR",
    "FedDualAvg",
    "FedMid",
    "FedFW",
    "FedFWPlus",
    "FedFWSto",
    "LargerSet",
    "ConvexSteps",
    "NonconvexSteps",
    "StochasticSteps",
    "FedHT",
    "FedIterHT",
    "FedOpt",
    "FedProx",
    "FedSGD",
    "FedSGM",
    "PrimalDualAvg",
    "FedAC",
    "FedDANE",
    "FedNL",
    "FedNLPP",
    "DONE",
    "EF21",
    "DFWTrace",
    "EF21FW",
    "FedSSO",
    "SSCA",
    "Penalty",
    "Tuned",
    "Scaffold",
    "ScaffoldHT",
    "SparseNewton",
    "SplitSGD",
    "Yogi",
    "KKT",
    "Gap",
    "WolfeGap",
    "Optimality",
    "Rule",
    "Certificate",
    "Checkpoint",
    "CheckpointError",
    "certify",
    "Constants",
    "constants",
    "Constraint",
    "GroupLossAtMost",
    "LossAtMost",
    "NormAtMost",
    "RowMean",
    "smallest",
    "subject_to",
    "GradientNorm",
    "Measure",
    "Model",
    "Metric",
    "Objective",
    "Scores",
    "Stop",
    "Budget",
    "Support",
    "audit",
    "minimize",
    "Path",
    "path",
    "refit",
    "sweep",
    "Bernoulli",
    "Cyclic",
    "Everyone",
    "Participation",
    "Uniform",
    "Problem", "CNN", "MLP", "LeastSquares", "Huber", "Intersection", "Poisson", "LeNet",
    "Logistic", "MatrixCompletion", "Softmax", "from_loss", "over", "Result", "Rows", "Power",
    "Stages", "SplitProblem", "FederatedClassifier", "FederatedRegressor",
]  # fmt: skip


# what most never need lives in its room; the flat name still leads there
_ROOMS = {
    "fedmin.core.payload": ("Block", "Concatenated", "Eigenpairs", "LowRank", "Payload", "Signs",
                            "Sparse"),
    "fedmin.core.metrics_by": ("ByClass", "ByGroup", "BySite"),
    "fedmin.core.prediction_metrics": ("Auc", "Calibration", "Confusion", "LogLoss", "R2", "Roc"),
    "fedmin.core.statistics": ("Statistics",), "fedmin.core.model": ("NoModelError",),
    "fedmin.core.matrix": ("Dense", "Matrix", "SparseRows"),
    "fedmin.core.rows": ("Columns", "Shard"), "fedmin.core.roster": ("ColumnOwners",),
    "fedmin.core.column_problem": ("OnColumns",),
    "fedmin.server.quasi_newton.forms": ("DFP", "LBFGS", "DenseInverse", "DenseSolve",
                                         "QuasiNewton"),
    "fedmin.sklearn": ("FederatedClassifier", "FederatedRegressor"),
}  # fmt: skip
_PLACES = {name: room for room, names in _ROOMS.items() for name in names}
_RENAMED = {
    "Aggregate": "Sum", "Curvature": "QuasiNewton", "Holders": "ColumnOwners",
    "Joined": "Concatenated", "Split": "LargerSet",
}  # fmt: skip


def __getattr__(name: str):
    """What takes long to import, lives in its room, or has another name now."""
    from importlib import import_module

    if name in _RENAMED:
        import warnings

        words = f"fedmin.{name} is fedmin.{_RENAMED[name]} now"
        warnings.warn(words, DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
        if name in globals():
            return globals()[name]
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'fedmin' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
