"""Groups of rows, given beside the features: which value a row has is which group it is in.

A group is known by its number 0, 1, .. among the rows, and by its name among people. Names are all
that parties are told of each other (`Roster.groups`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedmin.core import checks

MOST = 100  # groups; a column with more values than that is a number, not a group


def named(value: Any) -> str:
    """The name of a value: 1.0 is "1", "female" is itself."""
    if isinstance(value, bytes):
        return value.decode()
    return f"{float(value):.6g}" if isinstance(value, float | np.floating) else str(value)


def numbered(
    what: str, values: Any, count: int, names: Sequence[str] | None = None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The number of each row's group, and the groups' names: those given, else the values in order.

    >>> from fedmin.core.groups import numbered
    >>> numbered("groups", ["m", "f", "m"], 3)
    (array([1, 0, 1], dtype=int32), ('f', 'm'))
    """
    values = np.asarray(values)
    if values.shape != (count,):
        raise ValueError(f"{what} must be {count} values, one a row; got shape {values.shape}")
    checks.finite(what, values)
    distinct, places = np.unique(values, return_inverse=True)
    if len(distinct) > MOST:
        raise ValueError(
            f"{what} has {len(distinct)} different values, from {named(distinct[0])} to "
            f"{named(distinct[-1])}; a group is a value, and there may be {MOST} of them: cut it "
            f"into a few first"
        )
    found = [named(value) for value in distinct]
    if len(set(found)) < len(found):  # numbers that differ in a digit that is not shown
        found = [str(value) for value in distinct]
    if names is None:
        return places.astype(np.int32), tuple(found)
    names = tuple(str(name) for name in names)
    if len(set(names)) < len(names):
        raise ValueError(f"{what}: groups need different names, got {names}")
    for value, name in zip(distinct, found, strict=True):
        if name not in names:
            row = int(np.flatnonzero(values == value)[0])
            near = checks.nearest(name, names)
            raise ValueError(f"{what}: row {row} is in {name!r}, which is no group; {near}")
    number = np.array([names.index(name) for name in found], np.int32)
    return number[places], names


def together(each: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The groups of several parties under one list of names: theirs, if all have the same one, else
    all names in order, numbers as numbers.

    >>> from fedmin.core.groups import together
    >>> together([("10", "9"), ("9",)])
    ('9', '10')
    >>> together([(), ("f", "m")])
    Traceback (most recent call last):
        ...
    ValueError: rows are in groups at some sites only: name the column in groups, [data] of each \
site.toml
    """
    lists = [tuple(map(str, names)) for names in each]
    if len(set(lists)) == 1:
        return lists[0]
    if () in lists:
        raise ValueError(
            "rows are in groups at some sites only: name the column in groups, [data] of each "
            "site.toml"
        )
    names = {name for some in lists for name in some}
    if len(names) > MOST:
        raise ValueError(f"the sites have {len(names)} groups together; there may be {MOST}")
    try:
        return tuple(sorted(names, key=float))
    except ValueError:
        return tuple(sorted(names))


def within(what: str, numbers: Any, names: Sequence[str]) -> np.ndarray:
    """The numbers 0..G-1 of groups that have these names; refuses others."""
    numbers = np.asarray(numbers)
    if numbers.dtype.kind not in "iub":
        raise ValueError(f"{what}: groups must be numbers 0..{len(names) - 1}, got {numbers.dtype}")
    outside = np.flatnonzero((numbers < 0) | (numbers >= len(names)))
    if len(outside):
        row = int(outside[0])
        raise ValueError(
            f"{what}: row {row} is in group {numbers[row]}; there are 0..{len(names) - 1}: "
            f"{', '.join(names)}"
        )
    return numbers.astype(np.int32)
