"""A run as a folder: what was run, with what, what came out, and all that is needed to go on.

    run.toml           the document with one value for everything
    run.lock           who runs it, while somebody does
    environment.json   versions and devices of every part of its life, when it began and ended
    holdings.json      who holds how much of what; nothing of the rows
    checkpoint-*.bin   the newest two, while it runs and after; in sites/ those of the sites
    history.csv, ledger.csv, model.npy, model.json, result.json, certificate.json   see Result.save
    history.parquet, ledger.parquet    where pandas and pyarrow are installed
    path.json, path.csv, path.npy, path.png    of a path: scores, the choice, all models
    report.html        one page that opens offline

A folder's name ends with a hash of what is run: the same run is found again, not computed twice.
"""

import json
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from fedmin.core.files import FolderLock, write_text, write_words
from fedmin.core.holdings import Holdings
from fedmin.core.kept import read_words
from fedmin.core.result import Result, tables
from fedmin.core.result_files import result_words
from fedmin.core.serialize import serialize
from fedmin.engines.progress import News, Show
from fedmin.engines.round import Run
from fedmin.engines.sessions.checkpoint import SECONDS, Checkpoint
from fedmin.minimizing import carry_out
from fedmin.runs import life
from fedmin.runs.config import Config
from fedmin.runs.costs import fitted
from fedmin.runs.following import following, forget
from fedmin.runs.grid import Job
from fedmin.runs.loggers import LOGGERS, Logger
from fedmin.runs.pieces import Pieces
from fedmin.runs.reading import folders_of, load, page_of

NOTE_SECONDS = 2.0  # between the notes of a run that is going on
SETTINGS = ("rounds", "seed", "every", "engine")  # the other options are a part of the run
ENDED = ("done", "stopped", "diverged", "infeasible", "risen", "stalled")


class Outcome(NamedTuple):
    """A run that was carried out, or found, and where it is."""

    job: Job
    folder: Path
    result: Result
    found: bool  # it was there already

    def json(self) -> str:
        """How it ended, as one line of JSON."""
        result = self.result
        finals = {name: float(column[-1]) for name, column in result.history.items()}
        words = {
            "run": self.job.label, "id": self.job.id, "folder": str(self.folder),
            "found": self.found, "status": result.status, "reason": result.reason,
            "rounds": result.rounds, "final": finals,
        }  # fmt: skip
        return json.dumps(words)


def run(
    config: Config,
    out: str | Path = "runs",
    *,
    force: bool = False,
    watch: Callable[[Job], Show] = lambda job: None,
    interrupt: Callable[[], str] | None = None,
    tap: str | Path | None = None,
) -> Iterator[Outcome]:
    """Run everything in a file, each run in a folder of its own; what is there is not run again.

    watch(job)     is called before each run and gives what is to be told of its progress
    interrupt()    is asked between rounds and between runs whether to stop: "", or why
    tap            a file that keeps every byte that the parties of all runs send
    """
    for job in config.jobs():
        if interrupt is not None and interrupt():
            return
        folder = Path(out) / job.folder
        yield run_one(job, folder, force=force, progress=watch(job), interrupt=interrupt, tap=tap)


def run_one(
    job: Job,
    folder: Path,
    *,
    force: bool = False,
    progress: Show = None,
    interrupt: Callable[[], str] | None = None,
    tap: str | Path | None = None,
) -> Outcome:
    """Run one job in its folder, from its last checkpoint if there is one.

    The folder is locked: another process that wants to run in it is told who does.
    """
    if not force and ended(folder):
        return Outcome(job, folder, load(folder), True)
    pieces, run = fitted(job)  # once: what does not fit is refused before its folder is made
    with FolderLock(folder):
        if force:
            _clear(folder)
        elif ended(folder):  # by another process, in the meantime
            return Outcome(job, folder, load(folder), True)
        try:
            way = following(job, pieces, interrupt)
            if way is not None and tap is not None:
                raise ValueError("a tap keeps the bytes of one run, and a path is many")
            carry = _minimizing(run, pieces, interrupt, tap) if way is None else way
            held = Holdings.of(pieces.federation)._asdict()
            result = in_folder(job, pieces, folder, progress, carry, held)
            return Outcome(job, folder, result, False)
        except OSError as error:  # a full disk, or one that is gone
            words = "what it has is whole, and the same command goes on from there"
            raise OSError(f"{folder}: {error}; {words}") from error


def _clear(folder: Path) -> None:
    """Take away what a run would go on from."""
    begun = [folder / name for name in ("result.json", life.NAME)]
    for old in [*folder.glob("checkpoint-*.bin"), *begun]:
        old.unlink(missing_ok=True)
    forget(folder)
    if (folder / "sites").exists():  # what the sites kept of the run before
        shutil.rmtree(folder / "sites")


def ended(folder: Path) -> bool:
    """Whether there is all in the folder of a run that need not go on, and all of it is whole."""
    if not all((folder / name).exists() for name in ("result.json", "report.html")):
        return False
    try:
        return result_words(folder).get("status") in ENDED
    except ValueError as error:
        words = f"{error}; the run goes on from its last checkpoint and writes it again"
        warnings.warn(words, RuntimeWarning, stacklevel=3)
        return False


Carry = Callable[[Checkpoint, Show], Result]  # runs, keeps checkpoints there and tells of it


def _minimizing(
    run: Run, pieces: Pieces, interrupt: Callable[[], str] | None, tap: str | Path | None
) -> Carry:
    chosen = {k: v for k, v in pieces.options.items() if k in SETTINGS}

    def carry(checkpoint: Checkpoint, heard: Show) -> Result:
        return carry_out(
            run, pieces.federation, progress=heard, checkpoint=checkpoint, interrupt=interrupt,
            tap=tap, **chosen,
        )  # fmt: skip

    return carry


def in_folder(
    job: Job, pieces: Pieces, folder: Path, progress: Show, carry: Carry, held: dict[str, Any]
) -> Result:
    """Run, and leave everything in the folder; the report is the last to come."""
    (folder / "report.html").unlink(missing_ok=True)  # of a run that was stopped
    _unfinish(folder)
    write_text(folder / "run.toml", tomli_w.dumps(job.resolved()))
    life.begin(folder)
    write_words(folder / "holdings.json", held)
    parameters = {"problem": str(pieces.problem), **_method_words(pieces.method)}
    loggers = [
        LOGGERS[name](folder, job.label, parameters) for name in job.words["run"].get("log", [])
    ]
    heard = _noted(pieces, folder, progress, loggers)
    result = carry(_checkpoint(job, folder), heard)
    result.save(folder)
    life.end(folder, result)
    _parquet(result, folder)
    for logger in loggers:
        logger.take(dict(result.history))
        logger.close()
    itself = folders_of([folder])
    write_text(folder / "report.html", page_of(itself, dict.fromkeys(itself, result)))
    return result


def _checkpoint(job: Job, folder: Path) -> Checkpoint:
    keep = job.words["run"]
    seconds = keep.get("checkpoint_seconds", SECONDS)
    return Checkpoint(folder, keep.get("checkpoint_rounds"), seconds)


def keeping(job: Job) -> str:
    """How often a run keeps what it needs to go on, and what that is for, in words."""
    keep = _checkpoint(job, Path())
    often = f"every {keep.seconds:g} s"
    if keep.rounds is not None:
        often = f"every {'round' if keep.rounds == 1 else f'{keep.rounds} rounds'} and {often}"
    return (
        f"a checkpoint is kept {often} (checkpoint_rounds, checkpoint_seconds in [run]): kill the "
        f"run at any moment, and the same command goes on from there"
    )


def _unfinish(folder: Path) -> None:
    """What a part before left is shown until there is more, but as of a run that goes on: its
    tables will be written anew, one after the other."""
    path = folder / "result.json"
    if not path.exists():
        return
    try:
        words = read_words(path)
        named = dict.fromkeys(words["files"])
    except (ValueError, KeyError, TypeError):  # said by `ended`, or of an earlier fedmin
        path.unlink()
        return
    write_words(path, words | {"status": "running", "reason": "", "files": named})


def _parquet(result: Result, folder: Path) -> None:
    """The tables once more, for those who have pandas and pyarrow."""
    if all(find_spec(name) is not None for name in ("pandas", "pyarrow")):
        import pandas  # type: ignore[import-untyped]

        for name, table in tables(result).items():
            pandas.DataFrame(table).to_parquet(folder / f"{name}.parquet")


def _method_words(method: Any) -> dict[str, Any]:
    words = serialize(method)
    return {"method": words["name"], **{k: v for k, v in words.items() if k != "name"}}


def _noted(
    pieces: Pieces, folder: Path, progress: Show, loggers: list[Logger]
) -> Callable[[News], None]:
    """Tell others of the progress, and write it into the folder for those who watch it."""
    last = time.monotonic()

    def hear(news: News) -> None:
        nonlocal last
        if callable(progress):
            progress(news)
        for logger in loggers:
            logger.hear(news)
        if time.monotonic() - last > NOTE_SECONDS:
            last = time.monotonic()
            Result(
                solution=None, history=news.book.table(), ledger=news.book.ledger,
                server=None, clients=None, problem=pieces.problem, method=pieces.method,
                rounds=news.done, seed=pieces.options["seed"], status="running", reason="",
                compile_seconds=0.0, run_seconds=news.spent,
            ).save(folder)  # fmt: skip

    return hear
