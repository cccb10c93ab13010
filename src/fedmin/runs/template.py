"""A configuration file to begin with, for any method: every field, its default and what it is."""

import dataclasses
import inspect
import re
from typing import Any

from fedmin.core import checks
from fedmin.core.serialize import serialize
from fedmin.engines.sessions.checkpoint import SECONDS
from fedmin.methods import METHODS
from fedmin.runs.fields import fields_of, words_of

HEAD = """\
# {title}
# `fedmin show FILE` says what this would run and what it costs, `fedmin run FILE` runs it.

[data]
name = "digits"            # `fedmin list data` has the others

[partition]
name = "{partition}"{note}
clients = {clients}

[problem]
name = "{problem}"           # `fedmin list problems` has the others
l2 = 1e-3
{sections}
[method]
name = "{name}"
{fields}

[run]
rounds = 50
seeds = [0]                # several give mean and spread
every = 1                  # measure every so many rounds
checkpoint_seconds = {seconds}   # kill it at any moment: the same command goes on from the last one
"""


def template(name: str) -> str:
    """The text of a file that runs a method as it is by default."""
    checks.known("method", name, METHODS)
    method: Any = METHODS[name]
    columns = "rows" not in method.handles
    partition, clients = ("evencolumns", 2) if columns else ("iid", 5)
    note = "" if columns else '               # or "dirichlet" with alpha = 0.3, "labelsperclient"'
    sections = ""
    if "constraints" in method.handles:
        sections = '\n# [[constraint]]\n# name = "normatmost"\n# radius = 3.0\n'
    if "domain" in method.handles:
        chosen = _domain_section(name)
        free = "constraints" in method.handles  # a set is not needed
        sections += chosen.replace("\n", "\n# ").removesuffix("# ") if free else chosen
    return HEAD.format(
        title=(inspect.getdoc(method) or name).partition("\n")[0],
        partition=partition, clients=clients, note=note,
        problem="softmax", sections=sections, name=name,
        fields="\n".join(_fields(method)), seconds=SECONDS,
    )  # fmt: skip


def _domain_section(name: str) -> str:
    """A section with a set to begin with."""
    sparse = name in ("fedht", "fediterht", "distributediht", "scaffoldht", "sparsenewton")
    chosen = '"l0ball"\ntau = 100' if sparse else '"l2ball"\nradius = 10.0'
    if name == "dfwtrace":
        chosen = '"nuclearball"\nradius = 10.0'
    return f"\n[domain]\nname = {chosen}\n"


# what is said of fields that many methods have
USUAL = {"batches": "the rows of a step; `fedmin list batches` has the others"}


def _fields(method: type) -> list[str]:
    comments = USUAL | comments_of(method)
    hints = fields_of(method)
    made: Any = method()
    lines = []
    for field in dataclasses.fields(made):
        value = serialize(getattr(made, field.name))
        words = [comments[field.name]] if field.name in comments else []
        others = [toml(word) for word in words_of(hints[field.name].hint) if word != value]
        words += [f"or {', '.join(others)}"] if others else []
        text = f"{field.name} = {toml(value)}" if value is not None else f"# {field.name} ="
        lines.append(f"{text:<26} # {'; '.join(words)}" if words else text)
    return lines


def comments_of(method: type) -> dict[str, str]:
    """What the source says of each field."""
    pattern = re.compile(r"^    (\w+):.*?#\s*(.+)$", re.MULTILINE)
    found: dict[str, str] = {}
    for kind in reversed(method.__mro__):
        if kind.__module__.startswith("fedmin."):
            found |= dict(pattern.findall(inspect.getsource(kind)))
    return found


def toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        inside = ", ".join(f"{k} = {toml(v)}" for k, v in value.items() if v is not None)
        return f"{{{inside}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
