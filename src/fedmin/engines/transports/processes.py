"""Processes: every site in an operating-system process that has its own rows and the roster.

The server half stays here. A site's process is started with an empty memory, told the run, the
roster and its own rows over a pipe, and then speaks in messages only; its memory of the run stays
with it. A process that dies ends the run with an error that names its client.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedmin.core import checks
from fedmin.core.federation import Federation
from fedmin.core.result import Result
from fedmin.core.rows import Rows
from fedmin.engines.drive import Engine, Settings
from fedmin.engines.round import Run
from fedmin.engines.sessions.halves import Own, run_halves
from fedmin.engines.sessions.packets import ClientError
from fedmin.engines.sessions.server import ServerSession
from fedmin.engines.sessions.transport import Transport
from fedmin.engines.transports import pipes
from fedmin.engines.transports.words import to_words

SETTINGS = ("jax_enable_x64", "jax_numpy_dtype_promotion", "jax_default_matmul_precision")


class Piped(Transport):
    """Sites at the other ends of pipes; `workers` of them compute at a time."""

    def __init__(self, names: tuple[str, ...], processes: list[subprocess.Popen], workers: int):
        self.names, self.processes = names, processes
        self.pool = ThreadPoolExecutor(workers)

    def deliver(
        self,
        messages: dict[int, bytes],
        deadline: float | None = None,
        enough: int | None = None,
        before: Mapping[int, bytes] = {},
    ) -> dict[int, bytes]:
        asked = {
            i: self.pool.submit(self._ask_both, i, before.get(i), data)
            for i, data in messages.items()
        }
        return {i: reply.result() for i, reply in asked.items()}

    def _ask_both(self, i: int, before: bytes | None, data: bytes) -> bytes:
        if before is not None:
            self._ask(i, before)
        return self._ask(i, data)

    def _ask(self, i: int, data: bytes) -> bytes:
        process = self.processes[i]
        try:
            pipes.send(process.stdin, pipes.ASK, data)  # type: ignore[arg-type]
        except OSError:
            raise self._dead(i) from None
        return self.heard(i)[1]

    def heard(self, i: int) -> tuple[bytes, bytes]:
        """The next frame of a site's process."""
        frame = pipes.receive(self.processes[i].stdout)  # type: ignore[arg-type]
        if frame is None:
            raise self._dead(i)
        if frame[0] in (pipes.FAILED, pipes.REFUSED):
            raise ClientError(frame[1].decode())
        return frame

    def _dead(self, i: int) -> ClientError:
        code = self.processes[i].wait(10)
        return ClientError(f"client {self.names[i]}: its process ended with exit code {code}")

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:  # it died with something still to be written to it
                        continue
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass(frozen=True)
class Processes(Engine):
    """Run every client in a process of its own; `workers` of them compute at a time.

    What is run must have a name that the processes can import: fedmin's own methods and problems,
    and those of modules of yours, but no lambda. Clients' states stay with them: `Result.clients`
    is None.

    >>> import fedmin
    >>> fedmin.Processes(workers=2)
    Processes(workers=2)
    """

    workers: int | None = None

    def __post_init__(self):
        if self.workers is not None:
            checks.at_least("workers", self.workers, 1)

    def run(self, run: Run, federation: Federation, settings: Settings) -> Result:
        """Run and return the result."""
        roster = federation.roster(run.participation.everyone)
        if run.channel.blind and settings.checkpoint is None:
            raise ValueError(
                f"{run.channel} leaves the model at the sites; give checkpoint=Checkpoint(folder), "
                f"so that their processes have a folder to keep it in"
            )
        words = {
            "run": to_words(run),
            "roster": to_words(roster),
            "seed": settings.seed,
        }  # refused early
        workers = min(self.workers or os.cpu_count() or 1, roster.clients)

        def open_sites(server: ServerSession, folders: list[Path | None]) -> Piped:
            piped = Piped(roster.names, [], workers)
            try:
                for i, folder in enumerate(folders):
                    own = {**words, "me": i, "folder": None if folder is None else str(folder)}
                    piped.processes.append(_started(roster.names[i], own, federation.client(i)))
                for i in range(roster.clients):
                    piped.heard(i)
            except BaseException:
                piped.close()
                raise
            return piped

        own = Own(federation.server_rows, federation.test)
        return run_halves(run, roster, own, open_sites, settings)


def _started(name: str, words: dict[str, Any], rows: Rows) -> subprocess.Popen:
    """A site's process, told what to run and given its rows."""
    like = jax.tree.map(lambda a: np.zeros(0, a.dtype), rows)
    said = {
        **words,
        "x": to_words(like),
        "settings": {name: getattr(jax.config, name) for name in SETTINGS},
        "path": [path for path in sys.path if path],
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "fedmin.engines.transports.worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "FEDMIN_DEVICES": "1", "PYTHONPATH": os.pathsep.join(said["path"])},
    )  # fmt: skip
    arrays = io.BytesIO()
    np.savez(arrays, *[np.asarray(a) for a in jax.tree.leaves(rows)])
    try:
        pipes.send(process.stdin, pipes.OPEN, json.dumps(said).encode())  # type: ignore[arg-type]
        pipes.send(process.stdin, pipes.ROWS, arrays.getvalue())  # type: ignore[arg-type]
    except OSError:
        process.kill()
        code = process.wait()
        why = f"client {name}: its process ended with exit code {code} before it was told its run"
        raise ClientError(why) from None
    return process
