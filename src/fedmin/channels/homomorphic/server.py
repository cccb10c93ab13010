"""The server's role in a homomorphic sum: it passes keys on, adds ciphertexts, and is told their
sum; where the sites take the sum in themselves, it passes the ciphertext on and is told nothing."""

from typing import Any

import numpy as np

from fedmin.channels import ckks
from fedmin.channels.homomorphic.legs import SIGNATURE, Encrypted
from fedmin.core.protocol import Occasion, ProtocolError, ServerRole


class AddingServer(ServerRole):
    """The server in one exchange."""

    def __init__(self, protocol: Encrypted, occasion: Occasion):
        self.protocol, self.occasion = protocol, occasion
        count = len(occasion.clients)
        self.keys, self.there = np.zeros((count, 32), np.uint8), np.zeros(count, bool)
        self.signatures = np.zeros((count, SIGNATURE), np.uint8)
        self.made: dict[str, Any] | None = None
        self.stayed = np.zeros(count, bool)
        self.cipher, self.total, self.wrong = None, None, ""
        self.taken = False  # sites have the sum, where they take it in themselves

    def say(self, leg: str, present: tuple[int, ...]) -> dict[int, Any]:
        if leg == "keys":
            return {i: {} for i in present}
        if leg == "exchange":
            return dict.fromkeys(present, self.made or self._nothing())
        secret = leg.startswith("secret")
        if not present or (self.made if secret else self.total) is not None or self.wrong:
            return {}
        if secret:
            keys = {"keys": self.keys, "signatures": self.signatures, "there": self.there}
            return {self._in_turn(present): keys}
        if self.cipher is None or self.stayed.sum() < self.protocol.least:
            return {}  # nobody would open it
        said = {"cipher": self.cipher, "stayed": self.stayed}
        return dict.fromkeys(present, said) if leg == "sum" else {self._in_turn(present): said}

    def _in_turn(self, present: tuple[int, ...]) -> int:
        return present[self.occasion.round % len(present)]

    def _nothing(self) -> dict[str, np.ndarray]:
        """Nobody has made a key: sites refuse it, and the round ends."""
        peers = len(self.keys)
        return {name: part.like(peers) for name, part in self.protocol.along.items()}

    def took(self, leg: str, replies: dict[int, Any]) -> None:
        self.taken = leg == "sum" and bool(replies)
        for i, reply in replies.items():
            slot = self.occasion.slot(i)
            if leg == "keys":
                self.keys[slot], self.there[slot] = reply["key"], True
                self.signatures[slot] = reply["signature"]
            elif leg.startswith("secret"):
                own = {"key": self.keys[slot], "signature": self.signatures[slot]}
                self.made = {**reply, "maker": np.uint32(i), **own}
            elif leg.startswith("open"):
                self.total = reply["total"]

    def took_wires(self, hidden: dict[int, Any]) -> None:
        self.stayed[[self.occasion.slot(i) for i in hidden]] = True
        try:
            self.cipher = ckks.added(each["cipher"] for each in hidden.values())  # type: ignore[assignment]
        except ProtocolError as error:
            self.wrong = str(error)

    def reveal(self) -> Any:
        if not self.occasion.clients:  # nobody was drawn: the round passes
            return self.protocol.shaped(np.zeros(self.protocol.size))
        if self.total is None and not self.taken:
            stayed, least = int(self.stayed.sum()), self.protocol.least
            few = f"{stayed} clients are in the sum, and at least {least} must be"
            raise ProtocolError(self.wrong or (few if stayed < least else "nobody opened the sum"))
        return None if self.total is None else self.protocol.shaped(self.total)
