"""`read`: the tables of several sites as one value, checked before anybody works with them.

    sites = fedmin.data.read(["a.csv", "b.csv", "c.csv"], outcome="died", groups="sex")
    federation = sites.federation(fedmin.data.Prepare())

Each site's rows stay apart: what all sites need to know of each other is agreed on by messages, the
same that machines send each other (talk.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmin.core import checks
from fedmin.core.channel import Channel
from fedmin.core.federation import Federation
from fedmin.core.ledger import Line
from fedmin.core.raw_rows import MISSING
from fedmin.data.own.frames import frames_of
from fedmin.data.own.hidden import HiddenTable, HiddenTalk, roster_of
from fedmin.data.own.pooled import federation_of
from fedmin.data.own.prepare import Prepare, fitted
from fedmin.data.own.rows import Chosen
from fedmin.data.own.schema import agreed_kind, agreed_kinds
from fedmin.data.own.table import SiteTable
from fedmin.data.own.talk import Talk, answered, question_of

__all__ = ["Sites", "read"]

SCHEMA = {
    "rows": int, "columns": dict[str, str | None], "outcome": str | None, "lacks": list[str]
}  # fmt: skip
LABELS = {"labels": list[str] | None, "groups": list[str] | None}


@dataclass(frozen=True, eq=False)
class Sites:
    """The tables of several sites, with the schema that they agree on; made by `read`.

    >>> import fedmin
    >>> tables = {
    ...     "a": {"age": [50, 60, 70], "ward": ["x", "y", "x"], "died": ["no", "yes", "no"]},
    ...     "b": {"age": [40, None, 80], "ward": ["y", "y", "x"], "died": ["no", "no", "yes"]},
    ... }
    >>> sites = fedmin.data.read(tables, outcome="died")
    >>> sites
    Sites(2 sites, 6 rows, outcome 'died' of 2 classes: age number, ward category)
    >>> sites.federation(fedmin.data.Prepare(smallest_count=1)).about.names
    ('age', 'ward=y')
    """

    tables: tuple[SiteTable, ...]
    told: Mapping[str, Any]  # what all agree on: kinds, labels, groups
    lines: tuple[tuple[Line, int], ...]  # what agreeing on it sent

    def federation(
        self,
        prepare: Prepare | None = None,
        *,
        weights: Any = "sizes",
        seed: int = 0,
        channel: Channel | None = None,
    ) -> Federation:
        """The federation of these sites, their columns prepared by sums over the sites; by secure
        sums where the run's `channel` hides replies."""
        hides = channel is not None and channel.hides
        talk = Talk(self.names, in_process(self.tables), lines=self.lines)
        if hides:
            talk = hidden_talk(self.tables, self.lines)
        told, _ = fitted(talk, Prepare() if prepare is None else prepare, dict(self.told))
        marks = self.fingerprint()
        return federation_of(
            self.tables, told, talk.lines, marks, weights=weights, seed=seed, hidden=hides
        )

    @property
    def names(self) -> list[str]:
        """Of the sites."""
        return [table.frame.site for table in self.tables]

    @property
    def kinds(self) -> Mapping[str, str]:
        """Of the features, by name."""
        return self.told["kinds"]

    @property
    def outcome(self) -> str:
        """The column that is predicted."""
        return self.tables[0].chosen.outcome

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The labels' names in their order, None for numbers."""
        labels = self.told["labels"]
        return None if labels is None else tuple(labels)

    @property
    def rows(self) -> int:
        """The rows that are trained on, at all sites."""
        return sum(table.rows(self.told)[0].rows for table in self.tables)

    def fingerprint(self) -> dict[str, str]:
        """A SHA-256 of each site's rows as they were written, which the site can repeat."""
        return {t.frame.site: t.rows(self.told)[0].frame.mark for t in self.tables}

    def __repr__(self) -> str:
        what = "numbers" if self.classes is None else f"{len(self.classes)} classes"
        kinds = ", ".join(f"{name} {kind}" for name, kind in self.kinds.items())
        head = f"{len(self.tables)} sites, {self.rows} rows, outcome {self.outcome!r} of {what}"
        return f"Sites({head}: {kinds})"


def read(
    files: Any,
    *,
    outcome: str,
    features: tuple[str, ...] | None = None,
    without: tuple[str, ...] = (),
    id: str | None = None,
    groups: str | None = None,
    weights: str | None = None,
    client: str | None = None,
    test: float = 0.0,
    labels: bool | None = None,
    kinds: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    missing: tuple[str, ...] = MISSING,
    separator: str = ",",
    seed: int = 0,
) -> Sites:
    """The tables of several sites, checked: every mistake names site, file, row, column and remedy.

    files      CSV or Parquet: a list, a folder, or one with `client`; or {site: table}, where a
               table is a file, a DataFrame of pandas or polars, a dict of columns, a pair (x, y)
               (x may be sparse), or a Dataset or DataLoader of PyTorch
    outcome    the column that is predicted; words are labels, numbers are labels if `labels`
    features   what it is predicted from; all others, but for those in `without`, if left out
    id         a column that names each row, checked to do so once at a site
    groups     a column that says which group a row is in, for limits on groups; no feature
    weights    a column that says how much each row counts
    client     a column that says whose row it is, where one file has the rows of all
    test       the share of each site's rows that is held out
    kinds      {column: "number", "category" or "date"}, where the values do not tell
    units      {column: "years"}, as the model's tables show them; nothing is converted
    missing    what stands for a missing value

    >>> import fedmin
    >>> one = {"age": [50, 60], "died": [0, 1]}
    >>> fedmin.data.read({"a": one, "b": {"agee": [50, 60], "died": [0, 1]}}, outcome="died")
    Traceback (most recent call last):
        ...
    ValueError: site b: it lacks 'age' and has 'agee', unlike site a; rename the columns, or name \
those to use by features, or leave some out by without
    """
    checks.between("test", test, 0.0, 0.9)
    listed = lambda names: None if names is None else tuple(names)
    chosen = Chosen(
        outcome, listed(features), tuple(without), id, groups, weights, client, test, labels,
        dict(kinds or {}), tuple(missing), seed, dict(units or {}),
    )  # fmt: skip
    frames = frames_of(files, separator, client)
    tables = tuple(SiteTable(frame, chosen, i) for i, frame in enumerate(frames))
    talk = Talk([frame.site for frame in frames], in_process(tables))
    told = agreed(talk, chosen)
    sites = Sites(tables, told, tuple(talk.lines))
    for table in tables:
        if words := table.lacks(told):
            warnings.warn(words, UserWarning, stacklevel=2)
    return sites


def agreed(talk: Talk, chosen: Chosen) -> dict[str, Any]:
    """What all sites agree on: the kinds of their columns, the labels and the groups."""
    said = dict(zip(talk.names, talk.words("schema", {}, SCHEMA), strict=True))
    given = chosen.kinds or {}
    there = [*next(iter(said.values()))["columns"], chosen.outcome]
    for name in given:
        checks.known("column in kinds", name, there)
    kinds = agreed_kinds(said, given, chosen.without)
    outcome = agreed_kind(chosen.outcome, {site: words["outcome"] for site, words in said.items()})
    told = {"kinds": kinds, "outcome": outcome}
    for name in chosen.units or ():
        checks.known("column in units", name, [*kinds, chosen.outcome])
    if chosen.units:  # every site is told them with each question
        told["units"] = dict(chosen.units)
    each = talk.words("labels", told, LABELS)
    labels = _labels(dict(zip(talk.names, each, strict=True)), chosen, outcome)
    return {**told, "labels": labels, "groups": _groups(each)}


def _labels(said: Mapping[str, Any], chosen: Chosen, kind: str) -> list[str] | None:
    each = list(said.values())
    if any(words["labels"] is None for words in each):
        return None
    values = sorted(
        {label for words in each for label in words["labels"]},
        key=None if kind == "category" else float,
    )
    alike: dict[str, str] = {}
    for other in values:
        one = alike.setdefault(other.casefold(), other)
        if one != other:
            where = [site for site, words in said.items() if one in words["labels"]]
            raise ValueError(
                f"site {where[0]}, column {chosen.outcome!r}: the labels {one!r} and {other!r} "
                f"differ in capitals only; write both alike"
            )
    if len(values) < 2:
        raise ValueError(
            f"column {chosen.outcome!r}: every row of every site has {values[0]!r}; labels need "
            f"two values"
        )
    return values


def _groups(each: Sequence[Any]) -> list[str] | None:
    if any(words["groups"] is None for words in each):
        return None
    return sorted({group for words in each for group in words["groups"]})


def hidden_talk(tables: Sequence[SiteTable], lines: Any) -> Talk:
    """The same where no single answer is seen: keys and masks are those of machines, too."""
    names = [table.frame.site for table in tables]
    hidden = [HiddenTable(table, bytes(8), roster_of(names)) for table in tables]
    return HiddenTalk(names, in_process(hidden), lines=lines)


def in_process(tables: Sequence[Any]) -> Any:
    """Sites in this process, each of which answers by messages only."""

    def carry(messages: dict[int, bytes]) -> dict[int, bytes]:
        replies = {}
        for i, data in messages.items():
            question = question_of(bytes(8), i, data)
            answer = tables[i].answer(question.kind, question.told, question.arrays)
            replies[i] = answered(bytes(8), i, question, answer)
        return replies

    return carry
