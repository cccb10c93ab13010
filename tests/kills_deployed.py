"""`kill -9` of sites and servers that are real processes, over gRPC with TLS: python -m ...

    python -m tests.kills_deployed --count 30      so many kills, dealt out to all kinds of methods
    python -m tests.kills_deployed --record        the same, with its figures in docs/reliability.md

Chance decides who is killed and when: a site or the server, from before its first word to after
its last one, and how long it is away. Where a quorum is enough the others may go on without it.
What comes out must be, bit for bit, a quiet run in loopback from which the same sites were absent
on the same trips.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmin.core.result import Result
from fedmin.privacy.departures import verify
from fedmin.runs.config import Config
from fedmin.runs.deploying import Deployed, Parties, prepare
from fedmin.runs.reading import folders_of, load

from .kills import same

ROUNDS, EVERY = 120, 20
EACH = 5  # kills of one run
SECONDS = 600.0  # for a run, with all who are killed on the way
# what has to be right when a reply was lost after its client had stored it
KINDS = {
    "client memory": '[method]\nname = "scaffold"\nstep = 0.1\nlocal_steps = 2\n',
    "remembered gradients": '[method]\nname = "fedsso"\nlocal_steps = 2\n'
    'curvature = {name = "lbfgs", memory = 3}\npairs = "both points"\nremember = true\n',
    "multipliers": '[method]\nname = "ssca"\nbatches = {name = "full"}\n'
    '[[constraint]]\nname = "normatmost"\nradius = 2.0\n',
    "multipliers of consensus": '[method]\nname = "fedfwplus"\n'
    '[domain]\nname = "l1ball"\nradius = 5.0\n',
    "copies": '[method]\nname = "feddr"\n[domain]\nname = "l1ball"\nradius = 5.0\n',
    "channel memory": '[method]\nname = "fedopt"\n[channel]\nname = "topk"\nk = 5\n',
    "columns": '[method]\nname = "splitsgd"\n',
}
# settings that all processes of a comparison have: what is compiled once is compiled for all
SETTINGS = {
    "FEDMIN_DEVICES": "1", "JAX_ENABLE_X64": "0", "OMP_NUM_THREADS": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
}  # fmt: skip
QUIET = """
import json, sys
import fedmin
from fedmin.engines.drive import Settings
from fedmin.runs.config import Config
from fedmin.runs.costs import fitted
file, out, absent = sys.argv[1:]
(job,) = Config.read(file).jobs()
found, run = fitted(job)
options = found.options
settings = Settings(options["rounds"], options["seed"], options["every"], False, None, None)
engine = fedmin.Loopback(absent=tuple(map(tuple, json.loads(absent))))
engine.run(run, found.federation, settings).save(out)
"""


def file_of(kind: str) -> str:
    """The run's file; clients that seal messages for each other must all be there."""
    columns = kind == "columns"
    split, quorum = ("evencolumns", 1.0) if columns else ("iid", 0.6)
    return (
        f'[data]\nname = "wine"\nstandardize = true\n[partition]\nname = "{split}"\nclients = 3\n'
        f'[problem]\nname = "softmax"\nl2 = 0.01\n{KINDS[kind]}'
        f"[run]\nrounds = {ROUNDS}\nevery = {EVERY}\ncheckpoint_rounds = 15\n"
        f'[federation]\nsites = ["a", "b", "c"]\nquorum = {quorum}\ndeadline = 2.0\n'
        'secrets = "seed"\n'
    )


class Storm:
    """A federation whose parties are killed by chance, until its run has ended."""

    def __init__(
        self, deployed: Deployed, rng: random.Random, kills: int, environment: Mapping[str, str]
    ):
        self.deployed, self.rng = deployed, rng
        self.parties = Parties(deployed, environment)
        # places in the run at which somebody is killed; the first may be before anybody has spoken
        self.places = sorted(rng.uniform(0, 1) * ROUNDS for _ in range(kills))
        self.killed: Counter[str] = Counter()
        self.until = time.monotonic() + SECONDS

    def run(self) -> Result:
        """The result of a run that nothing has stopped."""
        parties = self.parties
        try:
            parties.start_server()
            for name in self.deployed.names:
                parties.start_site(name)
            while self._goes_on():
                if self.places and self._round() >= self.places[0]:
                    self.places.pop(0)
                    self._kill()
                time.sleep(0.002)
        finally:
            parties.stop()
        (folder,) = folders_of([self.deployed.runs]).values()
        return load(folder)

    def _goes_on(self) -> bool:
        server = self.parties.server
        assert server is not None
        if time.monotonic() > self.until:
            raise TimeoutError(f"the run did not end within {SECONDS:.0f} s: {self._said()}")
        for name, site in self.parties.sites.items():
            if site.poll() not in (None, 0):
                raise AssertionError(f"site {name} ended with {site.poll()}: {self._said()}")
        if server.poll() not in (None, 0):
            raise AssertionError(f"the server ended with {server.poll()}: {self._said()}")
        return server.poll() is None

    def _round(self) -> float:
        """About how many rounds have passed, by the longest log of a site."""
        logs = (
            self.deployed.site_file(name).parent / f"{name}.log" for name in self.deployed.names
        )
        lines = max(log.read_bytes().count(b"\n") if log.exists() else 0 for log in logs)
        trips = 2 if self._columns else 1
        return lines / (trips + 1 / EVERY + 1 / 15)

    @property
    def _columns(self) -> bool:
        return "splitsgd" in self.deployed.run_file.read_text("utf-8")

    def _kill(self) -> None:
        time.sleep(self.rng.uniform(0, 0.05))
        who = self.rng.choice(["the server", *self.deployed.names])
        server, sites = self.parties.server, self.parties.sites
        process = server if who == "the server" else sites[who]
        assert process is not None
        if process.poll() is not None:
            return  # it has ended: nobody was killed
        process.kill()
        process.wait()
        self.killed["server" if who == "the server" else "site"] += 1
        time.sleep(self.rng.choice([0.0, self.rng.uniform(0, 4)]))
        if who == "the server":
            self.parties.start_server()
        else:
            self.parties.start_site(who)

    def _said(self) -> str:
        """The last words of everybody."""
        home = self.deployed.folder
        logs = [home / "server" / "server.log", *home.glob("sites/*/site.log")]
        tails = (f"{log.parent.name}: {_tail(log)}" for log in logs if log.exists())
        return "; ".join(tails)


def _tail(log: Path) -> str:
    return " | ".join(log.read_text("utf-8", "replace").splitlines()[-3:])


def quiet(file: Path, out: Path, absent: Any, environment: Mapping[str, str]) -> Result:
    """The same run with the same presence, in one process, and nobody killed."""
    path = os.pathsep.join(p for p in sys.path if p)
    words = json.dumps([list(each) for each in absent])
    command = [sys.executable, "-W", "ignore", "-c", QUIET, str(file), str(out), words]
    env = {**os.environ, "PYTHONPATH": path, **environment}
    subprocess.run(command, env=env, check=True, timeout=SECONDS)
    return Result.load(out)


def compare(found: Result, calm: Result, deployed: Deployed, rounds: int = ROUNDS) -> None:
    """Refuse a run that did not end as the quiet one, or whose sites have a log with a hole."""
    assert found.rounds == calm.rounds == rounds
    assert found.status not in ("diverged", "interrupted"), found.reason
    same(found, calm)
    assert found.ledger.by_kind() == calm.ledger.by_kind()
    assert [tuple(each) for each in found.absent] == [tuple(each) for each in calm.absent]
    assert sorted(found.history) == sorted(calm.history)
    for name in deployed.names:
        wrong = verify(deployed.site_file(name).parent / f"{name}.log").wrong
        assert not wrong, f"log of {name}: {wrong}"


def kill(
    place: Path,
    count: int,
    seed: int = 0,
    environment: Mapping[str, str] | None = None,
    kinds: Sequence[str] = tuple(KINDS),
) -> dict[str, Any]:
    """So many kills over all kinds of methods; how many runs ended otherwise than quiet ones."""
    rng, found = random.Random(seed), Counter[str]()
    cache = {"JAX_COMPILATION_CACHE_DIR": str(place / "cache")}
    settings = {**SETTINGS, **cache, **(environment or {})}
    absent, begin, tried = 0, time.monotonic(), set()
    while found["server"] + found["site"] < count:
        kind = kinds[found["runs"] % len(kinds)]
        found["runs"] += 1
        tried.add(kind)
        home = place / f"run-{found['runs']}"
        home.mkdir(parents=True)
        file = home / "run.toml"
        file.write_text(file_of(kind), "utf-8")
        deployed = prepare(Config.read(file), home / "parties")
        storm = Storm(deployed, rng, min(EACH, count - found["server"] - found["site"]), settings)
        try:
            result = storm.run()
            absent += len(result.absent)
            compare(result, quiet(file, home / "quiet", result.absent, settings), deployed)
            said = "the same"
        except (AssertionError, TimeoutError, ValueError, subprocess.SubprocessError) as error:
            found["differences"] += 1
            said = f"DIFFERS: {error}"
        found.update(storm.killed)
        seconds = time.monotonic() - begin
        print(f"{seconds:6.0f} s  {kind}: {dict(storm.killed)}, {absent} absent so far, {said}",
              flush=True)  # fmt: skip
    return {
        "kills": found["server"] + found["site"], "server": found["server"], "site": found["site"],
        "runs": found["runs"], "kinds": len(tried), "absent": absent,
        "differences": found["differences"], "seed": seed,
        "seconds": round(time.monotonic() - begin),
    }  # fmt: skip


def main() -> int:
    """Kill, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--keep", type=Path, help="a folder for what the runs leave")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # its processes go, too
    with tempfile.TemporaryDirectory() as place:
        home = chosen.keep or Path(place)
        figures = kill(home, chosen.count, chosen.seed, kinds=chosen.only)
    print(figures)
    if chosen.record:
        from .reliability import keep

        only = " ".join(["deployed", *([] if len(chosen.only) > 1 else chosen.only)])
        keep(only, figures)
    return int(figures["differences"] > 0)


if __name__ == "__main__":
    sys.exit(main())
