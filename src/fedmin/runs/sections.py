"""The sections of a file, what they name, and the fields that each of them takes.

A field has a type, whoever reads it: a class of fedmin, or the file itself (`standardize`, the
options of `partition`). By it a value is checked (values.py), and a list is a value or a grid.
"""

from typing import Any, Literal

from fedmin import data
from fedmin.data.loading import maker
from fedmin.runs.fields import Field, fields_of
from fedmin.runs.registries import KINDS, Kind

SECTIONS: dict[str, Kind] = {
    "data": Kind("a data set", data.DATASETS), "partition": KINDS["partitioners"],
    "problem": KINDS["problems"], "domain": KINDS["domains"], "constraint": KINDS["constraints"],
    "channel": KINDS["channels"], "participation": KINDS["participations"],
    "method": KINDS["methods"],
}  # fmt: skip
# what partition() itself takes
PARTITION_OPTIONS = ("seed", "server_rows", "weights", "labels", "most_rows")
SMALLEST = "smallest_with_loss_at_most"


def own_fields() -> dict[str, Field]:
    """The fields of a [data] that names files of one's own in place of a data set."""
    read = {k: f for k, f in fields_of(data.read).items() if k not in ("files", "labels", "seed")}
    for key in ("kinds", "units"):
        read[key] = Field(dict[str, str] | None, False, None)
    files = Field(str | tuple[str, ...] | dict[str, str], True, None)
    split = Field(Literal["rows", "columns"], False, "rows")
    return {
        "files": files,
        **read,
        "split": split,
        "sha256": Field(tuple[str, ...] | None, False, None),
    }


def fields_at(section: str, name: Any) -> dict[str, Field]:
    """The fields of a section whose `name` is this; those of the section alone if it has none."""
    known = isinstance(name, str) and name in SECTIONS[section].registry
    if section == "data" and name is None:
        return own_fields()
    if section == "data":
        make, first = maker(name) if known else (None, ())
        options = {} if make is None else dict([*fields_of(make).items()][len(first) :])
        own = {
            "groups": Field(str | int | None, False, None),
            "standardize": Field(bool, False, False),
        }
        return {**options, **own}
    fields = fields_of(SECTIONS[section].registry[name]) if known else {}
    if section == "partition":
        outer = fields_of(data.partition)
        fields |= {key: outer[key] for key in PARTITION_OPTIONS}
    if section == "problem":
        fields |= {SMALLEST: Field(float | None, False, None)}
    return fields
