"""The roles of a secure sum without sessions: whoever drops out, and servers that lie."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np

from fedmin.channels.fixed_point import weight_words
from fedmin.channels.secure import masks
from fedmin.channels.secure.legs import WEIGHT, SumProtocol, Terms
from fedmin.core.protocol import EXCHANGE, Occasion, ProtocolError

LEGS = ("keys", "shares", EXCHANGE, "agree", "unmask")


def roster_of(count: int, identities=()):
    return SimpleNamespace(
        names=tuple(f"s{i}" for i in range(count)), identities=identities, sizes_told=True,
        share=lambda i: np.float32((i + 1) / (count * (count + 1) / 2)),
    )  # fmt: skip


@dataclass
class Table:
    """All parties of one exchange, and the numbers that the sites hide."""

    count: int
    limbs: int = 1
    server_is: str = "lying"
    entries: int = 3
    seed: int = 0
    group: int | None = None
    round: int = 0
    keys: tuple = ()  # the sites' private identity keys
    sites: dict = field(default_factory=dict)

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        public = tuple(k.public_key().public_bytes_raw().hex() for k in self.keys)
        clients = tuple(range(self.count))
        roster = roster_of(self.count, public)
        self.occasion = Occasion(b"run name", self.round, 0, clients, roster)
        shape = (self.entries, self.limbs)
        self.wires = {}
        for i in clients:
            numbers = rng.integers(0, 2**32, shape, dtype=np.uint32)
            weight = weight_words(roster.share(i), self.limbs)
            self.wires[i] = {"update": numbers, WEIGHT: weight}
        like = self.wires[0]
        self.protocol = SumProtocol(like, Terms(self.limbs, self.server_is, 3))
        self.protocol.group = self.group or self.protocol.group
        self.server = self.protocol.server(self.occasion)
        for i in clients:
            own = self.keys[i].private_bytes_raw() if self.keys else None
            self.sites[i] = self.protocol.site(self.occasion._replace(identity=own), i)

    def answer(self, leg: str, i: int, said):
        if leg == EXCHANGE:
            return self.sites[i].hide(self.wires[i], said)
        return self.sites[i].answer(leg, said)

    def take(self, leg: str, replies) -> None:
        for i, reply in replies.items():
            if leg != EXCHANGE:
                self.server.check(leg, i, reply)
        if leg == EXCHANGE:
            self.server.took_wires(replies)
        else:
            self.server.took(leg, replies)

    def play(self, lost=None, until: str = "") -> dict:
        """Play all legs; `lost` says by client on which its reply does not come. What it was asked
        on the leg `until`, without playing it."""
        lost, there = lost or {}, tuple(range(self.count))
        for leg in LEGS:
            said = self.server.say(leg, there)
            if leg == until:
                return said
            there = tuple(i for i in there if lost.get(i) != leg)
            self.take(leg, {i: self.answer(leg, i, said[i]) for i in there})
        return {}

    def sum_of(self, clients):
        rows = [masks.joined(self.wires[i]) for i in clients]
        whole = sum(map(integers_of(self.limbs), rows))
        return [int(v) % 2 ** (32 * self.limbs) for v in whole]


def integers_of(limbs: int):
    """Python integers, which nothing of fedmin has added up."""

    def of(row):
        data = np.asarray(row, np.uint32).reshape(-1, limbs)
        return np.array([int.from_bytes(each.tobytes(), "little") for each in data], object)

    return of


def refused(action, *args) -> str:
    """The words with which something is refused; "" if it is not."""
    try:
        action(*args)
    except ProtocolError as error:
        return str(error)
    return ""


__all__ = ["LEGS", "Table", "integers_of", "refused", "replace"]
