"""Words for bad input: every error names the thing, what it is, and what would be right."""

import difflib
from collections.abc import Iterable
from typing import Any

import numpy as np


def at_least(name: str, value: Any, least: int) -> None:
    """Refuse a count that is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def between(name: str, value: Any, low: float, high: float = np.inf, *, open_low=False) -> None:
    """Refuse a number (or a schedule's or a sweep's array of them) outside [low, high]."""
    if callable(value):
        return
    if isinstance(value, bool | str) or value is None:
        raise TypeError(f"{name} must be a number, got {value!r}")
    numbers = np.asarray(value, dtype=float)
    bad = ~(numbers > low if open_low else numbers >= low) | ~(numbers <= high)
    if np.any(bad):
        first = float(numbers[bad].flat[0])
        opening = "(" if open_low else "["
        closing = ")" if np.isinf(high) else "]"
        if np.isinf(high):
            right = f"{'more than' if open_low else 'at least'} {low:g}"
        else:
            right = f"in {opening}{low:g}, {high:g}{closing}"
        raise ValueError(f"{name} must be {right}, got {first:g}")


def positive(name: str, value: Any) -> None:
    """Refuse a number that is not above zero."""
    between(name, value, 0.0, open_low=True)


def is_a(name: str, value: Any, kind: type | tuple[type, ...], example: str) -> None:
    """Refuse a value of the wrong kind and show a right one."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be like {example}, got {value!r}")


def known(what: str, name: str, names: Iterable[str]) -> None:
    """Refuse an unknown name and suggest the nearest."""
    names = list(names)
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"unknown {what} {name!r}{hint} Known: {', '.join(sorted(names))}")


def finite(name: str, values: np.ndarray) -> None:
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
