"""A site on its own machine: it reads its file, calls the server, and answers what it allows."""

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core.roster import Roster
from fedmin.core.serialize import digest
from fedmin.data.own.frames import frame_of
from fedmin.engines.sessions.guarded import GuardedSite
from fedmin.engines.sessions.site import SiteSession, run_name
from fedmin.engines.sessions.tap import Tap
from fedmin.engines.transports.grpc.joining import JoinError, Site, join
from fedmin.engines.transports.grpc.streams import largest_ask
from fedmin.privacy.departures import Departures
from fedmin.privacy.endorsed import believed, endorsement, signing_key
from fedmin.privacy.identity import Identity
from fedmin.privacy.own_secret import FILE, OwnSecret
from fedmin.runs.agreement import agree, hello_of, only_job
from fedmin.runs.config import Config
from fedmin.runs.counting import told
from fedmin.runs.own_rows import OwnRows, read_own
from fedmin.runs.preparing import MARK, WHAT, PreparingSite, prepared_rows
from fedmin.runs.rosters import roster_from
from fedmin.runs.site_file import SiteFile

FAILED = "failed"  # the status of a run that did not begin
UNTOLD = "rows_told = false in site.toml, and {what} how many rows there are"


class SiteHalf:
    """A site's half of a run that it has built from words, under its own guard."""

    def __init__(
        self, file: SiteFile, own: OwnRows | None, log: Departures, welcome: Mapping[str, Any],
        identity: Identity | None = None, tap: Tap | None = None,
    ):  # fmt: skip
        self.tap = tap
        config = Config(str(welcome["document"]), "the server's run.toml")
        job = only_job(config)
        roster = roster_from(welcome["roster"])
        if file.name not in roster.names:
            raise ValueError(f"{file.name} is not in the roster: {', '.join(roster.names)}")
        if roster.sizes_told and not file.data.rows_told:
            raise ValueError(UNTOLD.format(what="a run whose weights are not 'secret' tells"))
        me = roster.names.index(file.name)
        if "prepared" in welcome:
            own = prepared_rows(file, config, job, welcome["prepared"], me)
        elif own is None:  # says what is no number, and where
            own = read_own(file)
        rows = own.fitted(roster)
        targets = ((roster.features, np.asarray(rows.y)),) if roster.knows_labels(me) else ()
        agreed = agree(
            config, job, roster, targets, tested=bool(welcome["tested"]), image=welcome["image"],
            counts=welcome["counts"],
        )  # fmt: skip
        self.parts = agreed.parts()
        chosen = agreed.pieces.options
        name = run_name(agreed.run, roster, chosen["seed"]).hex()
        folder = Path(file.state) / name
        seeded = agreed.terms.secrets == "seed"
        drawing = {} if seeded else own_secrets(file, own, name)
        signer = None
        if agreed.run.channel.signs:
            signer = own_signer(identity, roster, welcome.get("identities"), me)
        session = SiteSession(
            agreed.run, roster, me, rows, seed=chosen["seed"], gaps=True, diary=True,
            folder=folder, identity=signer, **drawing,
        )  # fmt: skip
        self.name = name
        self.guarded = GuardedSite(
            session, file.policy, log, rounds=chosen["rounds"], quorum=agreed.terms.quorum,
            columns=own.columns, seeded=seeded,
        )  # fmt: skip
        self.largest = largest_ask(session.messages, roster, me)

    def ready(self) -> dict[str, Any]:
        """What the server compares before it asks anything."""
        return {"run": self.name, "parts": self.parts}

    def answer(self, data: bytes) -> bytes:
        """The reply to a question."""
        if self.tap is None:
            return self.guarded.answer(data)
        self.tap.keep(data)
        reply = self.guarded.answer(data)
        self.tap.keep(reply)
        return reply


def own_secrets(file: SiteFile, own: OwnRows, run: str) -> dict[str, Any]:
    """What a site draws from in a run, and its fingerprint of its rows: both by its own secret."""
    state = Path(file.state)
    secret = OwnSecret.at(state, (state / run / "diary.bin").exists)
    mark = own.mark or digest(own)
    return {"secret": drawing_key(secret, run), "fingerprint": secret.fingerprint(mark)}


def drawing_key(secret: OwnSecret, run: str) -> Any:
    """The JAX key from which whoever has this secret draws in a run."""
    shape = np.shape(jax.random.key_data(jax.random.key(0)))
    numbers = secret.numbers(run, int(np.prod(shape))).reshape(shape)
    return jax.random.wrap_key_data(jnp.asarray(numbers))


def own_signer(identity: Identity | None, roster: Roster, said: Any, me: int) -> bytes:
    """The key that this site signs with, once it believes those of all others in the roster."""
    if identity is None:
        raise ValueError(
            "a secure sum needs keys of an authority that is not the server's: "
            "join by `fedmin join`"
        )
    words = said if isinstance(said, list) else []
    trust = identity.trust()
    if len(words) != roster.clients or len(roster.identities) != roster.clients:
        raise ValueError("a secure sum needs a signing key of every site")
    for name, key, one in zip(roster.names, roster.identities, words, strict=True):
        if believed(trust, name, one) != key:
            raise ValueError(f"the roster has another signing key for {name} than {name} endorsed")
    if roster.identities[me] != endorsement(identity)["key"]:
        raise ValueError("the roster has another signing key for this site than its own")
    return signing_key(identity)


def fingerprint_of(file: SiteFile) -> bytes:
    """What a site says of its rows in a certificate."""
    path = Path(file.state) / FILE
    if not path.exists():  # a new one would fit nothing
        raise ValueError(f"there is no {path}: {file.name} has taken part in no run yet")
    secret = OwnSecret.at(path.parent)
    own, _ = own_or_not(file)
    return secret.fingerprint(mark_of(file) if own is None else digest(own))


def note_in(log: Departures) -> Callable[[str, Mapping[str, Any]], bytes]:
    """Write words that leave into a site's log, and say there what is in them."""

    def note(kind: str, words: Mapping[str, Any]) -> bytes:
        about = words.get("shapes")
        shown = {}
        if isinstance(about, dict):
            keys = ("rows", "features", "type", "classes")
            shown = {key: f"{about[key]}" for key in keys if about.get(key) is not None}
            shown["columns"] = " ".join(about.get("columns", ())) or "without names"
            shown |= {"groups": " ".join(about["groups"])} if about.get("groups") else {}
        return log.say(kind, words, shown)

    return note


def join_run(
    file: SiteFile,
    *,
    identity: Identity | None = None,
    address: str = "",
    patience: float = float("inf"),
    interrupt: Callable[[], str] = lambda: "",
    trusted: bool = True,
    tap: str | Path | None = None,
) -> dict[str, Any]:
    """Take part in the run of a site's server until it has ended; the server's last words.

    `identity` and `address` are the file's, unless they are given; an identity that the server's
    own authority signed is not `trusted`: secure sums are refused with it. `tap` keeps every byte
    that it sends or gets.
    """
    identity = Identity.load(file.keys) if identity is None else identity
    if identity.role != "site" or identity.name != file.name:
        raise ValueError(
            f"{file.keys} holds the certificate of {identity.role} {identity.name}; the file is "
            f"of site {file.name}"
        )
    own, said = own_or_not(file)
    Path(file.state).mkdir(parents=True, exist_ok=True)
    kept = None if tap is None else Tap(tap)
    with Departures(file.log, file.name) as log:
        before = Asked(file, own, log, identity if trusted else None)
        site = Site(
            identity, address or file.server, hello_of(said, endorsement(identity)),
            lambda welcome: SiteHalf(file, own, log, welcome, identity if trusted else None, kept),
            patience, note_in(log), before.answer,
        )  # fmt: skip
        try:
            words = join(site, interrupt)
        except JoinError as error:  # the site's own words have the row and the value
            raise JoinError(before.failure or str(error)) from None
    if words.get("status") == FAILED:
        raise JoinError(f"the run did not begin: {words.get('reason')}")
    return words


class Asked:
    """What a site answers before a run is known; `failure` is what is wrong with its table."""

    def __init__(
        self, file: SiteFile, own: OwnRows | None, departures: Departures,
        identity: Identity | None = None,
    ):  # fmt: skip
        self.file, self.own, self.departures, self.failure = file, own, departures, ""
        self.signer = functools.partial(own_signer, identity)
        self.site: tuple[Any, PreparingSite] | None = None

    def answer(self, data: bytes) -> bytes:
        """The answer to a question: of columns, with what stands before it, or of counts."""
        if not self.file.data.rows_told:
            raise ValueError(UNTOLD.format(what="preparing columns and counting groups tell"))
        if not data.startswith(MARK):
            return told(self.file, self.own, self.departures, data)
        begin = len(MARK) + 4
        size = int.from_bytes(data[len(MARK) : begin], "little")
        words = json.loads(data[begin : begin + size])
        if not isinstance(words, dict) or words.get("what") != WHAT:
            raise ValueError("the server asks before the run what this fedmin does not know")
        if self.site is None or self.site[0] != words:
            self.site = words, PreparingSite(self.file, self.departures, words, self.signer)
        site = self.site[1]
        try:
            return site.answer(data[begin + size :])
        finally:
            self.failure = site.failure


def own_or_not(file: SiteFile) -> tuple[OwnRows | None, dict[str, Any]]:
    """A site's rows and what it says of them; of a table with words in it only how many there are:
    it can take part where columns are prepared."""
    try:
        own = read_own(file)
        return own, own.shapes(file.data.rows_told)
    except ValueError:  # words, gaps, or columns that the site's policy keeps out of runs
        if file.data.files[0].suffix == ".npz":
            raise
        frame = frame_of(file.name, file.data.files, file.data.separator)
        return None, {"rows": frame.rows if file.data.rows_told else None, "words": True}


def mark_of(file: SiteFile) -> str:
    """A hash of a site's table, where it is prepared for a run."""
    return frame_of(file.name, file.data.files, file.data.separator).mark
