"""A run as a folder: what was run, with what, what came out, and all that is needed to go on.

    run.toml           the document with one value for everything
    environment.json   versions and devices, and when it began
    holdings.json      who holds how much of what; nothing of the rows
    checkpoint-*.bin   the newest two, while it runs and after
    history.csv, ledger.csv, model.npy, result.json, certificate.json      see Result.save
    history.parquet, ledger.parquet    where pandas and pyarrow are installed
    report.html        one page that opens offline

A folder's name ends with a hash of what is run: the same run is found again, not computed twice.
"""

import json
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import jax
import tomli_w

from fedmin.channels import Plain
from fedmin.core.certificate import certificate_of
from fedmin.core.domain import Free
from fedmin.core.environment import versions
from fedmin.core.federation import Federation
from fedmin.core.holdings import Holdings
from fedmin.core.participation import Everyone
from fedmin.core.result import Result, tables, write_text
from fedmin.core.serialize import describe
from fedmin.engines import round as part
from fedmin.engines.progress import News, Show
from fedmin.engines.sessions.checkpoint import Checkpoint
from fedmin.engines.simulator.simulator import messages_of
from fedmin.minimizing import assemble, minimize
from fedmin.reports.page import page
from fedmin.runs.config import Config, Job, Pieces, resolved
from fedmin.runs.loggers import LOGS, Log

NOTE = 2.0  # seconds between notes of a run that is going on
ENDED = ("done", "stopped", "diverged", "infeasible")


class Ran(NamedTuple):
    """A run and where it is."""

    job: Job
    folder: Path
    result: Result
    found: bool  # it was there already


def run(
    config: Config,
    out: str | Path = "runs",
    *,
    force: bool = False,
    watch: Callable[[Job], Show] = lambda job: None,
) -> Iterator[Ran]:
    """Run everything in a file, one folder a run; what is there already is not run again.

    `watch(job)` is called before each run and gives what is to be told of its progress.
    """
    for job in config.jobs():
        yield run_one(job, Path(out) / job.folder, force=force, progress=watch(job))


def run_one(job: Job, folder: Path, *, force: bool = False, progress: Show = None) -> Ran:
    """Run one job in its folder, from its last checkpoint if there is one."""
    if force:
        begun = [folder / name for name in ("result.json", "environment.json")]
        for old in [*folder.glob("checkpoint-*.bin"), *begun]:
            old.unlink(missing_ok=True)
    if ended(folder):
        return Ran(job, folder, Result.load(folder), True)
    pieces, _ = fitted(job)
    try:
        return Ran(job, folder, _in_folder(job, pieces, folder, progress), False)
    except OSError as error:  # a full disk, or one that is gone
        words = f"{folder}: {error}; what it has is whole, and the same command goes on from there"
        raise OSError(words) from error


def _in_folder(job: Job, pieces: Pieces, folder: Path, progress: Show) -> Result:
    """Run, and leave everything in the folder; the report is the last to come."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.html").unlink(missing_ok=True)  # of a run that was stopped
    write_text(folder / "run.toml", tomli_w.dumps(resolved(job)))
    _write_json(folder / "environment.json", _environment(folder))
    _write_json(folder / "holdings.json", Holdings.of(pieces.federation)._asdict())
    keep = job.words["run"]
    checkpoint = Checkpoint(
        folder, keep.get("checkpoint_rounds"), keep.get("checkpoint_seconds", 30.0)
    )
    problem, federation, method, options = pieces
    words = {"problem": str(problem), **_without_name(describe(method))}
    logs = [LOGS[name](folder, job.label, words) for name in keep.get("log", [])]
    result = minimize(
        problem, federation, method, progress=_noted(pieces, folder, progress, logs),
        checkpoint=checkpoint, **options,
    )  # fmt: skip
    result = _certified(result, federation)
    result.save(folder)
    _parquet(result, folder)
    for log in logs:
        log.take(dict(result.history))
        log.close()
    itself = folders_of([folder])
    write_text(folder / "report.html", _report(itself, dict.fromkeys(itself, result)))
    return result


def _certified(result: Result, federation: Federation) -> Result:
    """With a certificate, also where `minimize` makes none: of a free problem, |grad F|."""
    free, ended = isinstance(result.problem.domain, Free), result.status in ("done", "stopped")
    if result.certificate is None and free and ended:
        return replace(result, certificate=certificate_of(result, federation))
    return result


def _parquet(result: Result, folder: Path) -> None:
    """The tables once more, for those who have pandas and pyarrow."""
    if all(find_spec(name) is not None for name in ("pandas", "pyarrow")):
        import pandas  # type: ignore[import-untyped]

        for name, table in tables(result).items():
            pandas.DataFrame(table).to_parquet(folder / f"{name}.parquet")


def _without_name(words: dict[str, Any]) -> dict[str, Any]:
    return {"method": words["name"], **{k: v for k, v in words.items() if k != "name"}}


def _noted(pieces: Pieces, folder: Path, progress: Show, logs: list[Log]) -> Callable[[News], None]:
    """Tell others of the progress, and write it into the folder for those who watch it."""
    last = time.monotonic()

    def hear(news: News) -> None:
        nonlocal last
        if callable(progress):
            progress(news)
        for log in logs:
            log.hear(news)
        if time.monotonic() - last > NOTE:
            last = time.monotonic()
            Result(
                solution=None, history=news.history.table(news.ledger), ledger=news.ledger,
                server=None, clients=None, problem=pieces.problem, method=pieces.method,
                rounds=news.done, seed=pieces.options["seed"], status="running", reason="",
                compile_seconds=0.0, run_seconds=news.spent,
            ).save(folder)  # fmt: skip

    return hear


def report_of(paths: Iterable[str | Path]) -> str:
    """One page of the runs in these folders."""
    folders = folders_of(paths)
    return _report(folders, {name: Result.load(folder) for name, folder in folders.items()})


def _report(folders: dict[str, Path], results: dict[str, Result]) -> str:
    kept = {name: _read_json(folder / "holdings.json") for name, folder in folders.items()}
    held = {name: Holdings(**words) for name, words in kept.items() if words}
    made = _together([_read_json(folder / "environment.json") for folder in folders.values()])
    title = next(iter(results)) if len(results) == 1 else f"{len(results)} runs"
    data = {_document(folder).get("data", {}).get("name") for folder in folders.values()} - {None}
    on = f" on {', '.join(sorted(data))}" if data else ""
    return page(title + on, results, held=held, made=made)


def _together(environments: list[dict[str, str]]) -> dict[str, str]:
    """What runs were made with: the values there are of each thing, of times the ends."""
    keys = dict.fromkeys(key for words in environments for key in words)
    found = {key: [words[key] for words in environments if key in words] for key in keys}
    if "began" in found:
        found["began"] = [" to ".join(sorted({min(found["began"]), max(found["began"])}))]
    return {key: ", ".join(dict.fromkeys(values)) for key, values in found.items()}


def line_of(ran: Ran) -> str:
    """How a run ended, as one line of JSON."""
    result = ran.result
    finals = {name: float(column[-1]) for name, column in result.history.items()}
    words = {
        "run": ran.job.label, "id": ran.job.id, "folder": str(ran.folder), "found": ran.found,
        "status": result.status, "reason": result.reason, "rounds": result.rounds, "final": finals,
    }  # fmt: skip
    return json.dumps(words)


def ended(folder: Path) -> bool:
    """Whether there is all in the folder of a run that need not go on."""
    status = _read_json(folder / "result.json").get("status")
    return status in ENDED and (folder / "report.html").exists()


def _environment(folder: Path) -> dict[str, str]:
    began = _read_json(folder / "environment.json").get("began")  # it may go on, not begin
    return {**versions(), "began": began or time.strftime("%Y-%m-%dT%H:%M:%S%z")}


class Costs(NamedTuple):
    """What a run will cost, known before it is run."""

    size: int  # d
    rows: int
    clients: int
    present: int  # clients in a round, at most
    down: int  # bytes a round
    up: int
    rounds: int


def fitted(job: Job) -> tuple[Pieces, part.Run]:
    """The pieces of a run and what they make; refuses those that do not fit, before any work."""
    pieces = job.config.pieces(job)
    problem, federation, method, options = pieces
    try:
        return pieces, assemble(
            problem, federation, method, options.get("participation", Everyone()),
            options.get("channel", Plain()), options.get("record"), options.get("stop"),
        )  # fmt: skip
    except (ValueError, TypeError) as error:
        named = str(error).startswith(type(method).__name__)  # else of two sections at once
        job.config.fail("method" if named else "", str(error))


def costs(job: Job) -> Costs:
    """Sizes and bytes of a run that is not run."""
    pieces, run = fitted(job)
    problem, federation, _, options = pieces
    messages, _ = messages_of(run, federation)
    ledger = part.ledger_of(run, messages, federation.num_clients)
    present = _most_present(run.participation, federation.num_clients)
    down, up = (
        sum(line.messages(present) * line.bytes for line in ledger.lines if line.direction == way)
        for way in ("down", "up")
    )
    rows = federation.pool.count
    return Costs(problem.size(), rows, federation.num_clients, present, down, up, options["rounds"])


def _most_present(participation: Any, population: int) -> int:
    ids, _ = jax.eval_shape(
        lambda key: participation.cohort(key, jax.numpy.int32(0), population), jax.random.key(0)
    )
    return ids.shape[0]


def folders_of(paths: Iterable[str | Path]) -> dict[str, Path]:
    """These folders of runs, or all folders of runs within them, by short names."""
    folders: list[Path] = []
    for path in map(Path, paths):
        within = sorted(p.parent for p in path.glob("*/result.json"))
        if not (path / "result.json").exists() and not within:
            raise ValueError(f"{path} has no result of a run in it, nor has any folder within")
        folders += [path] if (path / "result.json").exists() else within
    names = _names([_document(folder) for folder in folders])
    return dict(zip(names, folders, strict=True))


def load_all(paths: Iterable[str | Path]) -> dict[str, Result]:
    """The results of these folders, or of all folders of runs within them, by short names."""
    return {name: Result.load(folder) for name, folder in folders_of(paths).items()}


def _read_json(path: Path) -> dict[str, Any]:
    """The words of a file; none if it is not there, as beside a result that was saved by hand."""
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def _write_json(path: Path, words: dict[str, Any]) -> None:
    write_text(path, json.dumps(words, indent=1) + "\n")


def _document(folder: Path) -> dict[str, Any]:
    path = folder / "run.toml"
    if not path.exists():  # a result that was saved by hand
        words = json.loads((folder / "result.json").read_text("utf-8"))
        return {"method": words["method"], "run": {"seeds": [words["seed"]]}}
    return tomllib.loads(path.read_text("utf-8"))


def _names(documents: list[dict[str, Any]]) -> list[str]:
    """A name each: the method, and whatever sets a run apart from the others."""
    flat = [dict(_flatten(document)) for document in documents]
    keys = list(dict.fromkeys(key for each in flat for key in each))
    differ = [k for k in keys if len({repr(each.get(k)) for each in flat}) > 1]
    names = []
    for each in flat:
        own = [f"{_LAST.get(k, k.partition('.')[2])}={each[k]}" for k in differ if k in each]
        own = [word for word in own if not word.startswith("name=")]
        names.append(" ".join([str(each.get("method.name", "run")), *own]))
    return [name if names.count(name) == 1 else f"{name} ({i + 1})" for i, name in enumerate(names)]


_LAST = {"run.seeds": "seed"}  # what a key is called in a name


def _flatten(words: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(words, dict):
        for key, value in words.items():
            yield from _flatten(value, f"{before}.{key}" if before else key)
    else:
        yield before, words[0] if isinstance(words, list) and len(words) == 1 else words
