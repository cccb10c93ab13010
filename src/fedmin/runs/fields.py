"""What the fields of a class take, read from their types: for configuration files and templates."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

LISTS = (tuple, list, Sequence, Iterable)
ARRAYS = (np.ndarray, jax.Array)


class Field(NamedTuple):
    """One field of a class, or one argument of a function."""

    hint: Any  # its type
    needed: bool
    default: Any  # None if it is needed


def fields_of(kind: Callable) -> dict[str, Field]:
    """The fields of a class, or the arguments of a function, by name."""
    empty = inspect.Parameter.empty
    hints = _hints(kind)
    return {
        name: Field(
            hints.get(name, Any), each.default is empty,
            None if each.default is empty else each.default,
        )
        for name, each in inspect.signature(kind).parameters.items()
        if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    }  # fmt: skip


@functools.lru_cache(256)  # a file with a long list asks for those of one class again and again
def _hints(kind: Any) -> Mapping[str, Any]:
    try:
        if not inspect.isclass(kind):
            return typing.get_type_hints(kind)
        # where a converter is, the constructor takes anything: the class says what it becomes
        given = typing.get_type_hints(kind.__init__).items()
        return typing.get_type_hints(kind) | {name: h for name, h in given if h is not Any}
    except (NameError, TypeError):
        return {}


def options_of(hint: Any) -> set[Any]:
    """The types that a union stands for, without None; a type that is no union, alone."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    options = typing.get_args(hint) if union else (hint,)
    return {option for option in options if option is not type(None)}


def option_of(hint: Any, *kinds: Any) -> Any:
    """The first option of a type that is one of these kinds, or None."""
    for option in options_of(hint):
        if (typing.get_origin(option) or option) in kinds:
            return option
    return None


def accepts(hint: Any, kind: Any) -> bool:
    """Whether a type allows values of this kind."""
    return option_of(hint, kind) is not None


def words_of(hint: Any) -> tuple[Any, ...]:
    """The words that a field may be, where its type lists them."""
    return typing.get_args(hint) if typing.get_origin(hint) is Literal else ()


def element_of(hint: Any) -> Any:
    """The type of what is in a list, or in a table under names of one's own."""
    option = option_of(hint, *LISTS)
    arguments = typing.get_args(option)
    return arguments[0] if arguments else Any


def entry_of(hint: Any) -> Any:
    """The type of what stands under the names of a table, or None if it takes no such table."""
    option = option_of(hint, Mapping, dict)
    arguments = typing.get_args(option)
    return None if option is None else arguments[1] if arguments else Any


def depth_of(hint: Any) -> int:
    """How deep lists nest in values of a type: 0 in a number, 1 in a list, 2 in a list of lists."""
    if option_of(hint, *LISTS) is not None:
        return 1 + depth_of(element_of(hint))
    return 1 if option_of(hint, *ARRAYS) is not None else 0


def depth(value: Any) -> int:
    """How deep lists nest in a value."""
    if not isinstance(value, list):
        return 0
    return 1 + (depth(value[0]) if value else 0)


# in the order in which they are said, one of them and several
PLAIN: dict[Any, tuple[str, str]] = {
    bool: ("true or false", "true or false"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a word", "words"),
    dict: ("a table", "tables"),
}


def fits(value: Any, hint: Any) -> bool:
    """Whether a value from a file may stand in a field of this type.

    A whole number is a number too, and nothing else is what it is not: "no" is not false, true is
    not 1. What is inside of a table is for its own fields to say.
    """
    return any(_fits(value, option) for option in options_of(hint))


def _fits(value: Any, option: Any) -> bool:
    origin, arguments = typing.get_origin(option) or option, typing.get_args(option)
    if origin is Any:
        return True
    if origin is Literal:
        return any(type(value) is type(word) and value == word for word in arguments)
    if origin in PLAIN or origin is Mapping:
        return _is_plain(value, dict if origin is Mapping else origin)
    if origin in LISTS:
        several = arguments if _counted(origin, arguments) else None
        right = isinstance(value, list) and (several is None or len(several) == len(value))
        return right and all(fits(each, element_of(option)) for each in value)
    if origin in ARRAYS:  # all of them are vectors
        return isinstance(value, list) and all(_is_plain(each, float) for each in value)
    # an activation by its name, and everything else by a table
    return isinstance(value, str if origin is Callable else dict)


def _is_plain(value: Any, kind: Any) -> bool:
    if kind is float:
        kind = (int, float)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _counted(origin: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether a list has a length of its own, as a shape has."""
    return origin is tuple and bool(arguments) and Ellipsis not in arguments


def said(hint: Any, several: bool = False) -> str:
    """What a field takes, in words: "a number or a table with a name", "a list of words"."""
    found = {_said(option, several) for option in options_of(hint)}
    plain = [names[several] for names in PLAIN.values() if names[several] in found]
    return " or ".join([*plain, *sorted(found - set(plain))])


def _said(option: Any, several: bool) -> str:
    origin, arguments = typing.get_origin(option) or option, typing.get_args(option)
    if origin in PLAIN or origin is Mapping:
        return PLAIN[dict if origin is Mapping else origin][several]
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin in LISTS or origin in ARRAYS:
        inside = float if origin in ARRAYS else element_of(option)
        of = "" if inside is Any else f" of {said(inside, several=True)}"
        length = f" of length {len(arguments)}" if _counted(origin, arguments) else ""
        return f"{'lists' if several else 'a list'}{length}{of}"
    if origin is Callable:
        return "the names of functions" if several else "the name of a function"
    return "tables with a name" if several else "a table with a name"
