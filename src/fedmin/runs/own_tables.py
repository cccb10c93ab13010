"""[data] with files of one's own, and [prepare]: from their words to a federation.

    [data]      files = ["a.csv", "b.csv"], outcome = "died", without = ["name"], test = 0.2
    [prepare]   scale = "standard", missing = "indicator", smallest_count = 10

Paths are relative to the file. What was read is known by its SHA-256: a file that has changed makes
another run.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedmin import data
from fedmin.core import checks
from fedmin.core.federation import Federation
from fedmin.core.serialize import serialize
from fedmin.data.own.frames import Frame, frames_of
from fedmin.problems.linear import Linear, Regression, Softmax
from fedmin.runs.document import Document
from fedmin.runs.registries import KINDS
from fedmin.runs.sections import own_fields
from fedmin.runs.values import read, record

Words = Mapping[str, Any]


def is_own(given: Words) -> bool:
    """Whether a [data] is of tables of one's own; on machines it names no files."""
    return "files" in given or ("outcome" in given and "name" not in given)


def own_federation(document: Document, words: Words, channel: Any = None) -> Federation:
    """The federation of a file's own tables, prepared."""
    chosen, how = read_words(document, words), prepare_of(document, words)
    if "files" not in words["data"]:
        document.fail("data", "[data] needs files to be simulated; machines have their own")
    if "partition" in words:
        document.fail("partition", "the files are the clients; leave [partition] out")
    given = words["data"].get("sha256")
    if given is not None and list(given) != digests(document, words["data"]):
        document.fail(
            "data.sha256", "the files have changed since sha256 was written; leave it out"
        )
    files = files_of(document, words["data"])
    split = chosen.pop("split", "rows")
    try:
        if split == "columns":
            return _parties(document, words, files, chosen, how)
        sites = data.read(files, labels=labels_wanted(words), **chosen)
        return sites.federation(how, channel=channel)
    except (ValueError, TypeError) as error:
        document.refuse("data", words["data"], error)


def _parties(
    document: Document, words: Words, files: Any, chosen: dict[str, Any], how: data.Prepare
) -> Federation:
    """The federation of parties with other columns of the same rows."""
    for key in ("client", "weights", "test"):
        if chosen.pop(key, None):
            document.fail(f"data.{key}", f"{key} is of files with the same columns; leave it out "
                          f'with split = "columns"')  # fmt: skip
    return data.read_parties(files, labels=labels_wanted(words), prepare=how, **chosen)


def read_words(document: Document, words: Words) -> dict[str, Any]:
    """The options of `read`, each checked by its type."""
    fields, found = own_fields(), {}
    for key, given in words["data"].items():
        if key not in fields:
            near = checks.nearest(key, fields)
            document.fail(f"data.{key}", f"unknown key {key!r} in [data] with files; {near}")
        found[key] = read(document, f"data.{key}", given, fields[key])
    if "outcome" not in found:
        document.fail("data", "[data] needs outcome, the column that is predicted")
    return {key: value for key, value in found.items() if key not in ("files", "sha256")}


def rows_at_sites(document: Document, words: Words) -> dict[str, Any]:
    """The same for machines, whose sites have rows with the same columns."""
    found = read_words(document, words)
    if found.pop("split", "rows") == "columns":
        document.fail("data.split", 'split = "columns" is prepared in a simulation (fedmin run); '
                      "on machines each party's file has numbers, which its site.toml names, and "
                      "the run's [data] has no files")  # fmt: skip
    return found


def own_frames(document: Document, words: Words) -> list[Frame]:
    """The columns of each site, as they were written."""
    chosen = rows_at_sites(document, words)
    files = files_of(document, words["data"])
    return frames_of(files, chosen.get("separator", ","), chosen.get("client"))


def prepare_of(document: Document, words: Words) -> data.Prepare:
    """What [prepare] says."""
    return record(document, "prepare", words.get("prepare", {}), data.Prepare)


def files_of(document: Document, words: Words) -> Any:
    """The files of a [data], as whole paths."""
    given = words["files"]
    at = lambda name: str((document.folder / name).absolute())
    if isinstance(given, dict):
        return {name: at(file) for name, file in given.items()}
    if isinstance(given, list | tuple):
        return [at(name) for name in given]
    return at(given) if isinstance(given, str) else given


def digests(document: Document, words: Words) -> list[str]:
    """A SHA-256 of each file; of those that are not there none."""
    given = files_of(document, words)
    several = list(given.values()) if isinstance(given, dict) else given
    several = several if isinstance(several, list) else [several]
    paths = [p for each in several if isinstance(each, str) for p in _within(Path(each))]
    return [hashlib.sha256(p.read_bytes()).hexdigest() for p in paths if p.is_file()]


def _within(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]


def labels_wanted(words: Words) -> bool | None:
    """Whether the problem takes labels: numbers, where it is a regression."""
    kind = KINDS["problems"].registry.get(words["problem"].get("name"))
    return not (isinstance(kind, type) and issubclass(kind, Regression))


def with_intercept(words: Words) -> dict[str, Any]:
    """The words of a problem; a linear one on tables of one's own has an intercept."""
    given = dict(words["problem"])
    name = given.get("name")
    kind = KINDS["problems"].registry.get(name) if isinstance(name, str) else None
    linear = isinstance(kind, type) and issubclass(kind, Linear | Softmax)
    if is_own(words["data"]) and linear:
        given.setdefault("bias", True)
    return given


def shapes_of(federation: Federation) -> Any:
    """What a problem is told of the data."""
    features = federation.pool.x.shape[1]
    return SimpleNamespace(features=features, classes=federation.classes, image_shape=None)


def own_with_defaults(document: Document, words: Words) -> dict[str, Any]:
    """[data] and [prepare] with every default, and with what the files are."""
    fields = own_fields().items()
    usual = {k: f.default for k, f in fields if not f.needed and k != "split"}
    known = {"sha256": digests(document, words["data"])} if "files" in words["data"] else {}
    return {
        "data": serialize({**usual, **words["data"], **known}),
        "prepare": serialize(prepare_of(document, words)) | {"name": None},
    }


def on_machines(words: Words) -> dict[str, Any]:
    """The words of a run as machines need them: each site has its own file, and says where."""
    given = words["data"]
    if not is_own(given):
        return dict(words)
    apart = ("files", "sha256", "client", "separator")
    return {**words, "data": {key: given[key] for key in given if key not in apart}}
