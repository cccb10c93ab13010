"""A model as files: model.json, which is read back and checked, and safetensors."""

import base64
import binascii
import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedmin.core.files import write_whole, write_words
from fedmin.core.inference import Inference
from fedmin.core.kept import DamagedError, check_words, read_words
from fedmin.core.preparation import About, Preparation
from fedmin.core.problem import Problem
from fedmin.core.serialize import deserialize, serialize

FORMAT = 1
FORM: dict[str, Any] = {
    "format": int, "sha256": str, "fedmin": str, "problem": dict, "features": list[str],
    "outcome": str, "classes": list[str] | None, "preparation": dict | None, "parameters": dict,
    "limits": list[dict], "set": str, "certificate": dict, "data": dict, "run": dict,
    "citations": list[str], "coefficients": dict, "statistics": dict | None,
    "inputs": list[str] | None, "scaled": str | None,
    "units": dict[str, str] | None,
}  # fmt: skip
BAD_WORDS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)


def model_words(model: Any, path: Path) -> Path:
    """Write a model as JSON."""
    about = model.about
    prepared = None if about.preparation is None else about.preparation.words()
    words = {
        "format": FORMAT, "fedmin": model.version, "outcome": about.outcome,
        "classes": None if about.classes is None else list(about.classes),
        "coefficients": _coefficients(model), "limits": [dict(each) for each in model.limits],
        "set": model.domain, "certificate": serialize(dict(model.certificate)),
        "run": serialize(dict(model.run)), "citations": list(model.citations),
        "data": serialize(dict(model.data)), "features": list(about.names),
        "preparation": prepared, "problem": serialize(model.problem),
        "parameters": _packed(np.asarray(model.x)), "statistics": _of_inference(model.inference),
        "inputs": list(about.inputs), "scaled": about.scaled,
        "units": dict(about.units),
    }  # fmt: skip
    write_words(path, words)
    return path


def _coefficients(model: Any) -> dict[str, Any]:
    """Coefficients on the original scale, for those who only read the file."""
    if model.problem is None or not model.linear:
        return {}
    names = model.classes if model.link == "softmax" else (model.about.outcome,)
    return {
        str(name): {
            "intercept": float(b),
            "features": dict(zip(model.features, row.tolist(), strict=True)),
        }
        for name, row, b in zip(names, model.coefficients, model.intercept, strict=True)
    }


def _packed(array: np.ndarray) -> dict[str, Any]:
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return {"type": str(array.dtype), "count": int(array.size),
            "base64": base64.b64encode(little.tobytes()).decode()}  # fmt: skip


def read_model_words(path: Path, also: Iterable[type], problem: Problem | None) -> dict[str, Any]:
    """The fields of a model; `DamagedError` names what is wrong with the file."""
    words = read_words(path)
    check_words(path, words, {"format": int})
    if words["format"] > FORMAT:
        raise ValueError(f"{path} was written by a newer fedmin (format {words['format']})")
    check_words(path, words, FORM)
    x = _unpacked(path, words["parameters"])
    given = problem is not None
    problem, size = (problem, problem.size()) if problem else _problem(words["problem"], also)
    if problem is not None and size != len(x):
        what = f"{len(x)} parameters, and {'that problem' if given else 'its problem'} has {size}"
        raise ValueError(f"{path} has {what}") if given else DamagedError(path, what)
    about = _about(path, words)
    features = getattr(problem, "features", None)
    if problem is not None and features is not None and features != len(about.names):
        raise DamagedError(path, f"{len(about.names)} features, and the problem has {features}")
    return {
        "problem": problem, "x": x, "about": about, "limits": tuple(words["limits"]),
        "domain": words["set"], "certificate": words["certificate"], "data": words["data"],
        "inference": _inference(path, words.get("statistics"), len(x)),
        "run": words["run"], "citations": tuple(words["citations"]), "version": words["fedmin"],
    }  # fmt: skip


ARRAYS = ("estimate", "fisher", "clustered")
OF_INFERENCE: dict[str, Any] = {
    "estimate": dict, "fisher": dict, "clustered": dict | None, "active": list[int],
    "link": Literal["identity", "log", "logit"], "bias": bool, "rows": float, "sites": int,
    "log_likelihood": float, "deviance": float, "distance": float, "notes": list[str],
}  # fmt: skip


def _of_inference(found: Inference | None) -> dict[str, Any] | None:
    if found is None:
        return None
    words = found._asdict() | {"active": found.active.tolist(), "notes": list(found.notes)}
    return words | {k: None if words[k] is None else _packed(words[k]) for k in ARRAYS}


def _inference(path: Path, words: Any, size: int) -> Inference | None:
    if words is None:
        return None
    check_words(path, words, OF_INFERENCE)
    active = np.array(words["active"], int)
    if not len(active) or (np.diff(active) <= 0).any() or active[0] < 0 or active[-1] >= size:
        raise DamagedError(path, "its statistics are of parameters that it does not have")
    count = len(active)
    shapes = {"estimate": (size,), "fisher": (count, count), "clustered": (count, count)}
    arrays: dict[str, Any] = {"clustered": None}
    for name in ARRAYS:
        if words[name] is not None:
            found = _unpacked(path, words[name])
            if found.size != np.prod(shapes[name]):
                raise DamagedError(path, f"{name} of its statistics has {found.size} numbers")
            arrays[name] = found.reshape(shapes[name])
    plain = {k: words[k] for k in OF_INFERENCE if k not in ARRAYS}
    return Inference(**plain | arrays | {"active": active, "notes": tuple(words["notes"])})


def _problem(words: Any, also: Iterable[type]) -> tuple[Problem | None, int]:
    """What words name, and how many parameters it has; None of somebody's own functions."""
    try:
        found = deserialize(words, also)
        return (found, found.size()) if isinstance(found, Problem) else (None, 0)
    except BAD_WORDS:
        return None, 0


def _unpacked(path: Path, words: Mapping[str, Any]) -> np.ndarray:
    form = {"type": Literal["float16", "float32", "float64"], "count": int, "base64": str}
    check_words(path, words, form)
    try:
        content = base64.b64decode(words["base64"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise DamagedError(path, f"its parameters are no base64 ({error})") from None
    kind = np.dtype(words["type"]).newbyteorder("<")
    if len(content) != words["count"] * kind.itemsize or not content:
        raise DamagedError(path, f"its parameters are {len(content)} bytes, not as many as it says")
    found = np.frombuffer(content, kind).astype(words["type"])
    if not np.isfinite(found).all():
        raise DamagedError(path, "a parameter is not finite")
    return found


def _about(path: Path, words: Mapping[str, Any]) -> About:
    prepared = None
    if words["preparation"] is not None:
        try:
            prepared = Preparation.of(words["preparation"])
            _check_preparation(prepared)
        except BAD_WORDS as error:
            raise DamagedError(path, f"its preparation cannot be made: {error}") from None
        if prepared.names != tuple(words["features"]):
            raise DamagedError(path, "its features are not those of its preparation")
    classes = None if words["classes"] is None else tuple(words["classes"])
    inputs = tuple(words.get("inputs") or ())
    if inputs and sorted(inputs) != sorted(words["features"]):
        raise DamagedError(path, "its inputs are not the columns of its features")
    return About(
        tuple(words["features"]), prepared, words["outcome"], classes,
        inputs=inputs, scaled=words.get("scaled") or "", units=words.get("units") or {},
    )  # fmt: skip


def _check_preparation(prepared: Preparation) -> None:
    """Refuse numbers that prepare nothing, and levels that are no words."""
    shift, scale = prepared.scales
    if not (np.isfinite(shift).all() and np.isfinite(scale).all() and (scale > 0).all()):
        raise ValueError("a shift is not finite, or a scale is not above 0")
    for column in prepared.columns:
        given = getattr(column, "levels", ())
        if not all(isinstance(each, str) for each in (column.name, *given)):
            raise ValueError(f"{column.name!r} has a level that is no word")


def write_safetensors(path: Path, tensors: Mapping[str, Any], about: Mapping[str, str]) -> Path:
    """Arrays by name: the length of a header, the header in JSON, and the arrays' bytes.

    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from fedmin.core.model_files import write_safetensors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "a.safetensors"
    ...     write_safetensors(path, {"w": np.zeros(2, np.float32)}, {}).stat().st_size
    104
    """
    kinds = {"float16": "F16", "float32": "F32", "float64": "F64"}
    header: dict[str, Any] = {"__metadata__": dict(about)}
    content, at = [], 0
    for name, array in tensors.items():
        array = np.ascontiguousarray(array)
        data = array.astype(array.dtype.newbyteorder("<")).tobytes()
        header[name] = {"dtype": kinds[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [at, at + len(data)]}  # fmt: skip
        at += len(data)
        content.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    write_whole(path, struct.pack("<Q", len(text)) + text + b"".join(content))
    return path
