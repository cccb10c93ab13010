"""Messages from client to client that the server carries and cannot read or change.

Every client makes an X25519 key pair for the run and sends its public key through the server. Two
clients agree on a secret by Diffie-Hellman, HKDF-SHA256 makes a key of it, and ChaCha20-Poly1305
seals each message with 16 bytes. The nonce is round, exchange, sender and receiver: it is known to
both ends, so it does not travel, and under one key it never comes twice. A message that was
changed, or is given out for another, is refused.

The server is taken to be curious but honest: one that replaces the public keys could read along.
Clients who fear that compare `fingerprint` over another road.
"""

import hashlib
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from fedmin.engines.sessions import wire


class SealError(ValueError):
    """A sealed message was changed on its way, or is not the one it claims to be."""


class Sealer:
    """One client's secret, and what it has agreed with each of the others."""

    def __init__(self, number: int):
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self.number = number
        self._secret = X25519PrivateKey.generate()
        self._agreed: dict[int, Any] = {}
        self.fingerprint = ""

    @property
    def public(self) -> np.ndarray:
        """u1[32]: the public key."""
        return np.frombuffer(self._secret.public_key().public_bytes_raw(), np.uint8)

    def agree(self, keys: np.ndarray) -> None:
        """Make a key with everybody, from all public keys u1[N, 32]."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        self.fingerprint = hashlib.sha256(keys.tobytes()).hexdigest()
        for other in range(len(keys)):
            if other != self.number:
                shared = self._secret.exchange(
                    X25519PublicKey.from_public_bytes(keys[other].tobytes())
                )
                pair = struct.pack("<II", *sorted((self.number, other)))
                info = b"fedmin sealed 1" + pair + bytes.fromhex(self.fingerprint)
                self._agreed[other] = ChaCha20Poly1305(
                    HKDF(SHA256(), 32, None, info).derive(shared)
                )

    def seal(self, receiver: int, round: int, exchange: int, data: bytes) -> bytes:
        """What only `receiver` can open."""
        unique = nonce(round, exchange, self.number, receiver)
        return self._agreed[receiver].encrypt(unique, data, None)

    def open(self, sender: int, round: int, exchange: int, data: bytes) -> bytes:
        """What `sender` has sealed for this client in this exchange."""
        from cryptography.exceptions import InvalidTag

        unique = nonce(round, exchange, sender, self.number)
        try:
            return self._agreed[sender].decrypt(unique, data, None)
        except InvalidTag:
            raise SealError("its seal is broken: it was changed on its way") from None


def nonce(round: int, exchange: int, sender: int, receiver: int) -> bytes:
    """12 bytes that no other message of the run has."""
    ends = sender.to_bytes(3, "little") + receiver.to_bytes(3, "little")
    return struct.pack("<IH", round, exchange) + ends


def key_messages(population: int) -> tuple[dict, dict]:
    """The forms of what carries the public keys: up from a client, and down to it."""
    up = {"key": np.zeros(32, np.uint8)}
    return up, {"key": np.zeros((population, 32), np.uint8)}


def introduce(population: int, carry: Callable[[bytes], bytes]) -> list[Sealer]:
    """The clients of a run, once everybody's public key has been carried to everybody."""
    sealers = [Sealer(i) for i in range(population)]
    like_up, like_down = key_messages(population)

    def send(kind, i, message, like):
        data = carry(wire.encode(wire.Envelope(kind, 0, wire.SETUP, i), message))
        return wire.decode(data, like)[1]["key"]

    keys = np.stack([send("up", s.number, {"key": s.public}, like_up) for s in sealers])
    for s in sealers:
        s.agree(send("down", s.number, {"key": keys}, like_down))
    return sealers
