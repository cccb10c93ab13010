"""The road between machines against a bare one: python -m benchmarks.deploy [--sites 3 20]

Ratios in one run, on this machine: a question and its answer of 8k and of 1M floats over the
streams of `fedmin serve`, against a bare grpc.aio echo with the same TLS and the same pieces; all
sites at once, median of the rounds. Sites are coroutines of this process on both sides of the
comparison, so what is measured is the conversation: frames, queues, deadlines.
"""

import argparse
import asyncio
import functools
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc

from fedmin.engines.transports.grpc import frames, joining, listener
from fedmin.engines.transports.grpc.streams import Streams
from fedmin.privacy.authority import make_authority, sign
from fedmin.privacy.identity import Identity, make_request

HOST = "127.0.0.1"
SIZES = {"8k": 8_000 * 4, "1M": 1_000_000 * 4}


def keys(home: Path, sites: int) -> tuple[Identity, list[Identity]]:
    """A server and its sites."""
    make_authority(home / "authority")

    def party(name: str, role: Any = "site", hosts: tuple[str, ...] = ()) -> Identity:
        request = make_request(home / name, name, role, hosts)
        return Identity.load(sign(home / "authority", request, out=home / name))

    return party("hub", "server", (HOST,)), [party(f"s{i}") for i in range(sites)]


async def bare(hub: Identity, sites: list[Identity], size: int, rounds: int) -> float:
    """Seconds of a round of a bare echo: the same streams and pieces, and nothing else."""
    calls: list[Any] = []
    ready = asyncio.Event()

    async def talk(_: Any, context: Any) -> None:
        calls.append(context)
        if len(calls) == len(sites):
            ready.set()
        await asyncio.Event().wait()

    server = grpc.aio.server(options=frames.PINGS)
    handler = grpc.stream_stream_rpc_method_handler(talk)
    handlers = grpc.method_handlers_generic_handler("fedmin.Run", {"Talk": handler})
    server.add_generic_rpc_handlers((handlers,))
    pair = [(hub.key, hub.certificate)]
    port = server.add_secure_port(
        f"{HOST}:0", grpc.ssl_server_credentials(pair, hub.authority, require_client_auth=True)
    )
    await server.start()
    count = -(-size // frames.PIECE)

    async def echo(me: Identity) -> None:
        secret = grpc.ssl_channel_credentials(me.authority, me.key, me.certificate)
        async with grpc.aio.secure_channel(f"{HOST}:{port}", secret, frames.PINGS) as channel:
            stream = channel.stream_stream(frames.METHOD)()
            while True:
                parts = [await stream.read() for _ in range(count)]
                for part in parts:
                    await stream.write(part)

    tasks = [asyncio.ensure_future(echo(me)) for me in sites]
    await ready.wait()
    data = bytes(size)

    async def once(context: Any) -> None:
        for at in range(0, size, frames.PIECE):
            await context.write(data[at : at + frames.PIECE])
        for _ in range(count):
            await context.read()

    spent = []
    for _ in range(rounds):
        begin = time.perf_counter()
        await asyncio.gather(*map(once, calls))
        spent.append(time.perf_counter() - begin)
    for task in tasks:
        task.cancel()
    await server.stop(0)
    return statistics.median(spent)


def ours(hub: Identity, sites: list[Identity], size: int, rounds: int) -> float:
    """Seconds of a round over the streams of a run."""
    names = tuple(me.name for me in sites)
    port = listener.Listener(hub, names, f"{HOST}:0")
    port.largest = size + 1
    port.welcome({})
    half = SimpleNamespace(largest=size + 1, ready=dict, answer=lambda data: data)
    for me in sites:
        site = joining.Site(me, f"{HOST}:{port.port}", {}, functools.partial(lambda _: half))
        run = joining.Joined(site, lambda: "").run()
        asyncio.run_coroutine_threadsafe(run, listener.streams_loop())
    streams = Streams.__new__(Streams)
    streams.listener, streams.names, streams.sealed = port, names, False
    streams.patience, streams.interrupt, streams.away, streams.delays = 60, lambda: "", set(), {}
    questions = dict.fromkeys(range(len(sites)), bytes(size))
    streams.deliver(questions)
    spent = []
    for _ in range(rounds):
        begin = time.perf_counter()
        streams.deliver(questions)
        spent.append(time.perf_counter() - begin)
    port.stop({})
    return statistics.median(spent)


def main() -> None:
    """Print both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, nargs="+", default=[3, 20])
    parser.add_argument("--rounds", type=int, default=30)
    chosen = parser.parse_args()
    print(f"{'sites':>5} {'floats':>6} {'bare ms':>9} {'ours ms':>9} {'ratio':>6}")
    for sites in chosen.sites:
        with tempfile.TemporaryDirectory() as home:
            hub, parties = keys(Path(home), sites)
            for name, size in SIZES.items():
                loop = listener.streams_loop()
                echo = bare(hub, parties, size, chosen.rounds)
                floor = asyncio.run_coroutine_threadsafe(echo, loop).result()
                found = ours(hub, parties, size, chosen.rounds)
                print(
                    f"{sites:>5} {name:>6} {floor * 1e3:>9.2f} {found * 1e3:>9.2f} "
                    f"{found / floor:>6.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
