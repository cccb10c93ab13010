"""What a site must still know when it is killed and started again: its state and its last answers.

A reply is a promise: the server may use it, and then the site's state must be the one after it. So
the state is written before the reply leaves. Whether the reply was used the site cannot know yet:
it may be lost, or late. So it also keeps where it was before, until the next thing that it is asked
shows that the server went on with it; if the server did not, it says how many replies of this site
it has used (`used`), and the site is again where it was after that many.

    diary.bin    one record with the state at the beginning of this round (or look at the model),
                 then one record an answer: place, the question, the answer, the state after it
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedmin.engines.sessions import wire
from fedmin.engines.sessions.journal import Journal, Record, records
from fedmin.engines.sessions.places import BEGINNING, Place


class Answered(NamedTuple):
    """One question and its answer, and the site's state after it."""

    place: Place
    mark: bytes  # a hash of the question
    ask: bytes
    reply: bytes
    state: Any


class Start(NamedTuple):
    """Where a site was when a round, or a look at the model, began."""

    place: Place  # the last one before
    told: int  # replies of rounds that it had given until then
    state: Any


class Diary:
    """The answers of one round or one look, on disk if there is a folder."""

    def __init__(self, whose: str, state: Any, folder: Path | None):
        self.whose, self.like = whose, state
        self.path = None if folder is None else folder / "diary.bin"
        self.journal: Journal | None = None
        self.start, self.answers = Start(BEGINNING, 0, state), []  # type: tuple[Start, list[Answered]]
        self.marks: dict[Place, bytes] = {}  # of everything it answered in this round
        if self.path is not None:
            self._read()

    # ------------------------------------------------------------ where the site is

    @property
    def last(self) -> Answered | None:
        """The latest answer of this phase."""
        return self.answers[-1] if self.answers else None

    @property
    def state(self) -> Any:
        """The state after the latest answer."""
        return self.answers[-1].state if self.answers else self.start.state

    @property
    def place(self) -> Place:
        """The place of the latest answer."""
        return self.answers[-1].place if self.answers else self.start.place

    @property
    def told(self) -> int:
        """How many replies of rounds the site has given, as far as it knows used by the server."""
        return self.start.told + sum(each.place.phase == 1 for each in self.answers)

    def found(self, place: Place) -> Answered | None:
        """The answer that was given at a place, if it still stands."""
        return next((each for each in self.answers if each.place == place), None)

    # ------------------------------------------------------------ writing

    def add(self, answered: Answered) -> None:
        """Enter an answer before it leaves; one of a later phase settles those before it."""
        place = answered.place
        if place[:2] != self.place[:2] or self.journal is None:
            if place[:2] != self.place[:2]:
                self.start, self.answers = Start(self.place, self.told, self.state), []
                self.marks = {p: m for p, m in self.marks.items() if p.round == place.round}
            self._begin()
        self.answers.append(answered)
        self.marks[place] = answered.mark
        if self.journal is not None:
            self.journal.append(self._record(answered))

    def back(self, used: int) -> bool:
        """Be where the site was after so many replies of rounds; False if that is not known."""
        if not self.start.told <= used < self.told:
            return False
        del self.answers[used - self.start.told :]  # a phase with replies of rounds has no others
        self._begin()
        return True

    def begin_again(self) -> None:
        """Where clients seal messages for each other, new keys make other questions of the same
        name; a look at the model that had begun is begun again."""
        self.marks = {}
        if self.answers and self.place.phase == 0:
            self.answers = []
            self._begin()

    def restart(self, place: Place, told: int, state: Any) -> None:
        """Be at a place that a checkpoint knows."""
        self.start, self.answers, self.marks = Start(place, told, state), [], {}
        self._begin()

    def _begin(self) -> None:
        if self.path is None:
            return
        words = {"whose": self.whose, "place": list(self.start.place), "told": self.start.told}
        first = Record(words, (_encoded(self.start.state),))
        self.journal = Journal(self.path, [first, *map(self._record, self.answers)])

    def _record(self, answered: Answered) -> Record:
        # a look at the model changes no state
        state = _encoded(answered.state) if answered.place.phase == 1 else b""
        return Record(
            {"place": list(answered.place)},
            (answered.mark, answered.ask, answered.reply, state),
        )

    # ------------------------------------------------------------ reading

    def _read(self) -> None:
        assert self.path is not None
        found = list(records(self.path))
        if not found or found[0].words.get("whose") != self.whose:
            return
        first, *rest = found
        state = self._decoded(first.pieces[0])
        self.start = Start(Place(*first.words["place"]), first.words["told"], state)
        for words, (mark, ask, reply, after) in rest:
            state = self._decoded(after) if after else state
            place = Place(*words["place"])
            self.answers.append(Answered(place, mark, ask, reply, state))
            self.marks[place] = mark

    def _decoded(self, data: bytes) -> Any:
        return jax.tree.map(jnp.asarray, wire.decode(data, self.like)[1])


def _encoded(state: Any) -> bytes:
    return wire.encode(wire.Envelope("state", 0, 0, 0, 0), jax.device_get(state))
