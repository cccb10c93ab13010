"""Rows of several parties in one order: those that all have, in an order that nobody can link.

Each party has a column of ids. One of them, the one with the labels, leads:

leader -> each other      its ids, blinded                      (intersection.py)
each other -> leader      its own ids, blinded; the leader's, blinded once more
leader                    sees which of its ids each other has; what all have, in an order by chance
leader -> each other      the ids that all have, hashed with a number of this meeting, in that order

Who learns what, beside its own rows:

leader        how many rows each other has, and which of the leader's ids that one has
each other    how many rows the leader has, and the ids that all have
whoever carries the messages: how many rows each has and how many all have, where the messages are
sealed; the order comes from the leader's operating system and is in none of them in the clear

A party that names ids which it has made up learns whether others have them: set intersection does
not stop that. Parties are taken to be curious, and honest about their ids.
"""

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedmin.privacy.intersection import Answerer, Asker, IntersectionError

WHOLE, TEXT = "whole numbers", "text"
KINDS = (WHOLE, TEXT)
SALT, MARK = 32, 16  # bytes of a meeting's number, and of an id hashed with it


class AlignmentError(ValueError):
    """Ids that cannot be aligned, with the place; `told` is what others may hear of it.

    >>> from fedmin.privacy.alignment import AlignmentError
    >>> AlignmentError("line 3 has no id", "ids are missing").told
    'ids are missing'
    """

    def __init__(self, words: str, told: str = ""):
        super().__init__(words)
        self.told = told or words


@dataclass(frozen=True)
class Ids:
    """One party's ids, each once, and where each of them stands.

    >>> from fedmin.privacy.alignment import Ids
    >>> Ids.of("a", ["7", "12"]).kind, Ids.of("a", ["007", "12"]).kind
    ('whole numbers', 'text')
    >>> Ids.of("a", ["7", "12", "7"])
    Traceback (most recent call last):
        ...
    fedmin.privacy.alignment.AlignmentError: a, row 2 has the id '7', which row 0 has too: each id \
must be there once
    """

    party: str
    values: tuple[str, ...]
    kind: str
    text_at: int | None  # the first that is no whole number
    place: Callable[[int], str]

    @classmethod
    def of(
        cls,
        party: str,
        values: Sequence[str | int],
        place: Callable[[int], str] | None = None,
    ) -> "Ids":
        """Check ids; `place` says where the one of a row stands."""
        at = place or (lambda row: f"{party}, row {row}")
        found: list[str] = []
        first: dict[str, int] = {}
        for row, value in enumerate(values):
            word = cls._word(value, at(row), party)
            if word in first:
                raise AlignmentError(
                    f"{at(row)} has the id {word!r}, which {_tail(at(first[word]))} has too: each "
                    f"id must be there once",
                    f"{party} has an id more than once",
                )
            first[word] = row
            found.append(word)
        if not found:
            raise AlignmentError(f"{party} has no rows: there is nothing to align")
        whole = re.compile(r"0|-?[1-9][0-9]*").fullmatch
        text_at = next((row for row, word in enumerate(found) if not whole(word)), None)
        return cls(party, tuple(found), WHOLE if text_at is None else TEXT, text_at, at)

    @staticmethod
    def _word(value: str | int, place: str, party: str) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | np.integer):
            raise AlignmentError(
                f"{place} has {value!r} of type {type(value).__name__}: an id is a whole number or "
                f"text",
                f"{party} has ids that are neither whole numbers nor text",
            )
        word = str(value)
        if word != word.strip() or not word:
            what = "nothing" if not word.strip() else f"{word!r}, with blanks around it"
            raise AlignmentError(
                f"{place} has {what}: an id is a whole number or text",
                f"{party} has a row without a proper id",
            )
        return word

    def check_kind(self, leader: str, kind: str) -> None:
        """Refuse ids of another type than the leader's: none of them would be found."""
        if kind == self.kind:
            return
        public = f"the ids of {self.party} are {self.kind}, those of {leader} {kind}"
        raise AlignmentError(f"{public}{self._text()}: all parties need the same type", public)

    def _text(self) -> str:
        """Which of them is text, in brackets."""
        row = self.text_at
        return "" if row is None else f" ({self.place(row)} has {self.values[row]!r})"

    def check_alike(self, other: "Ids") -> None:
        """The same where both are in one place: the message names the row at either."""
        if self.kind != other.kind:
            raise AlignmentError(
                f"the ids of {self.party} are {self.kind}{self._text()}, those of {other.party} "
                f"{other.kind}{other._text()}: all parties need the same type"
            )


def _tail(place: str) -> str:
    """A second place in the same file: without the file."""
    return place.rpartition(", ")[2] if ", column" not in place else place.split(", ", 1)[1]


class Leader:
    """The party that asks all others and says the order; its `rows` are those that all have."""

    def __init__(self, ids: Ids, others: Sequence[str]):
        self.ids, self.others = ids, tuple(others)
        self._asker = Asker(ids.values)
        self._common: dict[str, set[int]] = {}
        self.rows = np.zeros(0, np.int64)

    def question(self) -> bytes:
        """To every other party: the same."""
        return bytes([KINDS.index(self.ids.kind)]) + self._asker.question()

    def took(self, other: str, answer: bytes) -> None:
        """What another party answered."""
        self._common[other] = set(self._asker.common(answer))

    def order(self) -> bytes:
        """To every other party, when all have answered: the ids that all have, hashed, in order."""
        rows = sorted(set.intersection(*(self._common[other] for other in self.others)))
        chance = np.frombuffer(os.urandom(8 * len(rows)), np.uint64)
        self.rows = np.array(rows, np.int64)[np.argsort(chance)]
        salt = os.urandom(SALT)
        return salt + b"".join(_mark(salt, self.ids.values[row]) for row in self.rows)


class Member:
    """A party that answers the leader, and is told the order."""

    def __init__(self, ids: Ids, leader: str):
        self.ids, self.leader = ids, leader
        self.rows = np.zeros(0, np.int64)

    def answer(self, question: bytes) -> bytes:
        """The answer to the leader's question."""
        if question[:1] not in (b"\x00", b"\x01"):
            raise IntersectionError(f"what came from {self.leader} is no question")
        self.ids.check_kind(self.leader, KINDS[question[0]])
        return Answerer(self.ids.values).answer(question[1:])

    def took(self, order: bytes) -> None:
        """The order that the leader says."""
        salt, marks = order[:SALT], order[SALT:]
        if len(salt) < SALT or len(marks) % MARK:
            raise IntersectionError(f"what came from {self.leader} is no order of rows")
        places = {_mark(salt, word): row for row, word in enumerate(self.ids.values)}
        named = [marks[at : at + MARK] for at in range(0, len(marks), MARK)]
        if len(set(named)) < len(named) or not places.keys() >= set(named):
            raise IntersectionError(f"the order of {self.leader} has rows that are not here")
        self.rows = np.array([places[mark] for mark in named], np.int64)


def _mark(salt: bytes, word: str) -> bytes:
    return hashlib.blake2b(
        word.encode(), digest_size=MARK, key=salt, person=b"fedmin align"
    ).digest()


def check_common(rows: np.ndarray, parties: Sequence[str]) -> None:
    """Refuse an empty intersection."""
    if not len(rows):
        raise AlignmentError(f"no id is common to all of {', '.join(parties)}: nothing is aligned")


def align(
    parties: Mapping[str, Sequence[str | int] | Ids], *, leader: str = ""
) -> dict[str, np.ndarray]:
    """The rows that all parties have, in one order: for each party the numbers of its rows.

    parties    a party's name -> its ids, in the order of its rows
    leader     who asks and says the order: whoever has the labels; the first if left out

    >>> from fedmin.privacy.alignment import align
    >>> ids = {"bank": ["ann", "bob", "eve"], "shop": ["eve", "zoe", "ann"]}
    >>> rows = align(ids)
    >>> [ids["bank"][row] for row in rows["bank"]] == [ids["shop"][row] for row in rows["shop"]]
    True
    >>> sorted(ids["bank"][row] for row in rows["bank"])
    ['ann', 'eve']
    """
    if len(parties) < 2:
        raise AlignmentError(f"{len(parties)} parties: an alignment needs two or more")
    leader = leader or next(iter(parties))
    if leader not in parties:
        raise AlignmentError(f"the leader {leader!r} is none of {', '.join(parties)}")
    ids = {n: v if isinstance(v, Ids) else Ids.of(n, v) for n, v in parties.items()}
    others = [name for name in parties if name != leader]
    lead = Leader(ids[leader], others)
    members = {name: Member(ids[name], leader) for name in others}
    for name in others:  # before any work
        ids[leader].check_alike(ids[name])
    question = lead.question()
    for name, member in members.items():
        lead.took(name, member.answer(question))
    order = lead.order()
    check_common(lead.rows, list(parties))
    for member in members.values():
        member.took(order)
    return {name: lead.rows if name == leader else members[name].rows for name in parties}
