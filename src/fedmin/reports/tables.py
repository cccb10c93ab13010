"""The page's tables, as HTML."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from fedmin.core.ledger import Ledger
from fedmin.core.method import Method
from fedmin.core.privacy import kind_of
from fedmin.core.result import Result
from fedmin.reports.quality import is_part

BOOKKEEPING = ("round", "seconds", "bytes_down", "bytes_up", "bytes_evaluation")


def table(head: Sequence[str], lines: Iterable[Sequence[Any]], numeric: bool = True) -> str:
    """A table whose first column names the line; the others are numbers unless said otherwise."""
    kind = ' class="words"' if not numeric else ""
    top = "".join(f'<th scope="col">{escape(str(cell))}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{escape(str(first))}</th>'
        + "".join(f"<td>{escape(str(cell))}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in lines
    )
    return (
        f'<div class="wide"><table{kind}><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def number(value: Any) -> str:
    """A number in four digits; what is not one, as it is."""
    if isinstance(value, float | np.floating) or getattr(value, "shape", None) == ():
        return f"{float(value):.4g}"
    return str(value)


def megabytes(count: int) -> str:
    """Bytes as megabytes, in three decimals at most."""
    return f"{count / 1e6:,.3f}".rstrip("0").rstrip(".")


def recorded(results: Mapping[str, Result]) -> list[str]:
    """The measured columns that all runs have."""
    first, *others = results.values()
    return [
        c for c in first.history if c not in BOOKKEEPING and all(c in r.history for r in others)
    ]


def finals(results: Mapping[str, Result]) -> str:
    """How each run ended, and what it cost."""
    columns = [c for c in recorded(results) if not is_part(c)]
    words = [c.replace("_", " ") for c in columns]
    head = ["run", "rounds", *words, "MB down", "MB up", "ended"]
    lines = [
        [
            name,
            run.rounds,
            *(number(run.final(c)) for c in columns),
            *(megabytes(run.ledger.bytes(way)) for way in ("down", "up")),
            run.status,
        ]
        for name, run in results.items()
    ]
    reasons = "".join(f"<p>{escape(words)}</p>" for words in reasons_of(results))
    return table(head, lines) + reasons


def reasons_of(results: Mapping[str, Result]) -> list[str]:
    """Why runs ended as they did, where there is more to say than a word."""
    return [f"{name}: {run.status}: {run.reason}" for name, run in results.items() if run.reason]


def by_kind(results: Mapping[str, Result]) -> str:
    """A bar a run, cut by kind of message, and the exact bytes below.

    Looking at the model is no part of the bars, and comes after the sum of the rest.
    """
    most = max(run.ledger.bytes() for run in results.values()) or 1
    found = {name: run.ledger.by_kind() for name, run in results.items()}
    kinds = list(dict.fromkeys(kind for each in found.values() for kind in each))
    training = [kind for kind in kinds if not kind.startswith(LOOKING)]
    training.sort(key=lambda kind: not kind.startswith("down"))
    tones = _tones(training)
    bars = "".join(_bar(name, run.ledger, tones, most) for name, run in results.items())

    def line(kind: str, mark: str = "") -> list[str]:
        return [f"{mark}{kind}", *(f"{each.get(kind, 0):,}" for each in found.values())]

    lines = [line(kind, MARK) for kind in training]
    lines.append(["all", *(f"{run.ledger.bytes():,}" for run in results.values())])
    looking = [kind for kind in kinds if kind.startswith(LOOKING)]
    if looking:
        lines += [line(kind) for kind in looking]
        every = (run.ledger.bytes(evaluation=True) for run in results.values())
        lines.append(["all, with evaluation", *(f"{count:,}" for count in every)])
    marked = table(["bytes", *results], lines)
    for tone in tones.values():  # in the order of the lines
        marked = marked.replace(MARK, f'<i class="{tone}"></i>', 1)
    return f'<div class="bars">{bars}</div>{marked}'


LOOKING = "evaluation "  # how the ledger begins the kinds of looking at the model
MARK = "\N{BLACK SQUARE}"  # where a line gets a square in the color of its bar


def _tones(kinds: Sequence[str]) -> dict[str, str]:
    """A style a kind: headers are gray, the others have a color each."""
    colored = [kind for kind in kinds if not kind.endswith(" header")]
    return {k: f"k{colored.index(k) % 6}" if k in colored else "header" for k in kinds}


def _bar(name: str, ledger: Ledger, tones: Mapping[str, str], most: int) -> str:
    found = ledger.by_kind()
    parts = "".join(
        f'<i class="{tone}" style="width:{100 * found[kind] / most:.3f}%" '
        f'title="{escape(kind)}: {found[kind]:,} bytes"></i>'
        for kind, tone in tones.items()
        if found.get(kind)
    )
    total = f"{megabytes(ledger.bytes())} MB"
    return f'<div class="bar"><b>{escape(name)}</b><span>{parts}</span><em>{total}</em></div>'


LEFT = ("from", "to", "when", "parts and shapes", "kind", "what is seen of it")


def left(results: Mapping[str, Result]) -> str:
    """The page for a site: each kind of message that left it, and what became known by it."""
    shown: dict[str, list[str]] = {}
    for name, run in results.items():
        found = run.privacy
        if found is not None:
            told = [s for s in found.shown if s.sender == "server"]
            lines = [
                (s.sender, s.receiver, s.when, s.parts, kind_of(s), s.sees)
                for s in (*found.leaving, *told)
            ]
            said = "".join(f"<p>{escape(words)}</p>" for words in found.lines())
            shown.setdefault(table(LEFT, lines, numeric=False) + said, []).append(name)
    if len(shown) == 1:
        return next(iter(shown))
    return "".join(f"<h3>{escape(', '.join(n))}</h3>{html}" for html, n in shown.items())


def parameters(results: Mapping[str, Result]) -> str:
    """The fields of every run's method, and the problem they share."""
    fields = {name: settings(run.method) for name, run in results.items()}
    names = list(dict.fromkeys(key for values in fields.values() for key in values))
    lines = [[key, *(values.get(key, "") for values in fields.values())] for key in names]
    return table(["", *results], lines, numeric=False)


def settings(value: Method | Any) -> dict[str, str]:
    """A method's or problem's name and fields, as words."""
    found = {"class": type(value).__name__}
    for field in dataclasses.fields(value):
        found[field.name] = number(getattr(value, field.name))
    return found


def pairs(values: Mapping[str, str]) -> str:
    """Names and values, for reading."""
    items = "".join(
        f"<div><dt>{escape(k)}</dt><dd>{escape(str(v))}</dd></div>" for k, v in values.items()
    )
    return f"<dl>{items}</dl>"
