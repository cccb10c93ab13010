"""CSV parties: one file a party, rows matched across parties by an id column."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedmin.core.checks import nearest
from fedmin.data.formats.files import DataFileError, plain_number, read_bytes

__all__ = ["JoinedParties", "Party", "join_parties", "read_party"]


class Party(NamedTuple):
    """One party's file: ids [n] (text), x float32 [n, d], y float64 [n] or None, column names.

    >>> import numpy as np
    >>> from fedmin.data import Party
    >>> Party(np.array(["a"]), np.ones((1, 2), np.float32), None, ("x0", "x1")).names
    ('x0', 'x1')
    """

    ids: np.ndarray
    x: np.ndarray
    y: np.ndarray | None
    names: tuple[str, ...]


class JoinedParties(NamedTuple):
    """Parties side by side: ids, x, y, column names `party.column`, party -> its columns.

    >>> from fedmin.data import JoinedParties
    >>> JoinedParties._fields
    ('ids', 'x', 'y', 'names', 'columns')
    """

    ids: np.ndarray
    x: np.ndarray
    y: np.ndarray | None
    names: tuple[str, ...]
    columns: dict[str, np.ndarray]


def read_party(path: Path | str, *, id_column: str = "id", label_column: str = "y") -> Party:
    """One party's CSV (plain or compressed) with a header, an id column and perhaps a label.

    >>> import pathlib, tempfile
    >>> from fedmin.data import read_party
    >>> path = pathlib.Path(tempfile.mkdtemp(), "guest.csv")
    >>> _ = path.write_text("id,y,x0\\n7,1,0.5\\n9,0,1.5\\n")
    >>> party = read_party(path)
    >>> party.ids.tolist(), party.y.tolist(), party.names
    (['7', '9'], [1.0, 0.0], ('x0',))
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataFileError(path, "CSV text", f"bytes that are not UTF-8 ({error})") from None
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        table = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise DataFileError(f"{path}, line {reader.line_num}", "CSV", str(error)) from None
    if len(table) < 2:
        raise DataFileError(path, "a CSV header and rows", f"{len(table)} lines")
    header = [name.strip() for name in table[0][1]]
    lines = [number for number, _ in table[1:]]
    if id_column not in header:
        hint = nearest(id_column, header)
        raise DataFileError(path, f"an id column {id_column!r}", f"a header without it; {hint}")
    if len(set(header)) < len(header):
        raise DataFileError(path, "each column name once", f"the header {','.join(header)}")
    for number, row in table[1:]:
        if len(row) != len(header):
            raise DataFileError(path, f"{len(header)} fields", f"{len(row)} in line {number}")
    cells = dict(zip(header, zip(*(row for _, row in table[1:]), strict=True), strict=True))
    ids = np.array(cells.pop(id_column))
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        raise DataFileError(
            path, "each id once", f"id {str(values[counts > 1][0])!r} more than once"
        )
    labels = cells.pop(label_column, None)
    y = None if labels is None else _numbers(path, label_column, labels, lines)
    if not cells:
        raise DataFileError(path, "a feature column", f"only {', '.join(header)}")
    x = np.stack([_numbers(path, name, column, lines) for name, column in cells.items()], axis=1)
    with np.errstate(over="ignore"):
        small = x.astype(np.float32)
    bad = np.argwhere(~np.isfinite(small))
    if len(bad):
        row, column = bad[0]
        found = f"{x[row, column]:g} in line {lines[row]}"
        names = list(cells)
        raise DataFileError(path, f"single precision in column {names[column]!r}", found)
    return Party(ids, small, y, tuple(cells))


def _numbers(path: object, name: str, column: tuple[str, ...], lines: Sequence[int]) -> np.ndarray:
    found = np.empty(len(column), np.float64)
    for row, cell in enumerate(column):
        try:
            found[row] = plain_number(cell)
        except ValueError:
            what = f"{cell!r} in line {lines[row]}"
            raise DataFileError(path, f"numbers in column {name!r}", what) from None
    return found


def join_parties(parties: Mapping[str, Party], *, common: bool = False) -> JoinedParties:
    """Rows matched by id, in the row order of the first party.

    Ids that some party lacks are an error, unless only the `common` ones are asked for.

    >>> import numpy as np
    >>> from fedmin.data import Party, join_parties
    >>> guest = Party(np.array(["a", "b"]), np.array([[1.0], [2.0]]), np.array([0.0, 1.0]), ("u",))
    >>> host = Party(np.array(["b", "a"]), np.array([[20.0], [10.0]]), None, ("v",))
    >>> joined = join_parties({"guest": guest, "host": host})
    >>> joined.x.tolist(), joined.names
    ([[1.0, 10.0], [2.0, 20.0]], ('guest.u', 'host.v'))
    """
    first = next(iter(parties.values()))
    places = [{key: row for row, key in enumerate(party.ids)} for party in parties.values()]
    ids = [key for key in first.ids if all(key in place for place in places)]
    if not ids:
        raise ValueError(f"parties {', '.join(parties)}: no id is common to all of them")
    for (name, party), place in zip(parties.items(), places, strict=True):
        for other, theirs in zip(parties, places, strict=True):
            lacking = [str(key) for key in party.ids if key not in theirs]
            if lacking and not common:
                raise ValueError(
                    f"rows do not line up: {len(lacking)} of {len(place)} ids of {name} are not "
                    f"at {other}, such as {lacking[0]!r}; common=True keeps those that all have"
                )
    labeled = [name for name, party in parties.items() if party.y is not None]
    if len(labeled) > 1:
        raise ValueError(f"labels at {' and '.join(labeled)}; one party may hold them")
    blocks, names, columns, y, start = [], [], {}, None, 0
    for (name, party), place in zip(parties.items(), places, strict=True):
        order = np.array([place[key] for key in ids])
        blocks.append(party.x[order])
        y = y if party.y is None else party.y[order]
        names += [f"{name}.{column}" for column in party.names]
        columns[name] = np.arange(start, start + party.x.shape[1])
        start += party.x.shape[1]
    return JoinedParties(np.array(ids), np.concatenate(blocks, axis=1), y, tuple(names), columns)
