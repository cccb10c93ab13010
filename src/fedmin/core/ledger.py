"""The ledger: how many bytes travelled, each way, in each round, for each kind of message."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class Line:
    """What one message of a trip weighs, by part: {"model": 31360, "header": 42}."""

    trip: int
    direction: str  # "down" or "up"
    parts: Mapping[str, int]
    each: Literal["client"] | int = "client"  # one a client that takes part, or so many

    @property
    def bytes(self) -> int:
        return sum(self.parts.values())

    def messages(self, count: int) -> int:
        """How many such messages travel in a round in which so many clients take part."""
        return count if self.each == "client" else self.each * (count > 0)


@dataclass
class Ledger:
    """Exact bytes: what each message weighs, and how many of them travelled in every round.

    Looking at the model (`evaluation`) is counted apart: it serves the one who watches, and how
    often that is done is nobody's method.

    >>> import fedmin
    >>> from fedmin.core.ledger import Line
    >>> ledger = fedmin.Ledger([Line(0, "down", {"model": 8, "header": 2})])
    >>> ledger.add_rounds([3, 1])
    >>> ledger.bytes("down"), ledger.by_kind()
    (40, {'down model': 32, 'down header': 8})
    """

    lines: list[Line]
    counts: list[int] = field(default_factory=list)  # clients that took part, a round
    setup: list[tuple[Line, int]] = field(default_factory=list)  # before round 0, and how many
    evaluation: list[Line] = field(default_factory=list)  # what looking at the model takes
    population: int = 0  # clients that are asked when it is looked at
    evaluated: list[int] = field(default_factory=list)  # after how many rounds it was

    def add_rounds(self, counts: Any) -> None:
        """Enter rounds in which so many clients took part."""
        self.counts.extend(int(c) for c in counts)

    def add_evaluation(self, rounds: int) -> None:
        """Enter that the model was looked at after so many rounds."""
        self.evaluated.append(int(rounds))

    def bytes(self, direction: str | None = None, evaluation: bool = False) -> int:
        """All bytes so far, "down", "up" or both; with `evaluation` also those of looking."""
        ways = ("down", "up") if direction is None else (direction,)
        found = sum(int(self.cumulative(way)[-1]) for way in ways)
        if evaluation:
            found += sum(int(self.cumulative_evaluation(way)[-1]) for way in ways)
        return found

    def cumulative(self, direction: str) -> np.ndarray:
        """Bytes before each round, and after the last: i[rounds + 1]; without evaluation."""
        first = sum(n * line.bytes for line, n in self.setup if line.direction == direction)
        lines = [line for line in self.lines if line.direction == direction]
        # rounds differ in how many clients took part only
        cost = {c: sum(x.messages(c) * x.bytes for x in lines) for c in set(self.counts)}
        spent = np.array([first, *(cost[c] for c in self.counts)], np.int64)
        return np.cumsum(spent)

    def cumulative_evaluation(self, direction: str | None = None) -> np.ndarray:
        """Bytes of looking at the model until before each round, and after the last."""
        ways = ("down", "up") if direction is None else (direction,)
        lines = [line for line in self.evaluation if line.direction in ways]
        once = sum(line.messages(self.population) * line.bytes for line in lines)
        times = np.bincount(np.asarray(self.evaluated, np.int64), minlength=len(self.counts) + 1)
        return np.cumsum(once * times[: len(self.counts) + 1])

    def by_kind(self) -> dict[str, int]:
        """All bytes so far, by direction and kind; those of looking at the model after the rest."""
        kinds: dict[str, int] = {}
        rounds = [("", line, sum(map(line.messages, self.counts))) for line in self.lines]
        looks = len(self.evaluated)
        seen = [("evaluation ", x, looks * x.messages(self.population)) for x in self.evaluation]
        for before, line, messages in [*(("", *each) for each in self.setup), *rounds, *seen]:
            for part, size in line.parts.items():
                key = f"{before}{line.direction} {part}"
                kinds[key] = kinds.get(key, 0) + size * messages
        return kinds

    def per_round(self) -> list[dict]:
        """A record a round, trip, direction and kind; without evaluation."""
        return [
            {
                "round": t,
                "trip": line.trip,
                "direction": line.direction,
                "kind": part,
                "messages": line.messages(count),
                "bytes": size * line.messages(count),
            }
            for t, count in enumerate(self.counts)
            for line in self.lines
            for part, size in line.parts.items()
        ]

    def __str__(self) -> str:
        kinds = self.by_kind()
        width = max((len(k) for k in [*kinds, "without evaluation"]), default=0)
        lines = [f"{kind.ljust(width)}  {size:>16,} B" for kind, size in kinds.items()]
        lines.append(f"{'all'.ljust(width)}  {self.bytes(evaluation=True):>16,} B")
        if self.evaluation:
            lines.append(f"{'without evaluation'.ljust(width)}  {self.bytes():>16,} B")
        return "\n".join(lines)
