"""A table: one data set, rows by features, checked before anybody works with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedmin.core.checks import known
from fedmin.core.groups import numbered
from fedmin.data.scales import column_max, moments, nonzero, unit_rows
from fedmin.data.table_checks import (
    as_labels,
    as_matrix,
    as_targets,
    check_columns,
    check_groups,
    check_ids,
    check_names,
)

__all__ = ["Table"]


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A data set: features `x`, answers `y`, and where they came from.

    Wrong shapes, NaN or Inf, labels out of range and mismatched ids are errors here, before any
    work. Images are flat rows in height x width x channel order with `image_shape` beside them.

    Args:
        name: what the set is called.
        x: features [n, d], dense or SciPy sparse; kept as float32 (CSR when sparse).
        y: labels 0..classes-1 (kept as int32), real targets when `classes` is None (float32),
            or None.
        classes: number of labels, None for regression.
        test: rows held out for testing, with the same features and classes.
        feature_names: one name a column.
        ids: one natural id a row (a speaker, a customer).
        image_shape: (height, width, channels) when a row is an image.
        columns: who owns which columns, party name -> column indices, for vertical data.
        meta: source, license, citation and the like.
        groups: which group each row is in, a value a row (kept as numbers, in the order of the
            values), or numbers if there are `group_names`; see `grouped`.
        group_names: one name a group.

    >>> import numpy as np
    >>> from fedmin.data import Table
    >>> table = Table("toy", np.eye(3), [0, 1, 1], classes=2)
    >>> table
    Table('toy', 3 rows x 3 features, 2 classes)
    >>> Table("toy", np.eye(3), [0, 1, 2], classes=2)
    Traceback (most recent call last):
        ...
    ValueError: toy: label 2 in row 2 is out of range; labels must be 0..1 (classes=2)
    """

    name: str
    x: Any
    y: Any = None
    classes: int | None = None
    test: Table | None = None
    feature_names: tuple[str, ...] | None = None
    ids: np.ndarray | None = None
    image_shape: tuple[int, int, int] | None = None
    columns: Mapping[str, np.ndarray] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    groups: Any = None
    group_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        put = lambda key, value: object.__setattr__(self, key, value)
        put("x", as_matrix(self.name, self.x))
        n, d = self.x.shape
        if self.y is not None:
            if self.classes is None:
                put("y", as_targets(self.name, self.y, n))
            else:
                put("y", as_labels(self.name, self.y, n, self.classes))
        if self.feature_names is not None:
            put("feature_names", check_names(self.name, self.feature_names, d))
        if self.ids is not None:
            put("ids", check_ids(self.name, self.ids, n))
        if self.image_shape is not None:
            put("image_shape", tuple(int(size) for size in self.image_shape))
            if len(self.image_shape) != 3 or int(np.prod(self.image_shape)) != d:
                raise ValueError(
                    f"{self.name}: image_shape {self.image_shape} does not hold {d} features; "
                    "give (height, width, channels) with that product"
                )
        if self.columns is not None:
            put("columns", check_columns(self.name, self.columns, d))
        if self.groups is not None:
            numbers, names = check_groups(self.name, self.groups, n, self.group_names)
            put("groups", numbers)
            put("group_names", names)
        if self.test is not None:
            self._check_test(self.test)

    def _check_test(self, test: Table) -> None:
        if test.features != self.features:
            raise ValueError(
                f"{self.name}: the test rows have {test.features} features, "
                f"the training rows {self.features}"
            )
        if test.classes != self.classes:
            raise ValueError(
                f"{self.name}: the test rows have classes={test.classes}, "
                f"the training rows classes={self.classes}"
            )
        if test.group_names != self.group_names:
            raise ValueError(
                f"{self.name}: the test rows have the groups {test.group_names}, "
                f"the training rows {self.group_names}"
            )

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.x.shape[0]

    @property
    def features(self) -> int:
        """Number of columns."""
        return self.x.shape[1]

    @property
    def sparse(self) -> bool:
        """True when `x` is a SciPy CSR matrix."""
        return sp.issparse(self.x)

    @property
    def images(self) -> np.ndarray:
        """The rows as images [n, height, width, channels] (a view)."""
        if self.image_shape is None:
            raise ValueError(f"{self.name}: rows are not images (image_shape is None)")
        return self.x.reshape(self.rows, *self.image_shape)

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        parts = [f"{self.rows} rows x {self.features} features"]
        if self.sparse:
            parts.append(f"sparse, {self.x.nnz / max(self.rows, 1):.4g} non-zeros a row")
        if self.image_shape is not None:
            parts.append("images " + "x".join(str(size) for size in self.image_shape))
        if self.y is None:
            parts.append("no labels")
        else:
            parts.append("regression" if self.classes is None else f"{self.classes} classes")
        if self.columns is not None:
            parts.append(f"columns of {', '.join(self.columns)}")
        if self.group_names is not None:
            parts.append(f"groups {', '.join(self.group_names)}")
        if self.test is not None:
            parts.append(f"test {self.test.rows} rows")
        return f"Table({self.name!r}, {', '.join(parts)})"

    def subset(self, indices) -> Table:
        """The given rows, in the given order; the test rows stay as they are.

        >>> from fedmin.data import load
        >>> load("wine").subset([0, 1, 2]).rows
        3
        """
        indices = np.asarray(indices)
        if indices.dtype == bool:
            if indices.shape != (self.rows,):
                raise ValueError(f"{self.name}: mask of shape {indices.shape}, not {(self.rows,)}")
            indices = np.flatnonzero(indices)
        if indices.size == 0:
            indices = indices.astype(np.int64)
        if indices.size and (indices.min() < -self.rows or indices.max() >= self.rows):
            raise ValueError(f"{self.name}: row index out of range; there are {self.rows} rows")
        return replace(
            self,
            x=self.x[indices],
            y=None if self.y is None else self.y[indices],
            ids=None if self.ids is None else self.ids[indices],
            groups=None if self.groups is None else self.groups[indices],
        )

    def merged(self) -> Table:
        """Training and test rows in one table without test rows.

        >>> from fedmin.data import load
        >>> load("wine").merged().rows
        178
        """
        if self.test is None:
            return self
        stack = sp.vstack if self.sparse else np.concatenate
        both = lambda a, b: None if a is None or b is None else np.concatenate([a, b])
        return replace(
            self,
            x=stack([self.x, self.test.x]),
            y=both(self.y, self.test.y),
            ids=both(self.ids, self.test.ids),
            groups=both(self.groups, self.test.groups),
            test=None,
        )

    def grouped(self, by, *, test=None, names=None) -> Table:
        """The rows in groups, for constraints on groups: beside x, where no scaling changes them.

        `by` is a column, by its name or its number, whose values become the groups; or a value a
        row, and then the test rows' values are given by `test`. Groups are in the order of `names`,
        or of their values. A column stays where it is, among the features.

        >>> import numpy as np
        >>> from fedmin.data import Table
        >>> table = Table("toy", [[0.0, 5.0], [1.0, 7.0]], [1.0, 2.0], feature_names=("sex", "age"))
        >>> table.grouped("sex").standardized().groups
        array([0, 1], dtype=int32)
        """
        given, other = by, test
        if isinstance(by, str | int | np.integer):
            if test is not None:
                raise ValueError(f"{self.name}: test={test!r} goes with values, not with a column")
            place = self._column(by if isinstance(by, str) else int(by))
            given = self._values_of(place)
            other = None if self.test is None else self.test._values_of(place)
        elif (test is None) != (self.test is None):
            raise ValueError(
                f"{self.name}: it has {'no' if self.test is None else self.test.rows} test rows; "
                f"groups given as values need test=... where there are, and nowhere else"
            )
        numbers, found = numbered(f"{self.name}: groups", given, self.rows, names)
        held = self.test
        if held is not None:
            rest, _ = numbered(f"{held.name}: groups", other, held.rows, found)
            held = replace(held, groups=rest, group_names=found)
        return replace(self, groups=numbers, group_names=found, test=held)

    def _column(self, name: str | int) -> int:
        """The place of a column that is given by its name or its number."""
        if isinstance(name, str):
            if self.feature_names is None:
                raise ValueError(
                    f"{self.name}: its columns have no names; give the number of one, "
                    f"0..{self.features - 1}, in place of {name!r}"
                )
            known("column", name, self.feature_names)
            return self.feature_names.index(name)
        if not 0 <= name < self.features:
            raise ValueError(f"{self.name}: column {name}; there are 0..{self.features - 1}")
        return name

    def _values_of(self, place: int) -> np.ndarray:
        column = self.x[:, [place]]
        return (column.toarray() if self.sparse else column)[:, 0]

    def binary(self, positive) -> Table:
        """Two classes: 1 where the label is `positive` (one label or several), else 0.

        >>> from fedmin.data import load
        >>> load("digits").binary(positive=[1, 3, 5, 7, 9]).classes
        2
        """
        if self.classes is None or self.y is None:
            raise ValueError(
                f"{self.name}: binary() needs class labels; this is not classification"
            )
        chosen = np.atleast_1d(np.asarray(positive))
        if chosen.size == 0 or chosen.min() < 0 or chosen.max() >= self.classes:
            raise ValueError(
                f"{self.name}: positive={positive!r}, but labels are 0..{self.classes - 1}"
            )
        test = None if self.test is None else self.test.binary(positive)
        return replace(self, y=np.isin(self.y, chosen).astype(np.int32), classes=2, test=test)

    def standardized(self) -> Table:
        """Columns to mean 0 and standard deviation 1, measured on the training rows of the table.

        This is scaling by pooled rows: whoever calls it has all of them in one place. Sites that
        keep their rows apart agree on means and scales by sums, with `fedmin.data.Prepare`.

        Sparse data are only scaled (by the standard deviation), never shifted: a shift would make
        them dense. Constant columns are left alone.

        >>> from fedmin.data import load
        >>> abs(float(load("wine").standardized().x.mean())) < 1e-6
        True
        """
        mean, std = moments(self.x)
        return self._affine(None if self.sparse else mean, nonzero(std), "standardized")

    def scaled(self, how: str = "max") -> Table:
        """Columns or rows to a common size, measured on the training rows.

        "max" divides every column by its largest magnitude, so entries lie in [-1, 1];
        "minmax" maps every column to [0, 1] (dense data only);
        "rows" gives every row Euclidean length 1.

        >>> from fedmin.data import load
        >>> float(load("wine").scaled("max").x.max())
        1.0
        """
        if how == "max":
            return self._affine(None, nonzero(column_max(self.x)), "divided by their largest value")
        if how == "minmax":
            if self.sparse:
                raise ValueError(f"{self.name}: scaled('minmax') would make it dense; use 'max'")
            low, high = self.x.min(axis=0), self.x.max(axis=0)
            return self._affine(low, nonzero(high - low), "mapped to [0, 1]")
        if how == "rows":
            test = None if self.test is None else self.test.scaled("rows")
            words = "rows divided by their length"
            return replace(self, x=unit_rows(self.x), test=test, meta=self._told(words))
        raise ValueError(f"{self.name}: scaled({how!r}); it takes 'max', 'minmax' or 'rows'")

    def _affine(self, shift, scale, words: str) -> Table:
        test = None if self.test is None else self.test._affine(shift, scale, words)
        if self.sparse:
            x = (self.x @ sp.diags_array(1.0 / scale)).tocsr()
        else:
            x = (self.x - (0.0 if shift is None else shift)) / scale
        return replace(self, x=x, test=test, meta=self._told(f"{words} by all rows of the table"))

    def _told(self, words: str) -> dict[str, Any]:
        """`meta` with what was done to the columns, which a model of them tells its readers."""
        before = self.meta.get("scaled")
        return {**self.meta, "scaled": words if before is None else f"{before}, then {words}"}
