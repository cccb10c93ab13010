"""The road between machines against a bare one: python -m benchmarks.deploy [--sites 3 20]

Ratios in one run, on this machine. First a question and its answer of 8k and of 1M floats over the
streams of `fedmin serve`, in turns with a bare grpc.aio echo with the same TLS and the same pieces;
all sites at once, median of the rounds, and of the differences of neighbours. Sites are coroutines
of this process on both sides of the comparison, so what is measured is the conversation: frames,
queues, deadlines. Then a whole federation of processes: how long it takes to start, and its rounds
a second beside those of the same file in loopback; the processes are as many as sites and one, and
all CPU seconds of theirs are given, which hardly depend on what else the machine does.
"""

import argparse
import asyncio
import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc

from fedmin.engines.transports.grpc import frames, joining, listener, streams
from fedmin.privacy.authority import make_authority, sign
from fedmin.privacy.identity import Identity, make_request
from fedmin.runs.config import Config
from fedmin.runs.deploying import Deployed, Parties, prepare
from fedmin.runs.reading import folders_of, load

HOST = "127.0.0.1"
SIZES = {"8k": 8_000 * 4, "1M": 1_000_000 * 4}
RUN = """
[data]
name = "wine"
standardize = true
[partition]
name = "iid"
clients = {sites}
[problem]
name = "softmax"
l2 = 0.01
[method]
name = "fedavg"
step = 0.1
[run]
rounds = {rounds}
every = {rounds}
[federation]
sites = [{names}]
secrets = "seed"
"""


def keys(home: Path, sites: int) -> tuple[Identity, list[Identity]]:
    """A server and its sites."""
    make_authority(home / "authority")

    def party(name: str, role: Any = "site", hosts: tuple[str, ...] = ()) -> Identity:
        request = make_request(home / name, name, role, hosts)
        return Identity.load(sign(home / "authority", request, out=home / name))

    return party("hub", "server", (HOST,)), [party(f"s{i}") for i in range(sites)]


# ---------------------------------------------------------------- a question and its answer


class Bare:
    """A bare echo: the same streams, keys and pieces, and nothing else."""

    def __init__(self, hub: Identity, sites: list[Identity], size: int):
        self.hub, self.sites, self.data = hub, sites, bytes(size)
        self.count = -(-size // frames.PIECE)
        self.calls: list[Any] = []
        self.on(self._start())

    def on(self, work: Any) -> Any:
        """Run something on the loop of the streams."""
        return asyncio.run_coroutine_threadsafe(work, listener.streams_loop()).result()

    async def _start(self) -> None:
        ready = asyncio.Event()

        async def talk(_: Any, context: Any) -> None:
            self.calls.append(context)
            if len(self.calls) == len(self.sites):
                ready.set()
            await asyncio.Event().wait()

        self.server = grpc.aio.server(options=frames.PINGS)
        handler = grpc.stream_stream_rpc_method_handler(talk)
        handlers = grpc.method_handlers_generic_handler("fedmin.Run", {"Talk": handler})
        self.server.add_generic_rpc_handlers((handlers,))
        hub = self.hub
        secret = grpc.ssl_server_credentials(
            [(hub.key, hub.certificate)], hub.authority, require_client_auth=True
        )
        self.port = self.server.add_secure_port(f"{HOST}:0", secret)
        await self.server.start()
        self.tasks = [asyncio.ensure_future(self._echo(me)) for me in self.sites]
        await ready.wait()

    async def _echo(self, me: Identity) -> None:
        secret = grpc.ssl_channel_credentials(me.authority, me.key, me.certificate)
        async with grpc.aio.secure_channel(f"{HOST}:{self.port}", secret, frames.PINGS) as channel:
            stream = channel.stream_stream(frames.METHOD)()
            while True:
                parts = [await stream.read() for _ in range(self.count)]
                for part in parts:
                    await stream.write(part)

    async def _once(self, context: Any) -> None:
        for at in range(0, len(self.data), frames.PIECE):
            await context.write(self.data[at : at + frames.PIECE])
        for _ in range(self.count):
            await context.read()

    async def _all(self) -> None:
        await asyncio.gather(*map(self._once, self.calls))

    def round(self) -> None:
        """A question to all, and their answers."""
        self.on(self._all())

    def stop(self) -> None:
        """Close it."""

        async def end() -> None:
            for task in self.tasks:
                task.cancel()
            await self.server.stop(0)

        self.on(end())


class Ours:
    """The streams of a run, with sites that send back what they are sent."""

    def __init__(self, hub: Identity, sites: list[Identity], size: int):
        names = tuple(me.name for me in sites)
        self.port = listener.Listener(hub, names, f"{HOST}:0")
        self.port.welcome({})
        half = SimpleNamespace(largest=size + 1, ready=dict, answer=lambda data: data)
        for me in sites:
            site = joining.Site(
                me, f"{HOST}:{self.port.port}", {}, functools.partial(lambda _: half)
            )
            run = joining.JoinedSite(site, lambda: "").run()
            asyncio.run_coroutine_threadsafe(run, listener.streams_loop())
        self.streams = streams.SiteStreams(self.port, names, size + 1, patience=60)
        self.questions = dict.fromkeys(range(len(sites)), bytes(size))

    def round(self) -> None:
        """A question to all, and their answers."""
        self.streams.deliver(self.questions)

    def stop(self) -> None:
        """Close it."""
        self.port.stop({})


def timed(work: Callable[[], None]) -> float:
    """Seconds."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def trips(sites: list[int], rounds: int) -> None:
    """Both in turns; their medians, the ratio and the difference."""
    print(f"{'sites':>5} {'floats':>6} {'bare ms':>9} {'ours ms':>9} {'ratio':>6} {'more ms':>8}")
    for count in sites:
        with tempfile.TemporaryDirectory() as home:
            hub, parties = keys(Path(home), count)
            for name, size in SIZES.items():
                bare, ours = Bare(hub, parties, size), Ours(hub, parties, size)
                for each in (bare, ours):
                    each.round()
                pairs = [(timed(bare.round), timed(ours.round)) for _ in range(rounds)]
                bare.stop()
                ours.stop()
                floor, found = (statistics.median(one) for one in zip(*pairs, strict=True))
                more = statistics.median(b - a for a, b in pairs)
                ratio = statistics.median(b / a for a, b in pairs)
                print(
                    f"{count:>5} {name:>6} {floor * 1e3:>9.2f} {found * 1e3:>9.2f} {ratio:>6.2f} "
                    f"{more * 1e3:>8.2f}",
                    flush=True,
                )


# ---------------------------------------------------------------- a whole federation


def answered(deployed: Deployed, name: str) -> int:
    """How many messages a site has sent."""
    log = deployed.site_file(name).parent / f"{name}.log"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def spent() -> float:
    """CPU seconds of the processes that were started here and have ended."""
    now = os.times()
    return now.children_user + now.children_system


def federation(sites: int, rounds: int, home: Path) -> None:
    """Start one, let it run, and run the same file in loopback."""
    names = [f"s{i}" for i in range(sites)]
    text = RUN.format(sites=sites, rounds=rounds, names=", ".join(f'"{n}"' for n in names))
    (home / "run.toml").write_text(text, "utf-8")
    deployed = prepare(Config.read(home / "run.toml"), home / "parties")
    parties = Parties(deployed)
    begin, before = time.monotonic(), spent()
    try:
        parties.start_server()
        listens = time.monotonic() - begin
        for name in names:
            parties.start_site(name)
        started: list[float] = []

        def look() -> None:
            if not started and min(answered(deployed, name) for name in names) > 2:
                started.append(time.monotonic() - begin)

        parties.wait(3600, look)
    finally:
        parties.stop()
    cpu = spent() - before
    (folder,) = folders_of([deployed.runs]).values()
    there = load(folder)
    (home / "quiet.toml").write_text(text.replace("[run]", '[run]\nengine = "loopback"'), "utf-8")
    command = [sys.executable, "-m", "fedmin.cli", "run", "quiet.toml", "--out", "quiet", "--quiet"]
    subprocess.run(command, cwd=home, env={**os.environ, "FEDMIN_DEVICES": "1"}, check=True)
    (folder,) = folders_of([home / "quiet"]).values()
    here = load(folder)
    rates = [each.rounds / each.run_seconds for each in (there, here)]
    print(
        f"{sites:>5} {rounds:>6} {listens:>9.1f} {started[0]:>9.1f} {rates[0]:>11.1f} "
        f"{rates[1]:>11.1f} {rates[1] / rates[0]:>6.1f} {cpu:>7.1f}",
        flush=True,
    )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, nargs="+", default=[3, 20])
    parser.add_argument("--rounds", type=int, default=30, help="of questions and answers; 0: none")
    parser.add_argument("--whole", type=int, default=200, help="rounds of a whole run; 0: none")
    chosen = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if chosen.rounds:
        trips(chosen.sites, chosen.rounds)
    if chosen.whole:
        print(f"\n{'sites':>5} {'rounds':>6} {'listens s':>9} {'all in s':>9} "
              f"{'rounds/s':>11} {'loopback':>11} {'ratio':>6} {'CPU s':>7}")  # fmt: skip
        for count in chosen.sites:
            with tempfile.TemporaryDirectory() as home:
                federation(count, chosen.whole, Path(home))
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
