"""Where in a run a message belongs, and what must come next."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from fedmin.core.protocol import ProtocolError
from fedmin.core.roster import Roster
from fedmin.core.serialize import digest
from fedmin.engines.forms import Purpose
from fedmin.engines.messages import Messages
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.wire import Envelope, MessageError


def run_name(run: Any, roster: Roster, seed: int) -> bytes:
    """Eight bytes that name a run: both halves compute them from what they were told."""
    return bytes.fromhex(digest([run, roster, seed]))[:8]


@contextmanager
def refusing(envelope: Envelope) -> Iterator[None]:
    """What the channel does not accept is refused as any other message is."""
    try:
        yield
    except ProtocolError as error:
        raise MessageError(f"{envelope}: {error}") from error


class Place(NamedTuple):
    """Where in a run a message belongs; places only ever go up."""

    round: int
    phase: int  # -1 setup, 0 evaluation (before the round), 1 training
    trip: int  # within the phase

    @classmethod
    def of(cls, envelope: Envelope) -> "Place":
        """The place that an envelope names."""
        if envelope.trip >= wire.SETUP:
            return cls(envelope.round, -1, envelope.trip - wire.SETUP)
        if envelope.trip >= wire.EVALUATION:
            return cls(envelope.round, 0, envelope.trip - wire.EVALUATION)
        return cls(envelope.round, 1, envelope.trip)

    def within(self, messages: Messages) -> tuple[Purpose, int]:
        """What it is a trip of, and the number of its step there."""
        if self.phase == 1:
            return messages.training, self.trip
        step = self.trip - (wire.STATISTICS - wire.EVALUATION)
        if step >= 0:
            if messages.statistics is None:
                raise MessageError("this run takes no statistics")
            return messages.statistics, step
        step = self.trip - (wire.CERTIFICATE - wire.EVALUATION)
        if step < 0:
            return messages.evaluation, self.trip
        if messages.certificate is None:
            raise MessageError("this run takes no certificate")
        return messages.certificate, step


BEGINNING = Place(-1, -1, -1)


def must_come(me: int, last: Place, place: Place, messages: Messages) -> list[int]:
    """The steps of which one must come next to client `me`, after the last, where `place` is."""
    purpose, _ = place.within(messages)
    if last[:2] != place[:2]:
        return purpose.next(me)
    before, step = last.within(messages)
    return purpose.next(me, step if before is purpose else -1)


def check_place(site: Any, envelope: Envelope, place: Place) -> None:
    """Refuse at a site what has been, and what cannot come yet."""
    if place <= site.place:
        raise MessageError(f"{envelope}: it has been; the site is at {site.place}")
    goes_on = place[:2] == site.place[:2]
    early = place.round > site.due if place.phase < 1 else place.round != site.due
    if early and not goes_on and not site.gaps:
        raise MessageError(f"{envelope}: round {site.due} must come first")
    step = place.within(site.messages)[1]
    wanted = must_come(site.me, site.place, place, site.messages)
    if site.sealed and not site.packets.ready:
        raise MessageError(f"{envelope}: keys must be exchanged first")
    if step not in wanted:
        must = f"trip {wanted[0]} of it must come first" if wanted else "there is no such trip"
        raise MessageError(f"{envelope}: {must}")
