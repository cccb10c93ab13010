"""The trips of a secure sum, and who is summed with whom.

keys        up      two fresh public keys, signed
shares      down    everybody's keys and signatures        up  sealed shares, one a neighbor
(exchange)  down    the shares that were sealed for it     up  its numbers under masks
agree       down    who stayed                             up  a signature under that list
unmask      down    these signatures                       up  one share of each neighbor's secret
"""

import hashlib
from typing import Any, Literal, NamedTuple

import numpy as np

from fedmin.channels.secure.derivations import KEY, NAME, SIGNATURE, TAG, framed
from fedmin.channels.secure.shamir import SIZE
from fedmin.core.protocol import PEERS, Leg, Occasion, Part, Protocol, ProtocolError

GROUP = 100  # the most clients that are summed together
SEALED = 2 * SIZE + TAG
WEIGHT = "sum_weight"  # the part of a wire that has p_i in it; or a secret weight, and 1/N

Threat = Literal["lying", "curious"]


def threshold_of(clients: int, server: Threat) -> int:
    """How many of so many clients must stay: of two lists of so many, each with the signatures of
    all on it, most of those on both would have signed twice.

    >>> from fedmin.channels.secure.legs import threshold_of
    >>> [threshold_of(n, "lying") for n in (3, 10, 100)], threshold_of(10, "curious")
    ([3, 7, 67], 6)
    """
    return (2 * clients // 3 if server == "lying" else clients // 2) + 1


class Terms(NamedTuple):
    """What a sum must fulfil."""

    limbs: int  # words of a number
    server: Threat
    least: int  # clients in a sum that is opened

    def needed(self, clients: int) -> int:
        """How many of a group of so many must stay."""
        return max(threshold_of(clients, self.server), self.least)


class SumProtocol(Protocol):
    """Double masks, for wires of one form."""

    before = (
        Leg("keys", up={"keys": Part((2 * KEY,)), "signature": Part((SIGNATURE,))},
            sees="each client's public keys and signature"),
        Leg("shares",
            down={"keys": Part((PEERS, 2 * KEY)), "signatures": Part((PEERS, SIGNATURE)),
                  "there": Part((PEERS,), "bool")},
            up={"sealed": Part((PEERS, SEALED))},
            sees="shares of each client's secrets, sealed for the others"),
    )  # fmt: skip
    along = {"sealed": Part((PEERS, SEALED)), "shared": Part((PEERS,), "bool")}  # noqa: RUF012
    after = (
        Leg("agree", down={"stayed": Part((PEERS,), "bool")},
            up={"signature": Part((SIGNATURE,))},
            sees="each client's signature under the list of those who stayed"),
        Leg("unmask",
            down={"signatures": Part((PEERS, SIGNATURE)), "signed": Part((PEERS,), "bool")},
            up={"shares": Part((PEERS, SIZE))},
            sees="a share of each other client's mask: of its own if it stayed, else of its key"),
    )  # fmt: skip
    group = GROUP

    def __init__(self, sent: Any, terms: Terms):
        self.hidden, self.terms = sent, terms

    def site(self, occasion: Occasion, me: int):
        from fedmin.channels.secure.site import SumSite

        return SumSite(self.terms, occasion, me, self.peers(len(occasion.clients)))

    def server(self, occasion: Occasion):
        from fedmin.channels.secure.server import SumServer

        peers = self.peers(len(occasion.clients))
        return SumServer(self.terms, occasion, peers, self.hidden)


def groups_of(occasion: Occasion, peers: int) -> list[tuple[int, ...]]:
    """Who is summed with whom: all, or groups by a hash of the occasion, which nobody chooses."""
    clients = occasion.clients
    if len(clients) <= peers:
        return [tuple(clients)]

    def place(i: int) -> bytes:
        data = framed(NAME, b"group", occasion.label, i.to_bytes(4, "little"))
        return hashlib.sha256(data).digest()

    count = -(-len(clients) // peers)
    mixed = sorted(clients, key=place)
    return [tuple(sorted(mixed[k::count])) for k in range(count)]


def seen_by(company: "Company", keys: Any, shared: np.ndarray) -> bytes:
    """A hash of what a group was shown before the numbers: all keys, and who has shared."""
    every = [keys.get(i, b"") for i in company.clients]
    return hashlib.sha256(framed(NAME, b"seen", *every, shared.tobytes())).digest()


class Company:
    """The clients of one group: their slots, and who of them has come how far."""

    def __init__(self, terms: Terms, occasion: Occasion, clients: tuple[int, ...], peers: int):
        self.terms, self.occasion, self.clients, self.peers = terms, occasion, clients, peers
        self.slots = {i: slot for slot, i in enumerate(clients)}
        self.threshold = threshold_of(len(clients), terms.server)
        # where sizes are not told, the weight of all but one would tell that one's
        told = occasion.roster.sizes_told
        self.needed = terms.needed(len(clients)) if told else len(clients)

    def name(self, i: int) -> str:
        """A client's name in words."""
        return self.occasion.roster.names[i]

    def members(self, flags: np.ndarray) -> tuple[int, ...]:
        """The clients of a list of flags; one that names nobody is refused."""
        if flags[len(self.clients) :].any():
            raise ProtocolError(f"a list has a client that is not among the {len(self.clients)}")
        return tuple(self.clients[slot] for slot in np.flatnonzero(flags).tolist())

    def flags(self, members: Any) -> np.ndarray:
        """A list of flags."""
        found = np.zeros(self.peers, bool)
        found[[self.slots[i] for i in members]] = True
        return found

    def enough(self, members: Any, what: str) -> None:
        """Refuse too few."""
        if len(members) < self.needed:
            raise ProtocolError(
                f"{len(members)} of {len(self.clients)} clients {what}; a sum that is opened needs "
                f"{self.needed}"
            )
