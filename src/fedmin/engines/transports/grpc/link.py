"""The server's end of one stream: one question at a time, and what became of it."""

import asyncio
import logging
from typing import Any

from fedmin.engines.transports.grpc.frames import FrameError, Message, Reader, pieces

log = logging.getLogger("fedmin.serve")


class LinkLostError(ConnectionError):
    """The stream of a site ended before its reply came."""


class Link:
    """The stream to one site that is there; one question at a time."""

    def __init__(self, name: str, life: str, context: Any, reader: Reader):
        self.name, self.life, self.context, self.reader = name, life, context, reader
        self.number = 0
        self.waiting: asyncio.Future[Message] | None = None
        self.idle = asyncio.Event()  # no question is open
        self.idle.set()
        self.late = 0  # replies that came when nobody waited for them any more
        self.closed = False

    async def ask(self, kind: bytes, data: bytes) -> Message:
        """What the site says to a question."""
        await self.idle.wait()
        if self.closed:
            raise LinkLostError(self.name)
        self.number += 1
        self.waiting = asyncio.get_running_loop().create_future()
        self.idle.clear()
        try:
            await self.send(Message(kind, self.number, data))
            return await self.waiting
        finally:
            self.waiting = None

    async def send(self, message: Message) -> None:
        """Write a message, piece by piece: as fast as the site takes them."""
        try:
            for piece in pieces(message):
                await self.context.write(piece)
        except Exception as error:
            raise LinkLostError(f"{self.name}: {error}") from None

    def got(self, message: Message) -> None:
        """A reply came: it is what is waited for, or too late and used for nothing."""
        if message.number != self.number or self.idle.is_set():
            raise FrameError(f"a reply to question {message.number}, which is not open")
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(message)
        else:
            self.late += 1
            log.warning("%s: a late reply was dropped (%d so far)", self.name, self.late)
        self.idle.set()

    def close(self) -> None:
        """The stream has ended."""
        self.closed = True
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(LinkLostError(self.name))
        self.idle.set()
