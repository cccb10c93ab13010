"""Columns are prepared on real machines: questions before there is a run, over the same streams.

A server whose file has tables of one's own asks its sites, before it welcomes them to the run, what
data/own/prepare.py asks, and keeps what all agreed on in the run's folder: it goes with the
welcome. A site answers from its own file, what its policy allows, and writes every answer into its
log before it leaves. Of a mistake in its file a site is told all, and the server that there is one:
a row's value is nobody else's.

Whoever is killed in the middle is asked again: a question says all that its answer needs, and a
server that begins anew asks the same.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedmin.assembling import check_prepared
from fedmin.channels import Plain
from fedmin.core.files import write_text
from fedmin.core.given import labels_of
from fedmin.core.ledger import Line
from fedmin.core.matrix import float_type, matrix
from fedmin.core.preparation import About
from fedmin.core.protocol import ProtocolError
from fedmin.core.rows import rows as rows_of
from fedmin.data.own.frames import frame_of
from fedmin.data.own.hidden import HiddenTable, HiddenTalk, roster_of
from fedmin.data.own.pooled import SILENT, about_of, order_of, weighs
from fedmin.data.own.prepare import fitted
from fedmin.data.own.reading import agreed
from fedmin.data.own.rows import Chosen
from fedmin.data.own.table import SiteTable
from fedmin.data.own.talk import Question, Talk, answered, question_of, sizes_of
from fedmin.engines.sessions import wire
from fedmin.engines.sessions.guarded import PolicyError
from fedmin.privacy.departures import PREPARING, Departures
from fedmin.privacy.observers import shapes
from fedmin.runs.agreement import document_of, only_job
from fedmin.runs.config import Config
from fedmin.runs.document import ConfigError, Document
from fedmin.runs.grid import Job
from fedmin.runs.own_rows import OwnRows
from fedmin.runs.own_tables import is_own, labels_wanted, prepare_of, rows_at_sites
from fedmin.runs.pieces import options, section_of
from fedmin.runs.site_file import SiteFile

log = logging.getLogger("fedmin.prepare")
Signer = Callable[[Any, Any, int], bytes | None]  # a roster, who signs with what, who this is
UNKNOWN = About(())  # columns that are prepared by sums, whatever they are
WHAT, MARK = "prepare", b"prepare:"  # a question of this kind
KEPT = "prepared.json"  # in a run's folder: what all agreed on


class PreparingError(ValueError):
    """The columns cannot be prepared: the run does not begin. The sentence says why."""


def prepares(job: Job) -> bool:
    """Whether the columns of a run are prepared before it."""
    return is_own(job.words["data"])


def check_sizes_told(job: Job) -> None:
    """Refuse to prepare columns where sites do not say how many rows they have."""
    if job.words.get("partition", {}).get("weights") == "secret":
        raise ConfigError(
            "[partition] has weights = 'secret', and preparing columns tells how many rows each "
            "site has; let the sites' files be of numbers that are prepared already"
        )


def chosen_of(document: Document, words: Mapping[str, Any]) -> Chosen:
    """What a run's file says of the columns."""
    given = rows_at_sites(document, words)
    given.pop("separator", None)  # each site knows its own
    return Chosen(**given, labels=labels_wanted(words))


def name_of(document: str, sites: tuple[str, ...]) -> bytes:
    """What the messages of a preparation bear: 8 bytes of a hash of the file and of its sites."""
    return hashlib.sha256(json.dumps(["prepare", document, list(sites)]).encode()).digest()[:8]


# ---------------------------------------------------------------- the server


class Prepared(NamedTuple):
    """What all sites agreed on, what each says of its rows, and what it took to agree."""

    told: dict[str, Any]
    sites: list[dict[str, Any]]  # rows, what they weigh, whether each weighs 1
    lines: list[tuple[Line, int]]
    identities: list[Any]  # of the keys that sites sign with

    def shapes(self, names: tuple[str, ...]) -> dict[str, Any]:
        """What a site would say of its prepared rows (own_rows.py), of each."""
        about = about_of(self.told, "", ())
        kind = "int32" if about.classes is not None else str(float_type())
        alike = {
            "features": len(about.names), "type": str(float_type()), "slots": None,
            "target": [kind, []], "exact": True,
            "classes": None if about.classes is None else len(about.classes), "image": None,
            "columns": list(about.names), "groups": self.told["groups"] or [],
        }  # fmt: skip
        each = zip(names, self.sites, self.identities, strict=True)
        return {name: {**alike, **said, "identity": identity} for name, said, identity in each}

    @property
    def words(self) -> dict[str, Any]:
        """What a site needs to make its rows."""
        return {"told": self.told, "sizes": [said["rows"] for said in self.sites]}

    def about(self, outcome: str) -> About:
        """What is known of the columns, beside the rows."""
        return about_of(self.told, outcome, self.lines)

    def save(self, folder: Path) -> None:
        """Keep it: a server that goes on asks nobody again."""
        folder.mkdir(parents=True, exist_ok=True)
        lines = [[asdict(line), count] for line, count in self.lines]
        write_text(folder / KEPT, json.dumps({**self._asdict(), "lines": lines}, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "Prepared | None":
        """What was kept; None if nothing was."""
        if not (folder / KEPT).exists():
            return None
        words = json.loads((folder / KEPT).read_text("utf-8"))
        lines = [(Line(**line), count) for line, count in words["lines"]]
        return cls(**{**words, "lines": lines})


def prepared_at(
    door: Any, config: Config, job: Job, folder: Path, interrupt: Callable[[], str]
) -> Prepared:
    """Ask the sites that come in by a door, until all agree."""
    check_sizes_told(job)
    found = Prepared.load(folder)
    if found is not None:
        return found
    assert config.terms is not None
    sites, seconds = config.terms.sites, max(config.terms.wait, config.terms.deadline)
    how, channel = prepare_of(job.document, job.words), channel_of(job)
    if not channel.hides and not how.asks_nothing_of(None):
        check_prepared(UNKNOWN, section_of(job.document, job.words, "method"), channel)
    hellos = door.wait_for_hellos(config.terms.wait, interrupt)
    document = document_of(job)
    identities = [hellos[site]["shapes"].get("identity") for site in sites]
    front = _front(document, sites, identities)

    def carry(messages: dict[int, bytes]) -> dict[int, bytes]:
        asked = {sites[i]: front + data for i, data in messages.items()}
        told = door.surveys(asked, seconds, interrupt)
        return {i: told[sites[i]] for i in messages}

    talk = Talk(sites, carry, name_of(document, sites))
    if channel.hides:
        talk = HiddenTalk(sites, carry, name_of(document, sites), identities=keys_of(identities))
    try:
        told = agreed(talk, chosen_of(job.document, job.words))
        if not channel.hides and not how.asks_nothing_of(told["kinds"]):  # before a sum leaves
            check_prepared(UNKNOWN, section_of(job.document, job.words, "method"), channel)
        told, said = fitted(talk, how, told)
        about = about_of(told, "", talk.lines, hidden=channel.hides)
        check_prepared(about, section_of(job.document, job.words, "method"), channel)
    except ValueError as error:
        raise PreparingError(str(error)) from None
    found = Prepared(told, said, talk.lines, identities)
    found.save(folder)
    log.info("columns are prepared: %s", ", ".join(found.about("").names))
    return found


def channel_of(job: Job) -> Any:
    """What becomes of replies in a run."""
    return options(job.document, job.words).get("channel", Plain())


def keys_of(identities: Sequence[Any]) -> tuple[str, ...]:
    """The keys that sites sign with, if all have one."""
    found = [str(one.get("key")) for one in identities if isinstance(one, dict)]
    return tuple(found) if len(found) == len(identities) else ()


def _front(document: str, sites: tuple[str, ...], identities: Sequence[Any]) -> bytes:
    """What stands before every question: for which run it is asked, and who signs with what."""
    about = {"document": document, "sites": list(sites), "identities": list(identities)}
    words = json.dumps({"what": WHAT, **about}).encode()
    return MARK + len(words).to_bytes(4, "little") + words


# ---------------------------------------------------------------- a site


def table_of(file: SiteFile, chosen: Chosen, me: int) -> SiteTable:
    """A site's own table, if the run uses what the site's file and policy allow."""
    data = file.data
    table = SiteTable(frame_of(file.name, data.files, data.separator), chosen, me)
    for key in ("outcome", "groups", "id"):
        own, wanted = getattr(data, key), getattr(chosen, key) or ""
        if own and own != wanted:
            uses = f"{key} = {wanted!r}" if wanted else f"no {key}"
            raise PolicyError(
                f"site {file.name}: its [data] has {key} = {own!r}, and the run {uses}; ask for "
                f"another run.toml, or change site.toml"
            )
    more = [name for name in table.names if data.features and name not in data.features]
    if more:
        raise PolicyError(
            f"site {file.name}: the run uses the column {more[0]!r}, which features in its [data] "
            f"does not name"
        )
    why = file.policy.refuses_columns(table.used)
    if why:
        raise PolicyError(f"site {file.name}: {why}")
    return table


class PreparingSite:
    """A site's part in one preparation."""

    def __init__(
        self, file: SiteFile, departures: Departures, words: Mapping[str, Any],
        signer: Signer = lambda roster, said, me: None,
    ):  # fmt: skip
        document, sites = str(words["document"]), tuple(map(str, words["sites"]))
        config = Config(document, "the server's run.toml")
        job = only_job(config)
        if file.name not in sites:
            raise ValueError(f"{file.name} is not asked to prepare: {', '.join(sites)} are")
        self.file, self.departures, self.me = file, departures, sites.index(file.name)
        self.name, self.failure = name_of(document, sites), ""
        refuses = file.policy.refuses_preparing
        about = job.words, len(sites), self.name.hex()
        hides = channel_of(job).hides
        self.no_sums = refuses(*about, sums=True, least=len(sites) if hides else 1)
        could = prepare_of(config, job.words).asks_nothing_of(None)
        if why := refuses(*about, sums=False) if could else self.no_sums:
            raise PolicyError(f"site {file.name}: {why}")
        self.table: Any = table_of(file, chosen_of(config, job.words), self.me)
        self.own = self.table
        if hides:
            said = words.get("identities", [])
            roster = roster_of(sites, keys_of(said))
            key = signer(roster, said, self.me)
            self.table = HiddenTable(self.own, self.name, roster, key)

    def answer(self, data: bytes) -> bytes:
        """The answer to a question, written down; of a mistake in the table only that it is one."""
        question = question_of(self.name, self.me, data)
        self._check(question, data)
        try:
            found = self.table.answer(question.kind, question.told, question.arrays)
        except (wire.MessageError, ProtocolError):
            raise  # of a secure sum: nothing of the table is in it
        except (ValueError, KeyError, TypeError) as error:
            self.failure = str(error)
            log.error("%s", error)
            raise ValueError(
                f"site {self.file.name} has no answer about {question.kind}: its own log has the "
                f"file, the row and the remedy"
            ) from None
        reply = answered(self.name, self.me, question, found)
        self.departures.add(
            reply, run=self.name.hex(), round=0, when=PREPARING, trip=question.trip, asked=data,
            parts=sizes_of(question.kind, reply), shapes=_shapes(found),
        )  # fmt: skip
        if question.kind == "prepared" and (words := self.own.lacks(question.told)):
            log.warning("%s", words)
        return reply

    def _check(self, question: Question, data: bytes) -> None:
        """Another question on the same trip is one more: as many as rounds are allowed."""
        if self.no_sums and question.kind not in SILENT:
            raise PolicyError(self.no_sums)
        run, trip = self.name.hex(), question.trip
        if self.departures.answered(run, PREPARING, 0, trip, data):
            return
        why = self.file.policy.refuses_round(self.departures.rounds(run, trip, PREPARING))
        if why:
            raise PolicyError(why)


def _shapes(answer: Mapping[str, Any]) -> dict[str, str]:
    if answer and all(isinstance(part, np.ndarray) for part in answer.values()):
        return shapes(dict(answer))
    return dict.fromkeys(answer, "words")


def prepared_rows(file: SiteFile, config: Config, job: Job, words: Any, me: int) -> OwnRows:
    """A site's rows as all agreed, in the order that a simulation has them in."""
    table = table_of(file, chosen_of(config, job.words), me)
    try:
        told, sizes = words["told"], [int(count) for count in words["sizes"]]
        train, x = table.rows(told)[0], table.x(told)
        labels, groups = told["labels"], told["groups"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"what was agreed does not fit this site's table: {error}") from None
    if len(x) != sizes[me]:
        raise ValueError(
            f"site {file.name} has {len(x)} rows, and had {sizes[me]} when columns were prepared; "
            f"a changed file is another run"
        )
    order = order_of(sizes, me, 0)
    classes = None if labels is None else len(labels)
    group = None
    if train.groups is not None:
        group = np.array([groups.index(each) for each in train.groups], np.int32)[order]
    weights = table.weights(told)[order] if weighs(table, told) else None
    made: Any = rows_of(matrix(x, order), labels_of(train.y[order], classes), weights, group)
    return OwnRows(
        made.x, np.asarray(made.y), np.asarray(made.weight), classes, None, tuple(table.used),
        None if made.group is None else np.asarray(made.group), tuple(groups or ()),
        table.frame.mark,
    )  # fmt: skip
