"""The trips of a homomorphic sum.

keys        up      a fresh public key, signed
secret      down    everybody's keys and signatures    up  the sites' key, sealed to each of them
(exchange)  down    that key, and who made it          up  its numbers, encrypted
open        down    the sum, encrypted                 up  the sum

Where the sites take the sum in themselves there is `sum` in place of `open`:

sum         down    the sum, encrypted: to everyone    up  nothing
"""

import math
from typing import Any

import jax
import numpy as np

from fedmin.channels import ckks
from fedmin.core.protocol import PEERS, Leg, Occasion, Part, Protocol, ServerRole, SiteRole

CHECKS = 16  # numbers that say who is in a sum, 0 to 255 each
TAG, SIGNATURE = 16, 64  # bytes of a seal and of a signature
BOX = 32 + ckks.KEY + TAG  # the key for the checks and the secret key, sealed


class Encrypted(Protocol):
    """The trips around an exchange whose wires have the form `sent`."""

    def __init__(self, sent: Any, least: int, blind: bool = False):
        self.leaves, self.form = jax.tree.flatten(sent)
        self.least, self.blind = least, blind
        self.size = sum(math.prod(a.shape) for a in self.leaves)
        cipher = Part((ckks.ciphertexts(self.size + CHECKS), ckks.CIPHER))
        self.hidden = {"cipher": cipher.like(0)}
        own = {"key": Part((32,)), "signature": Part((SIGNATURE,))}
        boxes = {"box": Part((BOX,)), "sealed": Part((PEERS, 32 + TAG))}
        there = {"keys": Part((PEERS, 32)), "signatures": Part((PEERS, SIGNATURE)),
                 "there": Part((PEERS,), "bool")}  # fmt: skip
        asked = {"cipher": cipher, "stayed": Part((PEERS,), "bool")}
        sealed = "a key of the sites, which it cannot open"
        self.before = (
            Leg("keys", up=own, sees="each client's public key and signature"),
            Leg("secret", there, boxes, 1, sealed),
            Leg("secret again", there, boxes, 0, sealed),
        )
        self.along = {**boxes, "maker": Part((), "uint32"), **own}  # who made it, its key
        if blind:
            opened = "the sum of all replies, which it opens and takes in"
            self.after: tuple[Leg, ...] = (Leg("sum", asked, {}, sees="nothing", shows=opened),)
            return
        total, opened = {"total": Part((self.size,), "float64")}, "the sum, with noise of 1.5e-11"
        self.after = (
            Leg("open", asked, total, 1, opened, summed=True),
            Leg("open again", asked, total, 0, opened, summed=True),
        )

    def site(self, occasion: Occasion, me: int) -> SiteRole:
        from fedmin.channels.homomorphic.site import EncryptingSite

        return EncryptingSite(self, occasion, me)

    def server(self, occasion: Occasion) -> ServerRole:
        from fedmin.channels.homomorphic.server import AddingServer

        return AddingServer(self, occasion)

    def flat(self, wire: Any) -> np.ndarray:
        """A wire as one vector."""
        parts = [np.asarray(a, np.float64).reshape(-1) for a in jax.tree.leaves(wire)]
        return np.concatenate(parts)

    def shaped(self, total: np.ndarray) -> Any:
        """The vector of a sum as a wire."""
        ends = np.cumsum([math.prod(a.shape) for a in self.leaves])[:-1]
        parts = zip(np.split(total, ends), self.leaves, strict=True)
        whole = lambda p, a: np.round(p) if np.issubdtype(a.dtype, np.integer) else p
        new = [whole(p, a).reshape(a.shape).astype(a.dtype) for p, a in parts]
        return jax.tree.unflatten(self.form, new)
