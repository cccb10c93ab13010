"""Words for bad input: every error names the thing, what it is, and what would be right."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import numpy as np


def at_least(name: str, value: Any, least: int, power: int = 31) -> None:
    """Refuse a count that is not a whole number of at least `least`, or beyond what is counted.

    Compiled programs count in 31 bits: a larger number would wrap round, or end in an overflow.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    if value >= 2**power:
        raise ValueError(f"{name} must be below 2^{power} = {2**power}, got {value}")


def between(
    name: str,
    value: Any,
    low: float,
    high: float = np.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> None:
    """Refuse a number (or a schedule's or a sweep's array of them) outside [low, high].

    An open end is refused too.
    """
    if callable(value):
        return
    if isinstance(value, bool | str | eqx.Module) or value is None:
        raise TypeError(f"{name} must be a number, got {value!r}")
    numbers = np.asarray(value, dtype=float)
    fits = numbers > low if open_low else numbers >= low
    fits &= numbers < high if open_high else numbers <= high
    bad = ~(fits & np.isfinite(numbers))
    if np.any(bad):
        above = "more than" if open_low else "at least"
        most = "below" if open_high else "at most"
        below = f" and {most} {high:g}" if np.isfinite(high) else " and finite"
        first = float(numbers[bad].flat[0])
        raise ValueError(f"{name} must be {above} {low:g}{below}, got {first:g}")


def seed(name: str, value: Any) -> None:
    """Refuse what is no seed: JAX has 2^32 of them, and would take a larger number modulo that."""
    at_least(name, value, 0, power=32)


def seeds(values: Sequence) -> None:
    """Refuse seeds that are none, or that are there twice: those runs would be one and the same."""
    if not len(values):
        raise ValueError("seeds must name at least one seed, got none")
    for i, value in enumerate(values):
        seed("seeds", value)
        if value in values[:i]:
            raise ValueError(f"seeds has {value} twice; each of them is one run")


def positive(name: str, value: Any) -> None:
    """Refuse a number that is not above zero."""
    between(name, value, 0.0, open_low=True)


def is_a(name: str, value: Any, kind: type | tuple[type, ...], example: str) -> None:
    """Refuse a value of the wrong kind and show a right one."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be like {example}, got {value!r}")


def nearest(name: object, names: Iterable[str]) -> str:
    """The end of an error message: the nearest known name, or what names there are."""
    names = [str(known) for known in names]
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    if len(names) > 40:
        return f"there are {len(names)}, from {names[0]!r} to {names[-1]!r}"
    return "there is " + ", ".join(repr(known) for known in names)


def known(what: str, name: str, names: Iterable[str]) -> None:
    """Refuse an unknown name and suggest the nearest."""
    names = list(names)
    if name not in names:
        raise ValueError(f"unknown {what} {name!r}; {nearest(name, names)}")


def check_partition(
    parts: Sequence, total: int, *, covering: bool = True, what: str = "rows"
) -> list[np.ndarray]:
    """Disjoint, in range, none empty and, unless told otherwise, covering; else an error.

    Args:
        parts: one index array a client.
        total: number of rows (or columns) there are.
        covering: whether every one of them must have an owner.
        what: the word for them in messages.

    >>> from fedmin.core.checks import check_partition
    >>> check_partition([[0, 2], [1, 2]], 3)
    Traceback (most recent call last):
        ...
    ValueError: client 1 holds row 2, and so does client 0; a row has one owner
    """
    one = what.removesuffix("s")
    if len(parts) == 0:
        raise ValueError("no clients; there must be at least one")
    owner = np.full(total, -1, np.int64)
    checked = []
    for client, part in enumerate(parts):
        part = np.asarray(part)
        if part.size == 0:
            raise ValueError(
                f"client {client} has no {what}; give every client at least one "
                "(fewer clients, or a milder split)"
            )
        if part.ndim != 1 or not np.issubdtype(part.dtype, np.integer):
            raise ValueError(f"client {client}: {what} must be a vector of integers")
        part = part.astype(np.int64)
        low, high = int(part.min()), int(part.max())
        if low < 0 or high >= total:
            bad = low if low < 0 else high
            raise ValueError(f"client {client} holds {one} {bad}; there are {total} {what}")
        _claim(owner, part, client, one)
        checked.append(part)
    if covering and (owner < 0).any():
        lost = np.flatnonzero(owner < 0)
        raise ValueError(f"{lost.size} of {total} {what} have no owner, the first is {lost[0]}")
    return checked


def _claim(owner: np.ndarray, part: np.ndarray, client: int, one: str) -> None:
    taken = part[owner[part] >= 0]
    if taken.size:
        other = owner[taken[0]]
        raise ValueError(
            f"client {client} holds {one} {taken[0]}, and so does client {other}; "
            f"a {one} has one owner"
        )
    owner[part] = client
    values, counts = np.unique(part, return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"client {client} holds {one} {values[counts > 1][0]} twice")


def finite(name: str, values: Any) -> None:
    """Refuse NaN and Inf and say where the first one is."""
    values = np.asarray(values)
    if not np.issubdtype(values.dtype, np.inexact) or bool(np.isfinite(np.sum(values))):
        return
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        where = ", ".join(str(int(i)) for i in bad[0])
        raise ValueError(
            f"{name} must be finite; {name}[{where}] is {values[tuple(bad[0])]}"
            f" ({len(bad)} such values in all)"
        )
