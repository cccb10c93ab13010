"""Tables of parties with different columns of the same rows: `read_parties`.

    federation = fedmin.data.read_parties(
        {"clinic": "clinic.aligned.csv", "insurer": "insurer.aligned.csv"},
        outcome="saw_doctor", id="patient",
    )

Every party prepares its own columns by its own rows, which nobody else has: nothing is sent for it.
The rows must be the same ones in one order; `fedmin align` brings them there, without showing ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from fedmin.core import checks
from fedmin.core.federation import Federation
from fedmin.core.preparation import About, Preparation
from fedmin.core.raw_rows import MISSING
from fedmin.data.own.frames import Frame, frames_of, no_column
from fedmin.data.own.prepare import Prepare, fitted
from fedmin.data.own.reading import agreed, in_process
from fedmin.data.own.rows import Chosen
from fedmin.data.own.table import SiteTable
from fedmin.data.own.talk import Talk

__all__ = ["read_parties"]
ALIGN = "fedmin align writes each party's file with the rows that all have, in one order"


def read_parties(
    files: Any,
    *,
    outcome: str,
    id: str | None = None,
    features: tuple[str, ...] | None = None,
    without: tuple[str, ...] = (),
    groups: str | None = None,
    labels: bool | None = None,
    kinds: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    missing: tuple[str, ...] = MISSING,
    separator: str = ",",
    seed: int = 0,
    prepare: Prepare | None = None,
) -> Federation:
    """A federation of parties with other columns of the same rows, each column prepared by its
    party alone; the arguments are those of `read`. The party with the outcome knows the labels.

    >>> import fedmin
    >>> bank = {"id": [7, 8, 9], "income": [3.0, 5.0, 4.0], "paid": ["no", "yes", "yes"]}
    >>> shop = {"id": [7, 8, 9], "visits": [1.0, 9.0, 2.0]}
    >>> parties = {"bank": bank, "shop": shop}
    >>> federation = fedmin.data.read_parties(parties, outcome="paid", id="id")
    >>> federation.about.names, federation.labels
    (('income', 'visits'), 'bank')
    """
    frames = frames_of(files, separator, None)
    holder = _holder(frames, outcome)
    _check_rows(frames, id)
    names = {"features": features, "without": without, "kinds": kinds or {}, "units": units or {}}
    _check_columns(frames, (outcome, id, groups), names)
    how = Prepare() if prepare is None else prepare
    each = []
    for frame in frames:
        mine = lambda given, frame=frame: [name for name in given if name in frame.columns]
        chosen = Chosen(
            outcome, None if features is None else tuple(mine(features)), tuple(mine(without)), id,
            groups if frame is holder else None, labels=labels,
            kinds={name: (kinds or {})[name] for name in mine(kinds or {})},
            missing=tuple(missing), seed=seed,
        )  # fmt: skip
        each.append(_prepared(frame, holder, chosen, _own(how, frame)))
    made = _together(frames, holder, each, outcome, seed)
    assert made.about is not None
    return replace(made, about=replace(made.about, units=dict(units or {})))


def _own(how: Prepare, frame: Frame) -> Prepare:
    """What is said of this party's columns."""
    among = lambda given: {k: v for k, v in given.items() if k in frame.columns}
    return replace(how, ranges=among(how.ranges), levels=among(how.levels))


def _holder(frames: Sequence[Frame], outcome: str) -> Frame:
    if len(frames) < 2:
        raise ValueError(f"columns of several parties need two files or more, got {len(frames)}")
    found = [frame for frame in frames if outcome in frame.columns]
    if not found:
        names = [name for frame in frames for name in frame.columns]
        near = checks.nearest(outcome, names)
        raise ValueError(f"no party has the column {outcome!r}, which outcome names; {near}")
    if len(found) > 1:
        raise ValueError(
            f"the outcome {outcome!r} is a column of {found[0].site} and of {found[1].site}; one "
            f"party has it: take it out of the other's file"
        )
    return found[0]


def _check_rows(frames: Sequence[Frame], id: str | None) -> None:
    """Refuse rows that are not the same ones in the same order."""
    first, *others = frames
    for frame in frames if id is not None else ():
        if id not in frame.columns:
            raise ValueError(no_column(frame, str(id), "id"))
    for frame in others:
        if frame.rows != first.rows:
            raise ValueError(f"party {frame.site} has {frame.rows} rows, and {first.site} "
                             f"{first.rows}: {ALIGN}")  # fmt: skip
        if id is None:
            continue
        here, there = frame.columns[id].tolist(), first.columns[id].tolist()
        for i, (mine, other) in enumerate(zip(here, there, strict=True)):
            if mine != other:
                raise ValueError(
                    f"party {frame.site}, {frame.places[i]}, column {id!r}: the id is {mine!r}, "
                    f"and {other!r} in {first.places[i]} of {first.site}: {ALIGN}"
                )


def _check_columns(
    frames: Sequence[Frame], special: tuple[str | None, ...], names: Mapping[str, Any]
) -> None:
    """Refuse a column that two parties have, and names that no party has."""
    owners: dict[str, Frame] = {}
    for frame in frames:
        for name in frame.columns:
            if name in owners and name not in special:
                raise ValueError(
                    f"the column {name!r} is of {owners[name].site} and of {frame.site}: a feature "
                    f"is one party's; rename one of them, or leave it out of one file"
                )
            owners.setdefault(name, frame)
    for what, given in names.items():
        for name in given or ():
            checks.known(f"column in {what}", name, list(owners))


def _prepared(frame: Frame, holder: Frame, chosen: Chosen, how: Prepare) -> tuple[Any, ...]:
    """The party's own block, what is told of it, and its table."""
    if frame is not holder:  # the outcome stands beside, and no number of a block is of it
        outcome = chosen.outcome
        frame = Frame(frame.site, {**frame.columns, outcome: holder.columns[outcome]}, frame.places)
    table = SiteTable(frame, chosen, 0)
    talk = Talk([frame.site], in_process([table]))
    told, _ = fitted(talk, how, agreed(talk, chosen))
    return table.x(told), told, table


def _together(
    frames: Sequence[Frame], holder: Frame, each: Sequence[Any], outcome: str, seed: int
) -> Federation:
    edges = np.cumsum([0, *(x.shape[1] for x, *_ in each)])
    blocks = [np.arange(a, b) for a, b in pairwise(edges)]
    prepared = [Preparation.of(told["preparation"]) for _, told, _ in each]
    whole = Preparation(
        tuple(column for one in prepared for column in one.columns),
        tuple(name for one in prepared for name in one.left_out),
    )
    _, told, table = each[frames.index(holder)]
    own = table.rows(told)[0]
    classes = None if told["labels"] is None else tuple(told["labels"])
    made = Federation.from_columns(
        np.concatenate([x for x, *_ in each], axis=1), own.y, blocks,
        names=[frame.site for frame in frames], labels=holder.site,
        classes=None if classes is None else len(classes), groups=own.groups,
        group_names=told["groups"], seed=seed,
    )  # fmt: skip
    marks = {frame.site: frame.mark for frame in frames}
    # nobody sent a sum for it: there is nothing that noise would have to cover
    about = About(whole.names, whole, outcome, classes, fingerprint=marks, told=())
    return replace(made, about=about)
