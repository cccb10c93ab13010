"""A TOML document whose errors say where they are."""

import re
import tomllib
from collections.abc import Mapping
from typing import Any, NoReturn


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

    def fail(self, where: str, words: str) -> NoReturn:
        """Raise an error that says where it is: at "section.key", or at what is around it."""
        place = where
        while place and place not in self.lines:
            place = place.rpartition(".")[0]
        line = f", line {self.lines[place]}" if place in self.lines else ""
        raise ConfigError(f"{self.source}{line}: {words}")

    def refuse(self, where: str, words: Mapping[str, Any], error: Exception) -> NoReturn:
        """Raise what a class said of its fields, at the line of the one that it names or quotes."""
        named = [key for key in words if re.search(rf"\b{key}\b", str(error))]
        named += [key for key, word in words.items() if _quoted(word, error)]
        self.fail(f"{where}.{named[0]}" if named else where, str(error))


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
