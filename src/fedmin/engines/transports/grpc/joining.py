"""The site's end: it calls the server, answers what it is asked, and calls again when cut off.

Nothing comes in at a site but answers to its own call. What it says is decided by the `Answers`
that it was given; here are only the stream and the patience.
"""

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import grpc

from fedmin.engines.sessions.packets import ClientError
from fedmin.engines.sessions.transport import StoppedError
from fedmin.engines.sessions.wire import MessageError
from fedmin.engines.transports.grpc.frames import (
    ASK,
    BEFORE,
    END,
    FAILED,
    HELLO,
    METHOD,
    NAMES,
    NO,
    PINGS,
    QUERY,
    READY,
    TOLD,
    WELCOME,
    YES,
    FrameError,
    Message,
    Reader,
    pieces,
    said,
)
from fedmin.privacy.identity import Identity

log = logging.getLogger("fedmin.join")
FIRST, LONGEST = 0.2, 15.0  # seconds between two calls
FINAL = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
)
LARGEST = 2**34  # bytes of a question; what a run's are is known when it is welcomed


class Answers(Protocol):
    """A site half, as the stream needs it."""

    largest: int  # bytes of a question

    def ready(self) -> dict[str, Any]:
        """What the server compares before it asks anything."""
        ...

    def answer(self, data: bytes) -> bytes:
        """The reply to a question."""
        ...


class JoinError(ValueError):
    """The server, or this site, will not do this run; the sentence says why."""


def _nothing(data: bytes) -> bytes:
    raise ValueError("this site answers nothing before it knows the run")


class _EndedError(Exception):
    """The stream has ended: its status says why."""


class Site(NamedTuple):
    """Who calls, what it says of itself, and how it builds its half from what it is told."""

    identity: Identity
    address: str
    hello: dict[str, Any]
    build: Callable[[dict[str, Any]], Answers]  # `ValueError` if it will not take part
    patience: float = float("inf")  # seconds for which the server may be away
    note: Callable[[str, dict[str, Any]], Any] = lambda kind, words: None  # of words that leave
    tell: Callable[[bytes], bytes] = _nothing  # the answer to a question before the run


def join(site: Site, interrupt: Callable[[], str] = lambda: "") -> dict[str, Any]:
    """Take part until the server says that there is nothing more to do; what it said then."""
    return asyncio.run(JoinedSite(site, interrupt).run())


class JoinedSite:
    """A site that calls until it is told the end."""

    def __init__(self, site: Site, interrupt: Callable[[], str]):
        self.site, self.interrupt = site, interrupt
        self.answers: Answers | None = None
        self.welcome: dict[str, Any] | None = None
        self.life = secrets.token_hex(8)  # another one after every start: secrets are gone then
        self.worker = ThreadPoolExecutor(1)  # one question at a time, while the stream lives on
        self.tries = 0

    async def run(self) -> dict[str, Any]:
        last = time.monotonic()
        try:
            while True:
                end = await self._call()
                if end is not None:
                    return end
                if self.tries == 0:
                    last = time.monotonic()
                self.tries += 1
                wait = min(LONGEST, FIRST * 2 ** min(self.tries, 10)) * random.uniform(0.5, 1.0)
                if time.monotonic() - last > self.site.patience:
                    raise JoinError(
                        f"the server at {self.site.address} was not there for "
                        f"{self.site.patience:.0f} s"
                    )
                await self._sleep(wait)
        finally:
            self.worker.shutdown(wait=False, cancel_futures=True)

    async def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._stop_if_told()
            await asyncio.sleep(min(left, 0.2))

    def _stop_if_told(self) -> None:
        if why := self.interrupt():
            raise StoppedError(why, "the server")

    async def _call(self) -> dict[str, Any] | None:
        """One stream, to its end: the server's last words, or None if it was cut off."""
        me, address = self.site.identity, self.site.address
        credentials = grpc.ssl_channel_credentials(me.authority, me.key, me.certificate)
        options = [*PINGS, ("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.secure_channel(address, credentials, options) as channel:
            call = channel.stream_stream(METHOD)()
            try:
                return await self._talk(call)
            except (grpc.aio.AioRpcError, _EndedError):
                # of the call itself: what a write says that came too late is "internal"
                code, details = await call.code(), await call.details()
                if code in FINAL:
                    raise JoinError(f"the server refuses: {details}") from None
                log.info("cut off: %s", details or code.name)
            except (FrameError, TimeoutError) as error:
                log.warning("the server at %s does not speak as it should: %s", address, error)
            finally:
                call.cancel()
        return None

    async def _talk(self, call: Any) -> dict[str, Any] | None:
        await call.wait_for_connection()  # else a log would have hellos that nobody could hear
        reader = Reader(call.read)
        await _send(call, self._said(HELLO, {**self.site.hello, "life": self.life}))
        while (message := await self._next(reader)) is not None:
            if message.kind == WELCOME:
                await self._take_part(call, message.words())
                assert self.answers is not None
                reader.largest = self.answers.largest
                self.tries = 0
            elif message.kind == QUERY:
                told = await self._willing(call, self.site.tell, message.data)
                await _send(call, Message(TOLD, message.number, told))
            elif message.kind == END:
                return message.words()
            elif message.kind in (ASK, BEFORE) and self.answers is not None:
                await _send(call, await self._answered(message))
            else:
                raise FrameError(f"a message of kind {message.kind!r}")
        raise _EndedError

    async def _next(self, reader: Reader) -> Message | None:
        reading = asyncio.ensure_future(reader.next())
        while not reading.done():
            if why := self.interrupt():
                reading.cancel()
                raise StoppedError(why, "the server")
            await asyncio.wait({reading}, timeout=0.2)
        return reading.result()

    async def _take_part(self, call: Any, welcome: dict[str, Any]) -> None:
        """Build this half from what the server says is run, or say why not."""
        if welcome != self.welcome:
            self.answers = await self._willing(call, self.site.build, welcome)
            self.welcome = welcome
        assert self.answers is not None
        await _send(call, self._said(READY, self.answers.ready()))

    async def _willing(self, call: Any, work: Callable[[Any], Any], told: Any) -> Any:
        """What this site makes of what it was told; if it will not, it says why and leaves."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self.worker, work, told)
        except (ValueError, TypeError) as error:
            with contextlib.suppress(_EndedError, asyncio.InvalidStateError):
                await _send(call, self._said(NO, {"why": str(error)}))
                await call.done_writing()
            raise JoinError(str(error)) from error

    def _said(self, kind: bytes, words: dict[str, Any]) -> Message:
        """Words that leave, once they are written down."""
        self.site.note(NAMES[kind], words)
        return said(kind, words)

    async def _answered(self, message: Message) -> Message:
        assert self.answers is not None
        loop = asyncio.get_running_loop()
        try:
            data = await loop.run_in_executor(self.worker, self.answers.answer, message.data)
            return Message(YES, message.number, data)
        except MessageError as error:
            kind, why = NO, str(error)
        except (ClientError, ValueError, OSError) as error:
            kind, why = FAILED, str(error)
        log.warning("%s", why)
        return self._said(kind, {"why": why})._replace(number=message.number)


async def _send(call: Any, message: Message) -> None:
    try:
        for piece in pieces(message):
            await call.write(piece)
    except asyncio.InvalidStateError:  # the server went away while this was made
        raise _EndedError from None
