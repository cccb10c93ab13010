"""Loopback: the two halves in one process, every message through real bytes.

Slow and honest: what a site knows is its own rows, its own state and what it decodes; what the
server knows is what it decodes. Errors name the client and the round.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmin.core.federation import Federation
from fedmin.core.result import Result
from fedmin.engines.drive import Engine, Settings
from fedmin.engines.round import Run, SiteState
from fedmin.engines.sessions.halves import Transport, run_halves
from fedmin.engines.sessions.site import SiteSession


class Memory(Transport):
    """Sites in this process, asked one after the other."""

    def __init__(self, sites: list[SiteSession]):
        self.sites = sites

    def deliver(
        self, messages: dict[int, bytes], deadline: float | None = None
    ) -> dict[int, bytes]:
        return {i: self.sites[i].answer(data) for i, data in messages.items()}

    def states(self) -> list[SiteState]:
        return [site.state for site in self.sites]


@dataclass(frozen=True)
class Loopback(Engine):
    """Run every client apart and send real bytes, in one process.

    >>> import fedmin
    >>> fedmin.Loopback()
    Loopback()
    """

    def run(self, run: Run, federation: Federation, settings: Settings) -> Result:
        """Run and return the result."""
        roster = federation.roster(run.participation.everyone)

        def open_sites(messages: Any, folders: list[Path | None]) -> Memory:
            return Memory(
                [
                    SiteSession(
                        run, roster, i, federation.client(i), seed=settings.seed, folder=folders[i],
                        messages=messages,
                    )
                    for i in range(roster.clients)
                ]
            )  # fmt: skip

        return run_halves(run, federation, roster, open_sites, settings)
