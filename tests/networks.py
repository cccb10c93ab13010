"""A federation on bad networks, in namespaces: python -m tests.networks [--only NAME] [--record]

A server and three sites, each in a network namespace of its own (tests/tunnels.py), as real
processes over gRPC with TLS. The run goes on and ends, with the bits of a quiet run in loopback
from which the same sites were absent on the same trips; while it cannot go on it says for whom it
waits. Root only; minutes. Namespaces and processes are gone when it ends.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fedmin.runs.config import Config
from fedmin.runs.deploying import Deployed, Parties, prepare
from fedmin.runs.reading import folders_of, load

from .kills_deployed import SETTINGS, compare, quiet
from .tunnels import PROXY, SERVER, Net, why_not

SECONDS = 420.0  # for a case
SITES = ("a", "b", "c")
FORWARD = """
import asyncio, sys
host, to, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
async def talk(reader, writer):
    there, back = await asyncio.open_connection(to, port)
    await asyncio.gather(pump(reader, back), pump(there, writer))
async def main():
    async with await asyncio.start_server(talk, host, port) as server:
        await server.serve_forever()
asyncio.run(main())
"""


class Scene:
    """What a case may look at and change while its run goes on."""

    def __init__(self, net: Net, deployed: Deployed, parties: Parties):
        self.net, self.deployed, self.parties = net, deployed, parties
        self.begin = time.monotonic()
        self.proxy: subprocess.Popen | None = None

    def answered(self, name: str) -> int:
        """How many messages a site has sent, by its log."""
        log = self.deployed.site_file(name).parent / f"{name}.log"
        return log.read_bytes().count(b"\n") if log.exists() else 0

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait, no longer than a case may take."""
        while not condition():
            if time.monotonic() - self.begin > SECONDS:
                raise TimeoutError(f"not within {SECONDS:.0f} s; {self.said()[-300:]!r}")
            assert self.parties.server is not None
            assert self.parties.server.poll() is None, self.said()[-300:]
            time.sleep(0.05)

    def said(self) -> str:
        """All that the server has written to its log."""
        return (self.deployed.run_file.parent / "server.log").read_text("utf-8", "replace")

    def start_proxy(self) -> None:
        """A relay of bytes that knows nothing of them."""
        words = [sys.executable, "-c", FORWARD, PROXY, SERVER, str(self.parties.port)]
        self.proxy = subprocess.Popen([*self.net.inside("server"), *words])

    def stop_proxy(self) -> None:
        """End it; all connections through it end with it."""
        if self.proxy is not None:
            self.proxy.kill()
            self.proxy.wait()


class Case(NamedTuple):
    """A bad network."""

    words: str  # for the page
    before: Mapping[str, float] = MappingProxyType({})  # what all links are from the beginning
    rounds: int = 12
    quorum: float = 1.0
    deadline: float = 60.0
    hidden: int = 0  # units of a hidden layer; 0 is a model of 42 numbers
    meanwhile: Callable[[Scene], None] = lambda scene: None
    proxy: bool = False
    waits: bool = False  # its log must say for whom it waited
    absence: bool = False  # the run must have gone on without somebody


def _cut(seconds: float) -> Callable[[Scene], None]:
    def meanwhile(scene: Scene) -> None:
        scene.until(lambda: scene.answered("b") > 6)
        scene.net.links["b"].be(cut=True)
        time.sleep(seconds)
        scene.net.links["b"].be(cut=False)
        heard = scene.answered("b")
        scene.until(lambda: scene.answered("b") > heard)  # it takes part again

    return meanwhile


def _move(scene: Scene) -> None:
    scene.until(lambda: scene.answered("b") > 6)
    scene.net.links["b"].move(77)
    heard = scene.answered("b")
    scene.until(lambda: scene.answered("b") > heard + 3)


def _new_proxy(scene: Scene) -> None:
    scene.until(lambda: scene.answered("b") > 6)
    scene.stop_proxy()
    time.sleep(1)
    scene.start_proxy()


CASES = {
    "delay": Case("200 ms delay each way", {"delay": 0.2}),
    "loss": Case("30 % of all packets lost, both ways", {"loss": 0.3}, rounds=8),
    "slow": Case(
        "1 Mbit/s, messages of 1.6 MB", {"rate": 1e6, "delay": 0.02}, rounds=2, hidden=5300,
        deadline=300.0,
    ),
    "cut": Case(
        "a site cut off for 40 s without a FIN, all needed", {"delay": 0.05}, rounds=40,
        meanwhile=_cut(40.0), waits=True,
    ),
    "quorum": Case(
        "a site cut off for 30 s without a FIN, two of three enough", {"delay": 0.05}, rounds=400,
        quorum=0.6, deadline=1.0, meanwhile=_cut(30.0), absence=True,
    ),
    "address": Case(
        "a site's address changes", {"delay": 0.05}, rounds=40, meanwhile=_move, waits=True
    ),
    "proxy": Case(
        "a server behind a TCP proxy that is killed and started again", {"delay": 0.02}, rounds=60,
        meanwhile=_new_proxy, proxy=True,
    ),
}  # fmt: skip


def file_of(case: Case) -> str:
    """The run's file."""
    model = f'"mlp"\nhidden = [{case.hidden}]' if case.hidden else '"softmax"'
    data = '"digits"' if case.hidden else '"wine"'
    return (
        f"[data]\nname = {data}\nstandardize = {str(not case.hidden).lower()}\n"
        f'[partition]\nname = "iid"\nclients = 3\n[problem]\nname = {model}\n'
        '[method]\nname = "fedavg"\nstep = 0.01\nbatches = {name = "full"}\n'
        f"[run]\nrounds = {case.rounds}\nevery = {case.rounds}\n"
        f'[federation]\nsites = ["a", "b", "c"]\nquorum = {case.quorum}\n'
        f'deadline = {case.deadline}\nsecrets = "seed"\n'
    )


def run(case: Case, home: Path, environment: dict[str, str]) -> dict[str, float]:
    """Run one case, and refuse it if it did not end as it should; what it took."""
    home.mkdir(parents=True)
    file = home / "run.toml"
    file.write_text(file_of(case), "utf-8")
    deployed = prepare(Config.read(file), home / "parties", hosts=(SERVER, PROXY))
    parties = Parties(deployed, environment)
    with Net(SITES) as net:
        parties.inside, parties.talks = net.inside, ()
        parties.listen, parties.called = SERVER, PROXY if case.proxy else SERVER
        scene = Scene(net, deployed, parties)
        try:
            parties.start_server()
            if case.proxy:
                scene.start_proxy()
            for name in SITES:
                net.links[name].be(**case.before)
                parties.start_site(name)
            scene.until(lambda: scene.answered("a") > 0)
            begin = time.monotonic()
            case.meanwhile(scene)
            code = parties.wait(SECONDS)
            seconds = time.monotonic() - begin
        finally:
            parties.stop()
            scene.stop_proxy()
        roads = [road for link in net.links.values() for road in (link.up, link.down)]
    assert code == 0, scene.said()[-300:]
    (folder,) = folders_of([deployed.runs]).values()
    found = load(folder)
    compare(found, quiet(file, home / "quiet", found.absent, environment), deployed, case.rounds)
    assert not case.waits or "waiting for b" in scene.said(), "it did not say for whom it waits"
    if case.absence:
        assert found.absent, "nobody was absent"
        assert max(each[0] for each in found.absent) < case.rounds - 1, "it did not come back"
    return {
        "seconds": round(seconds, 1), "absent": len(found.absent),
        "lost": sum(road.lost for road in roads), "packets": sum(road.packets for road in roads),
    }  # fmt: skip


def try_all(names: list[str], place: Path) -> dict[str, Any]:
    """All cases, one after the other; how many failed."""
    environment = {**SETTINGS, "JAX_COMPILATION_CACHE_DIR": str(place / "cache")}
    failed, said = 0, []
    for name in names:
        case = CASES[name]
        try:
            took = run(case, place / name, environment)
            more = f", {took['absent']} absences" if case.absence else ""
            words = f"{case.words}: {case.rounds} rounds in {took['seconds']} s{more}"
            print(f"{name}: {words}; {took['lost']} of {took['packets']} packets lost", flush=True)
            said.append(words)
        except (AssertionError, TimeoutError, ValueError, subprocess.SubprocessError) as error:
            failed += 1
            print(f"{name}: FAILED: {error}", flush=True)
            said.append(f"{case.words}: **failed**")
    return {"cases": len(names), "failed": failed, "said": "; ".join(said)}


def main() -> int:
    """Try them, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--keep", type=Path, help="a folder for what the runs leave")
    chosen = parser.parse_args()
    if why := why_not():
        print(f"skipped: {why}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # namespaces and processes go, too
    with tempfile.TemporaryDirectory() as place:
        figures = try_all(chosen.only, chosen.keep or Path(place))
    if chosen.record:
        from .reliability import keep

        keep("networks", figures)
    return int(figures["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
