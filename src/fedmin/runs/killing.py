"""To try it: a site of a federation on this machine that is killed on the way, and comes back."""

import time
from collections.abc import Callable

from fedmin.core import checks
from fedmin.runs.deploying import Parties

AWAY = 0.5  # seconds until it is started again


class Killer:
    """Kills a site once, after it has answered something, and starts it again."""

    def __init__(self, parties: Parties, name: str, say: Callable[[str], None]):
        checks.known("site", name, parties.deployed.names)
        self.parties, self.name, self.say = parties, name, say
        self.log = parties.deployed.site_file(name).parent / f"{name}.log"
        self.at: float | None = None
        self.done = False

    def __call__(self) -> None:
        """Look whether it is time."""
        if self.done:
            return
        if self.at is None and self._answered() >= 5:
            self.parties.sites[self.name].kill()
            self.parties.sites[self.name].wait()
            self.at = time.monotonic()
            self.say(f"{self.name} was killed")
        elif self.at is not None and time.monotonic() - self.at > AWAY:
            self.parties.start_site(self.name)
            self.done = True
            self.say(f"{self.name} is started again")

    def _answered(self) -> int:
        return len(self.log.read_bytes().splitlines()) if self.log.exists() else 0
