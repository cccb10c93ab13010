"""From the tables of a document to values: names are looked up, fields checked, errors located.

{name = "fedavg", step = {name = "power", scale = 0.5, exponent = 0.1}}
FedAvg(step=Power(0.5, 0.1))
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx

from fedmin.core import checks
from fedmin.core.serialize import activation
from fedmin.runs.document import Document
from fedmin.runs.fields import (
    Field,
    accepts,
    element_of,
    entry_of,
    fields_of,
    fits,
    options_of,
    said,
    words_of,
)
from fedmin.runs.registries import KINDS, Kind, kind_for


def make(
    document: Document, where: str, words: Any, kind: Kind, filled: Mapping[str, Any] = {}
) -> Any:
    """A value from a table with its name and its fields; `filled` has fields that are known."""
    if not isinstance(words, dict) or "name" not in words:
        document.fail(where, f"{where} needs a table with a name; {_names(kind)}")
    maker = pick(document, f"{where}.name", words["name"], kind)
    fields = fields_of(maker)
    values = {key: value for key, value in filled.items() if key in fields}
    for key, given in words.items():
        if key == "name":
            continue
        if key not in fields:
            near = checks.nearest(key, fields) if fields else "it takes none"
            document.fail(f"{where}.{key}", f"{words['name']} has no {key!r}; {near}")
        values[key] = read(document, f"{where}.{key}", given, fields[key])
    missing = [key for key, field in fields.items() if field.needed and key not in values]
    if missing:
        document.fail(where, f"{words['name']} needs {missing[0]!r}")
    try:
        return maker(**values)
    except (ValueError, TypeError) as error:
        document.refuse(where, words, error)


def record(document: Document, where: str, words: Any, kind: Any, **filled: Any) -> Any:
    """A value of one class from a table of its fields, without a name; `filled` are known."""
    fields, values = fields_of(kind), {}
    for key, given in words.items():
        place = f"{where}.{key}" if where else key
        if key not in fields:
            within = f" in [{where}]" if where else ""
            document.fail(place, f"unknown key {key!r}{within}; {checks.nearest(key, fields)}")
        values[key] = filled[key] if key in filled else read(document, place, given, fields[key])
    missing = [key for key, field in fields.items() if field.needed and key not in values]
    if missing:
        document.fail(
            where, f"[{where}] needs {missing[0]}" if where else f"{missing[0]} is missing"
        )
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        if not where:
            document.fail("", str(error))
        document.refuse(where, words, error)


def pick(document: Document, where: str, name: Any, kind: Kind) -> Any:
    """What a name stands for; an unknown one is refused with its field and the nearest name."""
    if not isinstance(name, str) or name not in kind.registry:
        place = where.removesuffix(".name")
        field = f"{place.rpartition('.')[2]}: " if "." in place else ""
        document.fail(where, field + kind.missing(name))
    return kind.registry[name]


def read(document: Document, where: str, given: Any, field: Field) -> Any:
    """The value of a field, as its type takes it; refuses what is not of this type.

    Words for numbers, "no" for false, halves for counts, words that are not among those there are:
    every field of every section comes through here.
    """
    key, words = where.rpartition(".")[2], words_of(field.hint)
    if words and not fits(given, field.hint):
        document.fail(where, f"{key}: unknown word {given!r}; {checks.nearest(given, words)}")
    if not fits(given, field.hint):
        meant = _meant(given, field)
        document.fail(where, f"{key} must be {said(field.hint)}{meant}, got {given!r}")
    return _value(document, where, given, field)


def _meant(given: Any, field: Field) -> str:
    """How to write a name that stands where a table must."""
    kind = kind_for(field) if isinstance(given, str) and _modules(field) else None
    known = kind is not None and given in kind.registry
    return f', such as {{name = "{given}"}}' if known else ""


def _modules(field: Field) -> list[type]:
    options = options_of(field.hint)
    return [o for o in options if isinstance(o, type) and issubclass(o, eqx.Module)]


def _value(document: Document, where: str, given: Any, field: Field) -> Any:
    hint = field.hint
    if isinstance(given, dict):
        return _table(document, where, given, field)
    if isinstance(given, list):
        inside = Field(element_of(hint), True, None)
        # whole numbers in a list stay whole: stages of local steps are counts
        return tuple(
            _value(document, where, each, inside) if isinstance(each, list | dict) else each
            for each in given
        )
    if isinstance(given, str) and accepts(hint, Callable):
        return _activation(document, where, given)
    wants_float = accepts(hint, float) and not accepts(hint, int)
    return float(given) if wants_float and type(given) is int else given


def _table(document: Document, where: str, given: dict[str, Any], field: Field) -> Any:
    """A value by its name; or a table under names of one's own, where the field takes one."""
    entry = entry_of(field.hint)
    if entry is not None and not isinstance(given.get("name"), str):
        inside = Field(entry, True, None)
        return {key: read(document, f"{where}.{key}", each, inside) for key, each in given.items()}
    kind = kind_for(field)
    if kind is None:
        document.fail(where, f"{where.rpartition('.')[2]} takes no table{_only_in_python(field)}")
    return make(document, where, given, kind)


def _only_in_python(field: Field) -> str:
    """Why a file cannot hold a value that the field takes in Python: it has a function in it."""
    own = _modules(field)
    return f"; a {own[0].__name__} is given in Python only" if own else ""


def _activation(document: Document, where: str, name: str) -> Callable:
    try:
        return activation(name)
    except ValueError:
        return pick(document, where, name, KINDS["activations"])


def _names(kind: Kind) -> str:
    return checks.nearest("", kind.registry)
