"""The one loop that drives a run, in every engine: go on, write down, show, keep, end.

An engine gives a `Stepper`: it begins, and it goes on by some rounds at a time. The simulator goes
hundreds of rounds in one compiled call, sessions go one round; a sweep does so for many runs at
once. Whatever is told of a run (history, ledger, status, checkpoints) is told here.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedmin.core.column_problem import OnColumns
from fedmin.core.federation import Federation
from fedmin.core.ledger import Ledger, Trips
from fedmin.core.result import Best, Result
from fedmin.engines.progress import Progress, Show
from fedmin.engines.round import NOBODY, THE_SUM, Run, State
from fedmin.engines.sessions.checkpoint import Checkpoint, Keeper

AT_THE_SITES = "the model is at the sites, in the file model.npy of each: the server has none"
Interrupt = Callable[[], str]  # "" to go on, or why to stop


class Segment(NamedTuple):
    """What happened in some rounds of one run."""

    values: Any  # f[recorded.., columns]
    at: Any  # i[recorded..] rounds completed when measured
    recorded: Any  # i[] how many were
    counts: Any  # i[ran..] clients that took part
    ran: Any  # i[] rounds
    fault: Any  # i[2] round and client of the first reply that is not finite, or NOBODY
    stopped: Any  # bool[]
    trips: Trips = ()  # of the round, where it is one and was made by sessions
    look: Trips = ()  # of the look after it


class Stepper(ABC):
    """What an engine does when it is told to; `state` is all that its future depends on."""

    state: Any
    names: tuple[str, ...]  # of what is recorded
    longest: int  # rounds in one call, at most
    first_look: Trips = ()  # who was asked and who answered before round 0

    @abstractmethod
    def begin(self) -> list[Any]:
        """Get ready; what is recorded before round 0, for each run."""

    @abstractmethod
    def advance(self, done: int, length: int) -> list[Segment]:
        """Go on by up to `length` rounds after `done`; what happened, for each run."""

    def keep(self, done: int) -> None:
        """Have all other parties remember this round, before a checkpoint is written."""
        return

    def go_back(self, done: int, state: Any) -> None:
        """Have all other parties be where they were after this round, when this was the state;
        `LostError` if one cannot."""
        return

    def kept(self) -> None:
        """A checkpoint has been written."""
        return

    @property
    def full(self) -> bool:
        """Whether a checkpoint should be written before it is due."""
        return False

    def notes(self) -> dict[str, Any]:
        """What else a checkpoint should say, in words."""
        return {}

    def take_notes(self, notes: dict[str, Any]) -> None:
        """Take up what a checkpoint says."""
        return

    def blank(self) -> Any:
        """The form of what is recorded, where a run can go on without being begun; else None."""
        return None

    def control_sent(self) -> dict[str, int]:
        """Bytes that served checkpoints since this was asked last, by direction and kind."""
        return {}


@dataclass
class Book:
    """What is written down of one run."""

    names: tuple[str, ...]
    ledger: Ledger
    rounds: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)
    status: str = "done"
    reason: str = ""

    @property
    def done(self) -> int:
        """Rounds that were completed."""
        return len(self.ledger.counts)

    def add(self, round: int, seconds: float, values: Any, look: Trips = ()) -> None:
        """Enter what was measured after so many rounds, by such trips."""
        self.rounds.append(int(round))
        self.seconds.append(float(seconds))
        self.values.append(np.asarray(values))
        self.ledger.add_evaluation(round)
        self.ledger.add_trips(round, look, look=True)

    def enter(self, log: Segment, spent: float, took: float, clients: tuple[str, ...]) -> None:
        """Enter what happened in some rounds, which began after `spent` seconds."""
        before, ran = self.done, int(log.ran)
        fault, client = (int(v) for v in log.fault)
        good = ran if fault == NOBODY else fault - before
        self.ledger.add_rounds(log.counts[:good])
        if good:
            self.ledger.add_trips(before, log.trips)
        for i in range(int(log.recorded)):
            at = int(log.at[i])
            if at <= before + good:
                self.add(at, spent + took * (at - before) / max(ran, 1), log.values[i], log.look)
        if fault != NOBODY:
            self.status, self.reason = "diverged", fault_reason(fault, client, clients)
        elif log.stopped:
            words = f"the stopping rule held after round {self.done}"
            self.status, self.reason = "stopped", words

    def table(self) -> dict[str, np.ndarray]:
        """The history as columns of equal length."""
        at, ledger = np.array(self.rounds), self.ledger
        values = np.stack(self.values)
        return {
            "round": at,
            "seconds": np.array(self.seconds),
            "bytes_down": ledger.cumulative("down")[at],
            "bytes_up": ledger.cumulative("up")[at],
            "bytes_evaluation": ledger.cumulative_evaluation()[at],
            **{name: values[:, j] for j, name in enumerate(self.names)},
        }


class Settings(NamedTuple):
    """How long a run goes, and what is done beside it."""

    rounds: int
    seed: int
    every: int  # rounds between two looks at the model
    progress: Show = False
    checkpoint: Checkpoint | None = None
    interrupt: Interrupt | None = None
    tap: str | Path | None = None  # a file that keeps every byte that is sent


class Engine(ABC):
    """What carries a run out: the simulator, loopback, processes."""

    @abstractmethod
    def run(self, run: Run, federation: Federation, settings: Settings) -> Result:
        """Run and return the result; with a certificate where the run says so."""


@dataclass
class Driven:
    """Runs that have ended, or were interrupted."""

    books: list[Book]
    compile_seconds: float
    run_seconds: float


def drive(
    stepper: Stepper,
    ledger: Ledger,
    clients: tuple[str, ...],
    *,
    title: str,
    settings: Settings,
    keeper: Keeper | None = None,
) -> Driven:
    """Go on until all rounds are done, a rule holds, something is not finite, or one says stop."""
    with keeper or nullcontext():
        return _drive(stepper, ledger, clients, title, settings, keeper)


def _drive(
    stepper: Stepper,
    ledger: Ledger,
    clients: tuple[str, ...],
    title: str,
    settings: Settings,
    keeper: Keeper | None,
) -> Driven:
    rounds, interrupt = settings.rounds, settings.interrupt
    clock = time.perf_counter()
    (books, spent), length = _begun(stepper, ledger, rounds, keeper), 1
    compile_seconds = time.perf_counter() - clock
    done = books[0].done
    with Progress(title, rounds, settings.progress) as bar:
        while done < rounds and any(book.status == "done" for book in books):
            room = rounds - done if keeper is None else min(rounds - done, keeper.room(done))
            length = min(length, stepper.longest, room)
            clock = time.perf_counter()
            logs = stepper.advance(done, length)
            took = time.perf_counter() - clock
            for book, log in zip(books, logs, strict=True):
                if book.status == "done":
                    book.enter(log, spent, took, clients)
            done, spent = max(book.done for book in books), spent + took
            bar.update(books[0], spent)
            why = interrupt() if interrupt is not None else ""
            for book in books:
                if why and book.status == "done" and done < rounds:
                    book.status, book.reason = "interrupted", f"{why} after round {done}"
            if keeper is not None:
                keeper.keep(stepper, books[0], spent)
            # a watched run comes back to Python often enough for the bar to move
            wanted = 0.25 if bar.shown or interrupt is not None else 2.0
            length = int(length * wanted / max(took, 1e-4)) + 1
    if keeper is not None:
        keeper.close(stepper, books[0], spent)
        books[0].ledger.add_control(stepper.control_sent())  # where nothing was kept after it
    return Driven(books, compile_seconds, spent)


def _begun(
    stepper: Stepper, ledger: Ledger, rounds: int, keeper: Keeper | None
) -> tuple[list[Book], float]:
    """A book a run, from the newest whole checkpoint on if there is one; seconds until then.

    Where others would have to be asked to begin, the checkpoint is looked at first.
    """

    def books_of(starts: list[Any], look: Trips) -> list[Book]:
        books = [Book(stepper.names, _copy(ledger)) for _ in starts]
        for book, values in zip(books, starts, strict=True):
            book.add(0, 0.0, values, look)
        return books

    blank = stepper.blank() if keeper is not None and keeper.files.found() else None
    if blank is not None and keeper is not None:
        books = books_of([blank], ())
        spent = keeper.resume(rounds, stepper, books[0])
        if books[0].done:
            return books, spent
    books = books_of(stepper.begin(), stepper.first_look)
    if keeper is not None and blank is None:
        return books, keeper.resume(rounds, stepper, books[0])
    return books, 0.0


def _copy(ledger: Ledger) -> Ledger:
    return Ledger(ledger.lines, [], ledger.setup, ledger.evaluation, ledger.population)


def fault_reason(round: int, client: int, names: tuple[str, ...]) -> str:
    """Who sent what is not a number, in words."""
    if client == THE_SUM:
        return f"round {round}: the sum of the replies or the objective is not finite"
    return f"round {round}: client {names[client]} sent a reply that is not finite"


def _with_constraints(run: Run, book: Book, best: Best | None) -> tuple[str, str]:
    """How a run under constraints ended: its status is about the last model, not the best one."""
    last, met = float(book.values[-1][book.names.index("violation")]), run.problem.tolerance
    if last <= met:
        return book.status, book.reason
    said = [book.reason] if book.reason else []
    said.append(f"the last model exceeds a constraint by {last:.4g} (met up to {met:g})")
    if best is None:
        return "infeasible", "; ".join(said)
    if best.violation <= met:
        said.append(
            f"the best one that met them all is that of round {int(best.round)}, with objective "
            f"{float(best.objective):.6g}: result.best_feasible"
        )
    else:
        said.append(
            f"no recorded model met the constraints; the smallest violation was "
            f"{float(best.violation):.4g}, after round {int(best.round)}"
        )
    return "infeasible", "; ".join(said)


def result_of(run: Run, book: Book, state: State, population: int, **rest: Any) -> Result:
    """The result of a run that ended in this state; sites that live elsewhere keep theirs."""
    server = state.server
    best = jax.device_get(server.best)
    status, reason = book.status, book.reason
    known = best is not None or (run.channel.blind and "violation" in book.names)
    if known and run.problem.num_constraints and status in ("done", "stopped"):
        status, reason = _with_constraints(run, book, best)
    solution, info = None, {}
    if server.method is not None:
        solution = np.asarray(run.method.solution(server.method))
        info = jax.device_get(server.info)
    else:
        reason = "; ".join(filter(None, (reason, AT_THE_SITES)))
        info = {k: book.values[-1][book.names.index(k)] for k in server.info if k in book.names}
    # devices hold equal numbers of clients, the last of them perhaps some that do not exist
    sites = jax.tree.map(lambda a: a[:population], state.sites)
    return Result(
        best=best,
        solution=solution,
        history=book.table(),
        ledger=book.ledger,
        server=server.method,
        clients=None if sites is None else sites.client,
        memory=() if sites is None else sites.memory,
        info=info,
        problem=run.problem.inner if isinstance(run.problem, OnColumns) else run.problem,
        method=run.method,
        rounds=book.done,
        status=status,
        reason=reason,
        **rest,
    )
