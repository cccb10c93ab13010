"""The ledger: how many bytes travelled, each way, in each round, for each kind of message."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Line:
    """What one message of an exchange weighs, by part: {"model": 31360, "header": 40}."""

    exchange: int
    direction: str  # "down" or "up"
    parts: Mapping[str, int]

    @property
    def bytes(self) -> int:
        return sum(self.parts.values())


@dataclass
class Ledger:
    """Exact bytes: what each message weighs, and how many of them travelled in every round.

    >>> import fedmin
    >>> ledger = fedmin.Ledger([fedmin.ledger.Line(0, "down", {"model": 8, "header": 2})])
    >>> ledger.add_rounds([3, 1])
    >>> ledger.bytes("down"), ledger.by_kind()
    (40, {'down model': 32, 'down header': 8})
    """

    lines: list[Line]
    counts: list[int] = field(default_factory=list)  # messages of each line, a round

    def add_rounds(self, counts) -> None:
        """Enter rounds in which so many clients took part."""
        self.counts.extend(int(c) for c in counts)

    def per_message(self, direction: str) -> int:
        """Bytes to or from one client in one round."""
        return sum(line.bytes for line in self.lines if line.direction == direction)

    def bytes(self, direction: str | None = None) -> int:
        """All bytes so far, "down", "up" or both."""
        ways = ("down", "up") if direction is None else (direction,)
        return sum(self.counts) * sum(self.per_message(way) for way in ways)

    def cumulative(self, direction: str) -> np.ndarray:
        """Bytes before each round, and after the last: i[rounds + 1]."""
        sums = np.concatenate([[0], np.cumsum(np.asarray(self.counts, np.int64))])
        return sums * self.per_message(direction)

    def by_kind(self) -> dict[str, int]:
        """All bytes so far, by direction and kind."""
        kinds: dict[str, int] = {}
        messages = sum(self.counts)
        for line in self.lines:
            for part, size in line.parts.items():
                key = f"{line.direction} {part}"
                kinds[key] = kinds.get(key, 0) + size * messages
        return kinds

    def per_round(self) -> list[dict]:
        """A record a round, exchange, direction and kind."""
        return [
            {
                "round": t,
                "exchange": line.exchange,
                "direction": line.direction,
                "kind": part,
                "messages": count,
                "bytes": size * count,
            }
            for t, count in enumerate(self.counts)
            for line in self.lines
            for part, size in line.parts.items()
        ]

    def __str__(self) -> str:
        kinds = self.by_kind()
        width = max((len(k) for k in kinds), default=0)
        lines = [f"{kind.ljust(width)}  {size:>16,} B" for kind, size in kinds.items()]
        return "\n".join([*lines, f"{'all'.ljust(width)}  {self.bytes():>16,} B"])
