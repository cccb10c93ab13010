"""Who learns what: everything that leaves a party in a run, who gets it, and what that one sees.

The list is made from the forms of the messages, which is what both halves of a run compare every
message with; so a part that is not listed cannot be sent. It says what parties that follow the
protocol see. What could be inferred from it is the matter of audits.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from typing import Protocol as Typed

import jax
import numpy as np

from fedmin.core import payload
from fedmin.core.channel import Among, Channel
from fedmin.core.fitting import counting, numbers_to_count
from fedmin.core.method import Exchange, Relay, Trip
from fedmin.core.problem import Problem
from fedmin.core.protocol import PEERS, Leg, Part, Protocol
from fedmin.core.roster import Roster
from fedmin.privacy.departures import PREPARING

SERVER = "server"
SEALED = "each reply, as it is; sealed: the server sees its length only"
COVERED = (
    "the sum of all clients' replies, each {how} and under pads that cancel in it; sealed: the "
    "server sees its length only"
)
OF_ROWS = "sums"  # what a reply to a look at the model calls its sums over rows
HEAD = ["when", "trip", "from", "parts", "to", "what it sees"]


class TripForm(Typed):
    """The shapes of one trip's messages, as the engines find them."""

    @property
    def trip(self) -> Trip: ...
    @property
    def down(self) -> Any: ...
    @property
    def hidden(self) -> Any: ...
    @property
    def protocol(self) -> Protocol | None: ...


class Purpose(Typed):
    """Trips that belong together, and the channel that their replies take."""

    @property
    def name(self) -> str: ...
    @property
    def channel(self) -> Channel: ...
    @property
    def forms(self) -> Sequence[Any]: ...  # of TripForm
    @property
    def steps(self) -> Sequence[Any]: ...  # pairs: the number of a form, and a leg around it


class Disclosure(NamedTuple):
    """What some parties show to others on one trip.

    >>> from fedmin.privacy.observers import Disclosure
    >>> parts = {"update": "float32[3]"}
    >>> both = ("client a", "client b")
    >>> one = Disclosure("training", 0, both, ("server",), parts, "each client's reply")
    >>> sorted(one.pairs)
    [('client a', 'server'), ('client b', 'server')]
    """

    when: str  # "setup", "training" (in every round) or "evaluation"
    trip: int
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    parts: dict[str, str]  # the shape of each part, by its name
    sees: str  # what each receiver sees, in words
    summed: bool = False  # it sees a sum over several senders, or what is told to all
    kind: str = ""  # "reply": of a method or a look; else of a channel, or what the server says

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """Who shows it to whom; nobody to itself."""
        return {(s, r) for s in self.senders for r in self.receivers if s != r}


def who_learns(purposes: Iterable[Purpose], names: Sequence[str]) -> list[Disclosure]:
    """Everything that leaves a party in a run between clients of these names.

    `purposes` are the trips of a round and of a look at the model, as `engines.messages` finds
    them.
    """
    # a client may be called "server" too
    purposes, everyone = list(purposes), tuple(f"client {name}" for name in names)
    found: list[Disclosure] = []
    if len(everyone) > 1 and any(isinstance(f.trip, Relay) for p in purposes for f in p.forms):
        carriers = [p.channel.for_trip(f.trip) for p in purposes for f in p.forms]
        found += _keys(everyone, any(isinstance(carrier, Among) for carrier in carriers))
    for purpose in purposes:
        for k, (e, leg) in enumerate(purpose.steps):
            form = purpose.forms[e]
            found += (
                _of_trip(purpose, k, form, everyone)
                if leg is None
                else _of_leg(purpose, k, leg, everyone)
            )
    return [each for each in found if each.parts and each.pairs]


def who_counts(problem: Problem, roster: Roster) -> list[Disclosure]:
    """What leaves those who count rows before round 0, as the server sees it between machines."""
    wanted = numbers_to_count(problem, roster)
    who = tuple(f"client {roster.names[i]}" for i in counting(roster)) if wanted else ()
    shape = {"counts": f"float64[2, {wanted + 1}]"}
    sees = "each client's: how many rows it has in each group"
    return [Disclosure(PREPARING, 0, who, (SERVER,), shape, sees)] if who else []


def leaving(disclosures: Iterable[Disclosure]) -> list[Disclosure]:
    """Those of them that leave a client."""
    return [each for each in disclosures if each.senders != (SERVER,)]


def table(disclosures: Iterable[Disclosure]) -> list[list[str]]:
    """A line of words for each, in the columns of `HEAD`."""
    return [
        [
            d.when,
            str(d.trip),
            _named(d.senders, d.receivers if len(d.receivers) == 1 else ()),
            ", ".join(f"{part} {form}" for part, form in d.parts.items()),
            _named(d.receivers, d.senders),
            d.sees,
        ]
        for d in disclosures
    ]


def _of_leg(purpose: Purpose, k: int, leg: Leg, everyone: tuple[str, ...]) -> Iterator[Disclosure]:
    """A trip of the channel's own."""
    down, up = ({name: _part(p) for name, p in parts.items()} for parts in (leg.down, leg.up))
    yield Disclosure(purpose.name, k, (SERVER,), everyone, down, leg.shows, True)
    yield Disclosure(purpose.name, k, everyone, (SERVER,), up, leg.sees, leg.summed)


def _part(part: Part) -> str:
    axes = ", ".join("peers" if n == PEERS else str(n) for n in part.shape)
    return f"{part.dtype}[{axes}]" if axes else part.dtype


def _of_trip(purpose: Purpose, e: int, form: TripForm, everyone: tuple[str, ...]) -> Iterator:
    trip = form.trip
    asked = tuple(name for i, name in enumerate(everyone) if trip.asks(i))
    part = "its own part of it" if trip.addressed else "all of it"
    along = {} if form.protocol is None else form.protocol.along
    down = shapes(form.down) | {name: _part(each) for name, each in along.items()}
    yield Disclosure(purpose.name, e, (SERVER,), asked, down, part, True)
    sent = shapes(form.hidden)
    if isinstance(trip, Relay):
        receivers = tuple(everyone[i] for i in trip.receivers(len(everyone)))
        carrier = purpose.channel.for_trip(trip)
        hidden = isinstance(carrier, Among)
        sees = COVERED.format(how=carrier.learns.how) if hidden else SEALED
        yield Disclosure(purpose.name, e, asked, receivers, sent, sees, hidden, "reply")
        return
    assert isinstance(trip, Exchange)
    learns = purpose.channel.for_trip(trip).learns
    # what is gathered is not summed: whatever the channel's sum hides, the server has each of them
    learns = learns if trip.reduce == "sum" else learns._replace(each=True)
    more = purpose.channel.for_trip(trip).beside(form.hidden) if learns.least > 1 else ""
    sees = ", ".join(filter(None, (str(learns), more)))
    sees += ": sums over its rows" if OF_ROWS in sent else ""
    yield Disclosure(purpose.name, e, asked, (SERVER,), sent, sees, not learns.each, "reply")


def _keys(everyone: tuple[str, ...], signed: bool) -> list[Disclosure]:
    """Public keys, with which clients seal what they send each other."""
    sizes = {"key": 32, "signature": 64} if signed else {"key": 32}
    one = {name: f"uint8[{n}]" for name, n in sizes.items()}
    all_of_them = {name: f"uint8[{len(everyone)}, {n}]" for name, n in sizes.items()}
    sees = "each client's public key" + " and signature" * signed
    return [
        Disclosure("setup", 0, everyone, (SERVER,), one, sees),
        Disclosure("setup", 1, (SERVER,), everyone, all_of_them, "all public keys", True),
    ]


def shapes(message: dict[str, Any]) -> dict[str, str]:
    """The shapes of a message's parts; of a compact part its class and what it consists of."""
    return {name: _shape(part) for name, part in sorted(message.items())}


def _shape(part: Any) -> str:
    parts = jax.tree.leaves(part, is_leaf=payload.is_payload)
    return " ".join(_compact(p) if payload.is_payload(p) else _array(p) for p in parts)


def _compact(part: Any) -> str:
    return f"{type(part).__name__}({', '.join(map(_array, jax.tree.leaves(part)))})"


def _array(a: Any) -> str:
    return f"{np.dtype(a.dtype)}{list(a.shape) or ''}"


def _named(parties: tuple[str, ...], others: tuple[str, ...] = ()) -> str:
    """Parties in words; `others` are those whom they send to or get something from."""
    if len(parties) == 1:
        return parties[0]
    return "every client" if others in ((), (SERVER,)) else "every other client"
