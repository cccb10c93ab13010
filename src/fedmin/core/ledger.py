"""The ledger: how many bytes travelled, each way, in each round, for each kind of message."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fedmin.core.kept import DamagedError, check_words, value_of
from fedmin.core.protocol import peers_of

Trips = Sequence[tuple[int, int]]  # who was asked on each trip, and who of them answered


@dataclass(frozen=True)
class Line:
    """What one message of a trip weighs, by part: {"model": 31360, "header": 42}.

    A message of a channel's own trips may have an entry for each client that is summed together
    with its owner: `entry` is what one of them weighs, `group` how many are summed together at
    most.
    """

    trip: int
    direction: str  # "down" or "up"
    parts: Mapping[str, int]
    each: Literal["client"] | int = "client"  # one a client that takes part, or so many
    kind: str = ""  # "channel" if the trip is the channel's own
    entry: Mapping[str, int] = field(default_factory=dict)
    group: int | None = None

    def sizes(self, count: int) -> dict[str, int]:
        """Bytes by part in a round for which so many clients were drawn."""
        peers = peers_of(count, self.group)
        return {part: size + peers * self.entry.get(part, 0) for part, size in self.parts.items()}

    def messages(self, count: int) -> int:
        """How many such messages travel in a round in which so many clients take part."""
        return count if self.each == "client" else self.each * (count > 0)

    def bytes(self, count: int) -> int:
        """All of them together."""
        return self.messages(count) * sum(self.sizes(count).values())


class Uneven(NamedTuple):
    """A round, or a look at the model, in which clients went missing: what travelled before."""

    drawn: int  # clients that were asked at first
    messages: tuple[int, ...]  # an entry a line


@dataclass
class Ledger:
    """Exact bytes: what each message weighs, and how many of them travelled in every round.

    Looking at the model (`evaluation`, and for a certificate) is counted apart: it serves the one
    who watches, and how often that is done is nobody's method. So are messages that serve
    checkpoints (`control`): how many there are depends on the clock and on what crashed.

    Counted is what was sent down, and what came up and was used. Without drop-outs both follow from
    how many clients took part.

    >>> import fedmin
    >>> from fedmin.core.ledger import Line
    >>> ledger = fedmin.Ledger([Line(0, "down", {"model": 8, "header": 2})])
    >>> ledger.add_rounds([3, 1])
    >>> ledger.bytes("down"), ledger.by_kind()
    (40, {'down model': 32, 'down header': 8})
    """

    lines: list[Line]
    counts: list[int] = field(default_factory=list)  # clients that took part to the end, a round
    setup: list[tuple[Line, int]] = field(default_factory=list)  # before round 0, and how many
    evaluation: list[Line] = field(default_factory=list)  # what looking at the model takes
    population: int = 0  # clients that are asked when it is looked at
    evaluated: list[int] = field(default_factory=list)  # after how many rounds it was
    uneven: dict[int, Uneven] = field(default_factory=dict)  # rounds with drop-outs
    uneven_looks: dict[int, Uneven] = field(default_factory=dict)  # by the rounds before them
    control: dict[str, int] = field(default_factory=dict)  # bytes, by direction and kind
    certificate: list[tuple[Line, int]] = field(default_factory=list)  # its look, once at the end
    prepared: list[tuple[Line, int]] = field(default_factory=list)  # what preparing columns took

    def add_rounds(self, counts: Any) -> None:
        """Enter rounds in which so many clients took part."""
        self.counts.extend(int(c) for c in counts)

    def add_evaluation(self, rounds: int) -> None:
        """Enter that the model was looked at after so many rounds."""
        self.evaluated.append(int(rounds))

    def add_trips(self, round: int, trips: Trips, look: bool = False) -> None:
        """Enter who was asked and who answered on each trip of a round, or of a look after it.

        Nothing is kept of one in which nobody went missing: it follows from the count.
        """
        lines = self.evaluation if look else self.lines
        drawn = trips[0][0] if trips else 0
        found = tuple(int(n) for trip in trips for n in trip)
        # where lines are not one a way and trip nobody may be missing
        if len(found) == len(lines) and found != tuple(line.messages(drawn) for line in lines):
            (self.uneven_looks if look else self.uneven)[int(round)] = Uneven(int(drawn), found)

    def add_control(self, sent: Mapping[str, int]) -> None:
        """Enter bytes of messages that serve checkpoints, by direction and kind."""
        for kind, size in sent.items():
            self.control[kind] = self.control.get(kind, 0) + size

    def exceptions(self) -> dict[str, Any]:
        """What does not follow from lines and counts, in JSON's own kinds of values."""
        rounds, looks = (
            [[t, what.drawn, *what.messages] for t, what in some.items()]
            for some in (self.uneven, self.uneven_looks)
        )
        return {"uneven": rounds, "uneven_looks": looks, "control": dict(self.control)}

    def enter(self, exceptions: Mapping[str, Any]) -> None:
        """Take over what `exceptions` said."""
        self.control = {str(kind): int(n) for kind, n in exceptions.get("control", {}).items()}
        self.uneven, self.uneven_looks = (
            {int(t): Uneven(int(drawn), tuple(map(int, some)))
             for t, drawn, *some in exceptions.get(name, [])}
            for name in ("uneven", "uneven_looks")
        )  # fmt: skip

    def bytes(
        self,
        direction: str | None = None,
        evaluation: bool = False,
        control: bool = False,
        preparation: bool = False,
    ) -> int:
        """All bytes so far, "down", "up" or both; on request also of looking, of checkpoints, and
        of preparing columns before the run."""
        ways = ("down", "up") if direction is None else (direction,)
        found = sum(int(self.cumulative(way)[-1]) for way in ways)
        if evaluation:
            found += sum(int(self.cumulative_evaluation(way)[-1]) for way in ways)
            last = [(line, n) for line, n in self.certificate if line.direction in ways]
            found += sum(n * sum(line.parts.values()) for line, n in last)
        if preparation:
            first = [(line, n) for line, n in self.prepared if line.direction in ways]
            found += sum(n * sum(line.parts.values()) for line, n in first)
        if control:
            found += sum(n for kind, n in self.control.items() if kind.split()[0] in ways)
        return found

    def cumulative(self, direction: str) -> np.ndarray:
        """Bytes before each round, and after the last: i[rounds + 1]; without evaluation."""
        first = sum(
            n * sum(line.parts.values()) for line, n in self.setup if line.direction == direction
        )
        # rounds without drop-outs differ in how many clients took part only
        cost = {c: self._cost(self.lines, (direction,), c) for c in set(self.counts)}
        spent = np.array([first, *(cost[c] for c in self.counts)], np.int64)
        for t, what in self.uneven.items():
            spent[t + 1] = self._cost(self.lines, (direction,), *what)
        return np.cumsum(spent)

    def cumulative_evaluation(self, direction: str | None = None) -> np.ndarray:
        """Bytes of looking at the model until before each round, and after the last.

        What a certificate takes comes after all of it.
        """
        ways = ("down", "up") if direction is None else (direction,)
        once = self._cost(self.evaluation, ways, self.population)
        rounds = len(self.counts) + 1
        times = np.bincount(np.asarray(self.evaluated, np.int64), minlength=rounds)[:rounds]
        spent = once * times
        for t, what in self.uneven_looks.items():
            spent[t] += self._cost(self.evaluation, ways, *what) - once
        return np.cumsum(spent)

    @staticmethod
    def _cost(lines: Any, ways: Any, count: int, messages: tuple[int, ...] | None = None) -> int:
        """The bytes of one round or look."""
        numbers = [x.messages(count) for x in lines] if messages is None else messages
        each = zip(lines, numbers, strict=True)
        return sum(n * sum(x.sizes(count).values()) for x, n in each if x.direction in ways)

    def by_kind(self) -> dict[str, int]:
        """All bytes so far, by direction and kind; those of looking at the model after the rest.

        Those of checkpoints are in `control`.
        """
        kinds: dict[str, int] = {}

        def add(before: str, line: Line, sizes: Mapping[str, int], messages: int) -> None:
            kind = f"{line.kind} " if line.kind else ""
            for part, size in sizes.items():
                key = f"{before}{kind}{line.direction} {part}"
                kinds[key] = kinds.get(key, 0) + size * messages

        for line, messages in [*self.prepared, *self.setup]:
            add("", line, line.parts, messages)
        rounds = Counter(n for t, n in enumerate(self.counts) if t not in self.uneven)
        looks = {self.population: len(self.evaluated) - len(self.uneven_looks)}
        for before, lines, even, uneven in (
            ("", self.lines, rounds, self.uneven),
            ("evaluation ", self.evaluation, looks, self.uneven_looks),
        ):
            for k, line in enumerate(lines):
                add(before, line, line.sizes(0), 0)  # a kind of which there were none is named too
                for count, times in even.items():
                    add(before, line, line.sizes(count), times * line.messages(count))
                for what in uneven.values():
                    add(before, line, line.sizes(what.drawn), what.messages[k])
        for line, messages in self.certificate:
            add("evaluation ", line, line.parts, messages)
        return kinds

    def per_round(self) -> list[dict]:
        """A record a round, trip, direction and kind; without evaluation."""
        found = []
        for t, count in enumerate(self.counts):
            drawn, messages = self.uneven.get(t, (count, None))
            for k, line in enumerate(self.lines):
                number = line.messages(count) if messages is None else messages[k]
                where = {"round": t, "trip": line.trip, "direction": line.direction}
                for part, size in line.sizes(drawn).items():
                    kind = f"{line.kind} {part}".strip()
                    found.append(where | {"kind": kind, "messages": number, "bytes": size * number})
        return found

    def __str__(self) -> str:
        kinds = self.by_kind() | {f"control {kind}": n for kind, n in self.control.items()}
        width = max((len(k) for k in [*kinds, "without evaluation"]), default=0)
        lines = [f"{kind.ljust(width)}  {size:>16,} B" for kind, size in kinds.items()]
        whole = self.bytes(evaluation=True, control=True, preparation=True)
        lines.append(f"{'all'.ljust(width)}  {whole:>16,} B")
        if self.evaluation:
            lines.append(f"{'without evaluation'.ljust(width)}  {self.bytes():>16,} B")
        return "\n".join(lines)


FORM: dict[str, Any] = {  # of a ledger in words
    "ledger": list[dict], "setup": list[tuple[dict, int]], "evaluation": list[dict] | None,
    "clients": int | None, "control": dict[str, int] | None,
    "certified": list[tuple[dict, int]] | None, "prepared": list[tuple[dict, int]] | None,
    "uneven": list[list[int]] | None, "uneven_looks": list[list[int]] | None,
}  # fmt: skip


def words_of_ledger(ledger: Ledger) -> dict[str, Any]:
    """What a result's folder says of a ledger, beside how many clients took part in each round."""
    return {
        "ledger": [_words_of(line) for line in ledger.lines],
        "setup": [[_words_of(line), count] for line, count in ledger.setup],
        "evaluation": [_words_of(line) for line in ledger.evaluation],
        "clients": ledger.population,
        "certified": [[_words_of(line), count] for line, count in ledger.certificate],
        "prepared": [[_words_of(line), count] for line, count in ledger.prepared],
        **{k: v for k, v in ledger.exceptions().items() if v},
    }


def _words_of(line: Line) -> dict[str, Any]:
    words = {**asdict(line), "parts": dict(line.parts), "entry": dict(line.entry)}
    return {k: v for k, v in words.items() if k in ("trip", "direction", "parts", "each") or v}


def ledger_of(path: Path, words: dict[str, Any], counts: np.ndarray, looked: np.ndarray) -> Ledger:
    """The ledger of such words, checked: all of its numbers can be added up."""
    check_words(path, words, FORM)
    most = int(counts.max(initial=0))
    lines, looks = (
        [_line_of(path, x, most) for x in words.get(key) or []] for key in ("ledger", "evaluation")
    )
    setup, certified, prepared = (
        [(_line_of(path, line, most), count) for line, count in words.get(key) or []]
        for key in ("setup", "certified", "prepared")
    )
    evaluated = looked.tolist() if looks else []
    clients = words.get("clients") or 0
    ledger = Ledger(lines, counts.tolist(), setup, looks, clients, evaluated)
    ledger.certificate, ledger.prepared = certified, prepared
    try:
        ledger.enter(words)
        sizes = ledger.by_kind().values()  # in whole numbers of any length
        if ledger.bytes(evaluation=True, control=True) < 0 or not 0 <= sum(sizes) < 2**62:
            raise DamagedError(path, "its ledger has numbers that no run sends")
    except (ValueError, OverflowError, IndexError) as error:
        raise DamagedError(path, f"its ledger does not fit its rounds ({error})") from None
    return ledger


def _line_of(path: Path, words: dict[str, Any], clients: int) -> Line:
    """A line of a ledger; format 1 called a trip an exchange, and named how many messages it has
    (sealed ones had everyone take part)."""
    if "exchange" not in words:
        line = value_of(path, words, Line)
        sizes = [*line.parts.values(), *line.entry.values(), line.group or 0]
        if min(sizes, default=0) < 0 or line.direction not in ("down", "up"):
            raise DamagedError(path, f"its ledger has the line {words!r}")
        return line
    times = {"client": "client", "one": 1, "other": clients - 1, "pair": clients * (clients - 1)}
    form = {"exchange": int, "direction": str, "parts": dict[str, int], "each": str}
    check_words(path, words, form)
    if words["each"] not in times:
        raise DamagedError(path, f"its ledger has the line {words!r}")
    each: Any = times[words["each"]]
    return Line(words["exchange"], words["direction"], words["parts"], each)
