"""Asking sites before there is a run: questions and answers as messages, of words or of sums.

A question has a kind, words (what was agreed on so far) and arrays. It says all that an answer
needs: a site remembers nothing from one to the next, so one that was killed goes on, and a server
that was killed asks the same again and is answered the same. An answer is words, or arrays in
double precision that are added up over the sites. Every message has its line in the ledger.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedmin.core.kept import is_a
from fedmin.core.ledger import Line
from fedmin.engines.round import SERVER
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.wire import Envelope, MessageError

KIND = "prepare"  # of the ledger's lines
MOST_TRIPS = 1000
Carry = Callable[[dict[int, bytes]], dict[int, bytes]]  # questions to the sites' answers
Arrays = Mapping[str, np.ndarray]
Forms = Mapping[str, tuple[int, ...]]


class AwayError(ValueError):
    """Some sites did not answer; the message says which."""


class Question(NamedTuple):
    """What a site is asked."""

    trip: int
    kind: str
    told: dict[str, Any]
    arrays: dict[str, np.ndarray]


def asked(name: bytes, i: int, question: Question) -> bytes:
    """A question to client i as bytes."""
    words = {"kind": question.kind, "told": question.told, "arrays": list(question.arrays)}
    message = {question.kind: [_bytes(words), *map(_numbers, question.arrays.values())]}
    return wire.encode(_envelope("ask", name, question.trip, SERVER, i), message)


def question_of(name: bytes, me: int, data: bytes) -> Question:
    """The question in these bytes, if it is one to this client."""
    envelope, (first, *arrays) = _opened(data)
    if envelope != _envelope("ask", name, envelope.trip - wire.PREPARE, SERVER, me):
        raise MessageError(f"{envelope}: it is no question to this site before this run")
    words = _words(envelope, first)
    names: Any = words.get("arrays")
    right = is_a(words, dict[str, Any]) and is_a(words.get("told"), dict[str, Any])
    if not right or not is_a(names, list[str]) or len(names) != len(arrays):
        raise MessageError(f"{envelope}: its words are no question")
    _check_numbers(envelope, arrays)
    given = dict(zip(names, arrays, strict=True))
    return Question(envelope.trip - wire.PREPARE, str(words.get("kind")), words["told"], given)


def answered(name: bytes, me: int, question: Question, answer: Mapping[str, Any]) -> bytes:
    """An answer as bytes: arrays, or words."""
    envelope = _envelope("reply", name, question.trip, me, SERVER)
    return wire.encode(envelope, {question.kind: parts_of(answer)})


def parts_of(answer: Mapping[str, Any]) -> list[np.ndarray]:
    """The arrays that an answer is sent as."""
    sums = bool(answer) and all(isinstance(part, np.ndarray) for part in answer.values())
    return list(map(_numbers, answer.values())) if sums else [_bytes(answer)]


class Talk:
    """The server's end: it asks all sites the same, checks what comes, and counts the bytes.

    `carry` brings a message to each site, and all their answers back.
    """

    def __init__(
        self, names: Sequence[str], carry: Carry, name: bytes = wire.NO_RUN,
        lines: Sequence[tuple[Line, int]] = (),
    ):  # fmt: skip
        self.names, self.carry, self.name = tuple(names), carry, name
        self.lines = list(lines)
        self.trip = -1

    hides = False  # whether single answers are hidden

    @property
    def next_trip(self) -> int:
        """The number of the next question."""
        return len({line.trip for line, _ in self.lines})

    def words(self, kind: str, told: dict[str, Any], form: Mapping[str, Any]) -> list[Any]:
        """What each site says in words, each of the types of a form."""
        replies = self.asked_each(kind, told, {i: {} for i in range(len(self.names))})
        return [self._said(i, kind, replies[i], form) for i in range(len(self.names))]

    def sums(self, kind: str, told: dict[str, Any], arrays: Arrays, forms: Forms) -> list[Any]:
        """The sums over the sites of what they answer, in the order of `forms`."""
        replies = self.asked_each(kind, told, dict.fromkeys(range(len(self.names)), arrays))
        like = [np.broadcast_to(0.0, shape) for shape in forms.values()]
        parts = [self.parts(i, kind, replies[i], like) for i in range(len(self.names))]
        return [np.sum(np.stack(part), axis=0) for part in zip(*parts, strict=True)]

    def asked_each(
        self, kind: str, told: dict[str, Any], arrays: Mapping[int, Arrays]
    ) -> dict[int, bytes]:
        """What each site answers, as it came; what each is given may differ."""
        self.trip = self.next_trip
        if self.trip >= MOST_TRIPS:
            raise ValueError(f"preparing columns takes more than {MOST_TRIPS} exchanges")
        messages = {
            i: asked(self.name, i, Question(self.trip, kind, told, dict(given)))
            for i, given in arrays.items()
        }
        replies = self.carry(messages)
        for way, some in (("down", messages), ("up", replies)):
            for size, times in Counter(len(data) for data in some.values()).items():
                parts = _parted(kind, next(d for d in some.values() if len(d) == size))
                self.lines.append((Line(self.trip, way, parts, kind=KIND), times))
        return replies

    def _opened(self, i: int, kind: str, data: bytes) -> list[np.ndarray]:
        envelope, parts = _opened(data)
        if envelope != _envelope("reply", self.name, self.trip, i, SERVER):
            raise MessageError(f"{self.names[i]}: {envelope} is no answer about {kind}")
        return parts

    def _said(self, i: int, kind: str, data: bytes, form: Mapping[str, Any]) -> Any:
        parts = self._opened(i, kind, data)
        words = _words(wire.envelope_of(data), parts[0]) if len(parts) == 1 else {}
        wrong = [key for key, hint in form.items() if not is_a(words.get(key), hint)]
        if wrong or set(words) - set(form):
            what = wrong[0] if wrong else sorted(set(words) - set(form))[0]
            raise MessageError(f"{self.names[i]}: its answer about {kind} is wrong in {what!r}")
        return words

    def parts(self, i: int, kind: str, data: bytes, like: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arrays of an answer, each of the form of one of `like`."""
        parts = self._opened(i, kind, data)
        found = [(part.dtype, part.shape) for part in parts]
        if found != [(one.dtype, one.shape) for one in like]:
            raise MessageError(f"{self.names[i]}: its sums of {kind} have another form")
        _check_numbers(wire.envelope_of(data), parts)
        return parts


def sizes_of(kind: str, data: bytes) -> dict[str, int]:
    """The bytes of a message by part, as the ledger has them."""
    return _parted(kind, data)


def _parted(kind: str, data: bytes) -> dict[str, int]:
    body = sum(part.nbytes for part in wire.leaves(data)[1])
    return {"header": len(data) - body, kind: body}


def _envelope(kind: str, name: bytes, trip: int, sender: int, receiver: int) -> Envelope:
    return Envelope(kind, 0, wire.PREPARE + trip, sender, receiver, name)


def _opened(data: bytes) -> tuple[Envelope, list[np.ndarray]]:
    envelope, parts = wire.leaves(data)
    if not parts:
        raise MessageError(f"{envelope}: there is nothing in it")
    return envelope, parts


def _check_numbers(envelope: Envelope, parts: Sequence[np.ndarray]) -> None:
    whole = [part for part in parts if part.dtype.kind == "f"]
    if not all(part.dtype == np.float64 and np.isfinite(part).all() for part in whole):
        raise MessageError(f"{envelope}: not all of its numbers are finite, in double precision")


def _words(envelope: Envelope, part: np.ndarray) -> dict[str, Any]:
    try:
        found = json.loads(part.tobytes()) if part.dtype == np.uint8 else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise MessageError(f"{envelope}: its words are not JSON")
    return found


def _bytes(words: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(words, allow_nan=False).encode(), np.uint8)


def _numbers(part: np.ndarray) -> np.ndarray:
    return part if part.dtype.kind in "ub" and part.dtype.itemsize < 8 else part.astype(np.float64)
