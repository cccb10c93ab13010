"""Partitioners: who holds which rows, or which columns, and from there to a federation.

A partitioner is a value: it can be printed, compared and read from a TOML file. Calling it with a
table (or just the labels) and a seed gives one index array a client; the same seed gives the same
arrays. Every result is checked to be a partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedmin.core.checks import check_partition
from fedmin.core.federation import Federation
from fedmin.core.preparation import About
from fedmin.data.splits.by_columns import ColumnNames, ColumnSizes, EvenColumns, Parties
from fedmin.data.splits.by_labels import CountTable, Dirichlet, LabelsPerClient, Shards
from fedmin.data.splits.by_rows import IID, ByColumn, Clusters, QuantitySkew
from fedmin.data.synthetic.synthetic import Synthetic
from fedmin.data.table import Table

__all__ = ["PARTITIONERS", "partition"]

PARTITIONERS: dict[str, type] = {
    how.__name__.lower(): how
    for how in (
        IID,
        LabelsPerClient,
        Dirichlet,
        QuantitySkew,
        Shards,
        Clusters,
        CountTable,
        ByColumn,
        EvenColumns,
        ColumnSizes,
        ColumnNames,
        Parties,
    )
}


def partition(
    table: Table | Synthetic,
    how: Any = None,
    *,
    seed: int = 0,
    server_rows: int = 0,
    weights: str | Sequence[float] = "sizes",
    labels: str = "everyone",
    most_rows: int | None = None,
):
    """A federation: the table's rows, or its columns, given to clients.

    Args:
        table: the data; a `Synthetic` set brings its own clients.
        how: a partitioner, or a list of row-index arrays; None for a Synthetic's own clients or
            for the parties of a table with `columns`.
        seed: of the split (the same seed gives the same federation).
        server_rows: rows drawn at random for the server before the split.
        weights: client weights p_i, "sizes", "secret" (sizes that nobody is told), "uniform" or
            numbers; passed on to the federation.
        labels: who knows y when columns are split: "everyone", "server" or a client's name.
        most_rows: with secret weights, what is told in place of sizes: no client has more rows.

    Returns:
        A `fedmin.Federation`.

    >>> from fedmin.data import Dirichlet, load
    >>> parts = Dirichlet(clients=5, alpha=0.3)(load("digits"), seed=0)
    >>> sum(len(part) for part in parts)
    1438
    """
    how, table = _resolve(how, table)
    if table.y is None:
        raise ValueError(f"{table.name}: it has no labels (y is None); a federation needs them")
    test = None if table.test is None else _rows_of(table.test)
    groups = _groups_of(table)
    if getattr(how, "split", "rows") == "features":
        if server_rows:
            raise ValueError("server_rows: the server has no rows when columns are split")
        if weights == "secret" or most_rows is not None:
            raise ValueError("weights='secret' is for rows; where columns are split all have them")
        columns = how(table, seed)
        names = how.names(table)
        made = Federation.from_columns(
            table.x, table.y, columns, test=test, names=names, classes=table.classes,
            labels=labels, seed=seed, **groups,
        )  # fmt: skip
        return replace(made, about=_about(table, made.columns))
    if labels != "everyone":
        raise ValueError(f"labels={labels!r}: with rows split every client has its rows' labels")
    held, rest = _server(table, server_rows, seed)
    names = None
    if hasattr(how, "split"):
        smaller = table if rest is None else table.subset(rest)
        parts = how(smaller, seed)
        names = how.names(smaller) if hasattr(how, "names") else None
    else:
        if rest is not None:
            raise ValueError("server_rows: give a partitioner, not row indices, to set rows aside")
        parts = check_partition(how, table.rows, covering=False)
    if rest is not None:
        parts = [rest[part] for part in parts]
    made = Federation.from_parts(
        table.x,
        table.y,
        parts,
        test=test,
        server=held,
        weights=weights,
        most_rows=most_rows,
        names=names,
        classes=table.classes,
        seed=seed,
        **groups,
    )
    return replace(made, about=_about(table, ()))


def _about(table: Table, columns: Sequence[Any]) -> About | None:
    """What is known of the columns: their names, in the order in which the federation has them."""
    if table.feature_names is None:
        return None
    names = table.feature_names
    order = tuple(names[j] for j in np.concatenate(columns)) if len(columns) else names
    inputs = names if order != names else ()
    # nobody was asked anything for them, so there is nothing that noise would have to cover
    return About(order, inputs=inputs, scaled=str(table.meta.get("scaled", "")), told=())


def _named_groups(table: Table) -> Any:
    """The name of each row's group."""
    assert table.group_names is not None
    return np.asarray(table.group_names)[table.groups]


def _groups_of(table: Table) -> dict[str, Any]:
    """What a federation is told of the groups of a table."""
    if table.groups is None:
        return {}
    return {"groups": _named_groups(table), "group_names": table.group_names}


def _rows_of(table: Table, mine: Any = slice(None)) -> tuple[Any, ...]:
    """Rows that no client has: x, y and, where there are such, groups."""
    groups = () if table.groups is None else (_named_groups(table)[mine],)
    return (table.x[mine], None if table.y is None else table.y[mine], *groups)


def _resolve(how: Any, table: Table | Synthetic) -> tuple[Any, Table]:
    if isinstance(table, Synthetic):
        return (table.parts if how is None else how), table.table
    if not isinstance(table, Table):
        raise TypeError(f"partition takes a Table or a Synthetic, not {type(table).__name__}")
    if how is None:
        if table.columns is None:
            raise ValueError(f"{table.name}: say how to split it, for example IID(clients=10)")
        return Parties(), table
    if isinstance(how, str):
        known = ", ".join(PARTITIONERS)
        raise TypeError(f"how={how!r} is a name; give a partitioner, PARTITIONERS has {known}")
    if isinstance(how, type):
        raise TypeError(f"how={how.__name__} is a class; give a value such as {how.__name__}(...)")
    return how, table


def _server(table: Table, server_rows: int, seed: int):
    if server_rows == 0:
        return None, None
    if not 0 < server_rows < table.rows:
        raise ValueError(f"server_rows={server_rows}; {table.name} has {table.rows} rows in all")
    # a stream of its own, so that setting rows aside does not change how the rest is drawn
    order = np.random.default_rng([seed, 1]).permutation(table.rows)
    mine, rest = np.sort(order[:server_rows]), np.sort(order[server_rows:])
    return _rows_of(table, mine), rest
