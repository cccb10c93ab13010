"""What becomes of raw columns before a model sees them: fitted numbers, a part of the model.

A number is filled where it is missing, shifted and scaled; a category becomes one column of zeros
and ones for each level but the reference. The numbers are fitted by sums (data/own/prepare.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from fedmin.core.release import Release

OTHER = "other"  # the level of what is rarer than the smallest count, and of what was never seen
Where = Callable[[int], str]  # where a row is, in words
NOWHERE: Where = lambda i: f"row {i + 1}"


@dataclass(frozen=True)
class Number:
    """A column of numbers, or of dates as days since 1970.

    >>> from fedmin.core.preparation import Number
    >>> import numpy as np
    >>> Number("age", shift=50.0, scale=10.0, fill=50.0).apply(np.array([60.0, np.nan])).tolist()
    [[1.0], [0.0]]
    """

    name: str
    shift: float = 0.0
    scale: float = 1.0
    fill: float | None = None  # where it is missing; None: it may not be
    indicator: bool = False  # a column beside it that is 1 where it was missing
    date: bool = False
    kind: ClassVar[str] = "number"

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it becomes."""
        return (self.name, f"{self.name} is missing") if self.indicator else (self.name,)

    @property
    def scales(self) -> tuple[tuple[float, float], ...]:
        """The shift and the scale of each of them."""
        return ((self.shift, self.scale), (0.0, 1.0))[: 1 + self.indicator]

    def apply(self, values: np.ndarray, where: Where = NOWHERE) -> np.ndarray:
        """f[n, columns]; where a value is missing and may not be is an error that says where."""
        empty = np.isnan(values)
        if self.fill is None and empty.any():
            raise ValueError(missing_words(self.name, where(int(np.argmax(empty)))))
        filled = np.where(empty, 0.0 if self.fill is None else self.fill, values)
        scaled = (filled - self.shift) / self.scale
        return np.stack([scaled, empty.astype(float)][: 1 + self.indicator], axis=1)


@dataclass(frozen=True)
class Category:
    """A column of words: a column of zeros and ones for each level but the first.

    >>> from fedmin.core.preparation import Category
    >>> Category("ward", ("a", "b", "other"), rare=True).apply(["b", "a", "z"]).tolist()
    [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    """

    name: str
    levels: tuple[str, ...]  # the first is the reference; `other` the last, where there is one
    fill: str | None = None
    indicator: bool = False
    rare: bool = False  # whether the last level stands for all that is not named
    kind: ClassVar[str] = "category"

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it becomes."""
        own = tuple(f"{self.name}={level}" for level in self.levels[1:])
        return (*own, f"{self.name} is missing") if self.indicator else own

    @property
    def scales(self) -> tuple[tuple[float, float], ...]:
        """The shift and the scale of each of them."""
        return ((0.0, 1.0),) * len(self.names)

    def apply(self, values: Any, where: Where = NOWHERE) -> np.ndarray:
        """f[n, columns]; a level that nobody knows is `other`, or an error that says where."""
        place = {level: k for k, level in enumerate(self.levels)}
        found = np.zeros((len(values), len(self.levels) + 1))
        for i, value in enumerate(values):
            found[i, -1] = value == ""
            if value == "" and self.fill is None:
                raise ValueError(missing_words(self.name, where(i)))
            level = (self.fill or "") if value == "" else value
            k = place.get(level, len(self.levels) - 1 if self.rare else -1)
            if k < 0:
                raise ValueError(
                    f"{where(i)}, column {self.name!r}: {value!r} is no level that the model "
                    f"knows; there is {', '.join(map(repr, self.levels))}"
                )
            found[i, k] = 1.0
        return found[:, 1:] if self.indicator else found[:, 1:-1]


def missing_words(name: str, place: str) -> str:
    """What is said of a missing value that nothing stands for."""
    return (
        f"{place}, column {name!r}: the value is missing; give it, leave the row out, or fill "
        f'it: [prepare] missing = "mean" or "indicator"'
    )


@dataclass(frozen=True)
class Preparation:
    """Columns as a model sees them, from columns as people write them.

    >>> from fedmin.core.preparation import Category, Number, Preparation
    >>> made = Preparation((Number("age", 50.0, 10.0), Category("ward", ("a", "b"))))
    >>> made.names
    ('age', 'ward=b')
    """

    columns: tuple[Number | Category, ...]
    left_out: tuple[str, ...] = ()  # features that are constant, or follow from others

    @property
    def names(self) -> tuple[str, ...]:
        """The features of the model."""
        return tuple(name for name in self._all if name not in self.left_out)

    @property
    def _all(self) -> list[str]:
        return [name for column in self.columns for name in column.names]

    @property
    def _kept(self) -> np.ndarray:
        return np.array([name not in self.left_out for name in self._all], bool)

    @property
    def scales(self) -> tuple[np.ndarray, np.ndarray]:
        """The shift and the scale of each feature."""
        pairs = [pair for column in self.columns for pair in column.scales]
        shift, scale = np.array(pairs, float).reshape(-1, 2)[self._kept].T
        return shift, scale

    def apply(self, raw: Mapping[str, Any], where: Where = NOWHERE) -> np.ndarray:
        """f64[n, features] from the raw columns by name."""
        found = np.concatenate([c.apply(raw[c.name], where) for c in self.columns], axis=1)
        return found[:, self._kept]

    def words(self) -> dict[str, Any]:
        """In JSON's own kinds of values."""
        columns = [{"kind": column.kind, **asdict(column)} for column in self.columns]
        return {"columns": columns, "left_out": list(self.left_out)}

    @classmethod
    def of(cls, words: Mapping[str, Any]) -> "Preparation":
        """What `words` said."""
        return cls(tuple(map(_column, words["columns"])), tuple(words["left_out"]))


@dataclass(frozen=True, eq=False)
class About:
    """What is known of the columns behind a federation's rows, beside the rows.

    >>> from fedmin.core.preparation import About
    >>> About(("age",)).classes is None
    True
    """

    names: tuple[str, ...]  # of the features
    preparation: Preparation | None = None
    outcome: str = "y"
    classes: tuple[str, ...] | None = None  # the labels' names, in their order
    fingerprint: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each site's rows
    lines: tuple[Any, ...] = ()  # what fitting the preparation sent, as a ledger has it
    exact: tuple[tuple[np.ndarray, ...], ...] = ()  # each site's x, y, weights in double precision
    hidden: bool = False  # nobody saw a single site's sums
    told: tuple[Release, ...] | None = None  # all that preparing told, with noise; None: without
    inputs: tuple[str, ...] = ()  # the raw columns in their own order, where that is another one
    units: Mapping[str, str] = field(default_factory=dict)  # of raw columns, as people said
    scaled: str = ""  # what was done to all columns before anybody had rows, in words


def _column(words: Mapping[str, Any]) -> Number | Category:
    given = {key: value for key, value in words.items() if key != "kind"}
    if words["kind"] == "number":
        return Number(**given)
    return Category(**given | {"levels": tuple(given["levels"])})
