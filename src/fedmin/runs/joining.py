"""A site on its own machine: it reads its file, calls the server, and answers what it allows."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedmin.engines.sessions.guarded import GuardedSite
from fedmin.engines.sessions.site import SiteSession
from fedmin.engines.transports.grpc.joining import Site, join
from fedmin.engines.transports.grpc.road import largest_ask
from fedmin.privacy.departures import Departures
from fedmin.privacy.identity import Identity
from fedmin.runs.agreement import agree, hello_of, only_job, roster_from
from fedmin.runs.config import Config
from fedmin.runs.own_rows import OwnRows, read_own
from fedmin.runs.site_file import SiteFile


class SiteHalf:
    """A site's half of a run that it has built from words, under its own guard."""

    def __init__(self, file: SiteFile, own: OwnRows, log: Departures, welcome: Mapping[str, Any]):
        config = Config(str(welcome["document"]), "the server's run.toml")
        job = only_job(config)
        roster = roster_from(welcome["roster"])
        if file.name not in roster.names:
            raise ValueError(f"{file.name} is not in the roster: {', '.join(roster.names)}")
        me, rows = roster.names.index(file.name), own.fitted(roster)
        targets = ((roster.features, np.asarray(rows.y)),) if roster.knows_labels(me) else ()
        agreed = agree(
            config, job, roster, targets, tested=bool(welcome["tested"]), image=welcome["image"]
        )
        self.parts = agreed.parts()
        chosen = agreed.pieces.options
        session = SiteSession(
            agreed.run, roster, me, rows, seed=chosen["seed"], gaps=True, diary=True,
            folder=Path(file.state) / str(welcome["run"])[:16],
        )  # fmt: skip
        self.name = session.run_name.hex()
        self.guarded = GuardedSite(
            session, file.policy, log, rounds=chosen["rounds"], quorum=agreed.terms.quorum,
            columns=own.columns,
        )  # fmt: skip
        self.largest = largest_ask(session.messages, roster, me)

    def ready(self) -> dict[str, Any]:
        """What the server compares before it asks anything."""
        return {"run": self.name, "parts": self.parts}

    def answer(self, data: bytes) -> bytes:
        """The reply to a question."""
        return self.guarded.answer(data)


def join_run(
    file: SiteFile,
    *,
    identity: Identity | None = None,
    address: str = "",
    patience: float = float("inf"),
    interrupt: Callable[[], str] = lambda: "",
) -> dict[str, Any]:
    """Take part in the run of a site's server until it has ended; the server's last words.

    `identity` and `address` are the file's, unless they are given.
    """
    identity = Identity.load(file.keys) if identity is None else identity
    if identity.role != "site" or identity.name != file.name:
        raise ValueError(
            f"{file.keys} holds the certificate of {identity.role} {identity.name}; the file is "
            f"of site {file.name}"
        )
    own = read_own(file)
    Path(file.state).mkdir(parents=True, exist_ok=True)
    with Departures(file.log, file.name) as log:
        site = Site(
            identity, address or file.server, hello_of(own.shapes()),
            lambda welcome: SiteHalf(file, own, log, welcome), patience,
        )  # fmt: skip
        return join(site, interrupt)
