"""A site's role in a homomorphic sum: it has the sites' key, or makes it.

Public keys are signed by the identity keys that the roster pins (`secure/derivations.py`), so the
sites' key is sealed to sites and to nobody else, and taken from none but a site.
"""

import hashlib
import hmac
import os
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedmin.channels import ckks
from fedmin.channels.homomorphic.legs import CHECKS, TAG, Encrypted
from fedmin.channels.secure import derivations
from fedmin.core.protocol import Occasion, Opened, ProtocolError, SiteRole

NAME = b"fedmin homomorphic sum 1"
FITS = 1e-9  # by which the numbers that say who is in a sum may be off


class EncryptingSite(SiteRole):
    """One site in one exchange."""

    def __init__(self, protocol: Encrypted, occasion: Occasion, me: int):
        self.signer = derivations.signer(occasion, me)
        self.protocol, self.occasion, self.me = protocol, occasion, me
        self.slot = occasion.slot(me)
        self._own = X25519PrivateKey.generate()
        self.public = np.frombuffer(self._own.public_key().public_bytes_raw(), np.uint8)
        self._secret: ckks.Secret | None = None
        self._checks = b""  # the key that makes the numbers of `_check`
        self._sum: tuple[np.ndarray, tuple[int, ...]] | None = None  # once it was opened

    def answer(self, leg: str, said: Any) -> Any:
        if leg == "keys":
            signature = self.signer.sign(self._statement(self.me, self.public))
            return {"key": self.public, "signature": np.frombuffer(signature, np.uint8)}
        if leg.startswith("secret"):
            return self._made(said["keys"], said["signatures"], said["there"])
        total = self._total(said["cipher"], np.flatnonzero(said["stayed"]).tolist())
        return {} if self.protocol.blind else {"total": ckks.flooded(total)}

    def opened(self, noisy: bool = False) -> Opened:
        if self._sum is None:
            raise ProtocolError("this client has opened no sum")
        total, clients = self._sum
        return Opened(self.protocol.shaped(ckks.flooded(total) if noisy else total), clients)

    def hide(self, wire: Any, said: Any) -> Any:
        secret, key = self._secret, self._checks
        if secret is None or not np.array_equal(said["key"], self.public):
            secret, key = self._read(said)
        numbers = np.concatenate([self.protocol.flat(wire), self._check(key, self.slot)])
        hidden = {"cipher": secret.closed(numbers)}
        self._secret, self._checks = secret, key
        return hidden

    # ------------------------------------------------------------ the key

    def _statement(self, i: int, key: np.ndarray) -> bytes:
        """What client i signs of its public key of this exchange."""
        parts = self.occasion.label, i.to_bytes(4, "little"), key.tobytes()
        return derivations.framed(NAME, b"key", *parts)

    def _believe(self, i: int, key: np.ndarray, signature: np.ndarray) -> None:
        statement = self._statement(i, key)
        if not derivations.verified(self.occasion, i, signature.tobytes(), statement):
            raise ProtocolError(f"client {self.occasion.roster.names[i]} has not signed this key")

    def _made(
        self, keys: np.ndarray, signatures: np.ndarray, there: np.ndarray
    ) -> dict[str, np.ndarray]:
        """A key for all who are there, in a box whose own key is sealed to each of them."""
        if not there[self.slot] or not np.array_equal(keys[self.slot], self.public):
            raise ProtocolError("the list of public keys has another one for this client")
        others = [slot for slot in np.flatnonzero(there).tolist() if slot != self.slot]
        for slot in others:
            self._believe(self.occasion.clients[slot], keys[slot], signatures[slot])
        secret, key, lock = ckks.Secret(), os.urandom(32), os.urandom(32)
        box = _sealed(lock, key + secret.words().tobytes())
        sealed = np.zeros((len(keys), 32 + TAG), np.uint8)
        for slot in others:
            shared = self._agreed(keys[slot], keys[slot].tobytes() + self.public.tobytes())
            sealed[slot] = np.frombuffer(_sealed(shared, lock), np.uint8)
        self._secret, self._checks = secret, key
        return {"box": np.frombuffer(box, np.uint8), "sealed": sealed}

    def _read(self, said: Any) -> tuple[ckks.Secret, bytes]:
        maker, theirs = int(said["maker"]), said["key"]
        if maker not in self.occasion.clients:
            raise ProtocolError("the sites' key is of a client that is not in this exchange")
        self._believe(maker, theirs, said["signature"])
        shared = self._agreed(theirs, self.public.tobytes() + theirs.tobytes())
        lock = _unsealed(shared, said["sealed"][self.slot].tobytes())
        data = _unsealed(lock, said["box"].tobytes())
        return ckks.Secret(np.frombuffer(data[32:], np.uint8)), data[:32]

    def _agreed(self, theirs: np.ndarray, pair: bytes) -> bytes:
        shared = derivations.agreed(self._own, theirs.tobytes())
        return HKDF(SHA256(), 32, None, NAME + self.occasion.label + pair).derive(shared)

    # ------------------------------------------------------------ the sum

    def _check(self, key: bytes, slot: int) -> np.ndarray:
        """Numbers that only the sites know and that add up: they say who is in a sum."""
        words = self.occasion.label + slot.to_bytes(4, "little")
        digest = hmac.new(key, b"checks" + words, hashlib.sha256).digest()
        return np.frombuffer(digest[:CHECKS], np.uint8).astype(np.float64)

    def _total(self, ciphers: np.ndarray, stayed: list[int]) -> np.ndarray:
        if self._secret is None or self._sum is not None:
            raise ProtocolError("this client has no key for it, or has opened a sum already")
        least = self.protocol.least
        if len(stayed) < least:
            raise ProtocolError(
                f"a sum of {len(stayed)} is not opened; at least {least} must be in it"
            )
        found = self._secret.opened(ciphers, self.protocol.size + CHECKS)
        wanted = sum(self._check(self._checks, slot) for slot in stayed)
        if not np.all(np.abs(found[-CHECKS:] - wanted) < FITS):
            raise ProtocolError("what is to be opened is not the sum of those who stayed")
        total, clients = found[:-CHECKS], [self.occasion.clients[slot] for slot in stayed]
        self._sum = total, tuple(clients)
        return total


def _sealed(key: bytes, data: bytes) -> bytes:
    """Sealed by a key that seals nothing else, so the nonce is nought."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), data, None)


def _unsealed(key: bytes, data: bytes) -> bytes:
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), data, None)
    except InvalidTag:
        raise ProtocolError("the sites' key was changed on its way, or is for another") from None
