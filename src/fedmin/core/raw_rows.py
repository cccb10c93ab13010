"""Rows as people have them, as columns by name: for models that are used on new rows.

A table is a file (CSV or Parquet), a DataFrame of pandas or polars, a dict of columns, or an array
whose columns are in the model's order. A column becomes f64[n] with NaN where nothing is, or words
with "" where nothing is.
"""

import csv
import datetime
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from fedmin.core import checks
from fedmin.core.kept import read_text
from fedmin.core.preparation import Number, Preparation

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
EPOCH = datetime.date(1970, 1, 1).toordinal()


class Raw(NamedTuple):
    """Columns by name as they were written, and where each row is, in words."""

    columns: dict[str, np.ndarray]
    places: Sequence[str]


def raw_columns(source: Any, inputs: Sequence[str]) -> Raw:
    """The columns that a model needs of a table; `inputs` are their names, in the model's order.

    >>> from fedmin.core.raw_rows import raw_columns
    >>> raw_columns({"age": [50, None], "more": ["a", "b"]}, ["age"]).columns["age"].tolist()
    [50.0, nan]
    """
    given, word = _given(source, inputs)
    for name in inputs:
        if name not in given:
            near = checks.nearest(name, given)
            raise ValueError(f"the rows have no column {name!r}, which the model needs; {near}")
    columns = {name: column_values(list(given[name])) for name in inputs}
    lengths = sorted({len(values) for values in columns.values()})
    if len(lengths) != 1:
        raise ValueError(f"the columns of the rows have {lengths} entries; all need as many")
    first = 2 if word.endswith("line") else 0  # after the line of names
    return Raw(columns, [f"{word} {first + i}" for i in range(lengths[0])])


def _given(source: Any, inputs: Sequence[str]) -> tuple[Mapping[str, Any], str]:
    if isinstance(source, str | Path):
        return file_columns(Path(source))
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], Mapping):
        return source  # of `file_columns`
    if isinstance(source, Mapping):
        return {str(name): values for name, values in source.items()}, "row"
    if hasattr(source, "columns") and hasattr(source, "to_numpy"):  # pandas and polars
        return {str(name): source[name].to_list() for name in source.columns}, "row"
    matrix = source.toarray() if scipy.sparse.issparse(source) else np.asarray(source)
    if matrix.ndim != 2 or matrix.shape[1] != len(inputs):
        raise ValueError(
            f"rows must be a file, a DataFrame, a dict of columns, or an array of {len(inputs)} "
            f"columns in the order of model.inputs; got {type(source).__name__} of shape "
            f"{matrix.shape}"
        )
    return {name: matrix[:, j].tolist() for j, name in enumerate(inputs)}, "row"


def file_columns(path: Path, separator: str = ",") -> tuple[dict[str, Any], str]:
    """The columns of a file as they are written there, and what one of its rows is called."""
    if path.suffix == ".parquet":
        try:
            import pyarrow.parquet  # type: ignore[import-untyped]
        except ImportError:
            raise ValueError(f"{path}: Parquet needs pyarrow: pip install fedmin[pandas]") from None
        return pyarrow.parquet.read_table(path).to_pydict(), f"{path.name}, row"
    text = read_text(path).removeprefix("\ufeff")
    lines = [
        line for line in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if line
    ]
    if not lines:
        raise ValueError(f"{path}: it is empty; its first line must have the names of the columns")
    head, *rows = lines
    for i, row in enumerate(rows):
        if len(row) != len(head):
            raise ValueError(f"{path}, line {i + 2}: {len(row)} entries, and {len(head)} names")
    columns = zip(*rows, strict=True) if rows else [()] * len(head)
    return dict(zip([n.strip() for n in head], columns, strict=True)), f"{path.name}, line"


def column_values(values: list[Any]) -> np.ndarray:
    """Numbers as they are; everything else as words."""
    there = [v for v in values if not _nothing(v)]
    if all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in there):
        return np.array([np.nan if _nothing(v) else float(v) for v in values])
    return np.array(["" if _nothing(v) else _word(v) for v in values], object)


def _nothing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _word(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def number(text: str) -> float | None:
    """A finite number as others write it too (1_000, nan and inf are none), or None.

    >>> from fedmin.core.raw_rows import number
    >>> number(" 1e3"), number("1_000")
    (1000.0, None)
    """
    try:
        value = float(text.strip())
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def day(text: str) -> float | None:
    """A date such as 2024-05-17 in days since 1970, or None.

    >>> from fedmin.core.raw_rows import day
    >>> day("1970-01-02 12:00")
    1.5
    """
    try:
        found = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    seconds = found.hour * 3600 + found.minute * 60 + found.second
    return found.toordinal() - EPOCH + seconds / 86400


def level(value: float) -> str:
    """A number as the name of a level; "" if there is none."""
    return "" if math.isnan(value) else f"{value:g}"


def prepared(raw: Raw, preparation: Preparation) -> np.ndarray:
    """f64[n, features]: raw columns as the model saw them; a mistake names its row and column."""
    where = lambda i: raw.places[i]
    columns = {
        c.name: _numbers(raw, c.name, c.date) if isinstance(c, Number) else _words(raw, c.name)
        for c in preparation.columns
    }
    return preparation.apply(columns, where)


def _words(raw: Raw, name: str) -> np.ndarray:
    values = raw.columns[name]
    found = [level(v) if values.dtype.kind == "f" else v.strip() for v in values]
    return np.array(["" if word in MISSING else word for word in found], object)


def _numbers(raw: Raw, name: str, date: bool) -> np.ndarray:
    values = raw.columns[name]
    found = values if values.dtype.kind == "f" else np.full(len(values), np.nan)
    if values.dtype.kind != "f":
        for i, value in enumerate(values):
            if value.strip() in MISSING:
                continue
            made = (day if date else number)(value)
            if made is None:
                what = "date; write it as 2024-05-17" if date else "number"
                raise ValueError(f"{raw.places[i]}, column {name!r}: {value!r} is no {what}")
            found[i] = made
    wild = np.flatnonzero(np.isinf(found))
    if len(wild):
        place = raw.places[int(wild[0])]
        raise ValueError(f"{place}, column {name!r}: {found[wild[0]]} is no finite number")
    return found


def plain_numbers(raw: Raw, names: Sequence[str]) -> np.ndarray:
    """f64[n, features]: columns of numbers, none of which may be missing."""
    found = [_numbers(raw, name, date=False) for name in names]
    for name, values in zip(names, found, strict=True):
        empty = np.isnan(values)
        if empty.any():
            place = raw.places[int(np.argmax(empty))]
            raise ValueError(f"{place}, column {name!r}: the value is missing, and the model was "
                             f"fitted without preparation: nothing stands for it")  # fmt: skip
    return np.stack(found, axis=1)
