"""The server's role in a secure sum: it carries, and opens the sum with what the sites give it."""

from typing import Any

import jax
import numpy as np

from fedmin.channels.fixed_point import weight_words
from fedmin.channels.secure import derivations, masks, shamir
from fedmin.channels.secure.derivations import KEY, SIGNATURE
from fedmin.channels.secure.legs import SEALED, WEIGHT, Company, Terms, groups_of, seen_by
from fedmin.core.protocol import EXCHANGE, Occasion, ProtocolError, Said, ServerRole


class Group(Company):
    """One group, as the server sees it."""

    def __init__(self, terms: Terms, occasion: Occasion, clients: tuple[int, ...], peers: int):
        super().__init__(terms, occasion, clients, peers)
        self.keys: dict[int, bytes] = {}
        self.signatures: dict[int, bytes] = {}
        self.sealed: dict[int, np.ndarray] = {}  # one packet for each slot
        self.rows: dict[int, np.ndarray] = {}  # masked
        self.agreed: dict[int, bytes] = {}
        self.shares: dict[int, np.ndarray] = {}

    def say(self, leg: str, i: int) -> Said:
        if leg == "shares":
            self.enough(self.keys, "have keys")
            keys = self._stack(self.keys, 2 * KEY)
            signatures = self._stack(self.signatures, SIGNATURE)
            return {"keys": keys, "signatures": signatures, "there": self.flags(self.keys)}
        if leg == EXCHANGE:
            self.enough(self.sealed, "have shared their secrets")
            packets = np.zeros((self.peers, SEALED), np.uint8)
            for j, own in self.sealed.items():
                packets[self.slots[j]] = own[self.slots[i]]
            return {"sealed": packets, "shared": self.flags(self.sealed)}
        if leg == "agree":
            self.enough(self.rows, "have stayed")
            return {"stayed": self.flags(self.rows)}
        if leg == "unmask":
            self.enough(self.agreed, "have signed who stayed")
            signatures = self._stack(self.agreed, SIGNATURE)
            return {"signatures": signatures, "signed": self.flags(self.agreed)}
        return {}

    def _stack(self, entries: dict[int, bytes], size: int) -> np.ndarray:
        found = np.zeros((self.peers, size), np.uint8)
        for i, data in entries.items():
            found[self.slots[i]] = np.frombuffer(data, np.uint8)
        return found

    def opened(self) -> np.ndarray:
        """The sum of those who stayed, without masks."""
        self.enough(self.rows, "have stayed")
        if len(self.shares) < self.threshold:
            raise ProtocolError(
                f"{len(self.shares)} of {len(self.clients)} clients have given shares of the "
                f"masks; {self.threshold} are needed"
            )
        used = tuple(sorted(self.shares)[: self.threshold])
        weights = shamir.at_zero(tuple(self.slots[k] for k in used))
        pads = []
        for i in self.sealed:
            secret = sum(
                weights[self.slots[k]] * self._share(k, i) for k in used
            ) % shamir.PRIME  # fmt: skip
            if i in self.rows:
                pads.append((derivations.self_pad(self.occasion, secret, i), -1))
            else:
                pads += self._pads_of_lost(i, secret)
        total = masks.summed(list(self.rows.values()), self.terms.limbs)
        masks.add_pads(total, pads, self.terms.limbs)
        return total

    def _share(self, k: int, i: int) -> int:
        try:
            return shamir.from_bytes(self.shares[k][self.slots[i]].tobytes())
        except ValueError:
            raise ProtocolError(f"client {self.name(k)} sent a share that is none") from None

    def _pads_of_lost(self, i: int, seed: int) -> list[tuple[bytes, int]]:
        """What those who stayed have in their numbers for a client that did not."""
        key = derivations.mask_key(seed)
        if key.public_key().public_bytes_raw() != self.keys[i][KEY:]:
            raise ProtocolError(f"the shares of the mask key of client {self.name(i)} do not fit")
        found = []
        for j in self.rows:
            shared = derivations.agreed(key, self.keys[j][KEY:])
            pad = derivations.pair_pad(self.occasion, shared, i, j)
            found.append((pad, -1 if j < i else 1))
        return found


class SumServer(ServerRole):
    """The server in one exchange, for all groups."""

    def __init__(self, terms: Terms, occasion: Occasion, peers: int, like: Any):
        self.terms, self.occasion, self.like = terms, occasion, like
        self.groups = [Group(terms, occasion, g, peers) for g in groups_of(occasion, peers)]
        self.group_of = {i: group for group in self.groups for i in group.clients}

    def say(self, leg: str, present: tuple[int, ...]) -> dict[int, Said]:
        return {i: self.group_of[i].say(leg, i) for i in present}

    def check(self, leg: str, i: int, reply: Said) -> None:
        group = self.group_of[i]
        if leg == "keys":
            statement = derivations.keys_statement(self.occasion, i, reply["keys"].tobytes())
        elif leg == "agree":
            statement = self._stayed(group)
        else:
            return
        if not derivations.verified(self.occasion, i, reply["signature"].tobytes(), statement):
            raise ProtocolError("its signature is not that of the client's identity key")

    def _stayed(self, group: Group) -> bytes:
        seen = seen_by(group, group.keys, group.flags(group.sealed))
        stayed = group.flags(group.rows).tobytes()
        return derivations.stayed_statement(self.occasion, seen, stayed)

    def took(self, leg: str, replies: dict[int, Said]) -> None:
        for i, reply in replies.items():
            group = self.group_of[i]
            if leg == "keys":
                group.keys[i] = reply["keys"].tobytes()
                group.signatures[i] = reply["signature"].tobytes()
            elif leg == "shares":
                group.sealed[i] = reply["sealed"]
            elif leg == "agree":
                group.agreed[i] = reply["signature"].tobytes()
            else:
                group.shares[i] = reply["shares"]

    def took_wires(self, hidden: dict[int, Any]) -> None:
        for i, wire in hidden.items():
            self.group_of[i].rows[i] = masks.joined(wire)

    def reveal(self) -> Any:
        if not self.occasion.clients:  # nobody was drawn: the round passes
            return jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), self.like)
        total = masks.summed([group.opened() for group in self.groups], self.terms.limbs)
        wire = masks.parted(total, self.like)
        self._check_weight(wire)
        return wire

    def _check_weight(self, wire: Any) -> None:
        """The numbers of those who stayed have their weight in them: else a mask is still there."""
        shares = self.occasion.roster
        whole = [weight_words(shares.share(i), self.terms.limbs)
                 for group in self.groups for i in group.rows]  # fmt: skip
        wanted = masks.summed(whole, self.terms.limbs)
        # of a secret weight and 1/N, the last is what all know
        if not np.array_equal(np.ravel(wire[WEIGHT])[-self.terms.limbs :], wanted):
            raise ProtocolError(
                "the sum has another weight than the clients in it: a mask or a share is wrong"
            )
