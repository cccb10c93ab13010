"""Messages through Flower's grid: every question is one Flower message, every answer its reply.

Flower knows its nodes by numbers, and says which of them are there; which site a node is, the node
says itself (the SuperLink has checked its key). A node answers every message in a new process, so a
site is rebuilt from its diary each time; what a site keeps in memory only (keys by which clients
seal messages for each other, a channel's own trips) would be lost between two messages, and such
runs are refused.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedmin.core.roster import Roster
from fedmin.engines.messages import Messages
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.packets import ClientError
from fedmin.engines.sessions.transport import StoppedError, Transport

log = logging.getLogger("fedmin.flower")
PART = "fedmin"  # what our record is called in a message of Flower's
KIND = "query"  # Flower's type of message: nothing is trained or evaluated by Flower itself
POLL = 0.3  # seconds between two looks for replies
Answer = dict[str, Any]  # "kind" and "data", or "why"


def said(kind: str, data: bytes = b"", **words: str) -> RecordDict:
    """What one of our messages says."""
    return RecordDict({PART: ConfigRecord({"kind": kind, "data": data, **words})})


def heard(message: Message) -> Answer:
    """What a message of the other end says; `ClientError` if it is none of ours."""
    if message.has_error():
        return {"kind": "failed", "why": f"Flower says: {message.error.reason}"}
    found = message.content.get(PART)
    if not isinstance(found, ConfigRecord) or not isinstance(found.get("kind"), str):
        raise ClientError(f"node {message.metadata.src_node_id} sent what is no message of fedmin")
    return dict(found)


class Nodes:
    """The nodes of a Flower run: who is there, and one question to some of them at a time."""

    def __init__(self, grid: Grid, interrupt: Callable[[], str] = lambda: ""):
        self.grid, self.interrupt = grid, interrupt

    def here(self) -> set[int]:
        """The nodes that the SuperLink knows to be there."""
        return set(self.grid.get_node_ids())

    def push(self, asks: Mapping[int, RecordDict]) -> dict[str, int]:
        """Send each node a message; by the numbers of the messages, whose they are."""
        made = [
            Message(content=record, dst_node_id=node, message_type=KIND)
            for node, record in asks.items()
        ]
        return dict(zip(self.grid.push_messages(made), asks, strict=True))

    def ask(
        self,
        asks: Mapping[int, RecordDict],
        seconds: float | None = None,
        enough: int | None = None,
    ) -> dict[int, Answer]:
        """What the nodes answer: all of them, or after so many seconds `enough` of them."""
        open_, begin = self.push(asks), time.monotonic()
        found: dict[int, Answer] = {}
        while open_:
            for reply in self.grid.pull_messages(list(open_)):
                node = open_.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    found[node] = heard(reply)
            late = seconds is not None and time.monotonic() - begin >= seconds
            if not open_ or (late and (enough is None or len(found) >= enough)):
                break
            if why := self.interrupt():
                raise StoppedError(why, f"{len(open_)} nodes")
            time.sleep(POLL)
        return found


class GridTransport(Transport):
    """A transport whose every message goes through Flower's grid."""

    def __init__(self, nodes: Nodes, sites: Mapping[str, int], messages: Messages, roster: Roster):
        if why := too_short_lived(messages, roster):
            raise ValueError(why)
        self.nodes, self.names = nodes, roster.names
        self.numbers = [sites[name] for name in roster.names]  # the node of each client

    def here(self) -> set[int]:
        there = self.nodes.here()
        return {i for i, node in enumerate(self.numbers) if node in there}

    def deliver(
        self,
        messages: dict[int, bytes],
        deadline: float | None = None,
        enough: int | None = None,
        before: Mapping[int, bytes] = {},
    ) -> dict[int, bytes]:
        least = len(messages) if enough is None else enough
        if before:
            for i, reply in self._asked(dict(before), deadline, least).items():
                if wire.envelope_of(reply).kind != "kept":
                    raise ClientError(f"client {self.names[i]} cannot go back: see its log")
        return self._asked(messages, deadline, least)

    def _asked(
        self, messages: Mapping[int, bytes], deadline: float | None, enough: int
    ) -> dict[int, bytes]:
        clients = {self.numbers[i]: i for i in messages}
        asks = {self.numbers[i]: said("ask", data) for i, data in messages.items()}
        replies = {}
        for node, answer in self.nodes.ask(asks, deadline, enough).items():
            i = clients[node]
            if answer["kind"] == "failed":
                raise ClientError(f"client {self.names[i]}: {answer.get('why', '')}")
            if answer["kind"] == "reply" and isinstance(answer.get("data"), bytes):
                replies[i] = answer["data"]
            else:
                log.warning("%s does not answer: %s", self.names[i], answer.get("why", ""))
        return replies


def too_short_lived(messages: Messages, roster: Roster) -> str:
    """Why a site that is a new process for every message cannot take part; "" if it can."""
    way_out = 'give mode = "stream", where a site is one process for the whole run'
    if messages.sealed and roster.clients > 1:
        return f"sites seal messages for each other by keys that no file has; {way_out}"
    forms = (*messages.training.forms, *messages.evaluation.forms)
    if any(form.protocol is not None for form in forms):
        return f"the channel's own trips keep secrets that no file has; {way_out}"
    return ""


class GridDoor:
    """How sites come into a run whose messages go through the grid."""

    def __init__(
        self,
        nodes: Nodes,
        names: tuple[str, ...],
        check_hello: Callable[[str, dict[str, Any]], str],
    ):
        self.nodes, self.names = nodes, names
        self.check_hello = check_hello
        self.check_ready: Callable[[str, dict[str, Any]], str] = lambda name, words: ""
        self.sites: dict[str, int] = {}  # the node of each site
        self.words: dict[str, dict[str, Any]] = {}  # what it said of itself

    def wait_for_hellos(self, seconds: float, interrupt: Callable[[], str]) -> dict[str, Any]:
        """What every site says of itself; an error names those that did not come in time."""
        until, asked = time.monotonic() + seconds, set[int]()
        while missing := [name for name in self.names if name not in self.sites]:
            if why := interrupt():
                raise StoppedError(why, ", ".join(missing))
            if time.monotonic() > until:
                raise TimeoutError(f"{', '.join(missing)} did not come within {seconds:.0f} s")
            new = self.nodes.here() - asked
            asked |= new
            for node, answer in self.nodes.ask(dict.fromkeys(new, said("hello")), seconds).items():
                self._came(node, answer)
            time.sleep(POLL)
        return dict(self.words)

    def _came(self, node: int, answer: Answer) -> None:
        name, words = str(answer.get("name", "")), _words(answer)
        why = str(answer.get("why", ""))
        if answer["kind"] == "hello" and not why:
            why = self.check_hello(name, words)
            if name not in self.names:
                why = f"{name} is no site of this run, which has {', '.join(self.names)}"
            elif name in self.sites:
                why = f"{name} is another node already; only one node a site"
        if why:
            raise ValueError(f"node {node} cannot take part: {why}")
        self.sites[name], self.words[name] = node, words

    def survey(
        self, names: Sequence[str], data: bytes, seconds: float, interrupt: Callable[[], str]
    ) -> dict[str, bytes]:
        """What these sites answer to a question before the run."""
        nodes = {self.sites[name]: name for name in names}
        found = {}
        for node, answer in self.nodes.ask(dict.fromkeys(nodes, said("query", data))).items():
            if answer["kind"] != "told" or not isinstance(answer.get("data"), bytes):
                raise ValueError(f"{nodes[node]} does not take part: {answer.get('why', '')}")
            found[nodes[node]] = answer["data"]
        return found

    def welcome(self, words: dict[str, Any]) -> None:
        """Tell every site what is run, and hear whether it has built the same."""
        if not self.sites:  # of a server that goes on, and knows already what sites say
            self.wait_for_hellos(float("inf"), self.nodes.interrupt)
        names = {node: name for name, node in self.sites.items()}
        told = dict.fromkeys(names, said("welcome", json.dumps(words).encode()))
        for node, answer in self.nodes.ask(told).items():
            name, why = names[node], str(answer.get("why", ""))
            if answer["kind"] == "ready" and not why:
                why = self.check_ready(name, _words(answer))
            if why or answer["kind"] != "ready":
                raise ValueError(f"{name} does not take part: {why}")

    def surveys(self, *_: Any) -> dict[str, bytes]:
        """Columns are prepared by streams: `fedmin.runs.flower` says so before."""
        raise ValueError("columns are prepared by streams, not through Flower's messages")

    def transport(self, messages: Messages, roster: Roster, **_: Any) -> GridTransport:
        """The transport to the sites, once they are welcome."""
        return GridTransport(self.nodes, self.sites, messages, roster)

    def stop(self, words: dict[str, Any] | None = None, linger: float = 0.0) -> set[str]:
        """Nothing is open: a node that is asked nothing has nothing to do."""
        return set(self.names)


class Opening(NamedTuple):
    """What a site is sent so that it opens a stream: no secret is in it."""

    address: str
    certificate: bytes
    authority: bytes
    revoked: bytes

    def record(self) -> RecordDict:
        """As a message."""
        return RecordDict({PART: ConfigRecord({"kind": "join", **self._asdict()})})

    @classmethod
    def of(cls, answer: Answer) -> "Opening":
        """From a message."""
        return cls(*(answer[name] for name in cls._fields))


def _words(answer: Answer) -> dict[str, Any]:
    try:
        found = json.loads(answer.get("data") or b"{}")
    except (ValueError, TypeError, RecursionError):
        raise ClientError("a site sent words that are not JSON") from None
    if not isinstance(found, dict):
        raise ClientError("a site sent words that are not a table")
    return found
