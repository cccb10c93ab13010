"""A TOML document whose tables become values, and whose errors say where they are."""

import re
import tomllib
import typing
from collections.abc import Callable, Mapping
from typing import Any

from fedmin.core import checks
from fedmin.core.serialize import accepts, fits, function, known_classes, options_of, parameters


class ConfigError(ValueError):
    """Something in a configuration file that cannot be run, and where it is."""


class Document:
    """The words of a file, and the lines they stand on."""

    def __init__(self, text: str, source: str = "configuration"):
        self.source, self.lines = source, _line_numbers(text)
        try:
            self.words = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{source}: {error}") from None

    def fail(self, where: str, words: str) -> typing.NoReturn:
        """An error that says where it is."""
        place = where
        while place and place not in self.lines:
            place = place.rpartition(".")[0]
        line = f", line {self.lines[place]}" if place in self.lines else ""
        raise ConfigError(f"{self.source}{line}: {words}")

    def refuse(self, where: str, words: Mapping[str, Any], error: Exception) -> typing.NoReturn:
        """What a section's value said of its fields, at the line of the one it names or quotes."""
        named = [key for key in words if re.search(rf"\b{key}\b", str(error))]
        named += [key for key, word in words.items() if _quoted(word, error)]
        self.fail(f"{where}.{named[0]}" if named else where, str(error))

    def pick(self, where: str, name: Any, registry: Mapping[str, Any]) -> Any:
        """A thing by its name."""
        if name not in registry:
            what = where.removesuffix(".name").rpartition(".")[2]
            self.fail(where, f"unknown {what} {name!r}; {checks.nearest(name, registry)}")
        return registry[name]

    def make(
        self, where: str, words: Any, registry: Mapping[str, Any], filled: Mapping[str, Any] = {}
    ) -> Any:
        """A value from its name and fields."""
        if not isinstance(words, dict) or "name" not in words:
            hint = checks.nearest("", registry)
            self.fail(where, f"[{where}] needs a table with a name; {hint}")
        kind = self.pick(f"{where}.name", words["name"], registry)
        takes = parameters(kind)
        values = {key: value for key, value in filled.items() if key in takes}
        for key, value in words.items():
            if key == "name":
                continue
            place = f"{where}.{key}"
            if key not in takes:
                near = checks.nearest(key, takes) if takes else "it takes none"
                self.fail(place, f"{words['name']} has no {key!r}; {near}")
            self.check_type(place, value, takes[key][0])
            values[key] = self._value(place, value, takes[key][0])
        missing = [key for key, (_, needed) in takes.items() if needed and key not in values]
        if missing:
            self.fail(where, f"{words['name']} needs {missing[0]!r}")
        try:
            return kind(**values)
        except (ValueError, TypeError) as error:
            self.refuse(where, words, error)

    def _value(self, where: str, value: Any, hint: Any) -> Any:
        if isinstance(value, dict):
            return self.make(where, value, known_classes())
        if isinstance(value, list):
            return tuple(self._value(where, each, Any) for each in value)
        if isinstance(value, str) and accepts(hint, Callable):
            try:
                return function(value)
            except ValueError as error:
                self.fail(where, str(error))
        wants_float = accepts(hint, float) and not accepts(hint, int)
        return float(value) if wants_float and type(value) is int else value

    def check_type(self, where: str, value: Any, hint: Any) -> None:
        """Refuse words for numbers, halves for counts and the like."""
        plain = {
            bool: "true or false", int: "a whole number", float: "a number", str: "a word",
            list: "a list", dict: "a table",
        }  # fmt: skip
        for kind, name in plain.items():
            if options_of(hint) == {kind} and not fits(value, kind):
                key = where.rpartition(".")[2]
                self.fail(where, f"{key} must be {name}, got {value!r}")


def _quoted(word: Any, error: Exception) -> bool:
    return isinstance(word, str) and repr(word) in str(error)


def _line_numbers(text: str) -> dict[str, int]:
    """Where each section and each of its keys is; tables within a line count as their key."""
    section = ""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"\s*\[\[?\s*([\w.-]+)\s*\]\]?", line)
        key = re.match(r"\s*([\w-]+)\s*=", line)
        if head:
            section = head[1]
            found.setdefault(section, number)
        elif key:
            found[f"{section}.{key[1]}" if section else key[1]] = number
    return found
