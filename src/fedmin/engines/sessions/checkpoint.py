"""Checkpoints: all that the future of a run depends on, in files that a crash cannot tear.

    magic 8 | version 2 | length of the words 4 | words, JSON | all arrays, as a message of wire.py

The words say whose run it is, how far it came and how long its history is; the arrays are the state
of the server, of all clients and of the channel, the history and who took part in each round. The
form of the state is known from the run itself, so only numbers are stored. A file is written beside
its place and moved there when it is whole; the one before it is kept.
"""

import contextlib
import json
import os
import struct
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedmin.core import checks
from fedmin.core.certificate import fingerprint
from fedmin.core.ledger import Ledger
from fedmin.core.result import write_whole
from fedmin.core.serialize import digest
from fedmin.engines.history import History
from fedmin.engines.sessions import wire

MAGIC = b"FMINCKPT"
VERSION = 1
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


class Saved(NamedTuple):
    """What a checkpoint holds."""

    done: int
    spent: float
    status: str
    reason: str
    state: Any


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, and why."""


class Keeper:
    """Writes a run's checkpoints and finds the newest one that is whole."""

    def __init__(self, checkpoint: Checkpoint | None, run: Any, federation: Any, seed: int, every):
        self.checkpoint, self.every = checkpoint, every
        self.last_round, self.last_time = 0, time.monotonic()
        if checkpoint is None:
            return
        self.folder = Path(checkpoint.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.whose = digest([run, fingerprint(federation), seed, every])

    def room(self, done: int) -> int:
        """How many rounds there may be before the next checkpoint is due."""
        if self.checkpoint is None or self.checkpoint.rounds is None:
            return NO_END
        return self.checkpoint.rounds - done % self.checkpoint.rounds

    def due(self, done: int) -> bool:
        """Whether enough rounds or seconds have passed for another checkpoint."""
        if self.checkpoint is None:
            return False
        rounds = self.checkpoint.rounds
        by_rounds = rounds is not None and done // rounds > self.last_round // rounds
        return by_rounds or time.monotonic() - self.last_time >= self.checkpoint.seconds

    def keep(self, done: int, spent: float, status: str, reason: str, *rest: Any):
        """Write a checkpoint if enough rounds or seconds have passed; status and reason.

        A disk that does not take it ends the run, whose earlier checkpoints are still there.
        """
        if self.due(done):
            try:
                self.save(done, spent, status, reason, *rest)
            except OSError as error:
                words = f"after round {done} no checkpoint could be written: {error}"
                return ("interrupted", words) if status == "done" else (status, reason)
        return status, reason

    def close(self, done: int, *rest: Any) -> None:
        """The last checkpoint, if it is not there yet."""
        if self.checkpoint is not None and done != self.last_round:
            with contextlib.suppress(OSError):  # what there is stays; the run says how it ended
                self.save(done, *rest)

    def resume(self, rounds: int, state: Any, history: History, ledger: Ledger) -> Saved:
        """Where to go on from: the newest whole checkpoint, or the beginning."""
        found = self._load(state, history, ledger)
        if found is None:
            return Saved(0, 0.0, "done", "", state)
        if found.done < rounds and history.rounds[-1] % self.every:
            history.drop_last()  # measured because it was the end, which it no longer is
        again = found.status in ("interrupted", "done")
        return found._replace(status="done", reason="") if again else found

    def save(
        self, done: int, spent: float, status: str, reason: str, state: Any, history: History,
        ledger: Ledger,
    ) -> None:  # fmt: skip
        """Write a checkpoint; the newest two are kept."""
        words = {
            "run": self.whose, "done": done, "spent": spent, "status": status, "reason": reason,
            "recorded": len(history.rounds),
        }  # fmt: skip
        self._write(
            self.folder / f"checkpoint-{done:09d}.bin", words, _arrays(state, history, ledger)
        )
        self.last_round, self.last_time = done, time.monotonic()
        for old in self._files()[2:]:
            old.unlink(missing_ok=True)

    def _write(self, path: Path, words: dict, arrays: Any) -> None:
        said = json.dumps(words).encode()
        body = wire.encode(wire.Envelope("down", words["done"], 0, 0), arrays)
        write_whole(path, FRONT.pack(MAGIC, VERSION, len(said)) + said + body)

    def _files(self) -> list[Path]:
        """Checkpoints, newest first."""
        return sorted(self.folder.glob("checkpoint-*.bin"), reverse=True)

    def _load(self, like: Any, history: History, ledger: Ledger) -> Saved | None:
        """The newest checkpoint that can be used, entered in history and ledger; or None."""
        if self.checkpoint is None:
            return None
        for path in self._files():
            try:
                found = self._read(path, like, history, ledger)
            except CheckpointError as error:
                if error.__cause__ is None:  # another run's: to go on would be to overwrite it
                    raise
                warnings.warn(f"{error}; the one before it is used", RuntimeWarning, stacklevel=4)
                continue
            self.last_round = found.done
            return found
        return None

    def _read(self, path: Path, like: Any, history: History, ledger: Ledger) -> Saved:
        data = path.read_bytes()
        try:
            magic, version, length = FRONT.unpack_from(data)
            if magic != MAGIC:
                raise ValueError(f"it begins with {magic!r}")
            if version > VERSION:
                raise ValueError(f"it was written by a newer fedmin (version {version})")
            words = json.loads(data[FRONT.size : FRONT.size + length])
            if words["run"] == self.whose:
                form = _form(like, words["recorded"], words["done"], history)
                _, arrays = wire.decode(data[FRONT.size + length :], form)
        except (ValueError, struct.error, KeyError) as error:
            raise CheckpointError(f"{path} is not a whole checkpoint: {error}") from error
        if words["run"] != self.whose:
            raise CheckpointError(
                f"{path} belongs to another run (problem, data, method, channel, participation, "
                f"record, every or seed differ); give another folder, or delete it"
            )
        history.rounds = arrays["rounds"].tolist()
        history.seconds = arrays["seconds"].tolist()
        history.values = list(arrays["values"])
        ledger.counts = arrays["counts"].tolist()
        state = jax.tree.map(lambda a, b: jax.device_put(b, a.sharding), like, arrays["state"])
        return Saved(words["done"], words["spent"], words["status"], words["reason"], state)


def _arrays(state: Any, history: History, ledger: Ledger) -> dict[str, Any]:
    return {
        "state": jax.device_get(state),
        "rounds": np.array(history.rounds, np.int64),
        "seconds": np.array(history.seconds),
        "values": np.stack(history.values),
        "counts": np.array(ledger.counts, np.int64),
    }


def _form(state: Any, recorded: int, done: int, history: History) -> dict[str, Any]:
    """The shapes that the arrays of such a checkpoint must have."""
    first = history.values[0]
    return {
        "state": state,
        "rounds": np.zeros(recorded, np.int64),
        "seconds": np.zeros(recorded),
        "values": np.zeros((recorded, *first.shape), first.dtype),
        "counts": np.zeros(done, np.int64),
    }
