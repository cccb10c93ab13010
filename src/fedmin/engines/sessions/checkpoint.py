"""Checkpoints: all that the future of a run depends on, kept so that it ends as if never stopped.

A server keeps its own state, the history and who took part in each round; a site keeps its own
state, in a folder of its own, when the server asks for it and before the server keeps the round. So
whatever round a server finds again, its sites find it too; where a site's file is damaged, all go
back to the round before. The simulator is all parties in one. What a file is: files.py.
"""

import os
import time
import warnings
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import numpy as np

from fedmin.core import checks
from fedmin.core.environment import __version__
from fedmin.core.files import FolderLock
from fedmin.core.roster import Roster
from fedmin.core.serialize import digest
from fedmin.engines.round import Run
from fedmin.engines.sessions.files import CheckpointError, Files, LostError

NO_END = 2**31 - 1
SECONDS = 5.0  # between checkpoints
SHARE = 0.02  # of a run's time that goes into them, at most


@dataclass(frozen=True)
class Checkpoint:
    """Keep what a run needs to go on in `folder`, every so many rounds or seconds.

    A run that finds a checkpoint of its own there goes on from it and ends as if it had never
    stopped; one of another run is refused. Where writing takes long there are more seconds between
    two of them, so that they take a fiftieth of the time at most; `rounds` are kept to.

    >>> import fedmin
    >>> fedmin.Checkpoint("run-1", rounds=100)
    Checkpoint(folder='run-1', rounds=100, seconds=5.0)
    """

    folder: str | os.PathLike
    rounds: int | None = None
    seconds: float = SECONDS

    def __post_init__(self):
        if self.rounds is not None:
            checks.at_least("rounds between checkpoints", self.rounds, 1)
        checks.positive("seconds between checkpoints", self.seconds)


def belongings(
    run: Run, own: Any, roster: Roster, seed: int, every: int, **engine: Any
) -> dict[str, Any]:
    """What a run's checkpoints belong to, by name: another value of any of it is another run.

    `own` has the rows of the server itself, `test` and `server_rows`, as a federation does.
    """
    bare = replace(roster, shares=np.zeros(0))
    parts = {
        **{field.name: getattr(run, field.name) for field in fields(run)},
        "clients": bare, "weights": roster.shares,
        "test rows": own.test, "server rows": own.server_rows,
    }  # fmt: skip
    numbers = {"x64": bool(jax.config.read("jax_enable_x64")), "seed": seed, "every": every}
    hashes = {name: digest(value) for name, value in parts.items()}
    return {"fedmin": __version__, **engine, **numbers, **hashes}


class Keeper:
    """Writes a run's checkpoints when they are due, and finds where to go on."""

    def __init__(self, checkpoint: Checkpoint, belongs: dict[str, Any], every: int):
        self.checkpoint, self.every = checkpoint, every
        self.lock = FolderLock(checkpoint.folder, "checkpoint.lock")
        self.belongs = belongs
        self.last_round, self.last_time, self.took = 0, time.monotonic(), 0.0
        self.broken = False  # a disk did not take one

    def __enter__(self) -> "Keeper":
        self.lock.take()
        self.files = Files(self.checkpoint.folder, self.belongs)
        try:
            self.files.refuse_others()  # before anything is compiled
        except CheckpointError:
            self.lock.free()
            raise
        return self

    def __exit__(self, *failure: Any) -> None:
        self.lock.free()

    def room(self, done: int) -> int:
        """How many rounds there may be before the next checkpoint is due."""
        rounds = self.checkpoint.rounds
        return NO_END if rounds is None else rounds - done % rounds

    def due(self, done: int) -> bool:
        """Whether enough rounds or seconds have passed for another checkpoint."""
        rounds = self.checkpoint.rounds
        by_rounds = rounds is not None and done // rounds > self.last_round // rounds
        wait = max(self.checkpoint.seconds, self.took / SHARE)
        return by_rounds or time.monotonic() - self.last_time >= wait

    def keep(self, stepper: Any, book: Any, spent: float) -> None:
        """Write a checkpoint if one is due.

        A disk that does not take it ends the run, whose earlier checkpoints are still there.
        """
        if not self.due(book.done) and not stepper.full:
            return
        try:
            self.save(stepper, book, spent)
        except OSError as error:
            self.broken = True
            if book.status == "done":
                words = f"after round {book.done} no checkpoint could be written: {error}"
                book.status, book.reason = "interrupted", words

    def close(self, stepper: Any, book: Any, spent: float) -> None:
        """The last checkpoint, if it is not there yet."""
        if book.done == self.last_round or self.broken:
            return
        try:
            self.save(stepper, book, spent)
        except (OSError, RuntimeError) as error:  # of a disk, or of a site that cannot keep it
            words = f"the last checkpoint, of round {book.done}, could not be written: {error}"
            warnings.warn(words, RuntimeWarning, stacklevel=5)

    def save(self, stepper: Any, book: Any, spent: float) -> None:
        """Write a checkpoint; every other party keeps its own first."""
        begin, ledger = time.monotonic(), book.ledger
        stepper.keep(book.done)
        ledger.add_control(stepper.control_sent())
        words = {
            "spent": spent, "status": book.status, "reason": book.reason,
            "recorded": len(book.rounds), "ledger": ledger.exceptions(), "notes": stepper.notes(),
        }  # fmt: skip
        arrays = {
            "state": stepper.state,
            "rounds": np.array(book.rounds, np.int64),
            "seconds": np.array(book.seconds),
            "values": np.stack(book.values),
            "counts": np.array(ledger.counts, np.int64),
        }
        self.files.write(book.done, words, arrays)
        stepper.kept()
        self.last_round, self.last_time = book.done, time.monotonic()
        self.took = self.last_time - begin

    def resume(self, rounds: int, stepper: Any, book: Any) -> float:
        """Go to the newest whole checkpoint, if there is one; seconds spent until then.

        What was written down until then is entered in the book. All other parties go there too,
        or, where one of them has nothing whole of that round, all to the one before.
        """
        first, lost = book.values[0], False
        self.last_time = time.monotonic()  # from here on: what was compiled is in no file

        def form(words):
            _check(words)
            recorded, done = words["recorded"], words["done"]
            whole, number = np.dtype(np.int64), np.dtype(np.float64)
            return {
                "state": stepper.state,
                "rounds": jax.ShapeDtypeStruct((recorded,), whole),
                "seconds": jax.ShapeDtypeStruct((recorded,), number),
                "values": jax.ShapeDtypeStruct((recorded, *first.shape), first.dtype),
                "counts": jax.ShapeDtypeStruct((done,), whole),
            }

        for words, arrays in self.files.whole(form):
            if not self._leads_to(rounds, words["done"], int(arrays["rounds"][-1])):
                continue
            try:
                stepper.go_back(words["done"], arrays["state"])
            except LostError as error:
                lost = True
                warnings.warn(f"{error}; it is passed over", RuntimeWarning, stacklevel=4)
                continue
            self._enter(words, arrays, stepper, book)
            return words["spent"]
        if lost:
            stepper.go_back(0, stepper.state)
        return 0.0

    def _leads_to(self, rounds: int, done: int, measured: int) -> bool:
        """Whether a run of so many rounds passes this point, measured last after `measured`."""
        if done > rounds:
            raise CheckpointError(
                f"{self.files.path(done)} has more rounds of this run than the {rounds} that are "
                f"asked for; ask for {done} or more, or give another folder"
            )
        # the last round is measured whatever `every` says: with another end it would not have
        # been, or would have been here
        return measured == done if done == rounds else measured % self.every == 0

    def _enter(self, words: dict[str, Any], arrays: Any, stepper: Any, book: Any) -> None:
        self.last_round = words["done"]
        book.rounds = arrays["rounds"].tolist()
        book.seconds = arrays["seconds"].tolist()
        book.values = list(arrays["values"])
        book.ledger.counts = arrays["counts"].tolist()
        book.ledger.evaluated = list(book.rounds)
        book.ledger.enter(words["ledger"])
        book.ledger.add_control(stepper.control_sent())
        if words["status"] not in ("interrupted", "done"):
            book.status, book.reason = words["status"], words["reason"]
        stepper.state = jax.tree.map(_placed, stepper.state, arrays["state"])
        stepper.take_notes(words["notes"])


def _check(words: dict[str, Any]) -> None:
    """Refuse words that no run has written, whatever their digest says."""
    done, recorded, spent = (words[key] for key in ("done", "recorded", "spent"))
    right = {
        "recorded": type(recorded) is int and 0 < recorded <= done + 1,
        "spent": isinstance(spent, int | float) and 0 <= spent < float("inf"),
        "status": words["status"] in ("done", "stopped", "interrupted", "diverged"),
        "reason": isinstance(words["reason"], str),
        "ledger": isinstance(words["ledger"], dict),
        "notes": isinstance(words["notes"], dict),
    }
    for key, fits in right.items():
        if not fits:
            raise ValueError(f"its {key!r} is {words[key]!r}, after {done} rounds")


def _placed(like: Any, new: np.ndarray) -> Any:
    """New numbers where the old ones are."""
    return jax.device_put(new, like.sharding) if isinstance(like, jax.Array) else new
