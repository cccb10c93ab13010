"""A site's role in a secure sum: its own secrets, and what it has seen so far.

It opens at most one of a neighbor's two secrets, and only for a list of those who stayed that
enough others have signed after seeing the same keys. Whatever it refuses leaves it as it was.
"""

from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedmin.channels.secure import derivations, masks, shamir
from fedmin.channels.secure.derivations import KEY
from fedmin.channels.secure.legs import SEALED, Company, Terms, groups_of, seen_by
from fedmin.core.protocol import Occasion, ProtocolError, Said, SiteRole


def _bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


class SumSite(SiteRole):
    """One site in one exchange."""

    def __init__(self, terms: Terms, occasion: Occasion, me: int, peers: int):
        self.signer = derivations.signer(occasion, me)
        (own,) = (group for group in groups_of(occasion, peers) if me in group)
        self.company = Company(terms, occasion, own, peers)
        self.occasion, self.me, self.slot = occasion, me, self.company.slots[me]
        self.sealing = X25519PrivateKey.generate()
        self.seed, self.mask_seed = shamir.draw(), shamir.draw()
        self.masking = derivations.mask_key(self.mask_seed)
        publics = (self.sealing.public_key(), self.masking.public_key())
        self.keys = b"".join(key.public_bytes_raw() for key in publics)
        self.theirs: dict[int, bytes] = {}  # the others' public keys, once they are believed
        self.own_shares: tuple[int, int] = (0, 0)
        self.held: dict[int, tuple[int, int]] = {}  # shares of the two secrets of each, own too
        self.seen = b""  # a hash of all keys and of who has shared
        self.stayed: tuple[int, ...] = ()
        self.reply: dict[str, Said] = {}

    def answer(self, leg: str, said: Said) -> Said:
        if leg in self.reply:  # sessions send such a reply again; nothing is computed twice
            raise ProtocolError(f"the leg {leg} was answered before")
        answers = {
            "keys": self._keys, "shares": self._shares, "agree": self._agree,
            "unmask": self._unmask,
        }  # fmt: skip
        found = answers[leg](said)
        self.reply[leg] = found
        return found

    def _keys(self, said: Said) -> Said:
        statement = derivations.keys_statement(self.occasion, self.me, self.keys)
        return {"keys": _bytes(self.keys), "signature": _bytes(self.signer.sign(statement))}

    def _shares(self, said: Said) -> Said:
        """Believe the others' keys, and share both secrets out among them."""
        company = self.company
        there = company.members(said["there"])
        company.enough(there, "have keys")
        keys = {i: said["keys"][company.slots[i]].tobytes() for i in there}
        if keys.get(self.me) != self.keys:
            raise ProtocolError("the list of keys has not this client's own")
        for i in there:
            statement = derivations.keys_statement(self.occasion, i, keys[i])
            signature = said["signatures"][company.slots[i]].tobytes()
            if not derivations.verified(self.occasion, i, signature, statement):
                raise ProtocolError(f"client {company.name(i)} has not signed these keys")
        count = len(company.clients)
        both = [shamir.share(s, company.threshold, count) for s in (self.seed, self.mask_seed)]
        sealed = np.zeros((company.peers, SEALED), np.uint8)
        for i in there:
            if i != self.me:
                slot = company.slots[i]
                key = self._sealing(keys[i], self.me, i)
                data = b"".join(shamir.to_bytes(shares[slot]) for shares in both)
                sealed[slot] = _bytes(derivations.seal(key, data))
        self.theirs = keys
        self.own_shares = (both[0][self.slot], both[1][self.slot])
        return {"sealed": sealed}

    def _sealing(self, theirs: bytes, sender: int, receiver: int) -> Any:
        shared = derivations.agreed(self.sealing, theirs[:KEY])
        return derivations.sealing(self.occasion, shared, sender, receiver)

    def hide(self, wire: Any, said: Said) -> Any:
        company, flags = self.company, said["shared"]
        if not self.theirs or self.held:
            raise ProtocolError("nothing is sent before keys and shares, and nothing twice")
        shared = company.members(flags)
        company.enough(shared, "have shared their secrets")
        if self.me not in shared or not set(shared) <= set(self.theirs):
            raise ProtocolError("the list of those who have shared does not fit the list of keys")
        held, pads = {self.me: self.own_shares}, []
        for i in shared:
            if i == self.me:
                continue
            key = self._sealing(self.theirs[i], i, self.me)
            packet = said["sealed"][company.slots[i]].tobytes()
            data = derivations.unseal(key, packet, company.name(i))
            try:
                halves = data[: shamir.SIZE], data[shamir.SIZE :]
                held[i] = shamir.from_bytes(halves[0]), shamir.from_bytes(halves[1])
            except ValueError:
                raise ProtocolError(f"the shares of client {company.name(i)} are none") from None
            secret = derivations.agreed(self.masking, self.theirs[i][KEY:])
            pad = derivations.pair_pad(self.occasion, secret, self.me, i)
            pads.append((pad, 1 if self.me < i else -1))
        pads.append((derivations.self_pad(self.occasion, self.seed, self.me), 1))
        words = masks.joined(wire)
        masks.add_pads(words, pads, company.terms.limbs)
        self.seen = seen_by(company, self.theirs, flags)
        self.held = held
        return masks.parted(words, wire)

    def _agree(self, said: Said) -> Said:
        """Sign who stayed: once, so that no two lists have this signature."""
        company = self.company
        stayed = company.members(said["stayed"])
        company.enough(stayed, "have stayed")
        if self.me not in stayed or not set(stayed) <= set(self.held):
            raise ProtocolError("the list of those who stayed does not fit those who have shared")
        self.stayed = stayed
        return {"signature": _bytes(self.signer.sign(self._statement()))}

    def _statement(self) -> bytes:
        flags = self.company.flags(self.stayed)
        return derivations.stayed_statement(self.occasion, self.seen, flags.tobytes())

    def _unmask(self, said: Said) -> Said:
        company, statement = self.company, self._statement()
        signed = company.members(said["signed"])
        if not self.stayed or not set(signed) <= set(self.stayed):
            raise ProtocolError("signatures of clients who have not stayed")
        company.enough(signed, "have signed who stayed")
        for i in signed[: company.needed]:  # so many are enough
            signature = said["signatures"][company.slots[i]].tobytes()
            if not derivations.verified(self.occasion, i, signature, statement):
                raise ProtocolError(f"client {company.name(i)} has signed another list")
        shares = np.zeros((company.peers, shamir.SIZE), np.uint8)
        for i, (own, key) in self.held.items():  # one of the two, never both
            shares[company.slots[i]] = _bytes(shamir.to_bytes(own if i in self.stayed else key))
        return {"shares": shares}
