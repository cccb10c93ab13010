"""What a table's arrays must be, and words for what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse as sp

from fedmin.core.groups import numbered, within


def as_matrix(name: str, x):
    """Float32 [n, d], dense C-ordered or CSR, finite; anything else is an error."""
    if sp.issparse(x):
        x = sp.csr_matrix(x).astype(np.float32, copy=False)
        if not x.has_canonical_format:
            x = x.copy()  # the caller's matrix stays as it is
            x.sum_duplicates()
    else:
        try:
            x = np.ascontiguousarray(x, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: x is not a matrix of numbers ({error})") from None
    if x.ndim != 2:
        raise ValueError(f"{name}: x has shape {x.shape}; it must be [rows, features]")
    if 0 in x.shape:
        raise ValueError(f"{name}: x has shape {x.shape}; it needs a row and a feature at least")
    values = x.data if sp.issparse(x) else x
    # one pass without a mask: a sum is finite unless an entry is not (or it overflows)
    with np.errstate(over="ignore", invalid="ignore"):
        quick = bool(np.isfinite(values.sum(dtype=np.float64)))
    if not quick and not np.isfinite(values).all():
        row, column = _first_bad(x)
        raise ValueError(f"{name}: x holds {x[row, column]} in row {row}, column {column}")
    return x


def _first_bad(x) -> tuple[int, int]:
    if sp.issparse(x):
        where = int(np.flatnonzero(~np.isfinite(x.data))[0])
        row = int(np.searchsorted(x.indptr, where, side="right")) - 1
        return row, int(x.indices[where])
    row, column = np.argwhere(~np.isfinite(x))[0]
    return int(row), int(column)


def as_targets(name: str, y, rows: int) -> np.ndarray:
    """Float32 targets, one a row, finite."""
    y = _one_per_row(name, "y", y, rows)
    try:
        y = y.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: y is not a vector of numbers ({error})") from None
    bad = np.flatnonzero(~np.isfinite(y))
    if bad.size:
        raise ValueError(f"{name}: y holds {y[bad[0]]} in row {bad[0]}")
    return y


def as_labels(name: str, y, rows: int, classes: int) -> np.ndarray:
    """Int32 labels 0..classes-1, one a row."""
    if isinstance(classes, bool) or int(classes) != classes or classes < 1:
        raise ValueError(f"{name}: classes={classes!r}; it must be a whole number of at least 1")
    y = _one_per_row(name, "y", y, rows)
    if not np.issubdtype(y.dtype, np.number) and y.dtype != bool:
        raise ValueError(f"{name}: labels are {y.dtype}; they must be integers 0..{classes - 1}")
    with np.errstate(invalid="ignore"):
        whole = y == np.floor(y)
    wrong = np.flatnonzero(~whole | (y < 0) | (y >= classes))
    if wrong.size:
        row = int(wrong[0])
        raise ValueError(
            f"{name}: label {y[row]} in row {row} is out of range; "
            f"labels must be 0..{classes - 1} (classes={classes})"
        )
    return y.astype(np.int32)


def check_ids(name: str, ids, rows: int) -> np.ndarray:
    """One id a row."""
    return _one_per_row(name, "ids", ids, rows)


def check_names(name: str, names: Sequence[object], columns: int) -> tuple[str, ...]:
    """One name a column, no two alike: a model finds its columns by them."""
    found = tuple(str(each) for each in names)
    if len(found) != columns:
        raise ValueError(f"{name}: {len(found)} feature names for {columns} columns")
    twice = (
        sorted({each for each in found if found.count(each) > 1})
        if len(set(found)) < columns
        else []
    )
    if twice:
        raise ValueError(f"{name}: two columns are called {twice[0]!r}; give each its own name")
    return found


def check_columns(name: str, columns: Mapping, features: int) -> dict[str, np.ndarray]:
    """Every column owned by exactly one party."""
    owned = {str(party): np.asarray(index, dtype=np.int64) for party, index in columns.items()}
    every = np.sort(np.concatenate(list(owned.values()))) if owned else np.empty(0, np.int64)
    if not np.array_equal(every, np.arange(features)):
        raise ValueError(
            f"{name}: the parties {', '.join(owned)} own {every.size} columns; each of the "
            f"{features} columns must have exactly one owner"
        )
    return owned


def check_groups(
    name: str, groups, rows: int, names: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The number of each row's group and the groups' names; with names, numbers are given."""
    groups = _one_per_row(name, "groups", groups, rows)
    if names is None:
        return numbered(f"{name}: groups", groups, rows)
    names = tuple(str(each) for each in names)
    return within(name, groups, names), names


def _one_per_row(name: str, what: str, values, rows: int) -> np.ndarray:
    values = np.asarray(values)
    if values.shape != (rows,):
        raise ValueError(f"{name}: {what} has shape {values.shape}; {rows} rows need ({rows},)")
    return values
