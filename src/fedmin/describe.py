"""A value in plain words: what a method, a problem or a whole run is made of, as JSON can hold it.

    describe(FedAvg(0.1)) == {"name": "fedavg", "step": 0.1, "local_steps": 1, ...}

The same description names the same thing in every process, so that its hash can be a name.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

SHORT = 64  # numbers that are written out; longer arrays are named by their hash


def describe(value: Any) -> Any:
    """Plain numbers, words, lists and dicts that say what a value is.

    >>> from fedmin.describe import describe
    >>> import fedmin
    >>> describe(fedmin.Power(0.5, 0.1))
    {'name': 'power', 'scale': 0.5, 'exponent': 0.1}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"name": type(value).__name__.lower(), **fields}
    if isinstance(value, Mapping):
        return {str(key): describe(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [describe(each) for each in value]
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _array(np.asarray(value))
    if callable(value):
        return _path(value)
    return repr(value)


def digest(value: Any) -> str:
    """A hash of what `describe` says, 64 letters."""
    words = json.dumps(describe(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(words.encode()).hexdigest()


def _array(array: np.ndarray) -> Any:
    if array.size <= SHORT:
        return array.tolist()
    content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return {"array": list(array.shape), "type": str(array.dtype), "sha256": content}


def _path(function: Any) -> str:
    inside = getattr(function, "__wrapped__", function)
    module = getattr(function, "__module__", None) or getattr(inside, "__module__", "")
    return f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"
