"""Parameters of which `make test` takes a few; CI takes all others by `make test-thorough`."""

import pytest


def first(names, count: int = 1) -> list:
    """The first, or so many of them, for every run of the tests; a tuple is several parameters."""
    values = [n if isinstance(n, tuple) else (n,) for n in names]
    return [_param(v, "-".join(map(str, v)), k < count) for k, v in enumerate(values)]


def product(rows, columns) -> list:
    """All pairs; for every run as many as show each of both once.

    Of a dictionary the keys are the names of its values.
    """
    rows, columns = (c if isinstance(c, dict) else {str(v): v for v in c} for c in (rows, columns))
    longest = max(len(rows), len(columns))
    quick = {(n % len(rows), n % len(columns)) for n in range(longest)}
    return [
        _param((rows[a], columns[b]), f"{a}-{b}", (i, k) in quick)
        for i, a in enumerate(rows)
        for k, b in enumerate(columns)
    ]


def _param(values: tuple, name: str, quick: bool):
    return pytest.param(*values, id=name, marks=[] if quick else [pytest.mark.thorough])
