"""fedmin: minimize a function of data that may not leave its owners."""

from fedmin import devices as _devices

_devices.spread()

from typing import TYPE_CHECKING as _TYPES

from fedmin import data
from fedmin.certificate import Certificate, certify
from fedmin.channel import Channel
from fedmin.channels import Plain, TopK
from fedmin.constants import Constants, constants
from fedmin.domain import Domain, Free
from fedmin.domains import (
    Box,
    Entries,
    GroupL1Ball,
    KSparsePolytope,
    L0Ball,
    L1Ball,
    L2Ball,
    LinfBall,
    NuclearBall,
    Product,
    RankBall,
    Simplex,
)
from fedmin.engines.checkpoint import Checkpoint, CheckpointError
from fedmin.engines.loopback import ClientError, Loopback
from fedmin.engines.simulator import Simulator
from fedmin.federation import Federation, rows
from fedmin.inner.curvature import DFP, LBFGS, Curvature, DenseInverse, DenseSolve
from fedmin.ledger import Ledger
from fedmin.local import (
    Batches,
    Blocks,
    Compressor,
    Full,
    Growing,
    Shuffled,
    Split,
    TopEntries,
    TopRank,
    WithoutReplacement,
    WithReplacement,
)
from fedmin.matrix import Dense, Matrix, SparseRows, matrix
from fedmin.method import Aggregate, Exchange, Method, Now
from fedmin.methods import (
    DONE,
    SSCA,
    Adagrad,
    Adam,
    CentralFW,
    DistributedIHT,
    FedAC,
    FedAvg,
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
    FedSSO,
    Penalty,
    Scaffold,
    ScaffoldHT,
    SparseNewton,
    SplitSGD,
    Tuned,
    Yogi,
)
from fedmin.metrics import (
    GradientNorm,
    Measure,
    Metric,
    Objective,
    Optimality,
    Scores,
    Support,
    WolfeGap,
)
from fedmin.minimize import minimize, refit, sweep
from fedmin.participation import (
    Bernoulli,
    Cyclic,
    Everyone,
    Participation,
    Uniform,
)
from fedmin.payload import Block, Eigenpairs, Joined, LowRank, Payload, Signs, Sparse
from fedmin.problem import Problem
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
    NormAtMost,
    Poisson,
    RowMean,
    Softmax,
    from_loss,
    over,
    smallest,
    subject_to,
)
from fedmin.result import Result
from fedmin.rows import Columns, Rows, Shard
from fedmin.rules import KKT, Gap, Rule, Stop
from fedmin.schedule import ConvexSteps, NonconvexSteps, Power, Stages, StochasticSteps
from fedmin.split import Holders, OnColumns, SplitProblem

if _TYPES:
    from fedmin.estimator import FederatedClassifier  # see __getattr__

__version__ = "0.1.0"

__all__ = [
    "data",
    "Channel",
    "Plain",
    "TopK",
    "Domain",
    "Free",
    "Box",
    "GroupL1Ball",
    "KSparsePolytope",
    "L1Ball",
    "L2Ball",
    "LinfBall",
    "NuclearBall",
    "Product",
    "Simplex",
    "Block",
    "Joined",
    "Entries",
    "L0Ball",
    "RankBall",
    "ClientError",
    "Loopback",
    "Simulator",
    "Federation",
    "rows",
    "Ledger",
    "LowRank",
    "Batches",
    "Blocks",
    "Compressor",
    "TopEntries",
    "TopRank",
    "Full",
    "Growing",
    "Shuffled",
    "WithoutReplacement",
    "WithReplacement",
    "Dense",
    "Matrix",
    "SparseRows",
    "matrix",
    "Aggregate",
    "Exchange",
    "Method",
    "Now",
    "Adagrad",
    "Adam",
    "DistributedIHT",
    "FedAvg",
    "CentralFW",
    "FedDR",
    "FedDualAvg",
    "FedMid",
    "FedFW",
    "FedFWPlus",
    "FedFWSto",
    "Split",
    "ConvexSteps",
    "NonconvexSteps",
    "StochasticSteps",
    "FedHT",
    "FedIterHT",
    "FedOpt",
    "FedProx",
    "FedSGD",
    "FedAC",
    "FedDANE",
    "FedNL",
    "FedNLPP",
    "DONE",
    "FedSSO",
    "Curvature",
    "DenseInverse",
    "DenseSolve",
    "DFP",
    "LBFGS",
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
    "Metric",
    "Objective",
    "Scores",
    "Stop",
    "Support",
    "minimize",
    "refit",
    "sweep",
    "Bernoulli",
    "Cyclic",
    "Everyone",
    "Participation",
    "Uniform",
    "Eigenpairs",
    "Payload",
    "Signs",
    "Sparse",
    "Problem",
    "CNN",
    "MLP",
    "LeastSquares",
    "Huber",
    "Poisson",
    "LeNet",
    "Logistic",
    "Softmax",
    "from_loss",
    "over",
    "Result",
    "Columns",
    "Rows",
    "Shard",
    "Power",
    "Stages",
    "Holders",
    "OnColumns",
    "SplitProblem",
    "FederatedClassifier",
]


def __getattr__(name: str):
    """What takes long to import is imported when it is first used."""
    if name == "FederatedClassifier":
        from fedmin.estimator import FederatedClassifier

        return FederatedClassifier
    raise AttributeError(f"module 'fedmin' has no attribute {name!r}")
