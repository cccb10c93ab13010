"""What there is to choose from, for `fedmin list`: the registries, one line for each thing."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from fedmin.core import checks

Lines = tuple[list[str], list[list[str]]]  # head and lines
NUMBERS = ("rows", "features", "classes", "count")  # columns that stand flush right


def categories() -> dict[str, Callable[[], Lines]]:
    """The lists there are, by name: one for each kind of name in a file, and the data sets."""
    from fedmin.runs.registries import KINDS

    def of(registry: Mapping[str, Any]) -> Callable[[], Lines]:
        return lambda: (["name", "what"], [[k, summary(v)] for k, v in registry.items()])

    found = {name: of(kind.registry) for name, kind in KINDS.items()}
    return found | {"methods": _methods, "data": _data}


def lines(category: str) -> Lines:
    """Head and lines of one list; of the list of lists, if no category is named."""
    known = categories()
    if not category:
        counted = [[name, str(len(make()[1]))] for name, make in known.items()]
        return ["category", "count"], counted
    checks.known("category", category, known)
    return known[category]()


def summary(thing: Any) -> str:
    """The first line of a docstring, without its full stop."""
    return (inspect.getdoc(thing) or "").partition("\n")[0].rstrip(".")


def _methods() -> Lines:
    from fedmin.methods import METHODS

    return ["name", "what", "bytes", "reference"], [
        [name, *_heading(method), getattr(method, "citation", "")]
        for name, method in METHODS.items()
    ]


def _heading(method: type) -> tuple[str, str]:
    """What a method does and sends, from the docstring of its file (see CONTRIBUTING.md)."""
    doc = inspect.getdoc(inspect.getmodule(method)) or ""
    title = re.match(r"[^:\n]+: (.+?)\.?(?:   \[|$)", doc.partition("\n")[0])
    sent = re.search(r"^\s*bytes\s+(.+)$", doc, re.MULTILINE)
    return (title[1] if title else summary(method)), (sent[1].strip() if sent else "")


def _data() -> Lines:
    from fedmin.data import DATASETS

    def count(value: int | None) -> str:
        return "" if value is None else f"{value:,}"

    return ["name", "rows", "features", "classes", "from", "what"], [
        [
            s.name, count(s.rows), count(s.features), count(s.classes),
            "made" if s.task == "synthetic" else "download" if s.download else "inside",
            s.summary.rstrip("."),
        ]
        for s in DATASETS.values()
    ]  # fmt: skip


def print_table(
    head: Sequence[str], lines: Sequence[Sequence[str]], right: Sequence[str] = ()
) -> None:
    """Print a table, lined up; at a terminal the last column wraps, in a pipe nothing does."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    screen = Console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i, name in enumerate(head):
        wraps = screen.is_terminal and name == "what"
        style = "cyan" if i == 0 else None
        side: Literal["left", "right"] = "right" if name in right else "left"
        table.add_column(name, justify=side, no_wrap=not wraps, style=style, overflow="fold")
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))
    if screen.is_terminal:
        screen.print(table)
        return
    wide = Console(width=1000)
    with wide.capture() as captured:
        wide.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())
