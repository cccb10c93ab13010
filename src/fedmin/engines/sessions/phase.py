"""What is going on at the server: the trips of a setup, of a round or of a look at the model."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fedmin.core.ledger import Trips
from fedmin.core.method import complete
from fedmin.core.protocol import Occasion, ProtocolError, ServerRole
from fedmin.core.roster import Roster
from fedmin.engines.forms import Purpose, Step
from fedmin.engines.messages import FITTING, of_session
from fedmin.engines.round import NOBODY, SERVER
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.seal import key_like
from fedmin.engines.sessions.wire import Envelope, MessageError

AT_THE_END = ("certificate", "statistics")  # looks at the last model, by all clients
SETUP_TRIPS = 2  # own keys up, everybody's down


class QuorumError(RuntimeError):
    """Too few sites answered for a round to count; the message says who did not, and why."""


class Absence(NamedTuple):
    """A site that was asked and whose reply was not used."""

    round: int
    trip: int  # its number on the wire: evaluations have theirs
    site: int


class Outcome(NamedTuple):
    """How a phase went."""

    clients: int  # that took part
    culprit: int  # who sent what is not finite, THE_SUM, or NOBODY
    trips: Trips = ()  # who was asked and who answered on each


class Phase:
    """Where the server is, who is still there, and the channel's role in the exchange, if any."""

    def __init__(
        self, purpose: Purpose | None, round: int, ids: np.ndarray, present: np.ndarray,
        name: bytes, roster: Roster,
    ):  # fmt: skip
        self.purpose, self.round, self.ids, self.present = purpose, round, ids, present.copy()
        self.name, self.roster = name, roster
        self.at_first, self.drawn = present.copy(), self.there
        self.trip = 0  # over the wire: legs are trips too
        self.culprit = NOBODY
        self.packets: dict[tuple[int, int], dict[int, np.ndarray]] = {}  # (relay, receiver)
        self.asked: tuple[int, ...] = ()
        self.trips: list[tuple[int, int]] = []
        self.role: ServerRole | None = None
        self.summed: dict[int, Any] = {}  # whose hidden replies are in the sum
        self.held = False  # an exchange of this round was the channel's own

    @property
    def outcome(self) -> Outcome:
        """How it went so far."""
        return Outcome(int(self.present.sum()), self.culprit, tuple(self.trips))

    @property
    def there(self) -> tuple[int, ...]:
        """Who is still there."""
        return tuple(self.ids[self.present].tolist())

    @property
    def over(self) -> bool:
        """Whether there is nothing more to ask."""
        count = SETUP_TRIPS if self.purpose is None else len(self.purpose.steps)
        return self.trip >= count or self.culprit != NOBODY

    @property
    def step(self) -> Step:
        """What is done on this trip; a setup has trips of its own."""
        return Step(self.trip) if self.purpose is None else self.purpose.steps[self.trip]

    @property
    def trains(self) -> bool:
        """Whether this trip is one of a round, without a sum that is brought to light later."""
        name = None if self.purpose is None else self.purpose.name
        return name == "training" and self.protocol is None

    @property
    def protocol(self) -> Any:
        """The channel's protocol around this trip, if it has one."""
        return None if self.purpose is None else self.purpose.forms[self.step.e].protocol

    @property
    def blind(self) -> bool:
        """Whether the sites take sums in themselves."""
        return self.purpose is not None and self.purpose.channel.blind

    def envelope(self, kind: str, i: int) -> Envelope:
        """Of what the server sends client i on this trip."""
        first = wire.SETUP if self.purpose is None else self.purpose.first
        return Envelope(kind, self.round, first + self.trip, SERVER, i, self.name)

    def move_on(self, answered: int) -> bool:
        """The next trip; True if a hidden sum can be brought to light before it."""
        before = self.step.e
        self.trips.append((len(self.asked), answered))
        self.trip += 1
        if self.role is None or not (self.over or self.step.e != before):
            return False
        return self.culprit == NOBODY

    def least(self, quorum: float) -> float:
        """The share of those asked who must answer. Nobody may be missing where a part of every
        row, or of what clients seal, would be; a leg that asks some has another rule."""
        leg = self.step.leg
        # whoever misses a sum has another model from then on; or tells its size by its absence
        if self.blind or not self.roster.sizes_told:
            return 1.0
        if leg is not None and leg.asks != "everyone":
            return 0.0
        purpose = self.purpose
        if purpose is None or purpose.name in AT_THE_END or self.roster.owners is not None:
            return 1.0
        return 1.0 if any(complete(form.trip) for form in purpose.forms) else quorum

    def packets_of(self, relay: int, i: int) -> np.ndarray:
        """The packets of a relay that wait for client i, in the order of their senders."""
        assert self.purpose is not None
        waiting = self.packets.get((relay, i), {})
        like = self.purpose.packets(relay, i, self.roster.clients)
        return np.stack([waiting[s] for s in sorted(waiting)]) if waiting else like

    def without(self, missing: Iterable[int]) -> list[Absence]:
        """Go on without some who were asked."""
        self.present &= ~np.isin(self.ids, list(missing))
        return [Absence(self.round, self.envelope("ask", i).trip, i) for i in missing]

    # ------------------------------------------------------------ the channel's own trips

    def playing(self) -> ServerRole:
        """The server's role in this exchange."""
        if self.role is None:
            assert self.purpose is not None
            trip = self.purpose.first + self.step.e
            occasion = Occasion(self.name, self.round, trip, self.drawn, self.roster)
            self.role = self.protocol.server(occasion)
        return self.role

    def said(self, leg: str, there: tuple[int, ...]) -> dict[int, Any]:
        """What the channel says on a leg, if enough are left for it."""
        try:
            return self.playing().say(leg, there)
        except ProtocolError as error:
            raise QuorumError(f"round {self.round}: {error}") from error

    def peers(self) -> int:
        """How many clients are summed together."""
        return self.protocol.peers(len(self.drawn))

    def reply_like(self, i: int, signed: bool) -> Any:
        """The form of what client i replies on this trip."""
        leg = self.step.leg
        if self.purpose is None:
            return key_like(signed) if self.trip == 0 else {}
        if leg is not None:
            return leg.form("up", 0 if of_session(leg) else self.peers())
        return self.purpose.reply_like(self.step.e, i, self.roster.clients)

    @property
    def finite(self) -> bool:
        """Whether all numbers of a reply must be finite; what is recorded need not be."""
        leg = self.step.leg
        return not of_session(leg) or (leg is not None and leg.name in FITTING)

    def leg_checked(self, i: int, reply: Any) -> Any:
        """A reply, unless it is of a leg and the channel refuses it."""
        leg = self.step.leg
        if self.purpose is None or leg is None or of_session(leg):
            return reply
        try:
            self.playing().check(leg.name, i, reply)
        except ProtocolError as error:
            raise MessageError(f"{self.envelope('reply', i)}: {error}") from error
        return reply

    def revealed(self) -> tuple[Any, dict[int, Any]]:
        """The sum that was hidden, as one wire; and whose replies are in it."""
        assert self.role is not None
        role, summed = self.role, self.summed
        self.role, self.summed = None, {}
        try:
            return role.reveal(), summed
        except ProtocolError as error:
            raise QuorumError(f"round {self.round}: {error}") from error
