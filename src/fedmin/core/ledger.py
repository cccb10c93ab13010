"""The ledger: how many bytes travelled, each way, in each round, for each kind of message."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Line:
    """What one message of an exchange weighs, by part: {"model": 31360, "header": 40}."""

    exchange: int
    direction: str  # "down" or "up"
    parts: Mapping[str, int]
    each: str = "client"  # how many there are in a round: one a client, or a key of MESSAGES
    sealed: bool = False  # from client to client, through the server

    @property
    def bytes(self) -> int:
        return sum(self.parts.values())

    def messages(self, count: int) -> int:
        """How many such messages travel in a round in which so many clients take part."""
        return MESSAGES[self.each](count)


MESSAGES: dict[str, Callable[[int], int]] = {
    "client": lambda count: count,
    "one": lambda count: min(count, 1),
    "other": lambda count: max(count - 1, 0),  # between one client and each of the others
    "pair": lambda count: count * max(count - 1, 0),  # from every client to every other one
}


@dataclass
class Ledger:
    """Exact bytes: what each message weighs, and how many of them travelled in every round.

    >>> import fedmin
    >>> ledger = fedmin.Ledger([fedmin.core.ledger.Line(0, "down", {"model": 8, "header": 2})])
    >>> ledger.add_rounds([3, 1])
    >>> ledger.bytes("down"), ledger.by_kind()
    (40, {'down model': 32, 'down header': 8})
    """

    lines: list[Line]
    counts: list[int] = field(default_factory=list)  # clients that took part, a round
    setup: list[tuple[Line, int]] = field(default_factory=list)  # before round 0, and how many

    def add_rounds(self, counts) -> None:
        """Enter rounds in which so many clients took part."""
        self.counts.extend(int(c) for c in counts)

    def bytes(self, direction: str | None = None) -> int:
        """All bytes so far, "down", "up" or both."""
        ways = ("down", "up") if direction is None else (direction,)
        return sum(int(self.cumulative(way)[-1]) for way in ways)

    def cumulative(self, direction: str) -> np.ndarray:
        """Bytes before each round, and after the last: i[rounds + 1]."""
        first = sum(n * line.bytes for line, n in self.setup if line.direction == direction)
        lines = [line for line in self.lines if line.direction == direction]
        # rounds differ in how many clients took part only
        cost = {c: sum(x.messages(c) * x.bytes for x in lines) for c in set(self.counts)}
        spent = np.array([first, *(cost[c] for c in self.counts)], np.int64)
        return np.cumsum(spent)

    def by_kind(self) -> dict[str, int]:
        """All bytes so far, by direction and kind."""
        kinds: dict[str, int] = {}
        rounds = [(line, sum(map(line.messages, self.counts))) for line in self.lines]
        for line, messages in [*self.setup, *rounds]:
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
                "messages": line.messages(count),
                "bytes": size * line.messages(count),
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
