"""Loopback: the two halves in one process, every message through real bytes.

Slow and honest: what a site knows is its own rows, its own state and what it decodes; what the
server knows is what it decodes. Errors name the client and the round.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmin.core.federation import Federation
from fedmin.core.result import Result
from fedmin.engines.drive import Engine, Settings
from fedmin.engines.round import Run, SiteState
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.halves import Own, Terms, run_halves
from fedmin.engines.sessions.server import ServerSession
from fedmin.engines.sessions.site import SiteSession
from fedmin.engines.sessions.transport import Transport


class Memory(Transport):
    """Sites in this process, asked one after the other; `absent` ones hear nothing."""

    def __init__(self, sites: list[SiteSession], absent: Iterable[tuple[int, int, int]] = ()):
        self.sites, self.absent = sites, {tuple(each) for each in absent}

    def deliver(
        self,
        messages: dict[int, bytes],
        deadline: float | None = None,
        enough: int | None = None,
        before: Mapping[int, bytes] = {},
    ) -> dict[int, bytes]:
        replies = {}
        for i, data in messages.items():
            ask = wire.envelope_of(data)
            if (ask.round, ask.trip, i) in self.absent and ask.kind == "ask":
                continue
            if i in before:
                self.sites[i].answer(before[i])
            replies[i] = self.sites[i].answer(data)
        return replies

    def states(self) -> list[SiteState]:
        return [site.state for site in self.sites]


@dataclass(frozen=True)
class Loopback(Engine):
    """Run every client apart and send real bytes, in one process.

    `absent` and `secrets` repeat a run of real machines as it was: the record of who was not heard,
    as in `Result.absent`, and the key that each site drew from, if its owner tells it; after them
    the server's, if it drew from one of its own.

    >>> import fedmin
    >>> fedmin.Loopback()
    Loopback()
    """

    absent: tuple[tuple[int, int, int], ...] = field(default=(), repr=False)
    secrets: tuple[Any, ...] | None = field(default=None, repr=False)  # JAX keys

    def run(self, run: Run, federation: Federation, settings: Settings) -> Result:
        """Run and return the result."""
        roster = federation.roster(run.participation.everyone)
        secrets = (None,) * roster.clients if self.secrets is None else self.secrets
        if len(secrets) not in (roster.clients, roster.clients + 1):
            raise ValueError(
                f"{len(secrets)} secrets for {roster.clients} clients; give one each, and perhaps "
                f"the server's after them"
            )
        server_secret = secrets[roster.clients] if len(secrets) > roster.clients else None

        def open_sites(server: ServerSession, folders: list[Path | None]) -> Memory:
            sites = [
                SiteSession(
                    run, roster, i, federation.client(i), seed=settings.seed, folder=folders[i],
                    gaps=bool(self.absent), messages=server.messages,
                    secret=secrets[i],
                )
                for i in range(roster.clients)
            ]  # fmt: skip
            return Memory(sites, self.absent)

        own = Own(federation.server_rows, federation.test)
        terms = Terms(quorum=1e-9 if self.absent else 1.0, secret=server_secret)
        return run_halves(run, roster, own, open_sites, settings, terms)
