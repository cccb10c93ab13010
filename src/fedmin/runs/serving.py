"""The server half on its own machine: it waits for its sites, runs, and goes on after a crash."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedmin.core.files import write_text
from fedmin.core.holdings import Holdings
from fedmin.core.result import Result
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows
from fedmin.engines import private
from fedmin.engines.drive import Settings
from fedmin.engines.progress import Show
from fedmin.engines.sessions.checkpoint import Checkpoint
from fedmin.engines.sessions.halves import Own, Terms, run_halves
from fedmin.engines.sessions.server import ServerSession
from fedmin.engines.sessions.site import run_name
from fedmin.engines.sessions.transport import Transport
from fedmin.engines.transports.grpc.streams import StreamDoor
from fedmin.engines.weighing import count_lines
from fedmin.judging import judged_apart
from fedmin.privacy.identity import Identity
from fedmin.privacy.own_secret import OwnSecret
from fedmin.runs import counting
from fedmin.runs.agreement import (
    Agreed,
    agree,
    difference,
    document_of,
    misfit,
    misfit_of_numbers,
    only_job,
    roster_of,
)
from fedmin.runs.config import Config
from fedmin.runs.folder import Outcome, ended, in_folder
from fedmin.runs.grid import Job
from fedmin.runs.joining import FAILED, drawing_key
from fedmin.runs.own_rows import load_rows, named_columns
from fedmin.runs.preparing import PreparingError, prepared_at, prepares
from fedmin.runs.presence import Watched
from fedmin.runs.reading import load
from fedmin.runs.rosters import roster_words

log = logging.getLogger("fedmin.serve")
LINGER = 3.0  # seconds in which a site that was cut off is still told the end
LINGER_AGAIN = 20.0  # of a server that was killed before it could: sites call every 15 s
TOLD = "told.json"  # in a run's folder: the sites that know that it has ended
NEVER: Callable[[], str] = lambda: ""


class OwnFiles(NamedTuple):
    """Rows of the server's own, as `fedmin deploy` writes them."""

    test: Path | None = None  # to test on
    server_rows: Path | None = None  # to train on


class Place(NamedTuple):
    """Where a server listens and who it is."""

    keys: str | Path  # the folder of its key and certificate
    listen: str  # host:port; port 0 is any that is free
    test: Path | None = None  # rows of its own to test on, as `fedmin deploy` writes them
    server_rows: Path | None = None
    told: Callable[[int], None] = lambda port: None  # on which port it listens
    tap: Path | None = None  # a file that keeps every byte that it sends or gets


class Door(Protocol):
    """How sites come into a run, and the way to them: streams, or the grid of Flower."""

    check_ready: Callable[[str, dict[str, Any]], str]  # a site's name and words: "" or why not

    def wait_for_hellos(self, seconds: float, interrupt: Callable[[], str]) -> dict[str, Any]:
        """What every site says of itself."""
        ...

    def survey(
        self, names: Sequence[str], data: bytes, seconds: float, interrupt: Callable[[], str]
    ) -> dict[str, bytes]:
        """What some sites answer to a question before the run."""
        ...

    def transport(
        self, messages: Any, roster: Roster, *, patience: float, interrupt: Callable[[], str]
    ) -> Transport:
        """The transport to the sites."""
        ...

    def surveys(
        self, messages: Mapping[str, bytes], seconds: float, interrupt: Callable[[], str]
    ) -> dict[str, bytes]:
        """What some sites answer to questions before the run is known."""
        ...

    def welcome(self, words: dict[str, Any]) -> None:
        """Tell every site, now and later, what is run."""
        ...

    def stop(self, words: dict[str, Any] | None = None, linger: float = 0.0) -> set[str]:
        """The end; without last words sites wait for the server to come back. Who was told."""
        ...


def serve(
    config: Config,
    out: str | Path,
    place: Place,
    *,
    progress: Show = None,
    interrupt: Callable[[], str] = NEVER,
) -> Outcome:
    """Run a file's one run with the sites that it names; its folder is `fedmin run`'s."""
    job = only_job(config)
    folder = Path(out) / job.folder
    if ended(folder) and (folder / TOLD).exists():
        return Outcome(job, folder, load(folder), True)
    identity = Identity.load(place.keys)
    if identity.role != "server":
        raise ValueError(f"{place.keys} holds the certificate of a {identity.role}, not a server's")
    assert config.terms is not None
    check = misfit if prepares(job) else misfit_of_numbers
    door = StreamDoor(identity, config.terms.sites, place.listen, check)
    log.info("listening at %s", place.listen.rpartition(":")[0] + f":{door.port}")
    place.told(door.port)
    own = OwnFiles(place.test, place.server_rows)
    return serve_at(config, out, door, own, progress=progress, interrupt=interrupt, tap=place.tap)


def serve_at(
    config: Config,
    out: str | Path,
    door: Door,
    own: OwnFiles = OwnFiles(),
    *,
    progress: Show = None,
    interrupt: Callable[[], str] = NEVER,
    tap: Path | None = None,
) -> Outcome:
    """The same, with sites that come in by a door; it is closed when the run has ended."""
    words: dict[str, Any] = {"status": "away"}
    linger = LINGER
    try:
        job = only_job(config)
        folder = Path(out) / job.folder
        if ended(folder):
            result, was_there, linger = load(folder), True, LINGER_AGAIN
        else:
            served = _Served(config, job, folder, own, door, interrupt, tap)
            result, was_there = served.run(progress), False
        words = {"status": result.status, "reason": result.reason, "rounds": result.rounds}
    except PreparingError as error:
        words = {"status": FAILED, "reason": str(error)}
        raise
    finally:
        ended_ = words["status"] not in ("away", "interrupted")
        told = door.stop(words if ended_ else None, linger)  # else sites wait for it to come back
        # before this it opens its door once more, for those who wait
        if ended_ and words["status"] != FAILED:
            write_text(folder / TOLD, json.dumps(sorted(told)) + "\n")
    return Outcome(job, folder, result, was_there)


class _Served:
    """One run of a server with sites on other machines."""

    def __init__(
        self, config: Config, job: Job, folder: Path, files: OwnFiles, door: Door,
        interrupt: Callable[[], str], tap: Path | None = None,
    ):  # fmt: skip
        self.config, self.job, self.folder, self.files = config, job, folder, files
        self.door, self.interrupt, self.tap = door, interrupt, tap

    def run(self, progress: Show) -> Result:
        """Wait for the sites, and run."""
        self.prepared = None
        if prepares(self.job):
            self.prepared = prepared_at(
                self.door, self.config, self.job, self.folder, self.interrupt
            )
        shapes = self._shapes()
        roster = roster_of(self.config, self.job, shapes)
        standardized = bool(self.job.words["data"].get("standardize"))
        self.named = named_columns(roster, shapes, standardized)
        self.identities = [shapes[name].get("identity") for name in roster.names]
        own = self._own(roster)
        image = shapes[roster.names[0]].get("image")
        self.counts = self._counted(roster, shapes, image, own)
        test = own.test
        targets = () if test is None else ((test.x.shape[1], np.asarray(test.y)),)
        agreed = agree(
            self.config, self.job, roster, targets, tested=own.test is not None, image=image,
            server_rows=own.server_rows, counts=self.counts,
        )  # fmt: skip
        self._remember(shapes)
        held = _held(roster, shapes, own)

        def run_from(checkpoint: Checkpoint, heard: Show) -> Result:
            return self._run_from(agreed, own, image, checkpoint, heard)

        return in_folder(self.job, agreed.pieces, self.folder, progress, run_from, held._asdict())

    def _shapes(self) -> dict[str, Any]:
        """What each site says of its rows; a server that goes on has heard it before."""
        kept = self.folder / "sites.json"
        if kept.exists():
            return json.loads(kept.read_text("utf-8"))
        assert self.config.terms is not None
        if self.prepared is not None:
            return self.prepared.shapes(self.config.terms.sites)
        hellos = self.door.wait_for_hellos(self.config.terms.wait, self.interrupt)
        return {name: hellos[name]["shapes"] for name in self.config.terms.sites}

    def _counted(
        self, roster: Roster, shapes: dict[str, Any], image: Any, own: Own
    ) -> np.ndarray | None:
        """What the sites have counted, in all; they are asked once in a run's life."""
        problem = counting.problem_for(self.config, self.job, roster, image)
        names, terms = counting.askers(problem, roster), self.config.terms
        assert terms is not None
        if names and not all("counts" in shapes[name] for name in names):
            data = counting.question(self.job, roster, image, self._agreed_before())
            told = self.door.survey(names, data, terms.wait, self.interrupt)
            for name in names:
                found = counting.counts_in(name, told[name], problem, roster)
                shapes[name]["counts"] = found.tolist()
        each = {name: np.array(shapes[name]["counts"]) for name in names}
        return counting.totals(problem, roster, each, own.server_rows)

    def _agreed_before(self) -> dict[str, Any]:
        """What sites need to make their rows, where columns are prepared."""
        return {} if self.prepared is None else {"prepared": self.prepared.words}

    def _remember(self, shapes: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / "sites.json", json.dumps(shapes, indent=1) + "\n")

    def _own(self, roster: Roster) -> Own:
        whole = lambda path: None if path is None else load_rows(path).fitted(roster)
        test: Rows | None = whole(self.files.test)
        return Own(whole(self.files.server_rows), test)

    def _secret(self, run: bytes) -> Any:
        """What the server itself draws from: sites know the seed, and must not know its noise."""
        begun = (self.folder / "journal.bin").exists
        return drawing_key(OwnSecret.at(self.folder.parent, begun), run.hex())

    def _run_from(
        self, agreed: Agreed, own: Own, image: Any, checkpoint: Checkpoint, heard: Show
    ) -> Result:
        chosen, roster, terms = agreed.pieces.options, agreed.roster, agreed.terms
        rounds, spent = private.affordable(agreed.run, roster, chosen["rounds"])
        settings = Settings(
            rounds,
            chosen["seed"],
            chosen["every"],
            heard,
            checkpoint,
            self.interrupt,
            self.tap,
        )

        def open_sites(server: ServerSession, _: Any) -> Transport:
            transport = self.door.transport(
                server.messages, roster, patience=max(terms.wait, terms.deadline),
                interrupt=self.interrupt,
            )  # fmt: skip
            parts = agreed.parts()
            self.door.check_ready = lambda name, words: difference(
                name, {**parts, "run": server.name.hex()}, {**_dict(words), "run": words.get("run")}
            )
            self.door.welcome({
                "document": document_of(self.job), "roster": roster_words(roster),
                "run": server.name.hex(), "tested": own.test is not None, "image": image,
                "identities": self.identities,
                "counts": None if self.counts is None else self.counts.tolist(),
                **self._agreed_before(),
            })  # fmt: skip
            return Watched(transport, roster.names, self.folder)

        own_ones = terms.secrets == "system"
        secret = self._secret(run_name(agreed.run, roster, chosen["seed"])) if own_ones else None
        limits = Terms(terms.quorum, terms.deadline, own_ones, journal=True, secret=secret)
        result = run_halves(agreed.run, roster, own, open_sites, settings, limits)
        result = judged_apart(result, agreed.run, roster, own.server_rows)
        lines = [] if self.prepared is None else self.prepared.lines
        if self.prepared is not None:
            outcome = self.job.words["data"]["outcome"]
            result = replace(result, about=self.prepared.about(outcome))
        else:
            result = replace(result, about=self.named)
        result.ledger.prepared = [*lines, *count_lines(agreed.run.problem, roster)]
        return private.accounted(result, agreed.run, roster, spent)


def _held(roster: Roster, shapes: dict[str, Any], own: Own) -> Holdings:
    """What the server knows of who holds what."""
    rows, told = roster.owners is None, roster.sizes_told
    part = "rows" if rows else "features"
    sizes = [shapes[name][part] for name in roster.names] if told else [0] * roster.clients
    return Holdings(
        "rows" if rows else "columns", sum(sizes) if rows else roster.capacity, roster.features,
        0 if own.test is None else own.test.count, list(roster.names), sizes,
        [float(share) for share in roster.shares], None, told,
    )  # fmt: skip


def _dict(words: Any) -> dict[str, Any]:
    parts = words.get("parts")
    return parts if isinstance(parts, dict) else {}
