"""What lies between the halves: a transport of bytes, and the server's journal of it.

A server that is killed finds in its journal all that it was brought since its last checkpoint, and
is brought it once more: it then is where it was, without asking anybody, and its sites need not
know. So a trip whose replies are in the journal is never asked for again with other words.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from fedmin.engines.round import SiteState
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.files import CheckpointError
from fedmin.engines.sessions.journal import Journal, Record, records
from fedmin.engines.sessions.places import Place

LARGEST = 2**28  # bytes of a journal, after which the server should write a checkpoint


class RestartedError(RuntimeError):
    """A site has begun anew and its keys are gone: clients that seal for it need new ones."""


class StoppedError(RuntimeError):
    """This party was told to stop while it waited for others. What it has done is on its disk."""

    def __init__(self, why: str, waiting: str):
        super().__init__(f"{why} while waiting for {waiting}: started again it goes on from here")


class Transport(ABC):
    """Between the server and its sites: it carries bytes and knows nothing of them."""

    replaying = False  # what it brings was brought before, to a server that was killed since
    full = False  # it keeps so much that the server should write a checkpoint

    @abstractmethod
    def deliver(
        self,
        messages: dict[int, bytes],
        deadline: float | None = None,
        enough: int | None = None,
        before: Mapping[int, bytes] = {},
    ) -> dict[int, bytes]:
        """Bring each site its message, and the one `before` it; the replies that came.

        It waits for all of them, or after `deadline` seconds for `enough` of them. Sites that came
        back without the keys they had raise `RestartedError`, where that matters.
        """

    def here(self) -> set[int] | None:
        """The sites that can be reached now; None if all of them always are."""
        return None

    def states(self) -> list[SiteState] | None:
        """The sites' states where this process has them; None where they stay with their owners."""
        return None

    def go_on(self, done: int) -> None:
        """The server goes on from a checkpoint after so many rounds."""
        return

    def checkpointed(self) -> None:
        """The server has written a checkpoint: what came before it will not be asked for again."""
        return

    def close(self) -> None:
        """No more messages will come."""
        return


class Journaled(Transport):
    """A transport whose replies are written down before they are used."""

    def __init__(self, transport: Transport, path: Path, whose: str):
        self.transport, self.path, self.whose = transport, path, whose
        self.waiting: deque[Record] = deque()
        first, *rest = [*records(path)] or [Record({})]
        if first.words.get("whose") == whose:
            for record in rest:
                # a phase that was begun again: what was written of its first time is void
                while self.waiting and _place(self.waiting[-1]) >= _place(record):
                    self.waiting.pop()
                self.waiting.append(record)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.journal = self._begun()

    def _begun(self) -> Journal:
        return Journal(self.path, [Record({"whose": self.whose}), *self.waiting])

    def go_on(self, done: int) -> None:
        while self.waiting and _place(self.waiting[0]) < Place(done, 1, 0):
            self.waiting.popleft()

    @property
    def replaying(self) -> bool:  # type: ignore[override]
        return bool(self.waiting)

    @property
    def full(self) -> bool:  # type: ignore[override]
        return self.journal.size > LARGEST

    def deliver(
        self,
        messages: dict[int, bytes],
        deadline: float | None = None,
        enough: int | None = None,
        before: Mapping[int, bytes] = {},
    ) -> dict[int, bytes]:
        some = wire.envelope_of(next(iter(messages.values()))) if messages else None
        if some is None or some.kind != "ask" or some.trip >= wire.SETUP:
            return self.transport.deliver(messages, deadline, enough, before)
        # the checksums of the questions tell whether they are the same
        asked = [[i, messages[i][wire.CHECKSUM].hex()] for i in sorted(messages)]
        place = Place.of(some)
        if self.waiting:
            words, pieces = self.waiting.popleft()
            if words["asked"] != asked or Place(*words["place"]) != place:
                raise CheckpointError(
                    f"{self.path}: at {place} this server asks another thing than the one that "
                    f"wrote it; delete it, and the run goes on from its last checkpoint"
                )
            return dict(zip(words["from"], pieces, strict=True))
        replies = self.transport.deliver(messages, deadline, enough, before)
        words = {"place": list(place), "asked": asked, "from": list(replies)}
        self.journal.append(Record(words, tuple(replies.values())))
        return replies

    def here(self) -> set[int] | None:
        return self.transport.here()

    def states(self) -> list[SiteState] | None:
        return self.transport.states()

    def checkpointed(self) -> None:
        self.journal = self._begun()
        self.transport.checkpointed()

    def close(self) -> None:
        self.transport.close()


def _place(record: Record) -> Place:
    return Place(*record.words["place"])
