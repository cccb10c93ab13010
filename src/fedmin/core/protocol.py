"""A channel's own trips: what its two halves send each other around an exchange, as bytes.

Where the server is to learn a sum and no single reply, a site hides its wire before it leaves, and
the sum is brought to light among those who stayed. A `Protocol` says which trips that takes, and
makes the two roles that are played in one exchange of one round:

    before      keys, shares            ServerRole.say, SiteRole.answer, ServerRole.took
    exchange    the reply itself        ServerRole.say, SiteRole.hide, ServerRole.took_wires
    after       who stayed, unmasking   ServerRole.say, SiteRole.answer, ServerRole.took
    the sum                             ServerRole.reveal: one wire, that of all whose reply came

Roles are played by sessions on the host, with bytes and NumPy arrays; nothing here is compiled.
They open no socket and keep no clock. A simulation plays none of them: it computes the same sum, by
the same `encode`, `combine` and `decode`, and counts the bytes by the forms that are declared here.
"""

import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from fedmin.core.roster import Roster

PEERS = -1  # the length of an axis with an entry for each client that is summed together
EXCHANGE = "exchange"  # what the exchange itself is called among the legs

Said = Mapping[str, np.ndarray]  # the parts of one message


class ProtocolError(ValueError):
    """A message that does not fit the protocol, or too few who stayed; says which and why."""


class Part(NamedTuple):
    """The form of one part of a message; the first axis may be `PEERS` long.

    >>> from fedmin.core.protocol import PEERS, Part
    >>> Part((PEERS, 32)).like(3).shape
    (3, 32)
    """

    shape: tuple[int, ...]
    dtype: str = "uint8"

    @property
    def grows(self) -> bool:
        """Whether it has an entry for each peer."""
        return self.shape[:1] == (PEERS,)

    def like(self, peers: int) -> np.ndarray:
        """An array of this form."""
        return np.zeros((peers, *self.shape[1:]) if self.grows else self.shape, self.dtype)

    @property
    def bytes(self) -> int:
        """What it weighs; of one that grows, what each entry does."""
        return math.prod(self.shape[self.grows :]) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Leg:
    """One trip of a channel's own: its name and the parts of its messages, down and up.

    `asks` is "everyone" who is still there, or how many are asked as long as nobody drops out: 1
    where one client answers for all, 0 for a leg that is made only after somebody went missing.
    `sees` says what the server sees of what goes up, `shows` what a client sees of what comes down.

    >>> from fedmin.core.protocol import PEERS, Leg, Part
    >>> keys = Leg("keys", up={"key": Part((32,))}, sees="each client's public key")
    >>> keys.form("up", peers=3)["key"].shape
    (32,)
    """

    name: str
    down: Mapping[str, Part] = field(default_factory=dict)
    up: Mapping[str, Part] = field(default_factory=dict)
    asks: Literal["everyone"] | int = "everyone"
    sees: str = "as it is"
    shows: str = "its own part of it"
    summed: bool = False  # what goes up is of a sum over several clients

    def form(self, way: Literal["down", "up"], peers: int) -> dict[str, np.ndarray]:
        """The form of a message where so many clients are summed together."""
        return form_of_parts(self.down if way == "down" else self.up, peers)


def form_of_parts(parts: Mapping[str, Part], peers: int) -> dict[str, np.ndarray]:
    """Arrays of these forms."""
    return {name: part.like(peers) for name, part in parts.items()}


class Occasion(NamedTuple):
    """One exchange of one round of one run, and who was drawn for it: what both halves know.

    >>> import fedmin
    >>> from fedmin.core.protocol import Occasion
    >>> roster = fedmin.data.partition(fedmin.data.load("wine"), fedmin.data.IID(3)).roster()
    >>> Occasion(bytes(8), 4, 0, (0, 2), roster).slot(2)
    1
    """

    run: bytes
    round: int
    trip: int  # the exchange's number on the wire: no other of the round has it
    clients: tuple[int, ...]  # in the order of a part with an entry for each
    roster: Roster
    identity: bytes | None = None  # a site's own signing key; none in a simulation, nor the server

    @property
    def label(self) -> bytes:
        """Bytes that no other occasion has: a part of every key that is derived for this one."""
        ids = struct.pack(f"<{len(self.clients)}I", *self.clients)
        return self.run + struct.pack("<IHI", self.round, self.trip, len(self.clients)) + ids

    def slot(self, i: int) -> int:
        """The place of client i among those that were drawn."""
        return self.clients.index(i)


class Opened(NamedTuple):
    """A sum that a site has opened, and the clients that are in it."""

    wire: Any
    clients: tuple[int, ...]


class SiteRole(ABC):
    """A site's part in one exchange. Whoever raises a `ProtocolError` has changed nothing."""

    @abstractmethod
    def answer(self, leg: str, said: Said) -> Said:
        """What goes up on a leg, after what came down."""

    @abstractmethod
    def hide(self, wire: Any, said: Said) -> Any:
        """What travels in place of the wire: of what `encode` and `weigh` made, as NumPy arrays.

        `said` is what came down with the exchange for the channel.
        """

    def opened(self, noisy: bool = False) -> Opened:
        """Where the sites take the sum in (`Protocol.blind`): the sum, once this one has it;
        `noisy` if what is made of it is given away."""
        raise ProtocolError("this channel opens its sum at the server")


class ServerRole(ABC):
    """The server's part in one exchange."""

    @abstractmethod
    def say(self, leg: str, present: tuple[int, ...]) -> dict[int, Said]:
        """What goes down on a leg, by client: to all who are present, to some, or to nobody.

        With the exchange itself (leg `EXCHANGE`) it goes to all. Asked twice, it says the same.
        """

    def check(self, leg: str, i: int, reply: Said) -> None:
        """Refuse a reply by a `ProtocolError`: its sender is then taken to be absent."""
        return

    @abstractmethod
    def took(self, leg: str, replies: dict[int, Said]) -> None:
        """The replies of a leg that came. Whoever was asked and is not among them is absent."""

    @abstractmethod
    def took_wires(self, hidden: dict[int, Any]) -> None:
        """The replies of the exchange itself: those who are in the sum."""

    @abstractmethod
    def reveal(self) -> Any:
        """One wire: the sum of what those in it had before they hid it."""


class Protocol(ABC):
    """The trips that a channel needs around an exchange, and who plays which role in it.

    before, after    the legs, in order
    along            parts that go down with the exchange itself, beside what the method says
    hidden           the form of what goes up in it
    group            clients are summed together all at once or, where there are more than this, in
                     as few equal groups as that allows; a part that grows has an entry for each
                     client of the largest group
    blind            on the last leg every site opens the sum and takes it in; `reveal` is nothing
    """

    hidden: Any
    blind: bool = False
    before: tuple[Leg, ...] = ()
    along: Mapping[str, Part] = MappingProxyType({})
    after: tuple[Leg, ...] = ()
    group: int | None = None

    @abstractmethod
    def site(self, occasion: Occasion, me: int) -> SiteRole:
        """Client `me`'s role."""

    @abstractmethod
    def server(self, occasion: Occasion) -> ServerRole:
        """The server's role."""

    def peers(self, clients: int) -> int:
        """How many entries a part that grows has, where so many clients take part."""
        return peers_of(clients, self.group)


def peers_of(clients: int, group: int | None) -> int:
    """The size of the largest group, where so many clients take part.

    >>> from fedmin.core.protocol import peers_of
    >>> peers_of(7, None), peers_of(100, 100), peers_of(101, 100)
    (7, 100, 51)
    """
    if group is None or clients <= group:
        return clients
    return -(-clients // -(-clients // group))


def check_names(legs: Iterable[Leg]) -> None:
    """Refuse two legs of one name: a role could not tell them apart."""
    names = [EXCHANGE, *(leg.name for leg in legs)]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"a protocol has two legs named {sorted(twice)[0]!r}")
