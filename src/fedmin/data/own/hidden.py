"""Sums by which columns are prepared, where the run's channel hides replies: by secure sums.

A number is round(2^62 x) modulo 2^128, so sums of numbers below 2^64 are exact to 2^-62: nothing is
clipped, and nothing depends on a bound that somebody has to know. The trips are those of a secure
sum (channels/secure), with everybody in it: a sum over some of the sites is never opened, or two of
them would tell what a single one has. If somebody is lost on the way all begin anew.

Words are not hidden: names and kinds of columns, which labels and groups a site has, how many rows.
Levels of categories are counted only where the run's file names them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedmin.channels.fixed_point import weight_words
from fedmin.channels.secure.legs import GROUP, WEIGHT, SumProtocol, Terms
from fedmin.core.protocol import (
    EXCHANGE,
    Leg,
    Occasion,
    Protocol,
    ProtocolError,
    ServerRole,
    SiteRole,
)
from fedmin.core.roster import Roster
from fedmin.data.own.table import SiteTable
from fedmin.data.own.talk import Arrays, AwayError, Forms, Talk
from fedmin.engines.sessions import wire

LIMBS, GRID, LARGEST = 4, 62, 2.0**64  # words of a number; it is a multiple of 2^-62
TRIES = 5
SUMS = "sums"
LOST = b'{"lost": true}'  # the answer of a site whose keys for a sum are gone


def roster_of(names: Sequence[str], identities: Sequence[str] = ()) -> Roster:
    """Who is summed with whom, before anything is known of their rows."""
    count = len(names)
    return Roster(
        shares=np.full(count, 1 / count, np.float32), owners=None, names=tuple(names),
        clients=count, capacity=1, features=1, classes=None, dtype="float32", slots=None,
        target=("float32", ()), identities=tuple(identities),
    )  # fmt: skip


def protocol_of(clients: int, size: int) -> SumProtocol:
    """A secure sum of so many numbers over all clients."""
    like = {SUMS: np.zeros((size, LIMBS), np.uint32), WEIGHT: np.zeros(LIMBS, np.uint32)}
    return SumProtocol(like, Terms(LIMBS, "lying", clients))


def to_words(numbers: np.ndarray) -> np.ndarray:
    """uint32[n, 4] of numbers below 2^64.

    >>> import numpy as np
    >>> from fedmin.data.own.hidden import from_words, to_words
    >>> from_words(to_words(np.array([1e8 + 0.25, -3.5]))).tolist()
    [100000000.25, -3.5]
    """
    whole = (int(each) for each in np.rint(np.ldexp(numbers, GRID)))
    data = b"".join((each % 2**128).to_bytes(16, "little") for each in whole)
    return np.frombuffer(data, np.uint32).reshape(-1, LIMBS)


def from_words(words: np.ndarray) -> np.ndarray:
    """What sums of them stand for, f64[n]."""
    whole = [int.from_bytes(each.tobytes(), "little") for each in words.astype("<u4")]
    return np.array([(y - 2**128 if y >= 2**127 else y) / 2**GRID for y in whole])


class HiddenTalk(Talk):
    """The server's end, which learns sums over all sites only."""

    hides = True

    def __init__(self, *given: Any, identities: Sequence[str] = (), **more: Any):
        super().__init__(*given, **more)
        self.roster = roster_of(self.names, identities)
        if len(self.names) > GROUP:
            raise ValueError(
                f"columns are prepared by secure sums of at most {GROUP} sites, and there are "
                f"{len(self.names)}; prepare by ranges and levels in [prepare]"
            )
        if len(self.names) < 3:
            raise ValueError(
                f"a secure sum needs three sites or more, and there are {len(self.names)}: of two "
                f"each would know the other's; prepare by ranges and levels in [prepare]"
            )

    def sums(self, kind: str, told: dict[str, Any], arrays: Arrays, forms: Forms) -> list[Any]:
        """The sums over the sites of what they answer, in the order of `forms`."""
        sizes = [math.prod(shape) for shape in forms.values()]
        for attempt in range(TRIES):
            try:
                total = self._opened_sum(attempt, kind, told, arrays, sum(sizes))
                break
            except AwayError:
                if attempt == TRIES - 1:
                    raise
        parts = np.split(total, np.cumsum(sizes)[:-1])
        return [part.reshape(form) for part, form in zip(parts, forms.values(), strict=True)]

    def _opened_sum(
        self, attempt: int, kind: str, told: dict[str, Any], arrays: Arrays, size: int
    ) -> np.ndarray:
        about = {"attempt": attempt, "trip": self.next_trip}
        protocol = protocol_of(len(self.names), size)
        everyone = tuple(range(len(self.names)))
        occasion = Occasion(self.name, attempt, wire.PREPARE + about["trip"], everyone, self.roster)
        role = protocol.server(occasion)
        try:
            for leg in protocol.before:
                self._leg(protocol, role, leg, about)
            along = role.say(EXCHANGE, everyone)
            down = {i: {**arrays, **along[i]} for i in everyone}
            like = [np.zeros((size, LIMBS), np.uint32), np.zeros(LIMBS, np.uint32)]
            replies = self.asked_each(kind, {**told, "sum": about}, down)
            found = {i: self.parts(i, kind, replies[i], like) for i in everyone}
            role.took_wires({i: {SUMS: s, WEIGHT: w} for i, (s, w) in found.items()})
            for leg in protocol.after:
                self._leg(protocol, role, leg, about)
            return from_words(role.reveal()[SUMS])
        except ProtocolError as error:
            raise ValueError(f"the sums of {kind} cannot be opened: {error}") from None

    def asked_each(
        self, kind: str, told: dict[str, Any], arrays: Mapping[int, Arrays]
    ) -> dict[int, bytes]:
        """What each site answers; one that was killed in the middle has lost its keys."""
        replies = super().asked_each(kind, told, arrays)
        lost = [self.names[i] for i, data in replies.items() if data[-len(LOST) :] == LOST]
        if lost:
            raise AwayError(f"{', '.join(lost)} began anew in the middle of a secure sum")
        return replies

    def _leg(self, protocol: Protocol, role: ServerRole, leg: Leg, about: dict[str, Any]) -> None:
        everyone = tuple(range(len(self.names)))
        down = {i: dict(said) for i, said in role.say(leg.name, everyone).items()}
        replies = self.asked_each(leg.name, {"sum": about}, down)
        form = leg.form("up", protocol.peers(len(everyone)))
        found: dict[int, Mapping[str, np.ndarray]] = {}
        for i in everyone:
            parts = self.parts(i, leg.name, replies[i], list(form.values()))
            found[i] = dict(zip(form, parts, strict=True))
            role.check(leg.name, i, found[i])
        role.took(leg.name, found)


class HiddenTable:
    """A site's table whose sums leave under masks only."""

    def __init__(
        self, table: SiteTable, name: bytes, roster: Roster, identity: bytes | None = None
    ):
        self.table, self.name, self.roster, self.identity = table, name, roster, identity
        self.role: tuple[Any, SiteRole] | None = None
        protocol = protocol_of(roster.clients, 1)
        self.legs = {leg.name: leg for leg in (*protocol.before, *protocol.after)}
        self.along, self.peers = protocol.along, protocol.peers(roster.clients)

    def answer(self, kind: str, told: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
        """Words, or sums under masks; and what a secure sum asks around them."""
        if "sum" in told and kind != "keys" and not self._has(told):
            return {"lost": True}
        if kind in self.legs:
            form = self.legs[kind].form("down", self.peers)
            said = _checked(arrays, form)
            found = self._playing(told, kind == "keys").answer(kind, said)
            return {name: found[name] for name in self.legs[kind].up}
        own = {name: a for name, a in arrays.items() if name not in self.along}
        found = self.table.answer(kind, told, own)
        if not all(isinstance(part, np.ndarray) for part in found.values()):
            if kind == "levels":
                raise ValueError("levels are counted under masks only where the run names them")
            return found
        numbers = np.concatenate([np.ravel(part) for part in found.values()])
        if not (np.abs(numbers) < LARGEST / len(self.roster.names)).all():
            raise ValueError(
                f"site {self.table.frame.site}: a sum of {kind} is too large for a secure sum; "
                f"give its column in another unit"
            )
        role = self._playing(told, False)
        share = weight_words(self.roster.share(self.table.me), LIMBS)
        along = _checked(
            {name: arrays[name] for name in self.along if name in arrays},
            {name: part.like(self.peers) for name, part in self.along.items()},
        )
        hidden = role.hide({SUMS: to_words(numbers), WEIGHT: share}, along)
        return {name: hidden[name] for name in (SUMS, WEIGHT)}

    def _has(self, told: Mapping[str, Any]) -> bool:
        return self.role is not None and self.role[0] == _place(told)

    def _playing(self, told: Mapping[str, Any], begins: bool) -> SiteRole:
        """This site's role in one sum: a new one when it begins; it is lost with the process."""
        place = _place(told)
        if begins:
            everyone = tuple(range(self.roster.clients))
            number = wire.PREPARE + place[1]
            occasion = Occasion(self.name, place[0], number, everyone, self.roster, self.identity)
            protocol = protocol_of(self.roster.clients, 1)
            self.role = place, protocol.site(occasion, self.table.me)
        if self.role is None or self.role[0] != place:
            raise wire.MessageError("a sum that nobody has begun")
        return self.role[1]


def _place(told: Mapping[str, Any]) -> tuple[int, int]:
    about = told.get("sum")
    about = about if isinstance(about, dict) else {}
    return int(about.get("attempt", -1)), int(about.get("trip", -1))


def _checked(arrays: Arrays, form: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = {name: (a.dtype, a.shape) for name, a in arrays.items()}
    if found != {name: (like.dtype, like.shape) for name, like in form.items()}:
        raise wire.MessageError("what came for a secure sum has another form")
    return dict(arrays)
