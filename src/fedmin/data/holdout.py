"""Holding rows out for testing, the same rows every time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedmin.data.table import Table

__all__ = ["hold_out"]


def hold_out(table: Table, fraction: float, seed: int = 0) -> Table:
    """The table with a share of its rows moved to `test`, stratified by label.

    >>> from fedmin.data import hold_out, load
    >>> whole = load("wine", test_fraction=0)
    >>> hold_out(whole, 0.5).test.rows
    89
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"{table.name}: test_fraction={fraction}; it must lie in [0, 1)")
    if fraction == 0:
        return table
    if table.test is not None:
        raise ValueError(f"{table.name}: it has test rows already; use merged() first")
    rng = np.random.default_rng(seed)
    strata = table.y if table.classes is not None else np.zeros(table.rows, np.int32)
    wanted = _shares(np.bincount(strata), fraction)
    if wanted.sum() in (0, table.rows):
        raise ValueError(
            f"{table.name}: test_fraction={fraction} of {table.rows} rows leaves "
            f"{'no test' if wanted.sum() == 0 else 'no training'} rows"
        )
    held = np.concatenate(
        [
            rng.permutation(np.flatnonzero(strata == label))[:count]
            for label, count in enumerate(wanted)
        ]
    )
    mask = np.zeros(table.rows, bool)
    mask[held] = True
    return replace(table.subset(~mask), test=replace(table.subset(mask), name=f"{table.name} test"))


def _shares(counts: np.ndarray, fraction: float) -> np.ndarray:
    # largest remainders: the whole is rounded once, not once a label
    exact = counts * fraction
    shares = np.floor(exact).astype(int)
    short = round(float(exact.sum())) - int(shares.sum())
    shares[np.argsort(shares - exact, kind="stable")[:short]] += 1
    return shares
