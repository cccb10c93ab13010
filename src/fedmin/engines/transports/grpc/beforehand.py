"""What sites are asked before the run is known, and how they wait for it.

Some runs cannot be built before something was counted over all sites. Such a question goes to every
site that has said hello, and again to one that was cut off before it answered.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fedmin.engines.transports.grpc.frames import NO, QUERY, TOLD, FrameError, Message, Reader
from fedmin.engines.transports.grpc.link import Link


class UnwillingError(ValueError):
    """A site that says why it does not take part."""


class Beforehand:
    """The questions before a run, and what each site has answered; until the run is known."""

    def __init__(self) -> None:
        self.known = False  # there is a run to be welcomed to, or there never will be
        self._queries: list[Mapping[str, bytes]] = []  # to whom what
        self._told: list[dict[str, bytes]] = []
        self._stirred = asyncio.Event()  # set, and made anew, when there is something to say

    def ask(self, messages: Mapping[str, bytes], told: dict[str, bytes]) -> None:
        """Ask some sites, each its own message; their answers will be in `told`."""
        self._queries.append(messages)
        self._told.append(told)
        self._stir()

    def go_on(self) -> None:
        """Nothing more is asked."""
        self.known = True
        self._stir()

    def _stir(self) -> None:
        self._stirred.set()
        self._stirred = asyncio.Event()

    async def wait(
        self, link: Link, reader: Reader, seconds: float, heard: Callable[[], None]
    ) -> asyncio.Future[Any]:
        """Ask a site what is to be asked, until the run is known; what is being read of it then."""
        reading = asyncio.ensure_future(reader.next(None))  # sees a site that leaves meanwhile
        while not self.known:
            stirred = self._stirred
            number = next(self._open(link.name), None)
            if number is not None:
                data = self._queries[number][link.name]
                await link.send(Message(QUERY, number, data))
                told = taking_part(link.name, await asyncio.wait_for(reading, seconds))
                if (told.kind, told.number) != (TOLD, number):
                    raise FrameError("it did not answer what it was asked")
                self._told[number][link.name] = told.data
                heard()
                reading = asyncio.ensure_future(reader.next(None))
                continue
            waiting = asyncio.ensure_future(stirred.wait())
            await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if not stirred.is_set():
                raise FrameError("it left before the others were there")
        return reading

    def _open(self, name: str) -> Iterator[int]:
        asked = enumerate(zip(self._queries, self._told, strict=True))
        return (number for number, (to, told) in asked if name in to and name not in told)


def taking_part(name: str, message: Message | None) -> Message:
    """What a site says before the run, if it takes part."""
    if message is None:
        raise FrameError("its stream ended before it was ready")
    if message.kind == NO:
        why = str(message.words().get("why", ""))
        raise UnwillingError(f"{name} does not take part: {why}")
    return message
