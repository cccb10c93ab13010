"""A limit on the mean loss of each group of rows.

    F_g(x) = (mean over all rows of "in group g" times (loss - U_g)) / share of group g

is the group's own mean loss minus its limit, whatever its size: a violation, a tolerance and slack
are in units of the loss. The shares must be the same at all parties; they are counted once, before
round 0 (`Problem.tally`, `Problem.fitted`), and a group without rows, or a row without a group, is
refused there.
"""

from collections.abc import Mapping
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from fedmin.core import checks
from fedmin.core.matrix import Dense
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows
from fedmin.problems.constrained import Constraint


class GroupLossAtMost(Constraint):
    """The mean loss within each group of rows is at most its limit.

    by="labels"    groups are the labels 0, 1, ..
    by="groups"    groups are what the rows' groups are, beside the features: `Table.grouped`, or
                   `groups = "sex"` in a file's [data]
    column=3       groups are the values 0, 1, .. of that feature; not of one that was scaled

    There is a limit a group, in their order; or a limit for some of them, by their names.

    >>> import fedmin
    >>> fedmin.GroupLossAtMost((0.4, 0.5), by="groups").count
    2
    >>> fedmin.GroupLossAtMost({"female": 0.4}, by="groups").count
    1
    """

    limits: tuple[float, ...] | Mapping[str, float]
    column: int | None = eqx.field(default=None, static=True)
    by: Literal["labels", "groups"] = eqx.field(default="labels", static=True)

    def __check_init__(self):
        checks.is_a("limits", self.limits, (tuple, Mapping), "(0.4, 0.5), a limit a group")
        checks.at_least("groups", len(self.limits), 1)
        for bound in self.bounds():
            checks.between("limit", bound, -np.inf)
        checks.known("by", self.by, ("labels", "groups"))
        if self.column is not None:
            checks.at_least("column", self.column, 0)
            if self.by == "groups":
                raise ValueError(f"groups are by='groups' or of column={self.column}, not both")

    @property
    def count(self) -> int:
        return len(self.limits)

    @property
    def of_loss(self) -> bool:
        return self.column is None

    def convex(self, problem):
        return problem.convex

    def bounds(self) -> tuple[Any, ...]:
        return tuple(self.limits.values() if isinstance(self.limits, Mapping) else self.limits)

    def values(self, x, rows, loss):
        raise ValueError(
            "the groups' shares of all rows are not known yet: minimize and certify count them; "
            "elsewhere take fedmin.core.fitting.fitted(problem, federation)"
        )

    def check(self, features):
        if self.column is not None and self.column >= features:
            raise ValueError(f"column must be below {features}, got {self.column}")

    # ------------------------------------------------------------ before round 0

    @property
    def _what(self) -> str:
        whose = "labels" if self.column is None else f"values of column {self.column}"
        return "groups" if self.by == "groups" else whose

    def _groups(self, roster: Roster) -> tuple[str, ...]:
        """The names of the groups that there may be."""
        if self.by == "groups":
            if not roster.groups:
                raise ValueError(
                    "GroupLossAtMost(by='groups'): the rows are in no groups; give them some by "
                    "table.grouped('sex'), or groups = \"sex\" in [data]"
                )
            return roster.groups
        count = len(self.limits)
        if isinstance(self.limits, Mapping):
            count = 1 + max(map(self._number, self.limits))
        if self.column is None and roster.classes is not None:
            count = max(count, roster.classes)
        return tuple(str(g) for g in range(count))

    def _number(self, name: str) -> int:
        if not name.isdecimal():
            raise ValueError(f"GroupLossAtMost: {self._what} are 0, 1, ..; got {name!r}")
        return int(name)

    def counted(self, roster):
        return len(self._groups(roster)) + 1

    def tally(self, rows, roster):
        count = len(self._groups(roster))
        group, weight = np.asarray(_of(self, rows)), np.asarray(rows.weight, float)
        if group.ndim != 1:
            raise ValueError(
                f"GroupLossAtMost: groups by labels need one label a row, not {group.shape[1:]}"
            )
        fits = (group >= 0) & (group < count) & (group == np.floor(group))
        place = np.where(fits, group, count).astype(int)  # the last: in no group
        return np.stack([np.bincount(place, w, count + 1) for w in (weight, weight > 0)])

    def fitted(self, counts, roster):
        names, (shares, rows) = self._groups(roster), counts
        if shares[-1] > 0:
            raise ValueError(self._groupless(rows))
        limits = self._limits(names)
        numbers = tuple(g for g, name in enumerate(names) if name in limits)
        for g in numbers:
            if not shares[g] > 0:
                raise ValueError(
                    f"GroupLossAtMost: no row is in group {names[g]!r} ({self._what}), so that its "
                    f"limit would be met whatever the model; leave it out, or repair the data"
                )
        return CountedGroups(
            limits=tuple(limits[names[g]] for g in numbers),
            shares=tuple(float(shares[g]) for g in numbers),
            numbers=numbers,
            groups=tuple(names[g] for g in numbers),
            rows=tuple(int(rows[g]) for g in numbers),
            column=self.column,
            by=self.by,
        )

    def _limits(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The limit of each group that has one, by its name."""
        if isinstance(self.limits, Mapping):
            for name in self.limits:
                checks.known(f"group ({self._what})", name, names)
            return dict(self.limits)
        if len(self.limits) != len(names):
            raise ValueError(
                f"GroupLossAtMost has {len(self.limits)} limits; there are {len(names)} "
                f"{self._what}: {', '.join(names)}. Give a limit to each, or to some of them "
                f"by name: {{{names[0]!r}: {float(self.limits[0]):g}}}"
            )
        return dict(zip(names, self.limits, strict=True))

    def _groupless(self, rows: np.ndarray) -> str:
        """What to say of rows that are in no group."""
        last, lost, whole = len(rows) - 2, int(rows[-1]), int(rows.sum())
        said = (
            f"GroupLossAtMost: {lost} of {whole} rows are in no group: {self._what} must be "
            f"0..{last}"
        )
        if self.column is None:
            return said
        return (
            f"{said}. Was the column scaled? Groups are given beside the features, before that: "
            f"table.grouped({self.column}).standardized(), and by='groups' in place of the column"
        )


class CountedGroups(Constraint):
    """A `GroupLossAtMost` whose rows have been counted: what it becomes before round 0."""

    limits: tuple[float, ...]
    shares: tuple[float, ...]  # of the objective's mean
    numbers: tuple[int, ...] = eqx.field(static=True)  # of the groups, as rows have them
    groups: tuple[str, ...] = eqx.field(static=True)  # their names
    rows: tuple[int, ...] = eqx.field(static=True)  # how many are in each
    column: int | None = eqx.field(default=None, static=True)
    by: Literal["labels", "groups"] = eqx.field(default="labels", static=True)

    @property
    def count(self) -> int:
        return len(self.limits)

    @property
    def of_loss(self) -> bool:
        return self.column is None

    def convex(self, problem):
        return problem.convex

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"loss of {name}" for name in self.groups)

    @property
    def sizes(self) -> tuple[int | None, ...]:
        return self.rows

    def bounds(self) -> tuple[Any, ...]:
        return self.limits

    def values(self, x, rows, loss):
        group = _of(self, rows)
        each = zip(self.numbers, self.limits, self.shares, strict=True)
        return jnp.stack(
            [jnp.where(group == g, (loss - limit) / share, 0) for g, limit, share in each], axis=1
        )

    # other rows are counted anew

    @property
    def given(self) -> GroupLossAtMost:
        limits = dict(zip(self.groups, self.limits, strict=True))
        return GroupLossAtMost(limits, self.column, self.by)

    def check(self, features):
        self.given.check(features)

    def counted(self, roster):
        return self.given.counted(roster)

    def tally(self, rows, roster):
        return self.given.tally(rows, roster)

    def fitted(self, counts, roster):
        return self.given.fitted(counts, roster)


def _of(limit: GroupLossAtMost | CountedGroups, rows: Rows) -> Any:
    """What says which group a row is in, f[n] or i[n]."""
    if limit.by == "groups":
        if rows.group is None:  # compared with a number it would be no group at all
            raise ValueError("these rows have no groups; a limit by='groups' would cover none")
        return rows.group
    if limit.column is None:
        return rows.y
    if isinstance(rows.x, Dense):
        return rows.x.values[:, limit.column]
    return rows.x @ jnp.zeros(rows.x.shape[1], rows.x.dtype).at[limit.column].set(1)
