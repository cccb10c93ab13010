"""Data: load a set, split it over clients, or make one with a known answer.

    table = load("mnist")                            a Table: x, y, test rows, where it came from
    parts = Dirichlet(20, alpha=0.3)(table, seed=0)  row indices, one array a client
    federation = partition(table, Dirichlet(20, 0.3))
    federation = read(["a.csv", "b.csv"], outcome="died").federation(Prepare())
    made = quadratics(clients=10, dim=20, condition=100.0)     made.truth["solution"]

Files come from the folder that FEDMIN_DATA names (or the system's cache) and are checked against
their sha256; what is missing is downloaded.

May import: core. To add a set, copy an entry of `catalogue/`, or a maker of `synthetic/`.
"""

from fedmin.core.checks import check_partition
from fedmin.data.catalogue.catalogue import CATALOGUE, Entry, Part, Variant
from fedmin.data.catalogue.fetching import (
    ChecksumError,
    Located,
    NotCachedError,
    UnknownChecksum,
    cache,
    fetch,
)
from fedmin.data.formats.files import DataFileError
from fedmin.data.formats.images import read_cifar10, read_idx, read_idx_images
from fedmin.data.formats.libsvm import read_libsvm
from fedmin.data.formats.parties import JoinedParties, Party, join_parties, read_party
from fedmin.data.formats.speeches import read_speeches
from fedmin.data.holdout import hold_out
from fedmin.data.loading import DATASETS, Dataset, datasets, load
from fedmin.data.own.parties import read_parties
from fedmin.data.own.prepare import Prepare
from fedmin.data.own.reading import Sites, read
from fedmin.data.splits.by_columns import ColumnNames, ColumnSizes, EvenColumns, Parties
from fedmin.data.splits.by_labels import CountTable, Dirichlet, LabelsPerClient, Shards
from fedmin.data.splits.by_rows import IID, ByColumn, Clusters, QuantitySkew
from fedmin.data.splits.partitioning import PARTITIONERS, partition
from fedmin.data.synthetic.known import (
    SYNTHETIC,
    logistic_margin,
    matrix_completion,
    quadratics,
    sparse_regression,
)
from fedmin.data.synthetic.papers import fedprox, simulation_one, simulation_two, softmax_fedfw
from fedmin.data.synthetic.synthetic import Synthetic
from fedmin.data.table import Table

__all__ = [
    "CATALOGUE",
    "DATASETS",
    "IID",
    "PARTITIONERS",
    "SYNTHETIC",
    "ByColumn",
    "ChecksumError",
    "Clusters",
    "ColumnNames",
    "ColumnSizes",
    "CountTable",
    "DataFileError",
    "Dataset",
    "Dirichlet",
    "Entry",
    "EvenColumns",
    "JoinedParties",
    "LabelsPerClient",
    "Located",
    "NotCachedError",
    "Part",
    "Parties",
    "Party",
    "Prepare",
    "QuantitySkew",
    "Shards",
    "Sites",
    "Synthetic",
    "Table",
    "UnknownChecksum",
    "Variant",
    "cache",
    "check_partition",
    "datasets",
    "fedprox",
    "fetch",
    "hold_out",
    "join_parties",
    "load",
    "logistic_margin",
    "matrix_completion",
    "partition",
    "quadratics",
    "read",
    "read_cifar10",
    "read_idx",
    "read_idx_images",
    "read_libsvm",
    "read_parties",
    "read_party",
    "read_speeches",
    "simulation_one",
    "simulation_two",
    "softmax_fedfw",
    "sparse_regression",
]

Joined = JoinedParties  # the name that it had first


def __dir__() -> list[str]:
    """What users call; the modules behind it are found by their paths."""
    return sorted(__all__)
