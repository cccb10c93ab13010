"""A party's own rows as it has them on its disk, and what it may say of them: their shapes.

A site's file is CSV or Parquet with named columns (site_file.py), or an .npz that `fedmin deploy`
has cut: rows as they are in memory, bit for bit. What is to be done to rows before a run (scaling,
words as numbers) has its place between `read` and `fitted`.
"""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedmin.core.groups import within
from fedmin.core.matrix import Dense, SparseRows, float_type, matrix
from fedmin.core.preparation import About
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows
from fedmin.runs.site_file import SiteFile

SCALED = "standardized by all rows of the table"  # as a table says it of itself


class OwnRows(NamedTuple):
    """Rows that were read, before it is known what all sites have in common."""

    x: Dense | SparseRows
    y: np.ndarray | None
    weight: np.ndarray
    classes: int | None = None  # None: nobody said
    image: tuple[int, ...] | None = None
    columns: tuple[str, ...] = ()  # the names of the features, where they have names
    group: np.ndarray | None = None  # the number of each row's group, where rows are in groups
    groups: tuple[str, ...] = ()  # the groups' names
    mark: str = ""  # a hash of the table that they were made of, where columns are prepared

    def shapes(self, told: bool = True) -> dict[str, Any]:
        """What a site says of its rows: of which form they are and, if that is `told`, how many
        there are. No row."""
        y = self.y
        whole = y is not None and bool(np.all(y == np.round(y)))
        kind = None if y is None else y.dtype
        return {
            "rows": len(self.weight) if told else None,
            "features": self.x.shape[1],
            "type": str(np.dtype(self.x.dtype)),
            "slots": self.x.values.shape[1] if isinstance(self.x, SparseRows) else None,
            "target": None if y is None else [str(y.dtype), list(y.shape[1:])],
            "exact": self.classes is not None or (kind is not None and kind.kind != "f"),
            "labels": int(np.max(y, initial=0)) + 1 if whole and y is not None else None,
            "even": bool(np.all(self.weight == 1)),
            "weight": float(np.sum(self.weight, dtype=float)) if told else None,
            "groups": list(self.groups),
            "classes": self.classes,
            "image": None if self.image is None else list(self.image),
            "columns": list(self.columns),
        }

    def fitted(self, roster: Roster) -> Rows:
        """These rows in the form that all sites have agreed on."""
        kind, shape = roster.target
        y = np.zeros((len(self.weight), *shape)) if self.y is None else self.y
        if np.dtype(kind).kind == "i" and not np.all(y == np.round(y)):
            raise ValueError("the outcome has values that are no whole numbers; it needs labels")
        x: Any = self.x
        if isinstance(x, SparseRows) and roster.slots is not None:
            missing = max(roster.slots - x.values.shape[1], 0)
            wider = ((0, 0), (0, missing))
            x = SparseRows(np.pad(x.features, wider), np.pad(x.values, wider), x.num_features)
        return Rows(x, y.astype(kind), self.weight, self._group(roster))

    def _group(self, roster: Roster) -> np.ndarray | None:
        """The groups by their numbers among all sites' groups."""
        if self.group is None:
            return None
        missing = sorted(set(self.groups) - set(roster.groups))
        if missing:
            raise ValueError(f"the roster does not know the group {missing[0]!r} of this site")
        return np.array([roster.groups.index(name) for name in self.groups], np.int32)[self.group]


def named_columns(
    roster: Roster, shapes: Mapping[str, Mapping[str, Any]], standardized: bool = False
) -> About | None:
    """What the sites' own words say of the columns; None where no site has names for its columns.

    Sites with the same columns must call them alike, in one order: a file whose columns are in
    another order would train another model without anybody's notice.
    """
    said = {name: tuple(map(str, shapes[name].get("columns") or ())) for name in roster.names}
    known = {name: columns for name, columns in said.items() if columns}
    if roster.owners is not None:
        if len(known) < len(said):
            return None
        names = [each for columns in said.values() for each in columns]
        if len(set(names)) < len(names):
            names = [f"{site}.{each}" for site, columns in said.items() for each in columns]
        return About(tuple(names), scaled=SCALED if standardized else "")
    if not known:
        return None
    (first, names_), *others = known.items()
    for name, columns in others:
        if columns != names_:
            raise ValueError(
                f"the columns of {name} are {', '.join(columns)}, of {first} {', '.join(names_)}: "
                f"all sites need the same columns in the same order; features = [...] in [data] "
                f"of a site.toml puts them in order"
            )
    return About(names_, scaled=SCALED if standardized else "")


def read_own(site: SiteFile) -> OwnRows:
    """The rows of a site's file."""
    files = site.data.files
    if files[0].suffix == ".npz":
        if len(files) > 1:
            raise ValueError(f"{files[0]}: several files can be CSV or Parquet, not .npz")
        return load_rows(files[0])
    table = site.table()
    weight = np.ones(table.rows, float_type())
    names = table.feature_names or ()
    x: Any = matrix(table.x)
    groups = table.group_names or ()
    return OwnRows(x, table.y, weight, None, None, names, table.groups, groups)


def save_rows(
    path: Path, rows: Rows, classes: int | None, image: Any = None, groups: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write rows as they are, with what their table says of them."""
    x = rows.x
    parts: dict[str, Any] = {"y": rows.y, "weight": rows.weight}
    if isinstance(x, SparseRows):
        parts |= {"places": x.features, "values": x.values, "features": np.int64(x.num_features)}
    else:
        parts["x"] = x.values  # type: ignore[attr-defined]
    if classes is not None:
        parts["classes"] = np.int64(classes)
    if rows.group is not None:
        parts |= {"group": rows.group, "groups": np.array(groups, str)}
    if columns:
        parts["columns"] = np.array(columns, str)
    if image is not None:
        parts["image"] = np.array(image, np.int64)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {name: np.asarray(part) for name, part in parts.items()}
    np.savez(path, **arrays)


def load_rows(path: Path) -> OwnRows:
    """What `save_rows` wrote; no pickles."""
    try:
        with np.load(path, allow_pickle=False) as found:
            parts = {name: found[name] for name in found.files}
        x: Dense | SparseRows
        if "places" in parts:
            x = SparseRows(parts["places"], parts["values"], int(parts["features"]))
        else:
            x = Dense(parts["x"])
        classes = int(parts["classes"]) if "classes" in parts else None
        image = tuple(parts["image"].tolist()) if "image" in parts else None
        group, names = parts.get("group"), tuple(map(str, parts.get("groups", ())))
        if group is not None:
            group = within(str(path), group, names)
        columns = tuple(map(str, parts.get("columns", ())))
        if columns and len(columns) != x.shape[1]:
            raise ValueError(f"{len(columns)} names of {x.shape[1]} columns")
        return OwnRows(x, parts["y"], parts["weight"], classes, image, columns, group, names)
    except FileNotFoundError:
        raise ValueError(f"there is no {path}") from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} has no rows as fedmin writes them: {error}") from None
