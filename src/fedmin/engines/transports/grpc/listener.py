"""The server's end: who may come in, who is there, and one stream to each.

A site comes in if its certificate is one of the federation's authority, in time, not revoked and
of a site of this run, and if it is not in already. Whoever does not is told why, the log is told
too, and nobody else is disturbed: every stream is read by itself.
"""

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import grpc

from fedmin.engines.sessions.transport import StoppedError
from fedmin.engines.transports.grpc.beforehand import Beforehand, UnwillingError, taking_part
from fedmin.engines.transports.grpc.frames import (
    END,
    HELLO,
    METHOD,
    PINGS,
    READY,
    WELCOME,
    WORDS,
    FrameError,
    Message,
    Reader,
    said,
)
from fedmin.engines.transports.grpc.link import Link, LinkLostError
from fedmin.privacy.certificates import KeysError
from fedmin.privacy.identity import Identity

log = logging.getLogger("fedmin.serve")
HELLO_SECONDS = 20.0  # for a stream that was opened to say who it is
READY_SECONDS = 600.0  # for a site to build the run
SERVICE, CALL = METHOD.strip("/").split("/")
Check = Callable[[str, dict[str, Any]], str]  # a site's name and words: "" or why it is refused
REFUSALS = {
    "unknown": grpc.StatusCode.UNAUTHENTICATED,
    "forbidden": grpc.StatusCode.PERMISSION_DENIED,
    "twice": grpc.StatusCode.ALREADY_EXISTS,
    "misfit": grpc.StatusCode.FAILED_PRECONDITION,
    "garbage": grpc.StatusCode.INVALID_ARGUMENT,
}


class RefusedError(ValueError):
    """A stream that is closed for a reason, which its peer is told."""

    def __init__(self, kind: str, words: str):
        super().__init__(words)
        self.kind = kind


@functools.cache
def streams_loop() -> asyncio.AbstractEventLoop:
    """The loop of all streams, in a thread of its own. There is one a process and it is never
    closed: gRPC's own thread may still have something to say to it."""
    loop = asyncio.new_event_loop()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()

    threading.Thread(target=run, name="fedmin-streams", daemon=True).start()
    return loop


class Listener:
    """A port on which sites come in, served by a thread of its own."""

    def __init__(
        self,
        identity: Identity,
        names: tuple[str, ...],
        address: str,
        check_hello: Check = lambda name, words: "",
    ):
        self.identity, self.names, self.address = identity, names, address
        self.links: dict[str, Link] = {}
        self.gone: dict[str, float] = {}  # when a site was lost
        self.hellos: dict[str, dict[str, Any]] = {}
        self.late = 0
        self.largest = WORDS  # bytes of a reply
        self.check_hello = check_hello  # from the first call on: the port opens here
        self.check_ready: Check = lambda name, words: ""
        self._reserved: set[str] = set()
        self._welcome: dict[str, Any] | None = None
        self._last: dict[str, Any] | None = None  # what is said when the run has ended
        self.told: set[str] = set()  # who was told so
        self.loop = streams_loop()
        self.changed = threading.Event()
        self._trust = identity.trust()
        self.port = self.call(self._start())

    # ------------------------------------------------------------ the thread

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run something where the streams are; its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def _start(self) -> int:
        host, _, port = self.address.rpartition(":")
        if not (host and port.isdigit() and int(port) < 2**16):  # gRPC would take port 443
            raise ValueError(
                f"a server listens at HOST:PORT, as 0.0.0.0:8443, not {self.address!r}"
            )
        self.beforehand, self.came = Beforehand(), asyncio.Condition()
        me = self.identity
        credentials = grpc.ssl_server_credentials(
            [(me.key, me.certificate)], me.authority, require_client_auth=True
        )
        self._server = grpc.aio.server(options=[*PINGS, ("grpc.so_reuseport", 0)])
        handler = grpc.stream_stream_rpc_method_handler(self._talk)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {CALL: handler}),)
        )
        try:
            port = self._server.add_secure_port(self.address, credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen at {self.address}: {error}") from None
        await self._server.start()
        return port

    def stop(self, words: dict[str, Any] | None = None, linger: float = 0.0) -> set[str]:
        """Close the port; before that, where there are last words, tell them to every site, also
        to those that come back within `linger` seconds. Without them sites call again.

        Returns who was told.
        """
        self.call(self._stop(words, linger))
        return self.told

    async def _stop(self, words: dict[str, Any] | None, linger: float) -> None:
        if words is not None:
            await self._tell_end(words, time.monotonic() + linger)
        await self._server.stop(0.2)

    async def _tell_end(self, words: dict[str, Any], until: float) -> None:
        self._last = words
        self.beforehand.go_on()  # also for those who come only now
        while True:
            for name, link in list(self.links.items()):
                if name not in self.told:
                    await self._tell_one(link, words)
            if self.told >= set(self.names) or time.monotonic() >= until:
                break
            await asyncio.sleep(0.05)
        # sites close their streams when they have heard it
        for _ in range(100):
            if not self.links:
                break
            await asyncio.sleep(0.02)

    async def _tell_one(self, link: Link, words: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(5):
                await link.send(said(END, words))
            self.told.add(link.name)
        except (LinkLostError, TimeoutError):
            log.info("%s was not told the end: it may call again", link.name)

    # ------------------------------------------------------------ coming in

    async def _talk(self, _: Any, context: Any) -> None:
        name, link = context.peer(), None
        try:
            name = self._name(context)
            reader = Reader(context.read)
            link = await self._admit(name, context, reader)
            await self._listen(link, reader)
        except (RefusedError, FrameError, TimeoutError) as error:
            kind = error.kind if isinstance(error, RefusedError) else "garbage"
            words = str(error) or "it said nothing in time"
            log.warning("refused %s: %s", name, words)
            if link is not None:  # it is gone before it hears so
                await self._leave(link)
                link = None
            await context.abort(REFUSALS[kind], words)
        finally:
            if link is not None:
                await self._leave(link)

    def _name(self, context: Any) -> str:
        """The site behind a stream, by its certificate alone."""
        shown = context.auth_context().get("x509_pem_cert")
        if not shown:
            raise RefusedError("unknown", "no certificate was shown")
        try:
            name = self._trust.name_of(shown[0])
        except KeysError as error:
            raise RefusedError("unknown", str(error)) from None
        if name not in self.names:
            here = ", ".join(self.names)
            raise RefusedError("forbidden", f"{name} is no site of this run, which has {here}")
        return name

    async def _admit(self, name: str, context: Any, reader: Reader) -> Link:
        if name in self.links or name in self._reserved:
            raise RefusedError("twice", f"{name} is connected already; only one stream a site")
        self._reserved.add(name)
        try:
            hello = await reader.next(HELLO_SECONDS)
            if hello is None or hello.kind != HELLO:
                raise FrameError("it began without a hello")
            words = hello.words()
            if why := self.check_hello(name, words):
                raise RefusedError("misfit", why)
            self.hellos[name] = words
            self.changed.set()
            link = Link(name, str(words.get("life", "")), context, reader)
            reading = await self.beforehand.wait(link, reader, READY_SECONDS, self.changed.set)
            if self._last is not None:  # there is nothing more to take part in
                await self._tell_one(link, self._last)
                await reading  # until it leaves
                return link
            await link.send(said(WELCOME, self._welcome or {}))
            ready = await asyncio.wait_for(reading, READY_SECONDS)
            self._check(name, ready)
            reader.largest = self.largest
            async with self.came:
                self.links[name] = link
                self.gone.pop(name, None)
                self.came.notify_all()
            log.info("%s is there (%d of %d)", name, len(self.links), len(self.names))
            return link
        except LinkLostError as error:
            raise FrameError(f"its stream ended: {error}") from None
        except UnwillingError as error:
            raise RefusedError("misfit", str(error)) from None
        finally:
            self._reserved.discard(name)

    def _check(self, name: str, ready: Message | None) -> None:
        ready = taking_part(name, ready)
        if ready.kind != READY:
            raise FrameError("it was not ready")
        if why := self.check_ready(name, ready.words()):
            raise RefusedError("misfit", why)

    async def _listen(self, link: Link, reader: Reader) -> None:
        while (message := await reader.next()) is not None:
            link.got(message)

    async def _leave(self, link: Link) -> None:
        link.close()
        self.late += link.late
        async with self.came:
            if self.links.get(link.name) is link:
                del self.links[link.name]
                self.gone[link.name] = time.monotonic()
            self.came.notify_all()
        log.info("%s is gone (%d of %d are there)", link.name, len(self.links), len(self.names))

    # ------------------------------------------------------------ what the server's own thread asks

    def wait_for_hellos(self, seconds: float, interrupt: Callable[[], str]) -> dict[str, Any]:
        """What every site said of itself; an error names those that did not come in time."""
        self._wait_for(self.hellos, self.names, seconds, interrupt)
        return dict(self.hellos)

    def survey(
        self, names: Sequence[str], data: bytes, seconds: float, interrupt: Callable[[], str]
    ) -> dict[str, bytes]:
        """What these sites answer to a question before the run; all of them are waited for, and a
        site that was cut off is asked again."""
        return self.surveys(dict.fromkeys(names, data), seconds, interrupt)

    def surveys(
        self, messages: Mapping[str, bytes], seconds: float, interrupt: Callable[[], str]
    ) -> dict[str, bytes]:
        """The same where each of some sites has a question of its own."""
        told: dict[str, bytes] = {}

        async def ask() -> None:
            self.beforehand.ask(messages, told)

        self.call(ask())
        self._wait_for(told, [*messages], seconds, interrupt)
        return dict(told)

    def _wait_for(
        self, found: Mapping[str, Any], names: Sequence[str], seconds: float,
        interrupt: Callable[[], str],
    ) -> None:  # fmt: skip
        until, said_at = time.monotonic() + seconds, time.monotonic()
        while missing := [name for name in names if name not in found]:
            if why := interrupt():
                raise StoppedError(why, ", ".join(missing))
            if time.monotonic() > until:
                raise TimeoutError(
                    f"{', '.join(missing)} did not come within {seconds:.0f} s (`wait` in "
                    f"[federation]); started again the server waits anew"
                )
            if time.monotonic() - said_at > 10:
                said_at = time.monotonic()
                log.info("waiting for %s", ", ".join(missing))
            self.changed.clear()
            self.changed.wait(0.2)

    def welcome(self, words: dict[str, Any]) -> None:
        """Tell every site, now and later, what is run."""

        async def tell() -> None:
            self._welcome = words
            self.beforehand.go_on()

        self.call(tell())
