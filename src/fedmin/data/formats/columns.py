"""Columns of a site's own files by their names: CSV with a line of names, or Parquet.

An entry that is no number is refused with its file, its line and its column: what to make of
missing values and of words is decided by all sites together, not by the reader of one.
"""

import csv
import io
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedmin.core import checks
from fedmin.data.formats.files import DataFileError, plain_number, read_bytes


class Named(NamedTuple):
    """Columns by name, from several files one after the other, and where each row came from."""

    columns: dict[str, list[str]]
    rows: list[tuple[str, int]]  # the file and the line

    def numbers(self, names: Sequence[str]) -> np.ndarray:
        """Some of the columns as numbers, f[n, columns]."""
        found = np.empty((len(self.rows), len(names)), np.float64)
        for j, name in enumerate(names):
            for i, entry in enumerate(self.columns[name]):
                found[i, j] = self._number(i, name, entry)
        return found

    def _number(self, i: int, name: str, entry: str) -> float:
        try:
            return plain_number(entry)
        except ValueError:
            file, line = self.rows[i]
            what = f"{entry!r}" if entry.strip() else "nothing"
            place = f"{file}, line {line}, column {name!r}"
            raise DataFileError(place, "a number", what) from None


def column_names(path: str | Path, separator: str = ",") -> list[str]:
    """The names of a file's columns.

    >>> import pathlib, tempfile
    >>> from fedmin.data.formats.columns import column_names
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.csv")
    >>> _ = path.write_text("age,weight\\n50,70.5\\n")
    >>> column_names(path)
    ['age', 'weight']
    """
    return list(_read(Path(path), separator)[0])


def read_columns(paths: Sequence[str | Path], names: Sequence[str], separator: str = ",") -> Named:
    """Columns of files that all have them; a file may have others too.

    >>> import pathlib, tempfile
    >>> from fedmin.data.formats.columns import read_columns
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.csv")
    >>> _ = path.write_text("age,weight\\n50,70.5\\n")
    >>> read_columns([path], ["weight"]).numbers(["weight"]).tolist()
    [[70.5]]
    """
    found = Named({name: [] for name in names}, [])
    for path in map(Path, paths):
        head, lines = _read(path, separator)
        for name in names:
            if name not in head:
                near = checks.nearest(name, head)
                raise DataFileError(path, f"a column {name!r}", f"none of that name; {near}")
        places = [head.index(name) for name in names]
        for number, line in lines:
            if len(line) != len(head):
                what = f"{len(line)} entries in line {number}"
                raise DataFileError(path, f"{len(head)} entries a line, as in its first", what)
            for name, place in zip(names, places, strict=True):
                found.columns[name].append(line[place])
            found.rows.append((path.name, number))
    if not found.rows:
        raise DataFileError(", ".join(map(str, paths)), "at least one row", "none")
    return found


def _read(path: Path, separator: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, and every line with its number."""
    try:
        folder = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, ValueError):  # also of a name that no file can have
        raise DataFileError(path, "a file", "nothing of that name") from None
    except OSError as error:
        raise DataFileError(path, "a file", error.strerror or str(error)) from None
    if folder:
        raise DataFileError(path, "a file", "a folder")
    if path.suffix == ".parquet":
        head, lines = _parquet(path)
    else:
        try:
            content = read_bytes(path)
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            found = f"byte {error.start}, in line {line}, is not; save the file as UTF-8"
            raise DataFileError(path, "a text in UTF-8", found) from None
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        try:
            head = [name.strip() for name in next(reader, [])]
            lines = [(reader.line_num, line) for line in reader if line]
        except csv.Error as error:
            raise DataFileError(f"{path}, line {reader.line_num}", "CSV", str(error)) from None
    twice = [name for name in head if head.count(name) > 1]
    if not head or twice:
        raise DataFileError(path, "a first line with the names of its columns",
                            f"{twice[0]!r} twice" if twice else "an empty one")  # fmt: skip
    return head, lines


def _parquet(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError:
        raise ValueError(f"{path}: Parquet needs pyarrow: pip install 'fedmin[pandas]'") from None
    try:
        read = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataFileError(path, "a Parquet file", str(error)) from None
    columns = [["" if v is None else str(v) for v in c.to_pylist()] for c in read.columns]
    lines = [(i + 1, list(row)) for i, row in enumerate(zip(*columns, strict=True))]
    return list(read.column_names), lines
