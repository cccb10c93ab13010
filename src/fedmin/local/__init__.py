"""What a client may do: draw batches and take steps."""

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
]
