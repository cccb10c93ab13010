"""What a client may do: draw batches, take steps, find atoms, compress a Hessian.

Functions of one client's rows that several methods share; nothing here sees two clients. Where what
travels is an idea of its own (column_trips.py, routes.py) the server's half of it stands beside it.
May import: core. To add a way to draw rows, copy a class of `batches.py` and give it a line in
`BATCHES`.
"""

from fedmin.client.atoms import LargerSet, Split
from fedmin.client.batches import (
    BATCHES,
    Batches,
    Blocks,
    Full,
    Growing,
    Shuffled,
    WithoutReplacement,
    WithReplacement,
)
from fedmin.client.compression import COMPRESSORS, Compressor, TopEntries, TopRank
from fedmin.client.descent import LocalSteps, Stepping
from fedmin.client.private_choices import PrivateChoices
from fedmin.client.private_rows import PrivateRows

BATCHES["privaterows"] = PrivateRows
BATCHES["privatechoices"] = PrivateChoices

__all__ = [
    "BATCHES",
    "COMPRESSORS",
    "Batches",
    "Blocks",
    "Compressor",
    "Full",
    "Growing",
    "LargerSet",
    "LocalSteps",
    "PrivateChoices",
    "PrivateRows",
    "Shuffled",
    "Split",
    "Stepping",
    "TopEntries",
    "TopRank",
    "WithReplacement",
    "WithoutReplacement",
]
