"""The log of everything that left a site: what, when, in which run, round and trip, and its digest.

One line a message, in a chained file (chained.py says what of it can be changed without a trace,
and when it is on disk). A message is written down before it leaves: so what left is in the log,
and the last line may be of something that did not get away. `sums` are bytes by kind as the
server's ledger counts them.
"""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedmin.privacy import chained
from fedmin.privacy.chained import Chained, Head, LogError, now

SETUP, TRAINING, EVALUATION, CERTIFICATE = "setup", "training", "evaluation", "certificate"
PREPARING = "before the run"  # what is counted over all sites so that the run can be built
# how the ledger's kinds begin
BEFORE = {
    EVALUATION: "evaluation ", CERTIFICATE: "evaluation certificate ", PREPARING: "prepare ",
    "statistics": "evaluation statistics ",
}  # fmt: skip
REPLY = "reply"  # the kind of message that is in the server's ledger
COMING = "coming in"  # when a site says who it is and what it has built, outside of any run's trips


class Departure(NamedTuple):
    """One message that left."""

    time: str
    run: str
    round: int
    when: str  # "setup", "training", "evaluation", ..; "coming in", "before the run"
    trip: int
    leg: str  # of the channel's own trips its name; "" for the method's
    kind: str  # "reply"; or "fault", "kept", "lost": counted apart
    to: str  # who can read it
    shapes: Mapping[str, str]  # of its parts
    parts: Mapping[str, int]  # bytes of its parts, its header among them; they add up
    bytes: int
    sha256: str  # of the bytes that left
    asked: str  # SHA-256 of the question
    again: bool  # the same bytes had left before, in reply to the same question

    @property
    def place(self) -> tuple[str, str, int, int]:
        """What it answers: asked anew after a crash, a site may have to answer anew."""
        return self.run, self.when, self.round, self.trip


class Seen(NamedTuple):
    """A log that was read: what left, and whether its lines fit together."""

    site: str
    departures: list[Departure]
    head: Head
    wrong: str  # the first thing that does not fit, and where; "" if all does
    notes: list[str]


class Departures:
    """The log of a site, open for writing by one process at a time.

    >>> import tempfile
    >>> from fedmin.privacy.departures import Departures, read
    >>> path = tempfile.mkdtemp() + "/departures.log"
    >>> with Departures(path, "a") as log:
    ...     left = log.add(b"...", run="7f", round=0, parts={"header": 1, "update": 2})
    >>> [one] = read(path)
    >>> one.round, one.parts, one.again
    (0, {'header': 1, 'update': 2}, False)
    """

    def __init__(self, path: str | Path, site: str):
        self.path = Path(path)
        self._log = Chained(path, {"log": "departures", "version": 1, "site": site})
        self._run: str | None = None
        self._asked: dict[tuple[str, int], set[tuple[int, str]]] = {}  # by when and trip
        self._sent: set[tuple[str, str, int, int, str, str]] = set()
        self._lock = threading.RLock()  # a site may come in again while it still answers

    def say(self, kind: str, words: Mapping[str, Any], shapes: Mapping[str, str] = {}) -> bytes:
        """Write down words that leave while a site comes in, such as its hello; as they leave."""
        data = json.dumps(words).encode()
        with self._lock:
            mark, nothing = hashlib.sha256(data).hexdigest(), hashlib.sha256().hexdigest()
            left = Departure(
                now(), "", 0, COMING, 0, "", kind, "server", dict(shapes), {"words": len(data)},
                len(data), mark, nothing, False,
            )  # fmt: skip
            self._log.write(left._asdict())
        return data

    def add(
        self,
        data: bytes,
        *,
        run: str,
        round: int,
        when: str = TRAINING,
        trip: int = 0,
        leg: str = "",
        kind: str = REPLY,
        to: str = "server",
        shapes: Mapping[str, str] = {},
        parts: Mapping[str, int] | None = None,
        asked: bytes = b"",
    ) -> Departure:
        """Write down that these bytes leave: call it before they do. `asked` is the question."""
        parts = {"message": len(data)} if parts is None else dict(parts)
        if sum(parts.values()) != len(data):
            raise LogError(f"parts of {sum(parts.values())} bytes in a message of {len(data)}")
        self._look_up(run)
        mark, question = hashlib.sha256(data).hexdigest(), hashlib.sha256(asked).hexdigest()
        again = (run, when, round, trip, question, mark) in self._sent
        left = Departure(
            now(), run, round, when, trip, leg, kind, to, dict(shapes), parts, len(data),
            mark, question, again,
        )  # fmt: skip
        with self._lock:
            self._log.write(left._asdict())
        self._note(left)
        return left

    def rounds(self, run: str, trip: int = 0, when: str = TRAINING) -> int:
        """How many different questions of a run's trip were answered: one a round, if none was
        asked anew in other words."""
        self._look_up(run)
        return len(self._asked.get((when, trip), ()))

    def answered(self, run: str, when: str, round: int, trip: int, asked: bytes) -> bool:
        """Whether this question of a run was answered before."""
        self._look_up(run)
        question = hashlib.sha256(asked).hexdigest()
        return (round, question) in self._asked.get((when, trip), ())

    def _look_up(self, run: str) -> None:
        """Know what left in a run; of one run at a time, from the file when it is another one."""
        if run != self._run:
            self._run, self._asked, self._sent = run, {}, set()
            for each in verify(self.path).departures:
                if each.run == run:
                    self._note(each)

    def _note(self, left: Departure) -> None:
        if left.kind == REPLY:
            asked = self._asked.setdefault((left.when, left.trip), set())
            asked.add((left.round, left.asked))
        self._sent.add((*left.place, left.asked, left.sha256))

    @property
    def head(self) -> Head:
        """The number of lines and the chain of the last: for someone else to keep."""
        return self._log.head

    def close(self) -> None:
        """Tell the disk to keep everything."""
        self._log.close()

    def __enter__(self) -> "Departures":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def verify(path: str | Path, known: Head | None = None) -> Seen:
    """Read a log and follow its chain; `known` is a head that someone else has kept."""
    found = chained.verify(path, known)
    first = found.lines[0] if found.lines else {}
    wrong = found.wrong
    if not wrong and first.get("log") != "departures":
        wrong = "it is no log of departures"
    left = [Departure(**words) for words in found.lines if [*words] == [*Departure._fields]]
    return Seen(first.get("site", ""), left, found.head, wrong, found.notes)


def read(path: str | Path) -> list[Departure]:
    """Everything that left, in order; `LogError` if the lines do not fit together."""
    found = verify(path)
    if found.wrong:
        raise LogError(f"{path}: {found.wrong}")
    return found.departures


def newest(departures: Iterable[Departure]) -> Iterator[Departure]:
    """The last reply to each place of a run: what a server that went on from there has used."""
    last = {each.place: each for each in departures if each.kind == REPLY}
    return iter(last.values())


def sums(departures: Iterable[Departure]) -> dict[str, int]:
    """Bytes by kind, in the words of the server's ledger: "up update", "evaluation up sums".

    Each place of a run counts once: what was sent again, or anew after a crash, is left out.
    """
    found: dict[str, int] = {}
    for each in newest(departures):
        before = BEFORE.get(each.when, "") + "channel " * bool(each.leg)
        for part, size in each.parts.items():
            kind = f"{before}up {part}"
            found[kind] = found.get(kind, 0) + size
    return found


HEAD = ["time", "run", "round", "when", "trip", "kind", "to", "bytes", "sha256", "parts"]
NUMBERS = ("round", "trip", "bytes")


def table(departures: Iterable[Departure]) -> list[list[str]]:
    """A line of words for each, in the columns of `HEAD`."""
    return [
        [
            d.time.partition("+")[0], d.run[:8], str(d.round), d.when, str(d.trip),
            f"{d.leg or d.kind} again" if d.again else d.leg or d.kind, d.to, f"{d.bytes:,}",
            d.sha256[:12], ", ".join(f"{part} {form}" for part, form in d.shapes.items()),
        ]
        for d in departures
    ]  # fmt: skip


def totals(departures: Iterable[Departure]) -> list[list[str]]:
    """Kind, messages and bytes: as the ledger counts, then what it does not, then all."""
    departures = list(departures)
    counted = list(newest(departures))
    having = Counter(kind for each in counted for kind in sums([each]))
    lines = [[kind, f"{having[kind]:,}", f"{n:,}"] for kind, n in sums(counted).items()]
    used = {id(each) for each in counted}
    rest = [each for each in departures if each.kind == REPLY and id(each) not in used]
    for what, some in (
        ("sent again, or anew", rest),
        *((kind, [d for d in departures if d.kind == kind]) for kind in _others(departures)),
        ("all", departures),
    ):
        if some or what == "all":
            lines.append([what, f"{len(some):,}", f"{sum(d.bytes for d in some):,}"])
    return lines


def _others(departures: Iterable[Departure]) -> list[str]:
    return sorted({each.kind for each in departures} - {REPLY})
