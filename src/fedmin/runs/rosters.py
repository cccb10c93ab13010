"""A roster in words, as the server of a run tells it to sites on other machines."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedmin.core.roster import ColumnOwners, Roster


def roster_words(roster: Roster) -> dict[str, Any]:
    """A roster in JSON's own kinds of values."""
    owners = roster.owners
    words = {
        name: getattr(roster, name)
        for name in ("clients", "capacity", "features", "classes", "dtype", "slots", "even",
                     "everyone", "by_rows", "sizes_told")
    }  # fmt: skip
    return {
        **words,
        "names": list(roster.names),
        "groups": list(roster.groups),
        "identities": list(roster.identities),
        "shares": [float(share) for share in roster.shares],
        "target": [roster.target[0], list(roster.target[1])],
        "owners": None if owners is None else {
            "starts": owners.starts.tolist(), "sizes": owners.sizes.tolist(),
            "width": owners.width, "rows": owners.rows, "labels": owners.labels,
        },
    }  # fmt: skip


def roster_from(words: Mapping[str, Any]) -> Roster:
    """The roster that `roster_words` put into words."""
    given = dict(words)
    owners = given.pop("owners")
    if owners is not None:
        owners = ColumnOwners(
            np.array(owners["starts"], np.int32), np.array(owners["sizes"], np.int32),
            owners["width"], owners["rows"], owners["labels"],
        )  # fmt: skip
    kind, shape = given.pop("target")
    return Roster(
        **given | {
            "owners": owners,
            "names": tuple(given["names"]),
            "groups": tuple(given["groups"]),
            "identities": tuple(given["identities"]),
            "shares": np.array(given["shares"], given["dtype"]),
            "target": (kind, tuple(shape)),
        }
    )  # fmt: skip
