"""The files of a saved result: what is in them, and what is refused of them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedmin.core.files import digest_of, write_text
from fedmin.core.kept import DamagedError, check_words, read_words
from fedmin.core.method import Method
from fedmin.core.serialize import deserialize

FORMAT = 3  # of the folder that `save` writes
NOT_SHOWN = ("round", "seconds", "bytes_down", "bytes_up", "bytes_evaluation")
FORM: dict[str, Any] = {  # of result.json, but for its ledger
    "rounds": int, "seed": int, "status": str, "reason": str,
    "compile_seconds": float, "run_seconds": float, "method": dict,
    "best": tuple[float, float, int] | None, "rising": list[str] | None,
    "privacy": dict | None,
    "type": Literal["float16", "float32", "float64", "int32", "int64"] | None,
}  # fmt: skip
# what a class may say of fields that are none of its own
BAD_WORDS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)


def typed(history: dict[str, np.ndarray], kind: str) -> dict[str, np.ndarray]:
    """What was measured, in its own type: 90 of 100 in single precision are 0.9 there, and
    less than that in double."""
    return {k: v if k in NOT_SHOWN else v.astype(kind) for k, v in history.items()}


def method_of(path: Path, words: dict[str, Any], also: Iterable[type]) -> Method:
    """The method that words name."""
    try:
        method = deserialize(words, also)
    except BAD_WORDS as error:
        raise DamagedError(path, f"its method cannot be made: {error}") from None
    if not isinstance(method, Method):
        raise DamagedError(path, f"its method is {method!r}")
    return method


def result_words(folder: Path) -> dict[str, Any]:
    """The words of a saved result, all of whose files are as they were written."""
    path = folder / "result.json"
    words = read_words(path)
    check_words(path, words, {"format": int})
    if words["format"] > FORMAT:
        raise ValueError(f"{folder} was written by a newer fedmin (format {words['format']})")
    if words["format"] < FORMAT:  # nothing was said of the other files then
        return words | {"files": {each.name: None for each in folder.iterdir()}}
    check_words(path, words, {"sha256": str, "files": dict[str, str | None]})
    for name, digest in words["files"].items():
        file = folder / Path(name).name
        if digest is not None and not file.is_file():
            raise DamagedError(file, f"it is gone, and {path.name} names it")
        if digest is not None and digest_of(file) != digest:
            raise DamagedError(file, "its SHA-256 does not fit")
    return words


def write_csv(path: Path, columns: Mapping[str, Any]) -> Path:
    """A table whose numbers are read back exactly."""
    values = [np.asarray(column).tolist() for column in columns.values()]
    lines = [",".join(columns), *(",".join(map(repr, row)) for row in zip(*values, strict=True))]
    write_text(path, "\n".join(lines) + "\n")
    return path
