"""A federation on this machine, to try it: real processes, real keys, real TLS.

    deploy(config, folder)    folder/authority/        the federation's own authority
                              folder/server/           keys/, run.toml, runs/, test.npz, server.log
                              folder/sites/NAME/       keys/, site.toml, state/, NAME.log, and
                                                       rows.npz or rows.csv
                              folder/programs/         compiled ones, of all parties

The file's data are cut by its [partition] into one file a site. Every party is the command that a
person would type on a machine of its own: `fedmin serve` and `fedmin join`.
"""

import csv
import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from fedmin.core.federation import Federation
from fedmin.core.files import write_text
from fedmin.privacy.authority import make_authority, sign
from fedmin.privacy.identity import make_request
from fedmin.runs.config import Config
from fedmin.runs.costs import fitted
from fedmin.runs.document import ConfigError
from fedmin.runs.grid import Job
from fedmin.runs.own_rows import save_rows
from fedmin.runs.own_tables import on_machines, own_frames
from fedmin.runs.preparing import prepares

HOST = "127.0.0.1"
LOCAL = (HOST, "localhost")
TABLE = "rows.csv"  # a site's own table, where columns are prepared
START_SECONDS = 180.0  # for the server to listen


class Deployed(NamedTuple):
    """The folders of a federation on this machine."""

    folder: Path
    names: tuple[str, ...]

    @property
    def run_file(self) -> Path:
        """The server's run.toml."""
        return self.folder / "server" / "run.toml"

    @property
    def runs(self) -> Path:
        """Where the folder of the run is."""
        return self.folder / "server" / "runs"

    @property
    def seeded(self) -> bool:
        """Whether the run's sites draw from its seed."""
        terms = Config.read(self.run_file).terms
        return terms is not None and terms.secrets == "seed"

    @property
    def sizes_told(self) -> bool:
        """Whether the run's sites say how many rows they have."""
        partition = Config.read(self.run_file).jobs()[0].words.get("partition", {})
        return partition.get("weights") != "secret"

    def site_file(self, name: str) -> Path:
        """A site's site.toml."""
        return self.folder / "sites" / name / "site.toml"


def prepare(
    config: Config, folder: Path, sites: int | None = None, hosts: Sequence[str] = LOCAL
) -> Deployed:
    """Cut the data, make an authority and keys, and write every party's files.

    `sites` is how many there should be, where [federation] does not name them, and `hosts` are
    what the server may be called by. Files that are there already stay, so that what was stopped
    goes on.
    """
    jobs = config.jobs()
    if len(jobs) != 1:
        raise ConfigError(f"{config.source} is {len(jobs)} runs; a federation does one at a time")
    job = jobs[0]
    pieces, _ = fitted(job)
    federation = pieces.federation
    names = _names(config, federation, sites)
    deployed = Deployed(folder, names)
    if not deployed.run_file.exists():
        if prepares(job):
            _copy(job, deployed)
        else:
            _cut(job, federation, deployed, getattr(pieces.problem, "image", None))
        _make_keys(deployed, hosts)
        write_text(deployed.run_file, tomli_w.dumps(_document(job, federation, names)))
    return deployed


def _names(config: Config, federation: Federation, sites: int | None) -> tuple[str, ...]:
    found = federation.num_clients
    if sites is not None and sites != found:
        raise ConfigError(
            f"{config.source}: [partition] makes {found} clients, and {sites} sites are asked for; "
            f"give clients = {sites} there, or --local {found}"
        )
    if config.terms is not None:
        return config.terms.sites
    if all(re.fullmatch(r"[A-Za-z][\w.-]*", name) for name in federation.names):
        return federation.names
    return tuple(f"site-{i + 1}" for i in range(found))


def _copy(job: Job, deployed: Deployed) -> None:
    """A CSV file for each site, with the columns as they were written."""
    for name, frame in zip(deployed.names, own_frames(job.document, job.words), strict=True):
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(frame.columns)
        writer.writerows(zip(*frame.columns.values(), strict=True))
        path = deployed.site_file(name).parent / TABLE
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text.getvalue())


def _cut(job: Job, federation: Federation, deployed: Deployed, image: Any) -> None:
    for i, name in enumerate(deployed.names):
        path = deployed.site_file(name).parent / "rows.npz"
        names = () if federation.about is None else federation.about.names
        if federation.columns:
            names = names[federation.starts[i] :][: federation.sizes[i]]
        save_rows(path, federation.client(i), federation.classes, image, federation.groups, names)
    server = deployed.run_file.parent
    for rows, name in ((federation.test, "test"), (federation.server_rows, "server_rows")):
        if rows is not None:
            path = server / f"{name}.npz"
            save_rows(path, rows, federation.classes, image, federation.groups)


def _make_keys(deployed: Deployed, hosts: Sequence[str]) -> None:
    authority, server = deployed.folder / "authority", deployed.folder / "server" / "keys"
    make_authority(authority)
    sign(authority, make_request(server, "server", "server", hosts), out=server)
    for name in deployed.names:
        keys = deployed.site_file(name).parent / "keys"
        sign(authority, make_request(keys, name), out=keys)


def _document(job: Job, federation: Federation, names: tuple[str, ...]) -> dict[str, Any]:
    """The document of the run with its sites, and nothing of an engine."""
    words = on_machines(job.resolved())
    words.setdefault("federation", {})
    words["federation"] = {"sites": list(names)} | words["federation"]
    words["run"].pop("engine", None)
    labels = federation.labels
    if federation.split == "features" and labels in federation.names:
        words["partition"]["labels"] = names[federation.names.index(labels)]
    if federation.most_rows is not None:
        words["partition"]["most_rows"] = federation.most_rows
    return words


def site_words(
    name: str,
    port: int,
    seeded: bool = False,
    host: str = HOST,
    file: str = "rows.npz",
    told: bool = True,
) -> dict[str, Any]:
    """What a site.toml says; `seeded`: as the run, whose sites are this same person's."""
    data = {"file": file} if told else {"file": file, "rows_told": False}
    return {
        "name": name, "server": f"{host}:{port}", "keys": "keys", "data": data,
        "policy": {"seeded": True} if seeded else {},
    }  # fmt: skip


# ---------------------------------------------------------------- processes


class Parties:
    """The processes of a federation on this machine.

    A command may begin with other words for each party (`inside`, of "server" or a site's name), so
    that it runs elsewhere than here; the server then listens and is called at other hosts. What one
    party has compiled the others find, and itself when it is started again: they are one person's.
    """

    listen, called = HOST, HOST
    talks = ("--quiet",)  # how much a party says in its log
    inside: Callable[[str], list[str]] = staticmethod(lambda who: [])

    def __init__(self, deployed: Deployed, environment: Mapping[str, str] = {}):
        self.deployed = deployed
        self.environment = {
            "JAX_COMPILATION_CACHE_DIR": str(deployed.folder.resolve() / "programs"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            **environment,
        }
        self.server: subprocess.Popen | None = None
        self.sites: dict[str, subprocess.Popen] = {}
        self.port = 0

    def start_server(self) -> bool:
        """Start it, and wait until it listens; False if its run has ended and all were told."""
        home = self.deployed.run_file.parent
        port = home / "port"
        port.unlink(missing_ok=True)
        command = [
            "serve", "run.toml", "--listen", f"{self.listen}:{self.port}", "--keys", "keys",
            "--out", "runs", "--port-file", "port", *self.talks,
        ]  # fmt: skip
        for name, option in (("test", "--test"), ("server_rows", "--server-rows")):
            if (home / f"{name}.npz").exists():
                command += [option, f"{name}.npz"]
        self.server = self._started("server", command, home, "server.log")
        until = time.monotonic() + START_SECONDS
        while not port.exists():
            if self.server.poll() == 0:
                return False
            if self.server.poll() is not None or time.monotonic() > until:
                raise ValueError(f"the server did not start: {_tail(home / 'server.log')}")
            time.sleep(0.02)
        self.port = int(port.read_text())
        return True

    def start_site(self, name: str) -> None:
        """Start a site, whose file is written if it is not there."""
        file = self.deployed.site_file(name)
        table = TABLE if (file.parent / TABLE).exists() else "rows.npz"
        seeded, told = self.deployed.seeded, self.deployed.sizes_told
        words = site_words(name, self.port, seeded, self.called, table, told)
        if not file.exists() or f":{self.port}" not in file.read_text("utf-8"):
            write_text(file, tomli_w.dumps(words))
        command = ["join", "site.toml", *self.talks]
        self.sites[name] = self._started(name, command, file.parent, "site.log")

    def _started(self, who: str, command: list[str], home: Path, log: str) -> subprocess.Popen:
        path = os.pathsep.join(p for p in sys.path if p)
        with (home / log).open("ab") as file:
            return subprocess.Popen(
                [*self.inside(who), sys.executable, "-m", "fedmin.cli", *command], cwd=home,
                stdout=file, stderr=file, stdin=subprocess.DEVNULL,
                env={**os.environ, "FEDMIN_DEVICES": "1", "PYTHONPATH": path, **self.environment},
            )  # fmt: skip

    def wait(self, seconds: float, watch: Callable[[], None] = lambda: None) -> int:
        """Wait for the server to end, whatever the sites do; its exit code."""
        assert self.server is not None
        until = time.monotonic() + seconds
        while self.server.poll() is None:
            watch()
            for name, site in self.sites.items():
                if site.poll() not in (None, 0, -9):
                    log = self.deployed.site_file(name).parent / "site.log"
                    raise ValueError(f"site {name} ended: {_tail(log)}")
            if time.monotonic() > until:
                raise TimeoutError(f"the run did not end within {seconds:.0f} s")
            time.sleep(0.02)
        if self.server.returncode == 2:
            log = self.deployed.run_file.parent / "server.log"
            raise ValueError(f"the server ended: {_tail(log)}")
        for site in self.sites.values():
            try:
                site.wait(10)
            except subprocess.TimeoutExpired:
                continue
        return self.server.returncode

    def stop(self) -> None:
        """End what is still running."""
        for process in [self.server, *self.sites.values()]:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def _tail(path: Path) -> str:
    """The last thing that a process said."""
    lines = [line for line in path.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "it said nothing"
