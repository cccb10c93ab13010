"""Values as plain data that JSON can hold: what a method, a problem or a whole run is made of.

    serialize(FedAvg(0.1)) == {"name": "fedavg", "step": 0.1, "local_steps": 1, ...}
    deserialize({"name": "fedavg", "step": 0.1}) == FedAvg(0.1)

Saved results are read back by it, and the same value gives the same words in every process, so that
their hash (`digest`) can name a run or the owner of a checkpoint. Words become values of fedmin's
own classes only: neither a file nor a message can name other code.
"""

import dataclasses
import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from fedmin.core import checks

SHORT = 64  # numbers that are written out; longer arrays are named by their hash

# the functions that words may name: a network's activations, all of jax.nn
ACTIVATIONS: dict[str, Callable] = {
    name: getattr(jax.nn, name)
    for name in (
        "celu", "elu", "gelu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "identity",
        "leaky_relu", "log_sigmoid", "mish", "relu", "relu6", "selu", "sigmoid", "silu",
        "soft_sign", "softplus", "sparse_plus", "sparse_sigmoid", "squareplus", "swish", "tanh",
    )
}  # fmt: skip


def serialize(value: Any) -> Any:
    """Plain numbers, words, lists and dicts that say what a value is.

    >>> from fedmin.core.serialize import serialize
    >>> import fedmin
    >>> serialize(fedmin.Power(0.5, 0.1))
    {'name': 'power', 'scale': 0.5, 'exponent': 0.1}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: serialize(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"name": name_of(type(value)), **fields}
    if isinstance(value, Mapping):
        return {str(key): serialize(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [serialize(each) for each in value]
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _array(np.asarray(value))
    if callable(value):
        return _path(value)
    return repr(value)


def name_of(kind: type) -> str:
    """What a class is called in files: its name in small letters, or its own `named`.

    >>> import fedmin
    >>> from fedmin.core.serialize import name_of
    >>> name_of(fedmin.FedAvg), name_of(fedmin.SecureSum)
    ('fedavg', 'secure_sum')
    """
    return getattr(kind, "named", "") or kind.__name__.lower()


def digest(value: Any) -> str:
    """A hash of what `serialize` says, 64 letters."""
    words = json.dumps(serialize(value), sort_keys=True, separators=(",", ":"))
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


def deserialize(words: Any, also: Iterable[type] = ()) -> Any:
    """The value that `serialize` put into words, made of fedmin's own classes.

    also    classes of your own that may be made too

    >>> import fedmin
    >>> from fedmin.core.serialize import deserialize, serialize
    >>> method = fedmin.FedAvg(0.2, local_steps=3)
    >>> deserialize(serialize(method)) == method
    True
    """
    return _value(words, own_classes() | {kind.__name__.lower(): kind for kind in also})


def _value(words: Any, classes: Mapping[str, type]) -> Any:
    if isinstance(words, list):
        return tuple(_value(each, classes) for each in words)
    if isinstance(words, dict) and "array" in words:
        raise ValueError("an array of this length is stored by its hash only")
    if isinstance(words, dict):
        fields = {key: _value(each, classes) for key, each in words.items() if key != "name"}
        if "name" not in words:
            return fields
        checks.known("class of fedmin", words["name"], classes)
        return classes[words["name"]](**fields)
    if isinstance(words, str) and words.startswith("jax."):
        return activation(words)
    return words


def own_classes() -> dict[str, type]:
    """The classes of fedmin whose values can be put into words, by their lower-case names."""
    found: dict[str, type] = {}
    waiting = list(eqx.Module.__subclasses__())
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        public = not kind.__name__.startswith("_") and not inspect.isabstract(kind)
        if public and kind.__module__.startswith("fedmin."):
            found[name_of(kind)] = kind
    return found


def activation(name: str) -> Callable:
    """An activation by its name or its path: "swish", "jax.nn.swish"."""
    name = name.rpartition(".")[2]
    checks.known("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]
