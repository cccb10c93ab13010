"""Shamir's shares: any t of them say the secret, fewer say nothing of it.   [shamir1979how]

The secret is a number below the prime 2^255 - 19. Shares are values at 1, 2, ... of a polynomial of
degree t - 1 whose value at 0 is the secret and whose other coefficients are drawn by the operating
system; t values give the value at 0 by Lagrange's formula.
"""

import secrets
from collections.abc import Mapping

PRIME = 2**255 - 19
SIZE = 32  # bytes of a secret, and of a share


def draw() -> int:
    """A secret, uniform below the prime."""
    return secrets.randbelow(PRIME)


def share(secret: int, threshold: int, count: int) -> list[int]:
    """The shares of slots 0, 1, ..., which are the polynomial's values at 1, 2, ...

    >>> from fedmin.channels.secure.shamir import join, share
    >>> shares = share(7, threshold=2, count=3)
    >>> join({0: shares[0], 2: shares[2]})
    7
    """
    if not 1 <= threshold <= count or not 0 <= secret < PRIME:
        raise ValueError(f"{threshold} of {count} shares of a number below 2^255 - 19 do not exist")
    return values([secret, *(draw() for _ in range(threshold - 1))], count)


def values(coefficients: list[int], count: int) -> list[int]:
    """A polynomial's values at 1, ..., count."""
    found = []
    for x in range(1, count + 1):
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * x + coefficient) % PRIME
        found.append(value)
    return found


def join(shares: Mapping[int, int]) -> int:
    """The secret, from as many shares as its threshold was, by slot."""
    weights = at_zero(tuple(shares))
    return sum(shares[slot] * weight for slot, weight in weights.items()) % PRIME


def at_zero(slots: tuple[int, ...]) -> dict[int, int]:
    """Lagrange's weights at 0 for the values of these slots."""
    found = {}
    for slot in slots:
        over = under = 1
        for other in slots:
            if other != slot:
                over = over * (other + 1) % PRIME
                under = under * (other - slot) % PRIME
        found[slot] = over * pow(under, -1, PRIME) % PRIME
    return found


def to_bytes(number: int) -> bytes:
    """A number below the prime, in 32 bytes, the lowest first."""
    return number.to_bytes(SIZE, "little")


def from_bytes(data: bytes) -> int:
    """The number that `to_bytes` wrote; a ValueError if it is none."""
    number = int.from_bytes(data, "little")
    if len(data) != SIZE or number >= PRIME:
        raise ValueError("32 bytes that are no number below 2^255 - 19")
    return number
