"""What a card of the demo is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmin.core.curves import COLORS
from fedmin.core.result import Result

BLUE, RED, GREEN = COLORS[:3]
GRAY = COLORS[-1]


@dataclass(frozen=True)
class Setting:
    """How many rounds each card takes, relative to the whole demo; tests take a few of them."""

    share: float = 1.0

    def rounds(self, whole: int) -> int:
        """As many rounds as a card takes in this setting, of its whole number."""
        return max(2, round(self.share * whole))


@dataclass(frozen=True)
class Card:
    """One thing that fedmin does, from runs made on the spot.

    sentence   what was found, with its number; plain text
    draw       draws the picture into the axes that it is given
    code       the lines of Python that do it
    results    the runs, by name; their numbers are on the page
    found      the numbers that the sentence rests on
    """

    title: str
    sentence: str
    draw: Callable[[Any], None]
    code: str
    results: Mapping[str, Result]
    found: Mapping[str, Any] = field(default_factory=dict)


def plain(ax) -> None:
    """Axes without a box around them, with a faint grid."""
    ax.grid(alpha=0.25)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
