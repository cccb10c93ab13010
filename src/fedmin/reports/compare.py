"""Runs side by side: what it took to come to a level, and how they ended, over seeds."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from fedmin.core.result import Result
from fedmin.reports.tables import number, recorded

Table = tuple[list[str], list[list[str]]]  # head and lines


def levels(words: str) -> list[float]:
    """Numbers with commas between them."""
    try:
        return [float(word) for word in words.split(",") if word.strip()]
    except ValueError:
        raise ValueError(f"levels must be numbers with commas between, got {words!r}") from None


def groups(results: Mapping[str, Result]) -> dict[str, list[Result]]:
    """Runs that differ in their seed only, together."""
    found: dict[str, list[Result]] = {}
    for name, result in results.items():
        plain = re.sub(r"\s*\bseeds?=\S+|\s*\(\d+\)$", "", name)
        found.setdefault(plain, []).append(result)
    return found


def tables(
    results: Mapping[str, Result],
    column: str,
    wanted: Sequence[float] = (),
    evaluation: bool = False,
) -> list[Table]:
    """What it took to come to each level, and how the runs ended.

    Megabytes are those of training; with `evaluation` also those of looking at the model.
    """
    together = groups(results)
    if column not in (known := recorded(results)):
        raise ValueError(f"column {column!r} is not recorded in all of them; there is {known}")
    wanted = list(wanted) or _levels_of(together, column)
    found = [_finals(together, recorded(results), evaluation)]
    return [*found, *(_to_level(together, column, level, evaluation) for level in wanted)]


def _levels_of(together: Mapping[str, list[Result]], column: str) -> list[float]:
    """Where the worst run ends: everybody comes there."""
    runs = [run for some in together.values() for run in some if run.status != "diverged"]
    ends = [run.final(column) for run in runs]
    return [min(ends) if runs[0].rises(column) else max(ends)] if ends else []


def _finals(
    together: Mapping[str, list[Result]], columns: Sequence[str], evaluation: bool
) -> Table:
    head = ["run", "seeds", "rounds", *columns, _unit(evaluation), "seconds", "ended"]
    lines = []
    for name, runs in together.items():
        values = [_spread([run.final(c) for run in runs]) for c in columns]
        sent = _spread([run.ledger.bytes(evaluation=evaluation) / 1e6 for run in runs])
        seconds = _spread([run.run_seconds for run in runs])
        ended = ", ".join(sorted({run.status for run in runs}))
        rounds = _spread([float(run.rounds) for run in runs])
        lines.append([name, str(len(runs)), rounds, *values, sent, seconds, ended])
    return head, lines


def _unit(evaluation: bool) -> str:
    return "MB with evaluation" if evaluation else "MB"


def _to_level(
    together: Mapping[str, list[Result]], column: str, level: float, evaluation: bool
) -> Table:
    shown = f"{column} {number(float(level))}"
    head = [shown, "came there", "rounds", _unit(evaluation), "seconds"]
    ways = ("bytes_down", "bytes_up", *(["bytes_evaluation"] if evaluation else []))
    lines = []
    for name, runs in together.items():
        there = [run for run in runs if run.first(column, level) is not None]
        cells = ["never", "", ""]
        if there:
            rounds, seconds = (
                [run.first(column, level, of) or 0.0 for run in there]
                for of in ("round", "seconds")
            )
            sent = [
                sum(run.first(column, level, way) or 0.0 for way in ways) / 1e6 for run in there
            ]
            cells = [_spread(rounds), _spread(sent), _spread(seconds)]
        lines.append([name, f"{len(there)} of {len(runs)}", *cells])
    return head, lines


def _spread(values: Sequence[float]) -> str:
    """The mean, and plus or minus the standard deviation where there are several."""
    mean = number(float(np.mean(values)))
    return f"{mean} ± {number(float(np.std(values, ddof=1)))}" if len(values) > 1 else mean
