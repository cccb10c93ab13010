"""Messages from client to client that the server carries and cannot read or change.

Every client makes an X25519 key pair for the run and sends its public key through the server. Two
clients agree on a secret by Diffie-Hellman, HKDF-SHA256 makes a key of it, and ChaCha20-Poly1305
seals each message with 16 bytes. The nonce is round, trip, sender and receiver: it is known to
both ends, so it does not travel. No nonce is used twice under one key: a sealer goes forward in
rounds and trips only, and refuses to seal the same one again. A message that was changed, or is
given out for another, is refused.

Where only the sum of what clients send each other is to be known (`core.channel.Among`), the same
secrets make pads too, one for each pair, round and trip: the smaller of a pair adds it, the larger
subtracts it. Public keys are then signed (`statement`). Elsewhere the server is taken to be curious
but honest: one that replaces the public keys could read along. Clients who fear that compare
`fingerprint` by another way.
"""

import hashlib
import struct
from typing import Any

import numpy as np

from fedmin.engines.sessions.wire import EVALUATION, MessageError

TAG = 16  # bytes that the seal adds to a message


class SealError(MessageError):
    """A sealed message was changed on its way, or is not the one it claims to be."""


class Sealer:
    """One client's secret, and what it has agreed with each of the others."""

    def __init__(self, number: int):
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self.number = number
        self._secret = X25519PrivateKey.generate()
        self._agreed: dict[int, Any] = {}
        self._shared: dict[int, bytes] = {}  # what pads are made from, by the other client
        self._last: dict[int, tuple[int, bool, int]] = {}  # where it sealed last, a receiver
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

        fingerprint = hashlib.sha256(keys.tobytes()).hexdigest()
        agreed: dict[int, Any] = {}
        made: dict[int, bytes] = {}
        for other in range(len(keys)):
            if other != self.number:
                try:
                    theirs = X25519PublicKey.from_public_bytes(keys[other].tobytes())
                    shared = self._secret.exchange(theirs)
                except ValueError:
                    raise SealError(f"the public key of client {other} is none") from None
                pair = struct.pack("<II", *sorted((self.number, other)))
                info = pair + bytes.fromhex(fingerprint)
                key, made[other] = (
                    HKDF(SHA256(), 32, None, word + info).derive(shared)
                    for word in (b"fedmin sealed 1", b"fedmin covered 1")
                )
                agreed[other] = ChaCha20Poly1305(key)
        if fingerprint != self.fingerprint:  # other keys: no nonce was used under them
            self._last = {}
        self._agreed, self._shared, self.fingerprint = agreed, made, fingerprint

    def pads(self, round: int, trip: int) -> list[tuple[bytes, int]]:
        """The key and the sign of the pad that it has with each other client on one trip."""
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

        info = b"fedmin pad 1" + struct.pack("<IH", round, trip)
        return [
            (HKDFExpand(SHA256(), 32, info).derive(key), 1 if self.number < other else -1)
            for other, key in self._shared.items()
        ]

    def seal(self, receiver: int, round: int, trip: int, data: bytes) -> bytes:
        """What only `receiver` can open; once for each round and trip."""
        place = (round, trip < EVALUATION, trip)  # a round's evaluation comes before the round
        if place <= self._last.get(receiver, (-1, False, -1)):
            raise SealError(f"round {round}, trip {trip} was sealed before: a nonce is used once")
        self._last[receiver] = place
        unique = nonce(round, trip, self.number, receiver)
        return self._agreed[receiver].encrypt(unique, data, None)

    def open(self, sender: int, round: int, trip: int, data: bytes) -> bytes:
        """What `sender` has sealed for this client on this trip."""
        from cryptography.exceptions import InvalidTag

        unique = nonce(round, trip, sender, self.number)
        try:
            return self._agreed[sender].decrypt(unique, data, None)
        except InvalidTag:
            raise SealError("its seal is broken: it was changed on its way") from None


def nonce(round: int, trip: int, sender: int, receiver: int) -> bytes:
    """12 bytes that no other message of the run has."""
    ends = sender.to_bytes(3, "little") + receiver.to_bytes(3, "little")
    return struct.pack("<IH", round, trip) + ends


def statement(run: bytes, round: int, sender: int, key: np.ndarray) -> bytes:
    """What a client signs of its public key."""
    return b"fedmin public key 1" + run + struct.pack("<II", round, sender) + key.tobytes()


def key_like(signed: bool = False) -> dict[str, np.ndarray]:
    """The form of what carries a public key up from a client."""
    own = {"key": np.zeros(32, np.uint8)}
    return {**own, "signature": np.zeros(64, np.uint8)} if signed else own


def keys_like(population: int, signed: bool = False) -> dict[str, np.ndarray]:
    """The form of what carries everybody's public keys down to a client."""
    each = key_like(signed).items()
    return {name: np.zeros((population, *a.shape), a.dtype) for name, a in each}
