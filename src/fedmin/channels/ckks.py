"""Numbers that can be added while they are encrypted: CKKS on tenseal, in messages of one length.

A ciphertext holds SLOTS numbers; whoever has the secret key opens it, anybody adds two of them.
N = 8192 with three primes of 60 bits (180 bits in all, where 218 are allowed at 128 bits of
security). Two primes carry data, so that the scale is 2^80: the encryption's own error, 6e-22 in a
sum of ten, lies far below the last digit of a double.

Whoever has a ciphertext and, exactly, what it decrypts to can compute the secret key from the
encryption's error [li2021ckks]. What is opened is therefore given away with noise of 2^-36
(1.5e-11), more than 2^30 times as large as that error.
"""

import functools
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedmin.core.protocol import ProtocolError

DEGREE, SLOTS, SCALE = 8192, 4096, 2.0**80
PRIMES = (60, 60, 60)
CIPHER = 2 * DEGREE * 2 * 8 + 512  # bytes of a ciphertext, its length in front: never longer
KEY = DEGREE * 3 * 8 + 512  # bytes of a secret key, likewise
FLOOD = 2.0**-36  # standard deviation of the noise on what is given away
LARGEST = 2.0**24  # of a number; sums of 8,192 such fit
NAMES = ("save_public_key", "save_secret_key", "save_galois_keys", "save_relin_keys")


def library() -> Any:
    """tenseal, or what to install."""
    try:
        import tenseal  # type: ignore[import-untyped]
    except ImportError:
        raise ValueError("homomorphic sums need tenseal: pip install 'fedmin[privacy]'") from None
    return tenseal


def ciphertexts(numbers: int) -> int:
    """How many ciphertexts so many numbers take."""
    return math.ceil(numbers / SLOTS)


def _padded(data: bytes, size: int) -> np.ndarray:
    if len(data) + 4 > size:
        raise ProtocolError(f"{len(data)} bytes do not fit into {size}")
    whole = len(data).to_bytes(4, "little") + data
    return np.frombuffer(whole + bytes(size - len(whole)), np.uint8)


def _bare(data: np.ndarray) -> bytes:
    whole = data.tobytes()
    return whole[4 : 4 + int.from_bytes(whole[:4], "little")]


class Secret:
    """A secret key: it encrypts, and opens.

    >>> import numpy as np
    >>> from fedmin.channels.ckks import Secret, added
    >>> key = Secret()
    >>> total = added([key.closed(np.array([1.0, 2.5])), key.closed(np.array([3.0, -0.5]))])
    >>> key.opened(total, 2).round(6).tolist()
    [4.0, 2.0]
    """

    def __init__(self, data: np.ndarray | None = None):
        tenseal = library()
        if data is None:
            self._context = tenseal.context(
                tenseal.SCHEME_TYPE.CKKS, DEGREE, coeff_mod_bit_sizes=list(PRIMES),
                encryption_type=tenseal.ENCRYPTION_TYPE.SYMMETRIC,
            )  # fmt: skip
            self._context.global_scale = SCALE
        else:
            self._context = _loaded(tenseal.context_from, _bare(data))
            if not self._context.is_private():
                raise ProtocolError("a key that is no secret one")

    def words(self) -> np.ndarray:
        """The key as bytes, u1[KEY]."""
        only = {name: name == "save_secret_key" for name in NAMES}
        return _padded(self._context.serialize(**only), KEY)

    def closed(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers as ciphertexts, u1[k, CIPHER]."""
        if not np.all(np.abs(numbers) <= LARGEST):
            raise ProtocolError(f"a number beyond {LARGEST:.0f} is too large to be encrypted")
        parts = [numbers[at : at + SLOTS] for at in range(0, len(numbers), SLOTS)]
        vector = library().ckks_vector
        return np.stack([_padded(vector(self._context, p).serialize(), CIPHER) for p in parts])

    def opened(self, ciphers: np.ndarray, count: int) -> np.ndarray:
        """What is in ciphertexts, to about 16 digits: not to be given away as it is."""
        load = library().ckks_vector_from
        parts = [_loaded(load, self._context, _bare(c)).decrypt() for c in ciphers]
        found = np.concatenate([np.asarray(part, np.float64) for part in parts])
        if len(found) != count:
            raise ProtocolError(f"{len(found)} numbers, where {count} were encrypted")
        return found


def _loaded(load: Any, *given: Any) -> Any:
    try:
        return load(*given)
    except (ValueError, RuntimeError, TypeError) as error:
        raise ProtocolError(f"bytes that are not encrypted as agreed: {error}") from None


@functools.cache
def _public() -> Any:
    """The parameters alone: who has them adds, and opens nothing."""
    tenseal = library()
    made = Secret()._context.serialize(**dict.fromkeys(NAMES, False))
    return tenseal.context_from(made)


def added(closed: Iterable[np.ndarray]) -> np.ndarray:
    """The sum of what several have encrypted under one key, still encrypted."""
    load = library().ckks_vector_from
    total: list[Any] = []
    for ciphers in closed:
        found = [_loaded(load, _public(), _bare(cipher)) for cipher in ciphers]
        total = [_loaded(lambda a, b: a + b, a, b) for a, b in _pairs(total, found)] or found
    return np.stack([_padded(each.serialize(), CIPHER) for each in total])


def _pairs(total: Sequence[Any], found: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(total, found, strict=True)) if total else []


def flooded(numbers: np.ndarray) -> np.ndarray:
    """Numbers with normal noise from the operating system, so that they may be given away."""
    chance = np.frombuffer(os.urandom(16 * len(numbers)), np.uint64).reshape(2, -1)
    u, v = ((chance >> np.uint64(11)) + np.uint64(1)) * 2.0**-53  # in (0, 1]
    return numbers + FLOOD * np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)
