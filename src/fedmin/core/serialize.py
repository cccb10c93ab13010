"""A value in plain words: what a method, a problem or a whole run is made of, as JSON can hold it.

    describe(FedAvg(0.1)) == {"name": "fedavg", "step": 0.1, "local_steps": 1, ...}

The same description names the same thing in every process, so that its hash can be a name.
"""

import dataclasses
import hashlib
import inspect
import json
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from fedmin.core import checks

SHORT = 64  # numbers that are written out; longer arrays are named by their hash


def describe(value: Any) -> Any:
    """Plain numbers, words, lists and dicts that say what a value is.

    >>> from fedmin.core.serialize import describe
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


def known_classes() -> dict[str, type]:
    """Every kind of value there is, by its lower-case name: methods, problems, schedules, sets."""
    found: dict[str, type] = {}
    waiting = list(eqx.Module.__subclasses__())
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        public = not kind.__name__.startswith("_") and not inspect.isabstract(kind)
        if public and (kind.__module__.startswith("fedmin.") or kind.__name__.lower() not in found):
            found[kind.__name__.lower()] = kind
    return found


def restore(words: Any) -> Any:
    """The value that `describe` described.

    >>> import fedmin
    >>> from fedmin.core.serialize import describe, restore
    >>> restore(describe(fedmin.FedAvg(0.2, local_steps=3))) == fedmin.FedAvg(0.2, local_steps=3)
    True
    """
    if isinstance(words, list):
        return tuple(restore(each) for each in words)
    if isinstance(words, dict) and "array" in words:
        raise ValueError("an array of this length is stored by its hash only")
    if isinstance(words, dict) and "name" in words:
        kinds = known_classes()
        checks.known("kind of value", words["name"], kinds)
        fields = {key: restore(value) for key, value in words.items() if key != "name"}
        return kinds[words["name"]](**fields)
    if isinstance(words, str) and words.startswith("jax."):
        return function(words)
    return words


def function(path: str) -> Any:
    """A function of jax.nn by its name: "swish" or "jax.nn.swish"."""
    name = path.rpartition(".")[2]
    functions = [each for each in dir(jax.nn) if not each.startswith("_")]
    checks.known("function of jax.nn", name, functions)
    return getattr(jax.nn, name)


def parameters(kind: Any) -> dict[str, tuple[Any, bool]]:
    """The fields of a kind of value: their types, and whether they must be given."""
    signature = inspect.signature(kind)
    try:
        hints = typing.get_type_hints(kind.__init__ if inspect.isclass(kind) else kind)
        hints = {**typing.get_type_hints(kind), **hints} if inspect.isclass(kind) else hints
    except (NameError, TypeError):
        hints = {}
    empty = inspect.Parameter.empty
    return {
        name: (hints.get(name, Any), each.default is empty)
        for name, each in signature.parameters.items()
        if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    }


def options_of(hint: Any) -> set[Any]:
    """The plain types that a type stands for, without None."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    options = typing.get_args(hint) if union else (hint,)
    return {option for option in options if option is not type(None)}


def accepts(hint: Any, kind: Any) -> bool:
    """Whether a type allows values of this kind."""
    origin = typing.get_origin(kind) or kind
    return any((typing.get_origin(option) or option) is origin for option in options_of(hint))


def takes_list(hint: Any) -> bool:
    """Whether a type allows several values."""
    return any((typing.get_origin(o) or o) in (tuple, list, Iterable) for o in options_of(hint))


def fits(value: Any, kind: type) -> bool:
    """Whether a value from a file is of this plain type; a count is a number too."""
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
