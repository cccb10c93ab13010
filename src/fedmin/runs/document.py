"""A TOML document whose errors say where they are."""

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, Self

LARGEST = 1 << 20  # bytes of a file: one that is longer is something else
DEEPEST = 16  # lists and tables within each other
LONGEST = 200  # letters of either end of what is said: it may quote a value of any length


class ConfigError(ValueError):
    """Something in a configuration file that cannot be run, and where it is."""


class Document:
    """The words of a file, and the lines they stand on."""

    def __init__(self, text: str, source: str = "configuration"):
        self.source, self.lines = source, {}
        self.folder = Path()  # what its paths are relative to
        if len(text) > LARGEST:
            self.fail("", f"longer than {LARGEST:,} letters; a configuration is a page or two")
        try:
            self.words = tomllib.loads(text)
        except RecursionError:
            self.fail("", f"lists and tables are nested too deeply; {DEEPEST} levels may be")
        except ValueError as error:  # also of numbers with thousands of digits
            self.fail("", str(error))
        self.lines = _line_numbers(text)
        self._bound("", self.words, DEEPEST)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a file."""
        path = Path(path)
        with path.open("rb") as file:  # a file may have no end
            content = file.read(LARGEST + 1)
        try:
            found = cls(content.decode("utf-8"), path.name)
            found.folder = path.parent
            return found
        except UnicodeDecodeError as error:
            words = f"not a text in UTF-8: byte {error.start} is {content[error.start]:#04x}"
            raise ConfigError(f"{path.name}: {words}") from None

    def _bound(self, where: str, words: Any, levels: int) -> None:
        """Refuse what nests too deeply, and whole numbers that are none in TOML."""
        if isinstance(words, int) and not -(2**63) <= words < 2**63:
            key = where.rpartition(".")[2]
            self.fail(where, f"{key} is beyond the whole numbers of TOML, which have 64 bits")
        if not isinstance(words, dict | list):
            return
        if levels == 0:
            self.fail(where, f"lists and tables are nested too deeply; {DEEPEST} levels may be")
        if isinstance(words, list):
            for each in words:
                self._bound(where, each, levels - 1)
        else:
            for key, each in words.items():
                self._bound(f"{where}.{key}" if where else key, each, levels - 1)

    def fail(self, where: str, words: str) -> NoReturn:
        """Raise an error that says where it is: at "section.key", or at what is around it."""
        place = where
        while place and place not in self.lines:  # constraint[1].radius, constraint[1], constraint
            place = re.sub(r"(\[\d+\]|(^|\.)[^.\[]*)$", "", place)
        line = f", line {self.lines[place]}" if place in self.lines else ""
        if len(words) > 2 * LONGEST:
            words = f"{words[:LONGEST]} ... {words[-LONGEST:]}"
        raise ConfigError(f"{self.source}{line}: {words}")

    def refuse(self, where: str, words: Mapping[str, Any], error: Exception) -> NoReturn:
        """Raise what a class said of its fields, at the line of the one that it names or quotes."""
        named = [key for key in words if re.search(rf"\b{re.escape(key)}\b", str(error))]
        named += [key for key, word in words.items() if _quoted(word, error)]
        self.fail(f"{where}.{named[0]}" if named else where, str(error))


def _quoted(word: Any, error: Exception) -> bool:
    return isinstance(word, str) and repr(word) in str(error)


def _line_numbers(text: str) -> dict[str, int]:
    """Where each section and each of its keys is; tables within a line count as their key.

    The second section [[constraint]] is constraint[1].
    """
    section = ""
    found: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"\s*(\[\[?)\s*([\w.-]+)\s*\]", line)
        key = re.match(r"\s*([\w.-]+)\s*=", line)
        if head:
            section = head[2]
            found.setdefault(section, number)
            if head[1] == "[[":
                section = f"{section}[{counts[section]}]"
                counts[head[2]] += 1
                found[section] = number
        elif key:
            found[f"{section}.{key[1]}" if section else key[1]] = number
    return found
