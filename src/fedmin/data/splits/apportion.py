"""What partitioners share: checks of their fields, and how rows are shared out among clients."""

from __future__ import annotations

import numpy as np

from fedmin.core import checks


def at_least(who: object, **values) -> None:
    """Raise for the first value below 1 or not whole."""
    for name, value in values.items():
        checks.at_least(f"{_name(who)}: {name}", value, 1)


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
        checks.positive(f"{_name(who)}: {name}", value)


def _name(who: object) -> str:
    return who if isinstance(who, str) else type(who).__name__


def apportion(total: int, shares: np.ndarray) -> np.ndarray:
    """Whole numbers near total * shares that sum to total (largest remainders)."""
    exact = total * shares / shares.sum()
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]] += 1
    return counts


def assign_groups(rng, clients: int, groups: int, k: int) -> np.ndarray:
    """k different groups for each client; all groups go to equally many clients (up to one)."""
    held = np.zeros(groups, np.int64)
    assigned = np.empty((clients, k), np.int64)
    for client in rng.permutation(clients):
        # the groups with the fewest holders so far, in random order among equals
        order = np.lexsort((rng.random(groups), held))
        assigned[client] = order[:k]
        held[order[:k]] += 1
    return assigned


def share_groups(rng, group: np.ndarray, assigned: np.ndarray) -> list[np.ndarray]:
    """Each group's rows, shuffled, go in equal numbers to the clients that have the group."""
    held: list[list[np.ndarray]] = [[] for _ in assigned]
    for number in range(int(assigned.max()) + 1):
        holders = np.flatnonzero((assigned == number).any(axis=1))
        rows = rng.permutation(np.flatnonzero(group == number))
        for client, part in zip(holders, np.array_split(rows, holders.size), strict=True):
            held[client].append(part)
    return [np.sort(np.concatenate(parts)) for parts in held]


def dirichlet_shares(rng, alpha: float, clients: int) -> np.ndarray:
    """Shares of the clients, drawn from a symmetric Dirichlet(alpha)."""
    shares = rng.dirichlet(np.full(clients, alpha))
    if not np.isfinite(shares).all() or shares.sum() == 0:  # underflow at a tiny alpha: one has all
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
