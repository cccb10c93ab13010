"""Many sites for many rounds, each a process of its own, over gRPC with TLS: python -m tests.soak

    python -m tests.soak --sites 50 --rounds 1000    does memory grow, is a round lost?
    python -m tests.soak --record                    the same, with figures in docs/reliability.md

Every party is the command of docs/deploy.md in a process of its own with its own keys; only what it
imports is shared, by a fork before anything has begun. The run must end with the bits of one in
loopback, all sites in every round, every log whole and as long as the run; what each process holds
(RssAnon: its own memory, not files) is read twenty times.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOOKS = 20  # at the memory of all processes
WARM = 0.3  # of the rounds, before which everybody still fills caches
# bytes a round beyond which a process is said to grow: a log's index and a history need hundreds
MOST = {"site": 1024, "server": 4096}


def file_of(sites: int, rounds: int) -> str:
    """A tiny run that needs everybody in every round."""
    names = json.dumps([f"s{i:02}" for i in range(sites)])
    return (
        f'[data]\nname = "wine"\nstandardize = true\n[partition]\nname = "iid"\nclients = {sites}\n'
        '[problem]\nname = "softmax"\nl2 = 0.01\n'
        '[method]\nname = "fedavg"\nstep = 0.1\nbatches = {name = "full"}\n'
        f"[run]\nrounds = {rounds}\nevery = {max(rounds // 10, 1)}\n"
        f'[federation]\nsites = {names}\ndeadline = 600.0\nwait = 1800.0\nsecrets = "seed"\n'
    )


class Child:
    """A forked process, as `subprocess` shows one."""

    def __init__(self, work: Callable[..., None], *given: Any):
        self.process = multiprocessing.get_context("fork").Process(target=work, args=given)
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""
        return self.process.exitcode

    returncode = property(poll)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end."""
        self.process.join(timeout)
        if self.process.is_alive():
            raise subprocess.TimeoutExpired("fork", timeout or 0)
        return self.poll()

    def kill(self) -> None:
        """End it."""
        self.process.kill()


def party(command: list[str], home: Path, log: str) -> None:
    """What `fedmin` does with these words, in a forked process."""
    os.chdir(home)
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.argv = ["fedmin", *command]
    from fedmin.cli.app import main

    main()


def held(pid: int) -> dict[str, int]:
    """Bytes of a process's own memory, its threads and its open files; {} if it has ended."""
    with contextlib.suppress(OSError):
        words = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        files = len(os.listdir(f"/proc/{pid}/fd"))
        if "RssAnon" in words:
            own = 1024 * int(words["RssAnon"].split()[0])
            return {"bytes": own, "threads": int(words["Threads"]), "files": files}
    return {}


class Soak:
    """A federation of forked processes, looked at while it runs."""

    def __init__(self, deployed: Any, rounds: int):
        from fedmin.runs.deploying import Parties

        class Forked(Parties):
            def _started(self, who: str, command: list[str], home: Path, log: str) -> Any:
                return Child(party, command, home, log)

        self.deployed, self.rounds = deployed, rounds
        self.parties = Forked(deployed)
        self.looks: list[tuple[int, dict[str, dict[str, int]]]] = []
        self.first = deployed.site_file(deployed.names[0]).parent / f"{deployed.names[0]}.log"

    def run(self, seconds: float) -> float:
        """Run it to its end; the seconds from the first reply on."""
        parties = self.parties
        try:
            parties.start_server()
            for name in self.deployed.names:
                parties.start_site(name)
            self.begin, self.said = 0.0, time.monotonic()
            code = parties.wait(seconds, self._look)
            assert code == 0, f"the server ended with {code}"
            return time.monotonic() - self.begin
        finally:
            parties.stop()

    def _look(self) -> None:
        now = time.monotonic()
        if now - self.said < 0.1:
            return
        self.said = now
        done = self._round()
        if done and not self.begin:
            self.begin = now
        last = self.looks[-1][0] if self.looks else 0
        if self.rounds > done >= last + max(self.rounds // LOOKS, 1):
            server = self.parties.server
            assert server is not None
            each = {name: held(site.pid) for name, site in self.parties.sites.items()}
            self.looks.append((done, {"server": held(server.pid), **each}))
            print(f"round {done}: server {_mb(self.looks[-1][1]['server'])}, a site "
                  f"{_mb(each[self.deployed.names[0]])}", flush=True)  # fmt: skip

    def _round(self) -> int:
        """The last round that the first site has answered, by its log."""
        if not self.first.exists():
            return 0
        with self.first.open("rb") as file:
            file.seek(max(self.first.stat().st_size - 2**14, 0))
            found = re.findall(rb'"round":(\d+),"when":"training"', file.read())
        return int(found[-1]) if found else 0

    def slopes(self, what: str) -> dict[str, float]:
        """How much each process holds more of with every round, once it is warm."""
        warm = [(t, each) for t, each in self.looks if t >= WARM * self.rounds]
        found = {}
        for who in ("server", *self.deployed.names):
            points = [(t, each[who][what]) for t, each in warm if each[who]]
            if len(points) > 2:
                found[who] = statistics.linear_regression(*zip(*points, strict=True)).slope
        return found


def _mb(look: dict[str, int]) -> str:
    return f"{look['bytes'] / 2**20:.1f} MB" if look else "gone"


def check_logs(deployed: Any, found: Any, rounds: int) -> None:
    """Every site has answered every round once, and its sums are its part of the ledger."""
    from fedmin.privacy.departures import TRAINING, newest, sums, verify

    ledger = {k: v for k, v in found.ledger.by_kind().items() if "up " in k}
    total: dict[str, int] = dict.fromkeys(ledger, 0)
    for name in deployed.names:
        seen = verify(deployed.site_file(name).parent / f"{name}.log")
        assert not seen.wrong, f"log of {name}: {seen.wrong}"
        answered = sorted(each.round for each in newest(seen.departures) if each.when == TRAINING)
        assert answered == list(range(rounds)), f"{name} has answered {len(answered)} rounds"
        for kind, size in sums(seen.departures).items():
            total[kind] += size
    assert total == ledger, f"logs {total}, ledger {ledger}"


def soak(home: Path, sites: int, rounds: int, seconds: float) -> dict[str, Any]:
    """One run; its figures. What is not as it should be is an AssertionError."""
    from fedmin.runs.config import Config
    from fedmin.runs.deploying import Deployed, prepare
    from fedmin.runs.reading import folders_of, load

    from .kills_deployed import compare, quiet

    file = home / "run.toml"
    file.write_text(file_of(sites, rounds), "utf-8")
    # the one that compiles: all others find what it has compiled
    calm = quiet(file, home / "quiet", (), dict(os.environ))
    print("the run in loopback has ended", flush=True)
    # in a process of its own: no thread may run when others are forked
    Child(lambda: prepare(Config.read(file), home / "parties") and None).wait()
    deployed = Deployed(home / "parties", tuple(f"s{i:02}" for i in range(sites)))
    begin, one = time.monotonic(), Soak(deployed, rounds)
    spent = one.run(seconds)
    (folder,) = folders_of([deployed.runs]).values()
    found = load(folder)
    assert found.absent == (), f"{len(found.absent)} replies were missing"
    compare(found, calm, deployed, rounds)
    check_logs(deployed, found, rounds)
    own = one.slopes("bytes")
    assert len(own) == 1 + sites, "it was too short, or looked at too rarely, to say what grows"
    each = [slope for who, slope in own.items() if who != "server"]
    figures = {
        "sites": sites, "rounds": rounds, "lost": rounds - found.rounds + len(found.absent),
        "seconds": round(spent), "rate": round(rounds / spent, 2),
        "starting": round(one.begin - begin),
        "server": round(own["server"]), "site": round(statistics.median(each)),
        "largest": round(max(each)), "after": round(WARM * rounds),
        "server_mb": round(one.looks[-1][1]["server"]["bytes"] / 2**20),
        "site_mb": round(statistics.median(
            look["bytes"] for who, look in one.looks[-1][1].items() if who != "server" and look
        ) / 2**20),
    }  # fmt: skip
    for what in ("threads", "files"):
        grown = {who: slope for who, slope in one.slopes(what).items() if slope * rounds > 2}
        assert not grown, f"{what} grow: {grown}"
    return figures


def main() -> int:
    """Run it, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--keep", type=Path, help="a folder for what the run leaves")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # its processes go, too
    with tempfile.TemporaryDirectory() as place:
        home = chosen.keep or Path(place)
        home.mkdir(parents=True, exist_ok=True)
        from .kills_deployed import SETTINGS

        os.environ.update(SETTINGS, JAX_COMPILATION_CACHE_DIR=str(home / "cache"))
        import fedmin.cli.app
        import fedmin.runs.joining
        import fedmin.runs.serving  # noqa: F401  what all processes share

        figures = soak(home, chosen.sites, chosen.rounds, chosen.seconds)
    print(figures)
    if chosen.record:
        from .reliability import keep

        keep("soak", figures)
    grown = [who for who in ("site", "server") if figures[who] > MOST[who]]
    if grown:
        print(f"memory grows: {', '.join(grown)}")
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main())
