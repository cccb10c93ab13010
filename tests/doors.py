"""A federation in one process, by the words that machines exchange: every site builds its half from
them, from its own file, and is asked through its own guard. No stream and no process: those are
test_grpc.py's and test_deploy.py's."""

import json
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedmin.engines.sessions.transport import Transport
from fedmin.privacy.departures import Departures
from fedmin.privacy.endorsed import endorsement
from fedmin.privacy.identity import Identity
from fedmin.runs.agreement import hello_of
from fedmin.runs.config import Config
from fedmin.runs.deploying import Deployed, prepare, site_words
from fedmin.runs.folder import Outcome
from fedmin.runs.joining import Asked, SiteHalf, own_or_not
from fedmin.runs.serving import OwnFiles, serve_at
from fedmin.runs.site_file import SiteFile


class Site:
    """A site that can be killed: all that it has then is on its disk."""

    def __init__(self, file: SiteFile, signed: bool = False):
        self.file = file
        self.identity = Identity.load(file.keys) if signed else None
        self.own, self.said = own_or_not(file)
        self.half: SiteHalf | None = None
        self.log: Departures | None = None
        self.before: Asked | None = None
        self.sent: list[bytes] = []
        self.told: list[bytes] = []
        self.welcome: dict[str, Any] = {}

    def build(self, welcome: dict[str, Any]) -> dict[str, Any]:
        self.welcome = json.loads(json.dumps(welcome))
        self._open()
        try:
            self.half = SiteHalf(self.file, self.own, self.log, self.welcome, self.identity)
        except BaseException:
            self.log.close()
            raise
        return self.half.ready()

    def _open(self) -> None:
        if self.log is not None:
            self.log.close()
        self.log = Departures(self.file.log, self.file.name)
        self.before = Asked(self.file, self.own, self.log)

    def tell(self, data: bytes) -> bytes:
        """What it answers before the run is known."""
        if self.log is None:
            self._open()
        self.told.append(self.before.answer(data))
        return self.told[-1]

    def answer(self, data: bytes) -> bytes:
        assert self.half is not None
        self.sent.append(self.half.answer(data))
        return self.sent[-1]

    def kill(self) -> None:
        self.half = None
        if self.welcome:
            self.build(self.welcome)
        else:
            self._open()


class Here(Transport):
    """The transport to them."""

    def __init__(self, sites: list[Site], strike: Callable[[int], int | None]):
        self.sites, self.strike, self.count = sites, strike, 0

    def deliver(self, messages, deadline=None, enough=None, before=MappingProxyType({})):
        self.count += 1
        killed = self.strike(self.count)
        if killed is not None:
            self.sites[killed].kill()
        found = {}
        for i, data in messages.items():
            if i in before:
                self.sites[i].answer(before[i])
            found[i] = self.sites[i].answer(data)
        return found

    def close(self):
        for site in self.sites:
            site.log.close()


class Door:
    """How they come in."""

    def __init__(self, sites: dict[str, Site], strike: Callable[[int], int | None]):
        self.sites, self.strike, self.asked = sites, strike, 0
        self.check_ready: Callable[[str, dict[str, Any]], str] = lambda name, words: ""

    def wait_for_hellos(self, seconds, interrupt):
        return {
            name: hello_of(site.said, None if site.identity is None else endorsement(site.identity))
            for name, site in self.sites.items()
        }

    def survey(self, names, data, seconds, interrupt):
        return self.surveys(dict.fromkeys(names, data), seconds, interrupt)

    def transport(self, messages, roster, **_):
        return Here([self.sites[name] for name in roster.names], self.strike)

    def surveys(self, messages, seconds, interrupt):
        self.asked += 1
        killed = self.strike(self.asked)
        if killed is not None:
            list(self.sites.values())[killed].kill()
        return {name: self.sites[name].tell(data) for name, data in messages.items()}

    def welcome(self, words):
        for name, site in self.sites.items():
            why = self.check_ready(name, site.build(words))
            assert not why, why

    def stop(self, words=None, linger=0.0):
        return set(self.sites if words else ())


def placed(
    text: str | Config, folder: Path, policy: str = "", signed: bool = False
) -> tuple[Deployed, dict[str, Site]]:
    """The files of all parties, as `fedmin deploy` writes them; `signed`: they use keys."""
    deployed = prepare(text if isinstance(text, Config) else Config(text), folder)
    sites = {}
    for name in deployed.names:
        path = deployed.site_file(name)
        words = site_words(name, 1, deployed.seeded, told=deployed.sizes_told)
        lines = [f"{key} = {json.dumps(words[key])}" for key in ("name", "server", "keys")]
        own = policy or "".join(f"{k} = {json.dumps(v)}\n" for k, v in words["policy"].items())
        file = "rows.csv" if (path.parent / "rows.csv").exists() else "rows.npz"
        untold = "" if deployed.sizes_told else "\nrows_told = false"
        data = f'[data]\nfile = "{file}"{untold}'
        path.write_text("\n".join([*lines, data, f"[policy]\n{own}"]))
        sites[name] = Site(SiteFile.read(path), signed)
    return deployed, sites


def served(
    text: str | Config,
    folder: Path,
    strike: Callable[[int], int | None] = lambda count: None,
    change: Callable[[str], str] = lambda text: text,
    **options,
) -> tuple[Outcome, Deployed, dict[str, Site]]:
    """A whole run; `change` is what the server does to its file after the sites have theirs."""
    deployed, sites = placed(text, folder, **options)
    deployed.run_file.write_text(change(deployed.run_file.read_text("utf-8")))
    home = deployed.run_file.parent
    test = home / "test.npz"
    own = OwnFiles(test if test.exists() else None)
    outcome = serve_at(Config.read(deployed.run_file), home / "runs", Door(sites, strike), own)
    return outcome, deployed, sites
