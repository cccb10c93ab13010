"""Every key, mask and signature of a secure sum, each in a domain of its own.

What is derived or signed begins with `fedmin secure sum 1`, a word for what it is, and the label of
the occasion (run, round, trip and clients), each with its length; so nothing that was made for one
purpose or one occasion is good for another.
"""

import functools
import struct

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedmin.channels.secure import shamir
from fedmin.core.protocol import Occasion, ProtocolError

NAME = b"fedmin secure sum 1"
TAG = 16  # bytes that a seal adds
KEY, SIGNATURE = 32, 64


def framed(*parts: bytes) -> bytes:
    """Bytes that no other parts give: each with its length before it."""
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def _derived(secret: bytes, word: bytes, *parts: bytes) -> bytes:
    return HKDF(SHA256(), 32, None, framed(NAME, word, *parts)).derive(secret)


def _number(i: int) -> bytes:
    return struct.pack("<I", i)


# ---------------------------------------------------------------- who signs


@functools.lru_cache(maxsize=4096)
def simulated_identity(run: bytes, i: int) -> Ed25519PrivateKey:
    """The signing key of client i where all parties are one person's: known to all of them."""
    return Ed25519PrivateKey.from_private_bytes(_derived(run + _number(i), b"simulated identity"))


@functools.lru_cache(maxsize=4096)
def _simulated_public(run: bytes, i: int) -> Ed25519PublicKey:
    return simulated_identity(run, i).public_key()


def signer(occasion: Occasion, me: int) -> Ed25519PrivateKey:
    """The key that client `me` signs with: the site's own or, in a simulation, one for all to see.

    A key that is not the one that the roster has of this client is refused, and so is a simulated
    one where the roster has real ones.
    """
    pinned = occasion.roster.identities
    if occasion.identity is None:
        if pinned:
            raise ProtocolError("the roster pins identity keys, and this site was given none")
        return simulated_identity(occasion.run, me)
    found = Ed25519PrivateKey.from_private_bytes(occasion.identity)
    if not pinned or found.public_key().public_bytes_raw().hex() != pinned[me]:
        raise ProtocolError("the roster has another identity key for this site, or none")
    return found


def verified(occasion: Occasion, i: int, signature: bytes, message: bytes) -> bool:
    """Whether client i, as the roster pins it, signed this."""
    pinned = occasion.roster.identities
    key = (
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(pinned[i]))
        if pinned
        else _simulated_public(occasion.run, i)
    )
    try:
        key.verify(signature, message)
    except InvalidSignature:
        return False
    return True


def keys_statement(occasion: Occasion, i: int, keys: bytes) -> bytes:
    """What client i signs of its two public keys."""
    return framed(NAME, b"keys", occasion.label, _number(i), keys)


def stayed_statement(occasion: Occasion, seen: bytes, stayed: bytes) -> bytes:
    """What all sign of who stayed; `seen` is a hash of all that they were shown before."""
    return framed(NAME, b"stayed", occasion.label, seen, stayed)


# ---------------------------------------------------------------- what two agree on


def mask_key(seed: int) -> X25519PrivateKey:
    """The key for masks, from the number that is shared out."""
    return X25519PrivateKey.from_private_bytes(_derived(shamir.to_bytes(seed), b"mask key"))


def agreed(mine: X25519PrivateKey, theirs: bytes) -> bytes:
    """Diffie-Hellman; a key of small order is refused."""
    try:
        return mine.exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError:
        raise ProtocolError("a public key is none") from None


def sealing(occasion: Occasion, shared: bytes, sender: int, receiver: int) -> ChaCha20Poly1305:
    """What seals the one message from sender to receiver in this occasion."""
    ends = _number(sender) + _number(receiver)
    return ChaCha20Poly1305(_derived(shared, b"sealed shares", occasion.label, ends))


NONCE = bytes(12)  # of the only message under a key


def seal(key: ChaCha20Poly1305, data: bytes) -> bytes:
    """Seal the only message of a key."""
    return key.encrypt(NONCE, data, None)


def unseal(key: ChaCha20Poly1305, data: bytes, sender: str) -> bytes:
    """Open it, or say whose it was to be."""
    try:
        return key.decrypt(NONCE, data, None)
    except InvalidTag:
        raise ProtocolError(f"the shares of client {sender} were changed on their way") from None


def self_pad(occasion: Occasion, seed: int, i: int) -> bytes:
    """The key of client i's own pad."""
    return _derived(shamir.to_bytes(seed), b"self mask", occasion.label, _number(i))


def pair_pad(occasion: Occasion, shared: bytes, i: int, j: int) -> bytes:
    """The key of the pad of a pair of clients."""
    pair = _number(min(i, j)) + _number(max(i, j))
    return _derived(shared, b"pair mask", occasion.label, pair)
