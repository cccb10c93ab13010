"""Set intersection of two parties by blinded points, on openmined-psi (ECDH on P-256).

asker       sends each of its items as a point, times a secret number of its own
answerer    sends its items as points times a secret of its own, sorted; the asker's times it too
asker       takes its own number off again, and sees which of its items are among the answerer's

The answerer sees random points and how many there are. The asker sees which of its items the other
has, and how many that one has. Points are compared whole: nothing is found that is not there.
Blinding is nearly all of the work and is spread over the cores.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

FEW = 500  # items for which another thread is not worth its start


class IntersectionError(ValueError):
    """What came is not a step of an intersection, or the library for it is missing."""


def _library() -> Any:
    try:
        import private_set_intersection.python as library  # type: ignore[import-untyped]
    except ImportError:
        raise IntersectionError(
            "set intersection needs openmined-psi: pip install 'fedmin[privacy]'"
        ) from None
    return library


def _spread(work: Callable[[int, int], Any], count: int) -> list[Any]:
    """`work(begin, end)` for the parts of a range, each in a thread, in order."""
    threads = max(1, min(os.cpu_count() or 1, math.ceil(count / FEW)))
    size = max(1, math.ceil(count / threads))
    parts = [(at, min(at + size, count)) for at in range(0, count, size)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda part: work(*part), parts))


def _parsed(kind: Any, data: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        found = kind()
        found.ParseFromString(data)
    except DecodeError:
        raise IntersectionError("bytes that are no step of a set intersection") from None
    return found


@contextmanager
def _points_are_points() -> Iterator[None]:
    """What the library says of bytes that are no point on the curve."""
    try:
        yield
    except RuntimeError as error:
        raise IntersectionError(f"a point that is none: {str(error).splitlines()[0]}") from None


class Asker:
    """Whoever learns which of its items the other has too.

    >>> from fedmin.privacy.intersection import Answerer, Asker
    >>> asker, answerer = Asker(["ann", "bob", "eve"]), Answerer(["eve", "ann", "zoe", "ida"])
    >>> sorted(asker.common(answerer.answer(asker.question())))
    [0, 2]
    """

    def __init__(self, items: Sequence[str]):
        self.items = list(items)
        self._library = _library()
        self._secret = self._library.client.CreateWithNewKey(True).GetPrivateKeyBytes()

    def _client(self) -> Any:
        """One a thread: they are not made to be shared."""
        return self._library.client.CreateFromKey(self._secret, True)

    def question(self) -> bytes:
        """Its items, blinded."""
        asked = self._library.Request(reveal_intersection=True)
        work = lambda begin, end: self._client().CreateRequest(self.items[begin:end])
        for part in _spread(work, len(self.items)):
            asked.encrypted_elements.extend(part.encrypted_elements)
        return asked.SerializeToString()

    def common(self, answer: bytes) -> list[int]:
        """The places of those of its items that the other has."""
        size = int.from_bytes(answer[:8], "little")
        if not 8 <= 8 + size <= len(answer):
            raise IntersectionError("an answer that is cut off")
        setup = _parsed(self._library.ServerSetup, answer[8 : 8 + size])
        points = _parsed(self._library.Response, answer[8 + size :]).encrypted_elements
        if len(points) != len(self.items):
            raise IntersectionError(f"{len(points)} points, where {len(self.items)} were asked for")

        def work(begin: int, end: int) -> list[int]:
            part = self._library.Response(encrypted_elements=points[begin:end])
            return [begin + k for k in self._client().GetIntersection(setup, part)]

        with _points_are_points():
            return [k for part in _spread(work, len(points)) for k in part]


class Answerer:
    """Whoever learns nothing but how many items the other has."""

    def __init__(self, items: Sequence[str]):
        self.items = list(items)
        self._library = _library()
        self._secret = self._library.server.CreateWithNewKey(True).GetPrivateKeyBytes()

    def _server(self) -> Any:
        return self._library.server.CreateFromKey(self._secret, True)

    def answer(self, question: bytes) -> bytes:
        """Its own items, blinded and sorted, and the asker's, blinded once more."""
        library = self._library
        asked = _parsed(library.Request, question)
        if not asked.reveal_intersection or not asked.encrypted_elements:
            raise IntersectionError("a question that asks for no items")
        own = _spread(
            lambda begin, end: self._server().CreateSetupMessage(
                1e-9,
                len(asked.encrypted_elements),
                self.items[begin:end],
                library.DataStructure.RAW,
            ),
            len(self.items),
        )
        setup = library.ServerSetup()
        setup.raw.encrypted_elements.extend(
            sorted(point for part in own for point in part.raw.encrypted_elements)
        )

        def work(begin: int, end: int) -> Any:
            part = library.Request(
                reveal_intersection=True, encrypted_elements=asked.encrypted_elements[begin:end]
            )
            return self._server().ProcessRequest(part)

        again = library.Response()
        with _points_are_points():
            for part in _spread(work, len(asked.encrypted_elements)):
                again.encrypted_elements.extend(part.encrypted_elements)
        told = setup.SerializeToString()
        return len(told).to_bytes(8, "little") + told + again.SerializeToString()
