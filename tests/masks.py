"""Two channels that exist to prove that a channel's own trips work; no protection for real data.

`PairwiseMasks`: sites add to their integers what they have agreed on with each other, with opposite
signs, so that the sum over all of them shows and nothing else does. Keys go before the exchange;
who dropped out between the two is made up for after it, by the seeds that the others had agreed on
with them. `OneOpens`: all sites share a key that the server has not; one of them opens the sum.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedmin.core.channel import Channel, Learns
from fedmin.core.protocol import (
    PEERS,
    Leg,
    Part,
    Protocol,
    ProtocolError,
    ServerRole,
    SiteRole,
)

SCALE = 2.0**30


class Integers(Channel):
    """p_i times the reply as integers modulo 2^32, at most `bound` in magnitude."""

    bound: float = 8.0
    looks: bool = eqx.field(default=False, static=True)  # what is recorded goes through it too

    def weigh(self, wire, share):
        def integers(a):
            whole = jnp.clip(a, -self.bound, self.bound) * share.astype(a.dtype)
            fixed = jnp.round(whole.astype(jnp.result_type(float)) * (SCALE / self.bound))
            return jax.lax.bitcast_convert_type(fixed.astype(jnp.int32), jnp.uint32)

        return jax.tree.map(integers, wire)

    def combine(self, wires):
        return jax.tree.map(lambda a: jnp.sum(a, axis=0, dtype=jnp.uint32), wires)

    def decode(self, combined, state, cohort, now):
        def numbers(a):
            signed = jax.lax.bitcast_convert_type(a, jnp.int32)
            return signed.astype(jnp.result_type(float)) * (self.bound / SCALE)

        return jax.tree.map(numbers, combined), state

    def for_evaluation(self):
        return self if self.looks else None

    @property
    def learns(self) -> Learns:
        return Learns(each=not self.hides, how="in fixed point")


class PairwiseMasks(Integers):
    hides = True

    def protocol(self, sent):
        return Masks(sent)


class OneOpens(Integers):
    hides = True

    def protocol(self, sent):
        return Opened(sent)


def pad(seed: bytes, like) -> list[np.ndarray]:
    """Numbers modulo 2^32, as many as in these arrays, from a seed of 32 bytes."""
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), None).encryptor()
    return [
        np.frombuffer(stream.update(bytes(4 * a.size)), np.uint32).reshape(a.shape)
        for a in jax.tree.leaves(like)
    ]


def added(wire, masks, sign=1):
    leaves, form = jax.tree.flatten(wire)
    with np.errstate(over="ignore"):
        new = [a + np.uint32(sign % 2**32) * b for a, b in zip(leaves, masks, strict=True)]
    return jax.tree.unflatten(form, new)


def summed(wires):
    return jax.tree.map(lambda *a: np.sum(a, axis=0, dtype=np.uint32), *wires)


# ---------------------------------------------------------------- pairwise masks


class Masks(Protocol):
    before = (Leg("keys", up={"key": Part((32,))}, sees="each client's public key"),)
    along: ClassVar = {"keys": Part((PEERS, 32)), "there": Part((PEERS,), "bool")}
    after = (
        Leg(
            "stayed",
            down={"stayed": Part((PEERS,), "bool")},
            up={"seeds": Part((PEERS, 32))},
            sees="what each client agreed on with those who dropped out",
        ),
    )

    def __init__(self, sent):
        self.hidden = sent

    def site(self, occasion, me):
        return MaskedSite(occasion, me)

    def server(self, occasion):
        return MaskedServer(occasion)


class MaskedSite(SiteRole):
    def __init__(self, occasion, me):
        self.occasion, self.slot = occasion, occasion.slot(me)
        self.key = X25519PrivateKey.generate()
        self.seeds: dict[int, bytes] = {}  # agreed on with each other that was there, by its slot

    def answer(self, leg, said):
        if leg == "keys":
            return {"key": np.frombuffer(self.key.public_key().public_bytes_raw(), np.uint8)}
        stayed = said["stayed"]
        if not stayed[self.slot]:
            raise ProtocolError("the list of those who stayed does not have this client")
        seeds = np.zeros((len(stayed), 32), np.uint8)
        for slot, seed in self.seeds.items():
            if not stayed[slot]:
                seeds[slot] = np.frombuffer(seed, np.uint8)
        return {"seeds": seeds}

    def hide(self, wire, said):
        seeds = {}
        for slot in np.flatnonzero(said["there"]).tolist():
            if slot != self.slot:
                try:
                    theirs = X25519PublicKey.from_public_bytes(said["keys"][slot].tobytes())
                    shared = self.key.exchange(theirs)
                except ValueError:
                    raise ProtocolError(f"the key of client {slot} is none") from None
                pair = bytes(sorted((slot, self.slot)))
                info = b"masks" + self.occasion.label + pair
                seeds[slot] = HKDF(SHA256(), 32, None, info).derive(shared)
        for slot, seed in seeds.items():
            wire = added(wire, pad(seed, wire), 1 if self.slot < slot else -1)
        self.seeds = seeds
        return wire


class MaskedServer(ServerRole):
    def __init__(self, occasion):
        self.occasion = occasion
        count = len(occasion.clients)
        self.keys, self.there = np.zeros((count, 32), np.uint8), np.zeros(count, bool)
        self.stayed = np.zeros(count, bool)
        self.total = None
        self.open: dict[tuple[int, int], bytes] = {}

    def say(self, leg, present):
        what = {
            "keys": {},
            "exchange": {"keys": self.keys, "there": self.there},
            "stayed": {"stayed": self.stayed},
        }[leg]
        return dict.fromkeys(present, what)

    def check(self, leg, i, reply):
        if leg == "keys" and not reply["key"].any():
            raise ProtocolError("a public key of zeros is none")

    def took(self, leg, replies):
        for i, reply in replies.items():
            slot = self.occasion.slot(i)
            if leg == "keys":
                self.keys[slot], self.there[slot] = reply["key"], True
            else:
                lost = np.flatnonzero(self.there & ~self.stayed).tolist()
                self.open |= {(slot, k): reply["seeds"][k].tobytes() for k in lost}

    def took_wires(self, hidden):
        self.stayed[[self.occasion.slot(i) for i in hidden]] = True
        self.total = summed(hidden.values())

    def reveal(self):
        total = self.total
        for slot in np.flatnonzero(self.stayed).tolist():
            for lost in np.flatnonzero(self.there & ~self.stayed).tolist():
                if (slot, lost) not in self.open:
                    who = self.occasion.roster.names[self.occasion.clients[slot]]
                    raise ProtocolError(f"without client {who} its masks stay in the sum")
                seed = self.open[slot, lost]
                total = added(total, pad(seed, total), -1 if slot < lost else 1)
        return total


# ---------------------------------------------------------------- a site in turn opens the sum


class Opened(Protocol):
    """A key that all sites have and the server has not; here it is known to everybody."""

    key = bytes(range(32))

    def __init__(self, sent):
        self.hidden = sent
        sizes = {f"part_{k}": a for k, a in enumerate(jax.tree.leaves(sent))}
        both = {name: Part(tuple(a.shape), "uint32") for name, a in sizes.items()}
        stayed = {"stayed": Part((PEERS,), "bool")}
        words = "the sum, as it is"
        # the first client is asked; a second one only if that one is lost
        self.after = tuple(
            Leg(name, {**both, **stayed}, both, asks, words)
            for name, asks in (("open", 1), ("open again", 0))
        )

    def site(self, occasion, me):
        return OpeningSite(self, occasion, me)

    def server(self, occasion):
        return ClosedServer(self, occasion)

    def pad(self, occasion, slot, like):
        seed = HKDF(SHA256(), 32, None, occasion.label + bytes([slot])).derive(self.key)
        return pad(seed, like)


class OpeningSite(SiteRole):
    def __init__(self, protocol, occasion, me):
        self.protocol, self.occasion, self.slot = protocol, occasion, occasion.slot(me)

    def hide(self, wire, said):
        return added(wire, self.protocol.pad(self.occasion, self.slot, wire))

    def answer(self, leg, said):
        stayed = np.flatnonzero(said["stayed"]).tolist()
        if len(stayed) < 2:
            raise ProtocolError("a sum of fewer than two is not opened")
        total = {name: said[name] for name in sorted(said) if name != "stayed"}
        for slot in stayed:
            total = added(total, self.protocol.pad(self.occasion, slot, total), -1)
        return total


class ClosedServer(ServerRole):
    def __init__(self, protocol, occasion):
        self.protocol, self.occasion = protocol, occasion
        self.stayed = np.zeros(len(occasion.clients), bool)
        self.total, self.opened = None, None

    def say(self, leg, present):
        if self.opened is not None or not present:
            return {}
        parts = {f"part_{k}": a for k, a in enumerate(jax.tree.leaves(self.total))}
        return {present[0]: {**parts, "stayed": self.stayed}}

    def took(self, leg, replies):
        for reply in replies.values():
            self.opened = [reply[name] for name in sorted(reply)]

    def took_wires(self, hidden):
        self.stayed[[self.occasion.slot(i) for i in hidden]] = True
        self.total = summed(hidden.values())

    def reveal(self):
        if self.opened is None:
            raise ProtocolError("nobody has opened the sum")
        return jax.tree.unflatten(jax.tree.structure(self.total), self.opened)
