"""What a run's file says of the columns, and one site's rows by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedmin.core.raw_rows import MISSING
from fedmin.data.own.frames import Frame


@dataclass(frozen=True)
class Chosen:
    """What a run's file says of the columns: the same words for every site (see `read`)."""

    outcome: str
    features: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    id: str | None = None
    groups: str | None = None
    weights: str | None = None
    client: str | None = None
    test: float = 0.0
    labels: bool | None = None
    kinds: Mapping[str, str] | None = None
    missing: tuple[str, ...] = MISSING
    seed: int = 0
    units: Mapping[str, str] | None = None

    @property
    def beside(self) -> dict[str, str]:
        """Columns that are no features, and what names them."""
        special = ("outcome", "id", "groups", "weights", "client")
        return {getattr(self, what): what for what in special if getattr(self, what) is not None}


@dataclass(frozen=True, eq=False)
class SiteRows:
    """One site's rows: columns by name and kind, the outcome, and what stands beside them."""

    frame: Frame  # as they were written, for errors
    columns: dict[str, np.ndarray]
    y: np.ndarray
    groups: np.ndarray | None
    weights: np.ndarray

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.y)

    def take(self, which: np.ndarray) -> SiteRows:
        """Some of the rows."""
        return SiteRows(
            self.frame.take(which), {n: v[which] for n, v in self.columns.items()}, self.y[which],
            None if self.groups is None else self.groups[which], self.weights[which],
        )  # fmt: skip
