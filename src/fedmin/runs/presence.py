"""Who of a run's machines is there, kept in its folder for those who watch it: presence.json.

A line a site: since when it is there or away, the last round that it answered, how long it takes to
answer, and the bytes that went each way. A server that is started again goes on with the counts.
"""

import contextlib
import statistics
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from fedmin.core.files import write_words
from fedmin.core.kept import DamagedError, read_words, value_of
from fedmin.engines.round import SiteState
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.places import Place
from fedmin.engines.sessions.transport import Transport
from fedmin.reports import tables

NAME = "presence.json"
TIME = "%Y-%m-%dT%H:%M:%S%z"
SECONDS = 1.0  # between two looks
DELAYS = 100  # of the last replies, whose median is shown


@dataclass
class Presence:
    """What is known of one site."""

    site: str
    here: bool = False
    since: str = ""  # when it came, or left; "" if it has not been there yet
    round: int | None = None  # the last one in which it answered
    delay: float | None = None  # seconds, the median of its last replies
    down: int = 0  # bytes
    up: int = 0

    @property
    def line(self) -> list[Any]:
        """In the columns of `HEAD`."""
        since = self.since.partition("+")[0].replace("T", " ")
        where = "there" if self.here else "away"
        return [
            self.site, f"{where} since {since}" if since else "not yet there",
            "-" if self.round is None else self.round,
            "-" if self.delay is None else f"{1000 * self.delay:,.1f}",
            tables.megabytes(self.down), tables.megabytes(self.up),
        ]  # fmt: skip


HEAD = ["site", "presence", "last round", "median delay, ms", "MB down", "MB up"]


def load(folder: Path) -> list[Presence]:
    """What a folder says of its sites; none if it says nothing."""
    path = folder / NAME
    if not path.exists():
        return []
    found = read_words(path).get("sites")
    if not isinstance(found, list):
        raise DamagedError(path, "it has no list of sites")
    return [value_of(path, words, Presence) for words in found]


def section(folder: Path) -> str:
    """The table for a page; what cannot be read now is said, and hides nothing else."""
    try:
        found = load(folder)
    except (ValueError, OSError) as error:
        return f"<p>Who is there cannot be told now: {escape(str(error))}</p>"
    return tables.table(HEAD, [each.line for each in found]) if found else ""


class Watched(Transport):
    """A transport whose sites are watched, and what is seen of them is kept in a folder."""

    def __init__(self, transport: Transport, names: Sequence[str], folder: Path):
        self.transport, self.path = transport, folder / NAME
        self.sites = [Presence(name) for name in names]
        with contextlib.suppress(ValueError, OSError):  # of a server before this one
            before = {each.site: each for each in load(folder)}
            self.sites = [before.get(name, Presence(name)) for name in names]
        self.delays = [deque[float](maxlen=DELAYS) for _ in names]
        self.ended = threading.Event()
        self.look()
        self.thread = threading.Thread(target=self._watch, name="fedmin-presence", daemon=True)
        self.thread.start()

    def deliver(
        self,
        messages: dict[int, bytes],
        deadline: float | None = None,
        enough: int | None = None,
        before: Mapping[int, bytes] = {},
    ) -> dict[int, bytes]:
        replies = self.transport.deliver(messages, deadline, enough, before)
        delays = getattr(self.transport, "delays", {})
        for i, data in messages.items():
            one = self.sites[i]
            one.down += len(data) + len(before.get(i, b""))
            if i not in replies:
                continue
            one.up += len(replies[i])
            ask = wire.envelope_of(data)
            if ask.kind == "ask" and Place.of(ask).phase == 1:
                one.round = ask.round
            if i in delays:
                self.delays[i].append(delays[i])
                one.delay = statistics.median(self.delays[i])
        return replies

    def look(self) -> None:
        """See who is there now, and keep it."""
        there = self.transport.here()
        for i, one in enumerate(self.sites):
            here = there is None or i in there
            if here != one.here:
                one.here, one.since = here, time.strftime(TIME)
        words = {"time": time.strftime(TIME), "sites": [asdict(one) for one in self.sites]}
        with contextlib.suppress(OSError):  # a full disk: the run itself will say so
            write_words(self.path, words)

    def _watch(self) -> None:
        while not self.ended.wait(SECONDS):
            self.look()

    def here(self) -> set[int] | None:
        return self.transport.here()

    def states(self) -> list[SiteState] | None:
        return self.transport.states()

    def go_on(self, done: int) -> None:
        self.transport.go_on(done)

    def checkpointed(self) -> None:
        self.transport.checkpointed()

    def close(self) -> None:
        self.ended.set()
        self.thread.join()
        self.look()
        self.transport.close()
