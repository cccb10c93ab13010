"""What every partition must be, and the small arithmetic that partitioners share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["check_partition"]


def check_partition(
    parts: Sequence, total: int, *, covering: bool = True, what: str = "rows"
) -> list[np.ndarray]:
    """Disjoint, in range, none empty and, unless told otherwise, covering; else an error.

    Args:
        parts: one index array a client.
        total: number of rows (or columns) there are.
        covering: whether every one of them must have an owner.
        what: the word for them in messages.

    >>> from fedmin.data import check_partition
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


def at_least(who: object, **values) -> None:
    """Raise for the first value below 1 or not whole."""
    for name, value in values.items():
        if isinstance(value, bool) or int(value) != value or value < 1:
            raise ValueError(f"{_name(who)}: {name}={value!r}; it must be a whole number above 0")


def enough_rows(who: object, clients: int, rows: int, per_client: int = 1) -> None:
    """Raise when there are fewer rows than the clients need."""
    if clients * per_client > rows:
        need = f"{per_client} each, " if per_client > 1 else ""
        raise ValueError(
            f"{_name(who)}: {clients} clients ({need}at least {clients * per_client} rows) "
            f"but only {rows} rows"
        )


def positive(who: object, **values) -> None:
    """Raise for the first value that is not a finite number above 0."""
    for name, value in values.items():
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{_name(who)}: {name}={value!r}; it must be a number above 0")


def _name(who: object) -> str:
    return who if isinstance(who, str) else type(who).__name__


def apportion(total: int, shares: np.ndarray) -> np.ndarray:
    """Whole numbers near total * shares that sum to total (largest remainders)."""
    exact = total * shares / shares.sum()
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]] += 1
    return counts


def deal(rng, clients: int, groups: int, k: int) -> np.ndarray:
    """k different groups for each client, every group as often as any other (up to one)."""
    held = np.zeros(groups, np.int64)
    dealt = np.empty((clients, k), np.int64)
    for client in rng.permutation(clients):
        # the groups with the fewest holders so far, in random order among equals
        order = np.lexsort((rng.random(groups), held))
        dealt[client] = order[:k]
        held[order[:k]] += 1
    return dealt


def share_groups(rng, group: np.ndarray, dealt: np.ndarray) -> list[np.ndarray]:
    """Each group's rows, shuffled, go evenly to the clients it was dealt to."""
    held: list[list[np.ndarray]] = [[] for _ in dealt]
    for number in range(int(dealt.max()) + 1):
        holders = np.flatnonzero((dealt == number).any(axis=1))
        rows = rng.permutation(np.flatnonzero(group == number))
        for client, part in zip(holders, np.array_split(rows, holders.size), strict=True):
            held[client].append(part)
    return [np.sort(np.concatenate(parts)) for parts in held]


def simplex(rng, alpha: float, clients: int) -> np.ndarray:
    """Shares of the clients, drawn from a symmetric Dirichlet(alpha)."""
    shares = rng.dirichlet(np.full(clients, alpha))
    if (
        not np.isfinite(shares).all() or shares.sum() == 0
    ):  # underflow at a tiny alpha: one takes all
        shares = np.zeros(clients)
        shares[rng.integers(clients)] = 1.0
    return shares


def fill_up(rng, parts: list[np.ndarray], min_rows: int) -> list[np.ndarray]:
    """Clients with fewer than min_rows get random rows of the largest client."""
    parts = [rng.permutation(part) for part in parts]
    sizes = np.array([part.size for part in parts])
    for client in np.flatnonzero(sizes < min_rows):
        while sizes[client] < min_rows:
            richest = int(np.argmax(sizes))  # has rows to spare while anybody is short
            move = min(min_rows - sizes[client], sizes[richest] - min_rows)
            parts[client] = np.concatenate([parts[client], parts[richest][:move]])
            parts[richest] = parts[richest][move:]
            sizes[client] += move
            sizes[richest] -= move
    return [np.sort(part) for part in parts]
