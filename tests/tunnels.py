"""A small internet in network namespaces: a server, sites, and a link between each that can be bad.

A link is a pair of TUN devices, one in the site's namespace and one in the server's, and a thread
that carries packets between them: it loses, delays, slows down or holds them as it is told. So no
`netem` is needed, which not every kernel has. Only root can make one.
"""

import contextlib
import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

SERVER, PROXY = "10.77.0.1", "10.77.0.2"
TUNSETIFF, TUN_WITHOUT_FRONT = 0x400454CA, 0x0001 | 0x1000
BUFFER = 300_000  # bytes that wait for a slow link; the next packet is lost, as at a real one


def why_not() -> str:
    """Why there can be no namespaces here; "" if there can."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    if shutil.which("ip") is None:
        return "there is no `ip` (iproute2)"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    tried = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True)
    return tried.stderr.strip() if tried.returncode else ""


def sh(*words: str) -> None:
    """Run a command that must work."""
    subprocess.run(words, check=True, capture_output=True, text=True)


@dataclass
class Road:
    """What happens to packets of one direction."""

    loss: float = 0.0  # the share that never arrives
    delay: float = 0.0  # seconds
    rate: float = float("inf")  # bits a second
    cut: bool = False  # nothing arrives, and nobody is told
    free: float = field(default=0.0, init=False)  # when the last packet is through
    packets: int = field(default=0, init=False)
    lost: int = field(default=0, init=False)

    def arrival(self, size: int, now: float, chance: float) -> float | None:
        """When a packet is at the other end; None if never."""
        self.packets += 1
        begin = max(now, self.free)
        waits = (begin - now) * self.rate / 8 if self.rate < float("inf") else 0.0
        if self.cut or chance < self.loss or waits > BUFFER:
            self.lost += 1
            return None
        self.free = begin + 8 * size / self.rate
        return self.free + self.delay


class Link:
    """A site's link to the server; both directions are equally good or bad."""

    def __init__(self, net: "Net", number: int, site: str):
        self.net, self.number, self.site = net, number, site
        self.up, self.down = Road(), Road()
        self.ends = [_tun(f"fm{net.mark}{side}{number}") for side in "us"]
        self.rng = random.Random(number)
        address, far = f"10.77.{number}.2/24", f"10.77.{number}.1/24"
        for device, space, at in zip(self.devices, (site, net.server), (address, far), strict=True):
            sh("ip", "link", "set", device, "netns", space)
            sh("ip", "-n", space, "addr", "add", at, "dev", device)
            sh("ip", "-n", space, "link", "set", device, "up")
        self._route()
        self.closed = False
        self.thread = threading.Thread(target=self._carry, daemon=True)
        self.thread.start()

    @property
    def devices(self) -> list[str]:
        return [f"fm{self.net.mark}{side}{self.number}" for side in "us"]

    def be(self, **words: float) -> None:
        """Be so from now on, both ways."""
        for road in (self.up, self.down):
            for name, value in words.items():
                setattr(road, name, value)

    def move(self, last: int) -> None:
        """Give the site another address; who has a connection from the old one is not told."""
        device = self.devices[0]
        sh("ip", "-n", self.site, "addr", "flush", "dev", device)
        sh("ip", "-n", self.site, "addr", "add", f"10.77.{self.number}.{last}/24", "dev", device)
        self._route()

    def _route(self) -> None:
        for host in (SERVER, PROXY):
            sh("ip", "-n", self.site, "route", "replace", host, "dev", self.devices[0])

    def _carry(self) -> None:
        waiting: list[tuple[float, int, int, bytes]] = []
        count = 0
        while not self.closed:
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, to, packet = heapq.heappop(waiting)
                with contextlib.suppress(OSError):  # the device is down
                    os.write(self.ends[to], packet)
            left = min(0.2, waiting[0][0] - now) if waiting else 0.2
            for end in select.select(self.ends, [], [], max(0.0, left))[0]:
                to = 1 - self.ends.index(end)
                with contextlib.suppress(OSError):
                    packet = os.read(end, 65536)
                    road = self.up if to else self.down
                    at = road.arrival(len(packet), time.monotonic(), self.rng.random())
                    if at is not None:
                        count += 1
                        heapq.heappush(waiting, (at, count, to, packet))

    def close(self) -> None:
        self.closed = True
        self.thread.join()
        for end in self.ends:
            os.close(end)


def _tun(name: str) -> int:
    """A new network device whose packets this process reads and writes."""
    end = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", name.encode(), TUN_WITHOUT_FRONT))
    return end


class Net:
    """A server's namespace, one for each site, and the links between them: `with Net(...)`."""

    def __init__(self, sites: tuple[str, ...]):
        self.sites = sites
        self.mark = f"{os.getpid() % 10000:04d}"
        self.links: dict[str, Link] = {}

    @property
    def server(self) -> str:
        return f"fedmin-{self.mark}-server"

    def inside(self, who: str) -> list[str]:
        """What a command begins with to run at a party, or "server"."""
        return ["ip", "netns", "exec", f"fedmin-{self.mark}-{who}"]

    def __enter__(self) -> "Net":
        try:
            for who in ("server", *self.sites):
                sh("ip", "netns", "add", f"fedmin-{self.mark}-{who}")
                sh("ip", "-n", f"fedmin-{self.mark}-{who}", "link", "set", "lo", "up")
            for host in (SERVER, PROXY):
                sh("ip", "-n", self.server, "addr", "add", f"{host}/32", "dev", "lo")
            for i, site in enumerate(self.sites):
                self.links[site] = Link(self, i + 1, f"fedmin-{self.mark}-{site}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        for link in self.links.values():
            link.close()
        for who in ("server", *self.sites):
            name = f"fedmin-{self.mark}-{who}"
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
