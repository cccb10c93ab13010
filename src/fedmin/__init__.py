"""fedmin: minimize a function of data that may not leave its owners."""

from fedmin.engines import devices as _devices

_devices.spread()

from typing import TYPE_CHECKING as _TYPES

from fedmin import data
from fedmin.channels import Plain, TopK
from fedmin.client import (
    Batches,
    Blocks,
    Compressor,
    Full,
    Growing,
    LargerSet,
    Shuffled,
    Split,
    TopEntries,
    TopRank,
    WithoutReplacement,
    WithReplacement,
)
from fedmin.core.certificate import Certificate, certify
from fedmin.core.channel import Channel
from fedmin.core.column_problem import Holders, OnColumns, SplitProblem
from fedmin.core.constants import Constants, constants
from fedmin.core.domain import Domain, Free
from fedmin.core.environment import __version__ as __version__
from fedmin.core.federation import Federation, rows
from fedmin.core.ledger import Ledger
from fedmin.core.matrix import Dense, Matrix, SparseRows, matrix
from fedmin.core.method import Aggregate, Exchange, Method, Now
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
from fedmin.core.participation import (
    Bernoulli,
    Cyclic,
    Everyone,
    Participation,
    Uniform,
)
from fedmin.core.payload import Block, Eigenpairs, Joined, LowRank, Payload, Signs, Sparse
from fedmin.core.problem import Problem
from fedmin.core.result import Result
from fedmin.core.rows import Columns, Rows, Shard
from fedmin.core.schedule import ConvexSteps, NonconvexSteps, Power, Stages, StochasticSteps
from fedmin.core.stopping import KKT, Gap, Rule, Stop
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
from fedmin.engines.sessions.checkpoint import Checkpoint, CheckpointError
from fedmin.engines.simulator.simulator import Simulator
from fedmin.engines.transports.memory import ClientError, Loopback
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
from fedmin.minimizing import minimize, refit, sweep
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
from fedmin.server.quasi_newton.forms import DFP, LBFGS, Curvature, DenseInverse, DenseSolve

if _TYPES:
    from fedmin.sklearn import FederatedClassifier  # see __getattr__

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
    "LargerSet",
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
        from fedmin.sklearn import FederatedClassifier

        return FederatedClassifier
    raise AttributeError(f"module 'fedmin' has no attribute {name!r}")
