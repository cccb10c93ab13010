"""A transport over the streams of a listener: questions, deadlines, and sites that come and go."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from fedmin.core.roster import Roster
from fedmin.engines.messages import Messages
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.packets import ClientError
from fedmin.engines.sessions.transport import RestartedError, StoppedError, Transport
from fedmin.engines.transports.grpc.frames import ASK, BEFORE, FAILED, NO, Message
from fedmin.engines.transports.grpc.link import Link, LinkLostError
from fedmin.engines.transports.grpc.listener import Listener

log = logging.getLogger("fedmin.serve")
SLACK = 4096  # bytes that a message may have beyond what its form says: it is then refused by name


class SiteStreams(Transport):
    """Sites at the other ends of streams, each of which may come and go.

    Who answers late is not used. Who is away is waited for once, and then no more until it is back;
    but until enough sites have answered, all are waited for, `patience` seconds long. A reply may
    have `largest` bytes.
    """

    def __init__(
        self,
        listener: Listener,
        names: tuple[str, ...],
        largest: int,
        *,
        sealed: bool = False,
        patience: float = math.inf,
        interrupt: Callable[[], str] = lambda: "",
    ):
        self.listener, self.names = listener, names
        self.patience, self.interrupt = patience, interrupt
        self.sealed = sealed
        self.lives: dict[int, str] = {}  # whose keys the others have
        self.away: set[int] = set()  # waited for once, in vain
        self.delays: dict[int, float] = {}  # seconds of the last reply
        listener.largest = largest

    def here(self) -> set[int]:
        return {i for i, name in enumerate(self.names) if name in self.listener.links}

    def deliver(
        self,
        messages: dict[int, bytes],
        deadline: float | None = None,
        enough: int | None = None,
        before: Mapping[int, bytes] = {},
    ) -> dict[int, bytes]:
        least = len(messages) if enough is None else enough
        return self.listener.call(self._deliver(messages, deadline, least, before))

    async def _deliver(
        self,
        messages: dict[int, bytes],
        deadline: float | None,
        enough: int,
        before: Mapping[int, bytes],
    ) -> dict[int, bytes]:
        begin = said = time.monotonic()
        tasks = {
            i: asyncio.ensure_future(self._asked(i, before.get(i), data))
            for i, data in messages.items()
        }
        try:
            while open_ := {i: task for i, task in tasks.items() if not task.done()}:
                done = [task for task in tasks.values() if task.done()]
                replied = sum(task.result() is not None for task in done)
                spent = time.monotonic() - begin
                late = deadline is not None and spent >= deadline
                gone = all(i in self.away and i not in self.here() for i in open_)
                # those who have refused cannot be waited for
                hopeless = replied + len(open_) < enough
                if (replied >= enough and (late or gone)) or spent >= self.patience or hopeless:
                    break
                if why := self.interrupt():
                    raise StoppedError(why, self._named(open_))
                if time.monotonic() - said >= 10:
                    said = time.monotonic()
                    log.info("waiting for %s, %.0f s so far", self._named(open_), spent)
                left = 0.2 if deadline is None or late else min(0.2, deadline - spent)
                await asyncio.wait(
                    open_.values(), timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
            found = {i: t.result() for i, t in tasks.items() if t.done()}
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        replies = {i: reply for i, reply in found.items() if reply is not None}
        for i in messages:
            (self.away.discard if i in replies else self.away.add)(i)
        return replies

    def _named(self, some: Any) -> str:
        here = self.here()
        return ", ".join(f"{self.names[i]}{'' if i in here else ' (away)'}" for i in sorted(some))

    async def _asked(self, i: int, before: bytes | None, data: bytes) -> bytes | None:
        """The reply of one site, however often it has to be asked; None if it refuses."""
        while True:
            link = await self._link(i)
            begin = time.monotonic()
            try:
                self._check_life(i, link, data)
                if before is not None:
                    said = self._heard(i, await link.ask(BEFORE, before))
                    if said is None or wire.envelope_of(said).kind != "kept":
                        raise ClientError(f"client {self.names[i]} cannot go back: see its log")
                reply = self._heard(i, await link.ask(ASK, data))
                self.delays[i] = time.monotonic() - begin
                return reply
            except LinkLostError:
                continue  # it will be back, and is asked again

    async def _link(self, i: int) -> Link:
        listener = self.listener
        async with listener.came:
            await listener.came.wait_for(lambda: self.names[i] in listener.links)
            return listener.links[self.names[i]]

    def _check_life(self, i: int, link: Link, data: bytes) -> None:
        """Where clients seal messages for each other, a site that begins anew has no keys."""
        if not self.sealed:
            return
        ask = wire.envelope_of(data)
        if ask.kind == "ask" and ask.trip == wire.SETUP:
            self.lives[i] = link.life
        elif ask.kind == "ask" and self.lives.get(i) != link.life:
            raise RestartedError(f"client {self.names[i]} has begun anew")

    def _heard(self, i: int, message: Message) -> bytes | None:
        if message.kind == FAILED:
            raise ClientError(str(message.words().get("why", "")))
        if message.kind == NO:
            why = str(message.words().get("why", ""))
            log.warning("%s does not answer: %s", self.names[i], why)
            return None
        return message.data


class Streams(SiteStreams):
    """The sites of a run: how long a reply may be, and whether sites seal, follow from it."""

    def __init__(
        self,
        listener: Listener,
        messages: Messages,
        roster: Roster,
        *,
        patience: float = math.inf,
        interrupt: Callable[[], str] = lambda: "",
    ):
        super().__init__(
            listener, roster.names, largest_reply(messages, roster) + SLACK,
            sealed=messages.sealed and roster.clients > 1, patience=patience, interrupt=interrupt,
        )  # fmt: skip


class StreamDoor(Listener):
    """A listener that makes the transport to those who came in."""

    def transport(
        self, messages: Messages, roster: Roster, *, patience: float, interrupt: Callable[[], str]
    ) -> Streams:
        """The transport to the sites."""
        return Streams(self, messages, roster, patience=patience, interrupt=interrupt)


def largest_reply(messages: Messages, roster: Roster) -> int:
    """The bytes of the longest reply of a run."""
    most = wire.HEADER.size
    for purpose in filter(None, (messages.training, messages.evaluation, messages.certificate)):
        for e, leg in purpose.steps:
            for i in range(roster.clients):
                protocol = purpose.forms[e].protocol
                like: Any = purpose.reply_like(e, i, roster.clients)
                if leg is not None and protocol is not None:
                    like = leg.form("up", protocol.peers(roster.clients))
                most = max(most, sum(wire.sizes({"all": like}).values()))
    return most


def largest_ask(messages: Messages, roster: Roster, me: int) -> int:
    """The bytes of the longest question to a client of a run."""
    most = wire.HEADER.size + 64 * roster.clients  # everybody's public keys
    for purpose in filter(None, (messages.training, messages.evaluation, messages.certificate)):
        for e, leg in purpose.steps:
            protocol = purpose.forms[e].protocol
            like: Any = purpose.ask_like(e, me, roster.clients, roster.clients)
            if leg is not None and protocol is not None:
                like = leg.form("down", protocol.peers(roster.clients))
            most = max(most, sum(wire.sizes({"all": like}).values()))
    return most + SLACK
