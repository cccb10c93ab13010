"""What a folder of a run holds, read back: bounded, and checked before it is used.

A folder may be half written, damaged, or a stranger's. Whatever is wrong with a file ends in a
`DamagedError` that names it; nothing is guessed.
"""

import csv
import dataclasses
import hashlib
import io
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from fedmin.core.files import write_whole

LARGEST = 1 << 28  # bytes of a file of words; a history of a million rounds has a third of it
T = TypeVar("T")


class DamagedError(ValueError):
    """A file of a run that is not as it was written: which, and what is wrong with it.

    >>> from fedmin.core.kept import DamagedError
    >>> print(DamagedError("runs/a/result.json", "rounds is -1"))
    runs/a/result.json is damaged, or was not written by fedmin: rounds is -1
    """

    def __init__(self, path: object, what: str):
        what = what if len(what) < 300 else f"{what[:300]} ..."
        super().__init__(f"{path} is damaged, or was not written by fedmin: {what}")


def read_text(path: Path) -> str:
    """A text of a bounded length."""
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise DamagedError(path, f"it has more than {LARGEST:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedError(path, f"byte {error.start} is not UTF-8") from None


def read_words(path: Path) -> dict[str, Any]:
    """The words of a JSON file, an object; if it names its own SHA-256, that must fit."""
    text = read_text(path)
    try:
        words = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedError(path, str(error)) from None
    if not isinstance(words, dict):
        raise DamagedError(path, f"it is no object but {words!r}")
    if "sha256" in words:  # of the text without it
        before, _, after = text.rpartition(str(words["sha256"]))
        if hashlib.sha256((before + after).encode()).hexdigest() != words["sha256"]:
            raise DamagedError(path, "its SHA-256 does not fit")
    return words


def check_words(path: Path, words: Mapping[str, Any], form: Mapping[str, Any]) -> None:
    """Refuse words whose values are not of the types of a form; None allows a key to be absent."""
    for key, hint in form.items():
        if not is_a(words.get(key), hint):
            found = f"{key} is {words[key]!r}" if key in words else f"it has no {key!r}"
            raise DamagedError(path, found)


def value_of(path: Path, words: Any, kind: type[T]) -> T:
    """A plain class of named fields from an object that has them, each of its type."""
    if not isinstance(words, dict):
        raise DamagedError(path, f"there must be an object in place of {words!r}")
    hints = typing.get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        usual = {
            field.name
            for field in dataclasses.fields(kind)
            if (field.default, field.default_factory) != (dataclasses.MISSING,) * 2
        }
    else:
        usual = set(getattr(kind, "_field_defaults", ()))
    wrong = [f"no {key!r}" for key in hints if key not in words and key not in usual]
    wrong += [f"a {key!r}" for key in words if key not in hints]
    if wrong:
        raise DamagedError(path, f"it is not a {kind.__name__.lower()}, it has {wrong[0]}")
    check_words(path, words, {key: hints[key] for key in words})
    made = {key: tuple(v) if _wants_tuple(hints[key], v) else v for key, v in words.items()}
    return kind(**made)


def is_a(value: Any, hint: Any) -> bool:
    """Whether a value from JSON is of a type; whole numbers are those that 64 bits hold."""
    origin, inside = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(is_a(value, option) for option in inside)
    if origin is Literal:
        return any(type(value) is type(word) and value == word for word in inside)
    if origin in (list, tuple):
        if not isinstance(value, list):
            return False
        if origin is tuple and inside and Ellipsis not in inside:
            right = len(value) == len(inside)
            return right and all(is_a(v, h) for v, h in zip(value, inside, strict=True))
        return not inside or all(is_a(each, inside[0]) for each in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        several = value.values() if isinstance(value, dict) else ()
        return isinstance(value, dict) and all(
            is_a(each, (inside or (0, Any))[1]) for each in several
        )
    if origin is float and type(value) is float:
        return True
    if origin in (int, float):
        return type(value) is int and abs(value) < 2**63
    return value is None if origin in (None, type(None)) else isinstance(value, origin)


def _wants_tuple(hint: Any, value: Any) -> bool:
    options = typing.get_args(hint) or (hint,)
    return isinstance(value, list) and any(
        (typing.get_origin(option) or option) is tuple for option in (hint, *options)
    )


def read_array(path: Path) -> np.ndarray:
    """An array of numbers, no longer than its file: the header alone may promise terabytes."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiub":
            raise DamagedError(path, "it is no array of numbers")
        return np.array(found)
    except DamagedError:
        raise
    except Exception as error:  # NumPy reads the header as Python, whose errors are of any kind
        raise DamagedError(path, f"it is no array ({error})") from None


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """The columns of a table of numbers; whole numbers stay whole."""
    try:
        names, *rows = csv.reader(io.StringIO(read_text(path), newline=""))
        if len(set(names)) < len(names):
            raise DamagedError(path, "a column is there twice")
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        return {name: _numbers(column) for name, column in zip(names, columns, strict=True)}
    except DamagedError:
        raise
    except (ValueError, OverflowError, csv.Error) as error:
        raise DamagedError(path, f"it is no table of numbers ({error})") from None


def _numbers(words: Any) -> np.ndarray:
    whole = all(word.removeprefix("-").isdecimal() for word in words)
    return np.array([int(w) if whole else float(w) for w in words], int if whole else float)


def check_history(path: Path, history: Mapping[str, np.ndarray], rounds: int) -> None:
    """Refuse a history that has no rows, or that is not of this many rounds."""
    for name in ("round", "seconds", "bytes_down", "bytes_up"):
        if name not in history or not len(history[name]):
            raise DamagedError(path, f"it has no numbers of {name!r}")
    at = history["round"]
    if at.dtype.kind != "i" or (np.diff(at) <= 0).any() or at[0] < 0 or at[-1] > rounds:
        raise DamagedError(path, f"its rounds do not rise from 0 to {rounds} at most")


def write_array(path: Path, array: Any) -> Path:
    """An array that `read_array` reads."""
    content = io.BytesIO()
    np.save(content, np.asarray(array))
    write_whole(path, content.getvalue())
    return path
