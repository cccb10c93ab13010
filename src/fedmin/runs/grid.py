"""The runs of a file: one for each combination of the values in its lists, for every seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

from fedmin.core.environment import versions
from fedmin.core.serialize import digest
from fedmin.runs.document import Document
from fedmin.runs.fields import depth, depth_of, fits
from fedmin.runs.own_tables import files_of
from fedmin.runs.pieces import NO_EFFECT, ON_MACHINES, Words, with_defaults
from fedmin.runs.sections import SECTIONS, fields_at

MOST = 10_000  # runs of a file: more is a mistake of the keyboard


@dataclass(frozen=True)
class Job:
    """One run of a file: everything decided, and what sets it apart from the others."""

    words: dict[str, Any]  # the document, with one value for everything and one seed
    varied: dict[str, Any]  # what differs between the runs of this file
    document: Document

    @property
    def id(self) -> str:
        """A hash of what is run; where it is kept and who is told of it does not matter, nor
        whether a default is written out."""
        return digest([with_defaults(self.document, self.words), versions()["fedmin"]])[:12]

    @property
    def label(self) -> str:
        """A short name among the runs of its file."""
        method = self.words["method"]["name"]
        varied = {
            k.removeprefix("method."): v for k, v in self.varied.items() if k != "method.name"
        }
        return " ".join([method, *(f"{k}={_short(v)}" for k, v in varied.items())])

    @property
    def folder(self) -> str:
        """What its folder is called."""
        return f"{self.words['method']['name']}-{self.words['data'].get('name', 'own')}-{self.id}"

    def resolved(self) -> dict[str, Any]:
        """A document of this run alone, every default written out: what was run, all of it."""
        words = with_defaults(self.document, self.words)
        if "files" in words["data"]:
            words["data"]["files"] = files_of(self.document, words["data"])
        run = self.words["run"]
        words["run"] |= {key: run[key] for key in NO_EFFECT if key in run}
        sites = self.words.get("federation", {})
        if sites:
            words["federation"] |= {key: sites[key] for key in ON_MACHINES if key in sites}
        return {section: _as_one_value(section, each) for section, each in words.items()}


class Jobs(Sequence[Job]):
    """Every combination of the values of a document's lists, for every seed; each is made when it
    is asked for, and they are counted before."""

    def __init__(self, document: Document):
        self.document, self.lists = document, _lists(document)
        seeds = document.words["run"].get("seeds", [0])
        self.first_seed = seeds[0]
        if len(seeds) > 1:
            self.lists["seed"] = seeds
        if len(self) > MOST:
            factors = " x ".join(f"{len(each):,} of {key}" for key, each in self.lists.items())
            words = f"{factors} are {len(self):,} runs; a file may have {MOST:,} of them at most"
            document.fail(max(self.lists, key=lambda key: len(self.lists[key])), words)

    def __len__(self) -> int:
        return math.prod(map(len, self.lists.values()))

    @overload
    def __getitem__(self, place: int) -> Job: ...
    @overload
    def __getitem__(self, place: slice) -> list[Job]: ...
    def __getitem__(self, place: int | slice) -> Job | list[Job]:
        chosen = range(len(self))[place]
        return self._job(chosen) if isinstance(chosen, int) else [self._job(k) for k in chosen]

    def _job(self, number: int) -> Job:
        varied = {}
        for key, values in reversed(self.lists.items()):  # the last of them changes first
            number, digit = divmod(number, len(values))
            varied[key] = values[digit]
        varied = dict(reversed(varied.items()))
        one = {k: (dict(v) if isinstance(v, dict) else v) for k, v in self.document.words.items()}
        one["run"]["seeds"] = [varied.get("seed", self.first_seed)]
        for place, value in varied.items():
            section, _, key = place.partition(".")
            if key:
                one[section][key] = value
        return Job(one, varied, self.document)


def _lists(document: Document) -> dict[str, list[Any]]:
    """The lists of a document that are grids, by where they are."""
    words = document.words
    lists = {
        f"{section}.{key}": value
        for section in SECTIONS
        if isinstance(words.get(section), dict)
        for key, value in words[section].items()
        if _is_grid(words, section, key, value)
    }
    for place, values in lists.items():
        key = place.partition(".")[2]
        if not values:
            document.fail(place, f"{key} is an empty list; give at least one value")
        if len(values) > MOST:
            document.fail(place, f"{key} has {len(values):,} values; {MOST:,} may be at most")
        twice = next((v for i, v in enumerate(values) if v in values[:i]), None)
        if twice is not None:
            document.fail(place, f"{key} has {_short(twice)} twice; they would be one run")
    return lists


def _is_grid(words: Words, section: str, key: str, value: Any) -> bool:
    """Whether a list is a grid: it is no value of the field, but it is a list of them."""
    if not isinstance(value, list):
        return False
    names = _as_list(words[section].get("name"))
    found = [fields_at(section, name).get(key) for name in names]
    hints = [field.hint for field in found if field is not None]
    if not hints and key != "name":
        return False  # nobody has this key, which is what will be said of it
    if any(fits(value, hint) for hint in hints):
        return False
    several = any(all(fits(each, hint) for each in value) for hint in hints)
    # one that is neither: by its depth, so that what is said of it is said of a value
    return several or depth(value) > max(map(depth_of, hints), default=0)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _as_one_value(section: str, words: Any) -> Any:
    """A section without None, its lists written so that they are not read as grids."""
    if section not in SECTIONS or not isinstance(words, dict):
        return _without_none(words)
    return {
        key: [value] if _is_grid({section: words}, section, key, value) else value
        for key, value in _without_none(words).items()
    }


def _without_none(words: Any) -> Any:
    if isinstance(words, dict):
        return {k: _without_none(v) for k, v in words.items() if v is not None}
    return [_without_none(v) for v in words] if isinstance(words, list) else words


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("name", value))
    return f"{value:g}" if isinstance(value, float) else str(value)
