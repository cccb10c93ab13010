"""A site's raw columns, wherever they come from: CSV, Parquet, pandas, polars or NumPy."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from fedmin.core import checks
from fedmin.core.raw_rows import column_values
from fedmin.data.formats.columns import column_names, read_columns
from fedmin.data.formats.files import DataFileError

# samplers of a DataLoader that has all rows of its Dataset; the last is of rows without numbers
WHOLE = ("NoneType", "SequentialSampler", "RandomSampler", "_InfiniteConstantSampler")
MOST_SPARSE = 1000  # columns of a sparse matrix that may be prepared
ENDINGS = (".csv", ".parquet", ".csv.gz")


@dataclass(frozen=True)
class Frame:
    """The columns of one site as they were written, and where each row came from.

    A column is f64[n] with NaN where nothing is, or words with "" where nothing is.
    """

    site: str
    columns: dict[str, np.ndarray]
    places: Sequence[str]

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.places)

    @property
    def mark(self) -> str:
        """A SHA-256 of the columns as they were written, which the site can repeat."""
        found = hashlib.sha256()
        for name, values in self.columns.items():
            found.update(name.encode() + b"\0")
            found.update("\0".join(map(str, values.tolist())).encode() + b"\1")
        return found.hexdigest()

    def where(self, i: int) -> str:
        """Where a row is, in words."""
        return f"site {self.site}, {self.places[i]}"

    def take(self, which: np.ndarray, site: str | None = None) -> Frame:
        """Some of the rows."""
        columns = {name: values[which] for name, values in self.columns.items()}
        places = [self.places[int(i)] for i in which]
        return Frame(site or self.site, columns, places)


def frames_of(sources: Any, separator: str, client: str | None) -> list[Frame]:
    """The sites' columns: of files, of a folder, of frames by name, or of one with a column that
    says whose row it is."""
    if client is None and isinstance(sources, str | Path) and Path(sources).is_dir():
        sources = _folder(Path(sources))
    if isinstance(sources, Mapping):
        found = [_frame(str(name), each, separator) for name, each in sources.items()]
    elif isinstance(sources, list | tuple) and not _is_pair(sources):
        if not sources:
            raise ValueError("files is an empty list; give at least one")
        found = _several(sources, separator)
    else:
        site = _site(sources) if isinstance(sources, str | Path) else "all"
        found = [_frame(site, sources, separator)]
    if client is None:
        return found
    if len(found) > 1:
        words = f"client = {client!r} splits one file, and there are {len(found)}"
        raise ValueError(f"{words}; leave client out, or give one file")
    return _split(found[0], client)


def _folder(folder: Path) -> list[Path]:
    found = sorted(p for p in folder.iterdir() if p.name.endswith(ENDINGS))
    if not found:
        raise ValueError(f"{folder}: no file in it ends with .csv or .parquet")
    return found


def _site(path: Any) -> str:
    return Path(path).name.partition(".")[0]


def _several(sources: Sequence[Any], separator: str) -> list[Frame]:
    file = lambda source: isinstance(source, str | Path)
    names = [_site(s) if file(s) else f"site-{i + 1}" for i, s in enumerate(sources)]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(
            f"two files are of a site {twice[0]!r}; sites are named by their files: rename one, or "
            f"give a table of names, {{name = file}}"
        )
    return [_frame(name, each, separator) for name, each in zip(names, sources, strict=True)]


def _is_pair(source: Any) -> bool:
    return len(source) == 2 and not any(isinstance(each, str | Path) for each in source) and (
        hasattr(source[0], "shape") and len(source[0].shape) == 2 and hasattr(source[1], "shape")
        and len(source[1].shape) == 1
    )  # fmt: skip


def _frame(site: str, source: Any, separator: str) -> Frame:
    if isinstance(source, str | Path):
        return frame_of(site, [Path(source)], separator)
    source = _pairs(site, source)
    if isinstance(source, tuple) and _is_pair(source):
        x, y = (np.asarray(each) for each in (_dense(site, source[0]), source[1]))
        named = {f"x{j}": x[:, j] for j in range(x.shape[1])} | {"y": y}
        return _of_columns(site, named, "row")
    if isinstance(source, Mapping):
        return _of_columns(site, source, "row")
    if hasattr(source, "columns"):  # pandas and polars
        lists = {str(name): source[name].to_list() for name in source.columns}
        return _of_columns(site, lists, "row")
    raise TypeError(
        f"site {site}: {type(source).__name__} is no table; give a file, a DataFrame of pandas or "
        f"polars, a dict of columns, a pair (x, y) of arrays, or a Dataset of such pairs"
    )


def _dense(site: str, x: Any) -> Any:
    """The columns of a sparse matrix that has few of them."""
    if not scipy.sparse.issparse(x):
        return x
    if x.shape[1] > MOST_SPARSE:
        raise ValueError(
            f"site {site}: a sparse matrix of {x.shape[1]} columns would be dense once prepared; "
            f"give it as it is to fedmin.Federation.from_clients([(x, y), ...])"
        )
    return x.toarray()


def _pairs(site: str, source: Any) -> Any:
    """The arrays (x, y) of a Dataset of PyTorch, or of a DataLoader's: of rows (x, y) by number."""
    if hasattr(source, "dataset") and not hasattr(source, "__getitem__"):
        # a DataLoader shuffles, and may drop rows; a Subset has rows by number itself
        sampler = type(getattr(source, "sampler", None)).__name__
        if sampler not in WHOLE:
            raise TypeError(
                f"site {site}: a DataLoader with a {sampler} may have some rows of its Dataset "
                f"only; give the rows themselves: torch.utils.data.Subset(dataset, indices)"
            )
        source = source.dataset
    known = isinstance(source, tuple | Mapping) or hasattr(source, "columns")
    if known or not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        return source
    rows = [source[i] for i in range(len(source))]
    if not rows or any(not isinstance(row, tuple | list) or len(row) != 2 for row in rows):
        raise TypeError(
            f"site {site}: a Dataset must have pairs (x, y) of numbers and a label as its rows"
        )
    return np.stack([np.ravel(x) for x, _ in rows]), np.array(
        [np.asarray(y).item() for _, y in rows]
    )


def frame_of(site: str, paths: Sequence[Path], separator: str = ",") -> Frame:
    """The columns of one site's own files, one after the other."""
    path = paths[0]
    try:
        names = column_names(path, separator)
        others = [s for s in (",", ";", "\t", "|") if s != separator and s in names[0]]
        if len(names) == 1 and others:
            what = f"one column {names[0]!r}: it seems to be separated by {others[0]!r}"
            raise DataFileError(path, "several columns", f'{what}; give separator = "{others[0]}"')
        read = read_columns(paths, names, separator)
    except DataFileError as error:
        raise ValueError(f"site {site}: {error}") from None
    columns = {name: np.array(values, object) for name, values in read.columns.items()}
    return Frame(site, columns, [f"{file}, line {line}" for file, line in read.rows])


def _of_columns(site: str, columns: Mapping[str, Any], word: str) -> Frame:
    made = {str(name): column_values(list(values)) for name, values in columns.items()}
    lengths = {len(values) for values in made.values()}
    if len(lengths) != 1:
        raise ValueError(f"site {site}: its columns have {sorted(lengths)} rows; all need as many")
    (count,) = lengths
    return Frame(site, made, [f"{word} {i}" for i in range(count)])


def _split(frame: Frame, client: str) -> list[Frame]:
    if client not in frame.columns:
        raise ValueError(no_column(frame, client, "client"))
    owners = frame.columns[client]
    words = np.array([_owner(each) for each in owners], object)
    if (words == "").any():
        at = frame.where(int(np.argmax(words == "")))
        raise ValueError(f"{at}, column {client!r}: nothing says whose row it is; fill it")
    return [frame.take(np.flatnonzero(words == name), name) for name in sorted(set(words))]


def _owner(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    return "" if np.isnan(value) else f"{value:g}"


def no_column(frame: Frame, name: str, what: str) -> str:
    """What is said of a column that is not there."""
    file = frame.places[0].partition(",")[0] if frame.rows else "its table"
    return (
        f"site {frame.site}, {file}: there is no column {name!r}, which {what} names; "
        f"{checks.nearest(name, frame.columns)}"
    )
