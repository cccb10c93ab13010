"""The forms of the messages of trips that belong together: what each party sends and expects.

On every trip each client that is asked gets one message and sends one back:

    down    what the server tells it, and the sealed packets of earlier relays that wait for it
    up      its reply, through the channel; in a relay one sealed packet for each receiver

Around an exchange there are the legs of the channel's protocol, if it has one: trips of its own.
All trips of a round, legs among them, are its steps, which are numbered on the wire.
"""

from typing import Any, NamedTuple

import numpy as np

from fedmin.core.channel import Channel
from fedmin.core.method import Relay, Trip
from fedmin.core.protocol import Leg, Protocol, check_names, form_of_parts
from fedmin.engines.sessions import seal, wire

ALONG = "protocol"  # what the part of an exchange is called that its channel says


class TripForm(NamedTuple):
    """The shapes of a trip's messages."""

    trip: Trip
    down: dict[str, Any]  # what one client is told by the server
    up: Any  # what the method's client returns
    sent: Any  # the same after the channel; in a relay what is sealed for each receiver
    memory: Any  # one client's channel memory
    server_memory: Any  # the channel's server half
    protocol: Protocol | None = None  # that the channel plays around it

    @property
    def hidden(self) -> Any:
        """What travels: `sent`, or what the channel's protocol makes of it."""
        return self.sent if self.protocol is None else self.protocol.hidden

    def along(self, clients: int) -> dict[str, Any]:
        """What goes down with it for the channel, where so many clients take part."""
        if self.protocol is None or not self.protocol.along:
            return {}
        return {ALONG: form_of_parts(self.protocol.along, self.protocol.peers(clients))}


class Step(NamedTuple):
    """What is done on one trip over the wire: a method's trip, or a leg around it."""

    e: int  # the number of the method's trip
    leg: Leg | None = None


class Purpose(NamedTuple):
    """The trips that belong together: of a round, or of an evaluation."""

    name: str  # "training", "evaluation", "certificate" or "statistics"
    first: int  # the number of its first trip on the wire
    channel: Channel
    forms: tuple[TripForm, ...]
    steps: tuple[Step, ...]

    def ask_like(self, e: int, i: int, population: int, drawn: int | None = None) -> dict[str, Any]:
        """The form of what client i gets on trip e of a round for which so many were drawn."""
        waiting = [self.packets(r, i, population) for r in self.waiting(e, i, population)]
        form = self.forms[e]
        along = form.along(population if drawn is None else drawn)
        return {**form.down, **({"relayed": tuple(waiting)} if waiting else {}), **along}

    def reply_like(self, e: int, i: int, population: int) -> Any:
        """The form of what client i sends on trip e."""
        form = self.forms[e]
        if not isinstance(form.trip, Relay):
            return form.hidden
        count = len([r for r in form.trip.receivers(population) if r != i])
        return {"sealed": np.zeros((count, self.packet_size(e)), np.uint8)}

    def packet_size(self, e: int) -> int:
        """The bytes of one sealed reply of a relay."""
        return sum(wire.sizes(self.forms[e].sent).values()) + seal.TAG

    def packets(self, r: int, i: int, population: int) -> np.ndarray:
        """The form of the packets that relay r has for client i: one from each other sender."""
        count = len([s for s in range(population) if s != i and self.forms[r].trip.asks(s)])
        return np.zeros((count, self.packet_size(r)), np.uint8)

    def waiting(self, e: int, i: int, population: int) -> list[int]:
        """The relays whose packets reach client i with trip e: all since it was last asked."""
        found: list[int] = []
        for k in range(e):
            trip = self.forms[k].trip
            found = [] if trip.asks(i) else found
            if isinstance(trip, Relay) and i in trip.receivers(population):
                found.append(k)
        return found

    def next(self, i: int, last: int = -1) -> list[int]:
        """The steps after step `last` of which one is the next on which client i is asked."""
        found = []
        for k in range(last + 1, len(self.steps)):
            e, leg = self.steps[k]
            if self.forms[e].trip.asks(i):
                found.append(k)
                if leg is None or leg.asks == "everyone":
                    break  # no later one comes before it
        return found


def purpose_of(name: str, first: int, channel: Channel, forms: tuple[TripForm, ...]) -> Purpose:
    """These trips, and the legs of the channel's protocol around those that are exchanges."""
    steps: list[Step] = []
    for e, form in enumerate(forms):
        found = form.protocol
        before, after = ((), ()) if found is None else (found.before, found.after)
        check_names((*before, *after))
        steps += [*(Step(e, leg) for leg in before), Step(e), *(Step(e, leg) for leg in after)]
    return Purpose(name, first, channel, forms, tuple(steps))
