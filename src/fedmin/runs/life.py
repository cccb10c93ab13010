"""The life of a run, kept in its folder: each start with what it was made with, and how it ended.

environment.json has the versions and devices of the latest part, when the first one began, and in
`parts` all of them. A part that was killed has a beginning and no end.
"""

import os
import socket
import time
import warnings
from pathlib import Path
from typing import Any

from fedmin.core.environment import versions
from fedmin.core.files import write_words
from fedmin.core.kept import DamagedError, check_words, read_words
from fedmin.core.result import Result

NAME = "environment.json"
TIME = "%Y-%m-%dT%H:%M:%S%z"


def begin(folder: Path) -> None:
    """Another part of a run begins here and now; a file that is damaged is named, and lost."""
    try:
        before = _parts(folder)
    except DamagedError as error:
        before = []
        words = f"{error}; the earlier parts of the run are not known any more"
        warnings.warn(words, RuntimeWarning, stacklevel=2)
    here = {"began": time.strftime(TIME), "host": socket.gethostname(), "process": os.getpid()}
    _write(folder, [*before, {**versions(), **here}])


def end(folder: Path, result: Result) -> None:
    """The latest part has ended."""
    *before, last = _parts(folder)
    words = {"rounds": result.rounds, "status": result.status, "reason": result.reason}
    _write(folder, [*before, {**last, "ended": time.strftime(TIME), **words}])


def parts_of(folder: Path) -> list[dict[str, Any]]:
    """What each part of a run was made with, and when it began."""
    shown = [*versions(), "began"]
    return [{key: part[key] for key in shown if key in part} for part in _parts(folder)]


def _parts(folder: Path) -> list[dict[str, Any]]:
    """The parts so far."""
    path = folder / NAME
    if not path.exists():  # as beside a result that was saved by hand
        return []
    words = read_words(path)
    check_words(path, words, {"parts": list[dict] | None})
    return words.get("parts") or [words]  # 0.2.0 kept the latest one only


def _write(folder: Path, parts: list[dict[str, Any]]) -> None:
    shown = versions()
    latest = {key: value for key, value in parts[-1].items() if key in shown}
    write_words(folder / NAME, {**latest, "began": parts[0].get("began"), "parts": parts})
