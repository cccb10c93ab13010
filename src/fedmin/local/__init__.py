"""What a client may do: draw batches, take steps, sum over all its rows."""

from fedmin.local.batches import (
    BATCHES,
    Batches,
    Blocks,
    Full,
    Shuffled,
    WithoutReplacement,
    WithReplacement,
)
from fedmin.local.descent import check_local, descend
from fedmin.local.full import full_gradient, sum_over

__all__ = [
    "BATCHES",
    "Batches",
    "Blocks",
    "Full",
    "Shuffled",
    "WithReplacement",
    "WithoutReplacement",
    "check_local",
    "descend",
    "full_gradient",
    "sum_over",
]
