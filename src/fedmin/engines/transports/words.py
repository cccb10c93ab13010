"""A run as words, from which another process of the same person builds the same run.

Classes and functions go by the names of their modules, numbers in full. Nothing else is imported
and no code travels: what a process cannot import by its name it cannot be given.
"""

import base64
import dataclasses
import importlib
from typing import Any

import jax
import numpy as np


def to_words(value: Any) -> Any:
    """JSON's own kinds of values, which say everything about this one.

    >>> import fedmin
    >>> from fedmin.engines.transports.words import from_words, to_words
    >>> from_words(to_words(fedmin.FedAvg(0.2, local_steps=3))) == fedmin.FedAvg(0.2, local_steps=3)
    True
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.ascontiguousarray(value)
        content = base64.b64encode(array.tobytes()).decode()
        return {"array": content, "type": str(array.dtype), "shape": list(np.shape(value))}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_words(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"value": _path(type(value)), "fields": fields}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [to_words(each) for each in value]}
    if isinstance(value, dict):
        return {"dict": [[to_words(k), to_words(v)] for k, v in value.items()]}
    return {"named": _path(value)}


def from_words(words: Any) -> Any:
    """The value that `to_words` put into words."""
    if not isinstance(words, dict):
        return words
    if "array" in words:
        content = base64.b64decode(words["array"])
        return np.frombuffer(content, words["type"]).reshape(words["shape"]).copy()
    if "value" in words:
        # not by its constructor: that may take other arguments than it keeps
        made = object.__new__(_found(words["value"]))
        for name, each in words["fields"].items():
            object.__setattr__(made, name, from_words(each))
        return made
    if "tuple" in words or "list" in words:
        ((kind, items),) = words.items()
        found = [from_words(each) for each in items]
        return tuple(found) if kind == "tuple" else found
    if "dict" in words:
        return {from_words(k): from_words(v) for k, v in words["dict"]}
    return _found(words["named"])


def _path(thing: Any) -> str:
    """The module and the name of a class or function, by which others can import it."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    path = f"{module}:{name}"
    if module in (None, "__main__") or name is None or "<" in name or _found(path) is not thing:
        raise ValueError(
            f"{thing!r} cannot be given to another process: it has no name in a module that it "
            f"could import; put it at the top level of a module of your own"
        )
    return path


def _found(path: str) -> Any:
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for word in name.split("."):
        found = getattr(found, word)
    return found
