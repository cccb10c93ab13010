"""What a client may do: draw batches, take steps, compress a Hessian."""

from fedmin.local.atoms import Split
from fedmin.local.batches import (
    BATCHES,
    Batches,
    Blocks,
    Full,
    Growing,
    Shuffled,
    WithoutReplacement,
    WithReplacement,
)
from fedmin.local.descent import check_local, descend, steps_of, walk
from fedmin.local.symmetric import Compressor, TopEntries, TopRank

__all__ = [
    "BATCHES",
    "Batches",
    "Blocks",
    "Compressor",
    "Full",
    "Growing",
    "Shuffled",
    "Split",
    "TopEntries",
    "TopRank",
    "WithReplacement",
    "WithoutReplacement",
    "check_local",
    "descend",
    "steps_of",
    "walk",
]
