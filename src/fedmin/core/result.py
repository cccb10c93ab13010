"""What a run returns."""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedmin.core.certificate import Certificate
from fedmin.core.files import digest_of, write_words
from fedmin.core.inference import Inference
from fedmin.core.kept import (
    DamagedError,
    check_history,
    check_words,
    read_array,
    read_csv,
    write_array,
)
from fedmin.core.ledger import Ledger, ledger_of, words_of_ledger
from fedmin.core.method import Method
from fedmin.core.model import Model, NoModelError
from fedmin.core.preparation import About
from fedmin.core.privacy import Privacy
from fedmin.core.problem import Problem
from fedmin.core.result_files import (
    BAD_WORDS,
    FORM,
    FORMAT,
    NOT_SHOWN,
    method_of,
    result_words,
    typed,
    write_csv,
)
from fedmin.core.serialize import deserialize, serialize
from fedmin.core.statistics import Statistics

RISING = re.compile("accuracy|precision|recall|f1")  # in folders that do not say it
WORDS = ("rounds", "seed", "status", "reason", "compile_seconds", "run_seconds")


class Best(NamedTuple):
    """The best recorded model: feasible with the lowest objective, else the least violation."""

    x: Any
    objective: Any
    violation: Any
    round: Any


@dataclass(frozen=True, eq=False)
class Result:
    """The solution of a run and how it came about.

    `history` has a column a quantity (round, seconds, bytes_down, bytes_up, objective, ...) and a
    row a recorded round, the start (round 0) included. `status` is "done", "stopped" (by the
    stopping rule), "interrupted" (by the caller, as the command line does at Ctrl-C, or by a full
    disk), "diverged", "infeasible" (the last model does not meet the constraints; an earlier one
    that did is `best_feasible`), "risen" (the objective ended above where it began, or rose again
    by a factor) or "stalled" (the model stood still although it could be better); `reason` says it
    in words.

    >>> import fedmin
    >>> table = fedmin.data.load("wine").standardized()
    >>> federation = fedmin.data.partition(table, fedmin.data.IID(3))
    >>> result = fedmin.minimize(fedmin.Softmax(13, 3), federation, fedmin.FedSGD(0.01), rounds=2)
    >>> result.history["round"]
    array([0, 1, 2])
    """

    solution: Any  # f[d]
    history: Mapping[str, np.ndarray]
    ledger: Ledger
    server: Any
    clients: Any
    problem: Problem
    method: Method
    rounds: int  # completed
    seed: int
    status: str
    reason: str
    compile_seconds: float
    run_seconds: float
    memory: Any = ()  # the channel's, a client
    info: Mapping[str, Any] = field(default_factory=dict)  # what the method reported at the end
    best: Any = None  # where there are constraints: x, objective, violation, round
    rising: tuple[str, ...] = ()  # the recorded columns that are better the higher they are
    certificate: Certificate | None = None
    absent: tuple[Any, ...] = ()  # (round, trip, client) of those who were asked and not heard
    shown: Privacy | None = None  # see `privacy`
    about: About | None = None  # the columns behind the rows, where they were read from tables
    kept_model: Model | None = None  # that a folder has; see `model`
    inference: Inference | None = None  # what `statistics` are made of, on the prepared scale

    @property
    def model(self) -> Model:
        """The solution as a model that others can read, check and use on rows of their own.

        `NoModelError` says why there is none: the problem does not predict anything.
        """
        return Model.of(self) if self.kept_model is None else self.kept_model

    @property
    def privacy(self) -> Privacy | None:
        """Who learnt what, of how many at once, and what noise has spent; None if not known."""
        return None if self.shown is None else self.shown.spending(self.history)

    @property
    def statistics(self) -> Statistics | None:
        """Standard errors, intervals, tests, where `minimize(..., statistics=True)` took them."""
        return self.model.statistics

    @property
    def best_feasible(self) -> Any:
        """The recorded model of lowest objective among those that met the constraints, or None."""
        fits = self.best is not None and self.best.violation <= self.problem.tolerance
        return self.best.x if fits else None

    @property
    def epsilon(self) -> dict[str, float]:
        """What the run's noise has spent, by unit ("client", "row"): the history's last row."""
        return {k[8:]: float(v[-1]) for k, v in self.history.items() if k.startswith("epsilon_")}

    def final(self, column: str) -> float:
        """The last recorded value of a column."""
        return float(self._column(column)[-1])

    def rises(self, column: str) -> bool:
        """Whether a column is better the higher it is; rounds, seconds and bytes only grow."""
        return column in self.rising or column in NOT_SHOWN

    def first(
        self, column: str, level: float, of: str = "round", rising: bool | None = None
    ) -> float | None:
        """The `of` at which a column first was at a level or better, or None: 0 if it began there.

        What is better the metric says (an accuracy is to rise, an objective to fall); of what a
        method reports, and of a `Measure`, less is better unless `rising` says otherwise.

        >>> import fedmin
        >>> table = fedmin.data.load("wine").standardized()
        >>> federation = fedmin.data.partition(table, fedmin.data.IID(3))
        >>> problem = fedmin.Softmax(13, 3)
        >>> result = fedmin.minimize(problem, federation, fedmin.FedSGD(0.01), rounds=2)
        >>> result.first("objective", 0.0) is None
        True
        """
        values = self._column(column)
        rises = self.rises(column) if rising is None else rising
        there = values >= level if rises else values <= level
        return self._column(of)[int(np.argmax(there))].item() if there.any() else None

    def _type(self) -> str:
        """The type of what was measured, which a table of digits does not tell."""
        kinds = {str(v.dtype) for k, v in self.history.items() if k not in NOT_SHOWN}
        return kinds.pop() if len(kinds) == 1 else "float64"

    def _column(self, name: str) -> np.ndarray:
        from fedmin.core import checks

        checks.known("column", name, self.history)
        return self.history[name]

    def plot(self, column: str = "objective", against: str = "round", ax: Any = None) -> Any:
        """Draw a column of the history against another; returns the matplotlib axes."""
        from fedmin.core.curves import draw

        return draw({type(self.method).__name__: self}, column, against, ax)

    def to_pandas(self) -> Any:
        """The history as a pandas DataFrame, a row a recorded round; needs pandas."""
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            raise ImportError("to_pandas needs pandas: pip install pandas") from None
        return pandas.DataFrame(dict(self.history)).set_index("round")

    def save(self, folder: str | os.PathLike) -> Path:
        """Write the result into a folder, as files that other programs can read.

        history.csv, ledger.csv (clients and bytes a round), model.npy, result.json, and
        model.json, certificate.json and best.npy where there are such. Not the server's and
        clients' states: these are what a `Checkpoint` keeps.

        >>> import tempfile, fedmin
        >>> table = fedmin.data.load("wine").standardized()
        >>> federation = fedmin.data.partition(table, fedmin.data.IID(3))
        >>> problem = fedmin.Softmax(13, 3)
        >>> result = fedmin.minimize(problem, federation, fedmin.FedSGD(0.01), rounds=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = fedmin.Result.load(result.save(folder))
        >>> again.method == result.method, again.ledger.bytes() == result.ledger.bytes()
        (True, True)
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files = [write_csv(folder / f"{name}.csv", table) for name, table in tables(self).items()]
        if self.solution is not None:
            files.append(write_array(folder / "model.npy", self.solution))
        words: dict[str, Any] = {"format": FORMAT, **{k: getattr(self, k) for k in WORDS}}
        words |= {"problem": serialize(self.problem), "method": serialize(self.method)}
        words |= words_of_ledger(self.ledger) | {"rising": list(self.rising)}
        words["type"] = self._type()
        words["absent"] = [list(map(int, each)) for each in self.absent]
        words["privacy"] = None if self.shown is None else self.shown.words()
        if self.best is not None:
            files.append(write_array(folder / "best.npy", self.best.x))
            words["best"] = [float(self.best.objective), float(self.best.violation)]
            words["best"].append(int(self.best.round))
        if self.certificate is not None:
            files.append(self.certificate.save(folder / "certificate.json"))
        with contextlib.suppress(NoModelError):
            files.append(self.model.save(folder / "model.json"))
        # of a run that is going on the tables are written anew while others read them
        going = self.status == "running"
        words["files"] = {path.name: None if going else digest_of(path) for path in files}
        write_words(folder / "result.json", words)  # last: then it is whole
        return folder

    @classmethod
    def load(cls, folder: str | os.PathLike, also: Iterable[type] = ()) -> "Result":
        """What `save` wrote; the states of server and clients are not in it.

        Only fedmin's own classes are made from a file. `also` has classes of your own that may be
        made too: the class of your method, for one. A problem made from a function of your own
        comes back as None. A file that is not as it was written is refused, and named.
        """
        folder = Path(folder)
        path, words = folder / "result.json", result_words(folder)
        check_words(path, words, FORM)
        history = typed(read_csv(folder / "history.csv"), words.get("type") or "float64")
        check_history(folder / "history.csv", history, words["rounds"])
        counts = read_csv(folder / "ledger.csv").get("clients", np.zeros(0, int))
        if len(counts) != words["rounds"] or counts.dtype.kind != "i" or (counts < 0).any():
            what = f"it is not how many clients took part in each of {words['rounds']} rounds"
            raise DamagedError(folder / "ledger.csv", what)
        names = ("model.npy", "best.npy", "certificate.json", "model.json")
        model, best, certificate, usable = (folder / name for name in names)
        # what is there but not named is of an earlier result
        there = [p for p in (model, certificate, usable) if p.name in words["files"]]
        if words["format"] == 1:  # FedFW was told then who takes part
            for gone in ("clients", "everyone"):
                words["method"].pop(gone, None)
        problem: Any = None
        with contextlib.suppress(*BAD_WORDS):
            problem = deserialize(words["problem"], also)
        return cls(
            solution=read_array(model) if model in there else None,
            history=history,
            ledger=ledger_of(path, words, counts, history["round"]),
            server=None,
            clients=None,
            problem=problem if isinstance(problem, Problem) else None,  # type: ignore[arg-type]
            method=method_of(path, words["method"], also),
            best=Best(read_array(best), *words["best"]) if words.get("best") else None,
            certificate=Certificate.load(certificate) if certificate in there else None,
            rising=tuple(words.get("rising", [c for c in history if RISING.search(c)])),
            absent=tuple(tuple(each) for each in words.get("absent", [])),
            shown=Privacy.of(path, words.get("privacy")),
            kept_model=Model.load(usable, also=also) if usable in there else None,
            **{key: words[key] for key in WORDS},
        )

    def _repr_html_(self) -> str:
        """For notebooks: how it ended, and the last row of the history."""
        why = {"reason": self.reason} if self.reason else {}
        cells = {
            "status": self.status,
            **why,
            **{k: f"{v[-1]:.6g}" for k, v in self.history.items()},
        }
        head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in cells)
        row = "".join(f"<td>{escape(value)}</td>" for value in cells.values())
        title = escape(repr(self.method))
        return f"<table><caption>{title}</caption><tr>{head}</tr><tr>{row}</tr></table>"

    def __str__(self) -> str:
        """The same line as `repr`, then why it ended and each constraint's rows, value, limit."""
        limits = self.certificate is not None and bool(self.certificate.constraints)
        table = self.certificate.limits_table() if self.certificate and limits else ""
        return "\n".join(line for line in (repr(self), self.reason, table) if line)

    def __repr__(self) -> str:
        shown = [c for c in self.history if c not in NOT_SHOWN]
        finals = ", ".join(f"{c} {self.final(c):.6g}" for c in shown)
        speed = self.rounds / self.run_seconds if self.run_seconds > 0 else float("nan")
        name, down, up = type(self.method).__name__, *map(self.ledger.bytes, ("down", "up"))
        why = f"; {self.reason}" if self.reason else ""
        return (
            f"Result({name}, {self.status} after {self.rounds} rounds: {finals}; "
            f"{down / 1e6:.3g} MB down, {up / 1e6:.3g} MB up; "
            f"{speed:.0f} rounds/s, compiled in {self.compile_seconds:.2g} s{why})"
        )


def tables(result: Result) -> dict[str, dict[str, Any]]:
    """What happened, as columns: the history, and clients and bytes of every round."""
    ledger = result.ledger
    rounds = {"round": range(len(ledger.counts)), "clients": ledger.counts}
    ways = {f"bytes_{way}": np.diff(ledger.cumulative(way)) for way in ("down", "up")}
    return {"history": dict(result.history), "ledger": rounds | ways}
