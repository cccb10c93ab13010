"""Checkpoints: all that the future of a run depends on, in files that a crash cannot tear.

    magic 8 | version 2 | length of the words 4 | words, JSON | all arrays, as a message of wire.py

The words say whose run it is and how far it came; the arrays are the state of whoever keeps them.
The form of the state is known from the run itself, so only numbers are stored. A file is written
beside its place and moved there when it is whole; the one before it is kept.

A server keeps its own state, the history and who took part in each round; a site keeps its own
state, in a folder of its own, when the server asks for it and before the server keeps the round. So
whatever round a server finds again, its sites find it too. The simulator is all parties in one.
"""

import contextlib
import json
import os
import struct
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedmin.core import checks
from fedmin.core.result import write_whole
from fedmin.engines.sessions import wire

MAGIC = b"FMINCKPT"
VERSION = 2
FRONT = struct.Struct("<8sHI")
NO_END = 2**31 - 1


@dataclass(frozen=True)
class Checkpoint:
    """Keep what a run needs to go on in `folder`, every so many rounds or seconds.

    A run that finds a checkpoint of its own there goes on from it and ends as if it had never
    stopped; one of another run is refused.

    >>> import fedmin
    >>> fedmin.Checkpoint("run-1", rounds=100)
    Checkpoint(folder='run-1', rounds=100, seconds=30.0)
    """

    folder: str | os.PathLike
    rounds: int | None = None
    seconds: float = 30.0

    def __post_init__(self):
        if self.rounds is not None:
            checks.at_least("rounds between checkpoints", self.rounds, 1)
        checks.positive("seconds between checkpoints", self.seconds)


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, and why."""


class Files:
    """The checkpoints of one party: the newest two of this run in a folder."""

    def __init__(self, folder: str | os.PathLike, whose: str):
        self.folder, self.whose = Path(folder), whose
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, done: int, words: dict[str, Any], arrays: Any) -> None:
        """Keep these arrays as what there was after so many rounds."""
        said = json.dumps({"run": self.whose, "done": done, **words}).encode()
        body = wire.encode(wire.Envelope("state", done, 0, 0, 0), jax.device_get(arrays))
        path = self.folder / f"checkpoint-{done:09d}.bin"
        write_whole(path, FRONT.pack(MAGIC, VERSION, len(said)) + said + body)
        # later ones are of a future that will not be: after a damaged checkpoint a run goes back,
        # and kept for being the newest they would crowd out what it can go on from
        kept = [each for each in self.found() if each.name <= path.name][:2]
        for old in set(self.found()) - set(kept):
            old.unlink(missing_ok=True)

    def found(self) -> list[Path]:
        """Checkpoints, newest first."""
        return sorted(self.folder.glob("checkpoint-*.bin"), reverse=True)

    def newest(self, form: Any) -> tuple[dict[str, Any], Any] | None:
        """Words and arrays of the newest checkpoint that is whole; form(words) is their form."""
        for path in self.found():
            try:
                return self.read(path, form)
            except CheckpointError as error:
                if error.__cause__ is None:  # another run's: to go on would be to overwrite it
                    raise
                warnings.warn(f"{error}; the one before it is used", RuntimeWarning, stacklevel=5)
        return None

    def at(self, done: int, form: Any) -> tuple[dict[str, Any], Any]:
        """Words and arrays of the checkpoint after so many rounds."""
        path = self.folder / f"checkpoint-{done:09d}.bin"
        if not path.exists():
            raise CheckpointError(f"{path} is not there: nothing was kept of round {done}")
        return self.read(path, form)

    def read(self, path: Path, form: Any) -> tuple[dict[str, Any], Any]:
        """Words and arrays of one file."""
        data = path.read_bytes()
        try:
            magic, version, length = FRONT.unpack_from(data)
            if magic != MAGIC:
                raise ValueError(f"it begins with {magic!r}")
            if version > VERSION:
                raise ValueError(f"it was written by a newer fedmin (version {version})")
            words = json.loads(data[FRONT.size : FRONT.size + length])
            if version < VERSION:
                words["run"] = ""
            if words["run"] == self.whose:
                _, arrays = wire.decode(data[FRONT.size + length :], form(words))
        except (ValueError, struct.error, KeyError) as error:
            raise CheckpointError(f"{path} is not a whole checkpoint: {error}") from error
        if words["run"] != self.whose and version < VERSION:
            raise CheckpointError(
                f"{path} is of an earlier fedmin (version {version}), which this one cannot go on "
                f"from; give another folder, or delete it"
            )
        if words["run"] != self.whose:
            raise CheckpointError(
                f"{path} belongs to another run (problem, data, method, channel, participation, "
                f"record, every, seed or engine differ); give another folder, or delete it"
            )
        return words, arrays


class Keeper:
    """Writes a run's checkpoints when they are due, and finds where to go on."""

    def __init__(self, checkpoint: Checkpoint, whose: str, every: int):
        self.checkpoint, self.every = checkpoint, every
        self.files = Files(checkpoint.folder, whose)
        self.last_round, self.last_time = 0, time.monotonic()

    def room(self, done: int) -> int:
        """How many rounds there may be before the next checkpoint is due."""
        rounds = self.checkpoint.rounds
        return NO_END if rounds is None else rounds - done % rounds

    def due(self, done: int) -> bool:
        """Whether enough rounds or seconds have passed for another checkpoint."""
        rounds = self.checkpoint.rounds
        by_rounds = rounds is not None and done // rounds > self.last_round // rounds
        return by_rounds or time.monotonic() - self.last_time >= self.checkpoint.seconds

    def keep(self, stepper: Any, book: Any, spent: float) -> None:
        """Write a checkpoint if one is due.

        A disk that does not take it ends the run, whose earlier checkpoints are still there.
        """
        if not self.due(book.done):
            return
        try:
            self.save(stepper, book, spent)
        except OSError as error:
            if book.status == "done":
                words = f"after round {book.done} no checkpoint could be written: {error}"
                book.status, book.reason = "interrupted", words

    def close(self, stepper: Any, book: Any, spent: float) -> None:
        """The last checkpoint, if it is not there yet."""
        if book.done != self.last_round:
            # what there is stays; the run says how it ended, also if a site cannot keep it
            with contextlib.suppress(OSError, RuntimeError):
                self.save(stepper, book, spent)

    def save(self, stepper: Any, book: Any, spent: float) -> None:
        """Write a checkpoint; every other party keeps its own first."""
        stepper.keep(book.done)
        words = {
            "spent": spent, "status": book.status, "reason": book.reason,
            "recorded": len(book.rounds),
        }  # fmt: skip
        arrays = {
            "state": stepper.state,
            "rounds": np.array(book.rounds, np.int64),
            "seconds": np.array(book.seconds),
            "values": np.stack(book.values),
            "counts": np.array(book.ledger.counts, np.int64),
        }
        self.files.write(book.done, words, arrays)
        self.last_round, self.last_time = book.done, time.monotonic()

    def resume(self, rounds: int, state: Any, book: Any) -> tuple[Any, float]:
        """Where to go on from: the newest whole checkpoint, or the beginning; seconds spent.

        What was written down until then is entered in the book.
        """
        first = book.values[0]

        def form(words):
            return {
                "state": state,
                "rounds": np.zeros(words["recorded"], np.int64),
                "seconds": np.zeros(words["recorded"]),
                "values": np.zeros((words["recorded"], *first.shape), first.dtype),
                "counts": np.zeros(words["done"], np.int64),
            }

        found = self.files.newest(form)
        if found is None:
            return state, 0.0
        words, arrays = found
        self.last_round = words["done"]
        book.rounds = arrays["rounds"].tolist()
        book.seconds = arrays["seconds"].tolist()
        book.values = list(arrays["values"])
        book.ledger.counts = arrays["counts"].tolist()
        book.ledger.evaluated = list(book.rounds)
        if words["status"] not in ("interrupted", "done"):
            book.status, book.reason = words["status"], words["reason"]
        if book.done < rounds and book.rounds[-1] % self.every:
            book.drop_last()  # measured because it was the end, which it no longer is
        return jax.tree.map(lambda a, b: _placed(a, b), state, arrays["state"]), words["spent"]


def _placed(like: Any, new: np.ndarray) -> Any:
    """New numbers where the old ones are."""
    return jax.device_put(new, like.sharding) if isinstance(like, jax.Array) else new
