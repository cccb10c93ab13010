"""Data: load a set, split it over clients, or make one with a known answer.

    table = load("mnist")                            a Table: x, y, test rows, where it came from
    parts = Dirichlet(20, alpha=0.3)(table, seed=0)  row indices, one array a client
    federation = partition(table, Dirichlet(20, 0.3))
    made = quadratics(clients=10, dim=20, condition=100.0)     made.truth["solution"]

Files come from the folder that FEDMIN_DATA names (or the system's cache) and are checked against
their sha256; what is missing is downloaded.
"""

from fedmin.checks import check_partition
from fedmin.data.by_columns import ColumnNames, ColumnSizes, EvenColumns, Parties
from fedmin.data.by_labels import CountTable, Dirichlet, LabelsPerClient, Shards
from fedmin.data.by_rows import IID, ByColumn, Clusters, QuantitySkew
from fedmin.data.catalogue import CATALOGUE, Entry, Part, Variant
from fedmin.data.fetch import ChecksumError, Located, NotCachedError, UnknownChecksum, cache, fetch
from fedmin.data.files import DataFileError
from fedmin.data.formats import read_cifar10, read_idx, read_idx_images
from fedmin.data.libsvm import read_libsvm
from fedmin.data.load import DATASETS, Dataset, datasets, load
from fedmin.data.made import Synthetic
from fedmin.data.papers import fedprox, simulation_one, simulation_two, softmax_fedfw
from fedmin.data.parties import Joined, Party, join_parties, read_party
from fedmin.data.partition import PARTITIONERS, partition
from fedmin.data.plays import read_speeches
from fedmin.data.split import hold_out
from fedmin.data.synthetic import SYNTHETIC, logistic_margin, quadratics, sparse_regression
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
    "Joined",
    "LabelsPerClient",
    "Located",
    "NotCachedError",
    "Part",
    "Parties",
    "Party",
    "QuantitySkew",
    "Shards",
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
    "partition",
    "quadratics",
    "read_cifar10",
    "read_idx",
    "read_idx_images",
    "read_libsvm",
    "read_party",
    "read_speeches",
    "simulation_one",
    "simulation_two",
    "softmax_fedfw",
    "sparse_regression",
]
