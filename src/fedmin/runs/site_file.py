"""site.toml: what a site needs to take part, and what it allows. It stays at the site.

    name = "hospital-a"                     as in the site's certificate
    server = "fed.example.org:8443"         whom it calls; nobody calls it
    keys = "hospital-a"                     the folder of `fedmin keys site`
    [data]       file = "patients.csv", outcome = "readmitted", features = ["age", "weight"]
    [policy]     methods = ["fedavg"], smallest_cohort = 3, most_rounds = 200

Paths are relative to the file. Whatever is wrong is said with its line and the nearest right word.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedmin.data.formats.columns import column_names, read_columns
from fedmin.data.table import Table
from fedmin.privacy.certificates import KeysError, check_name
from fedmin.privacy.policy import Policy
from fedmin.runs.document import Document
from fedmin.runs.registries import KINDS
from fedmin.runs.values import pick, record

# what the words of these lists of a policy name
NAMED = ("methods", "problems", "constraints", "channels", "metrics")


@dataclass(frozen=True)
class SiteData:
    """Where the site's rows are, and which columns of them are used."""

    file: str | tuple[str, ...]  # CSV with a line of names, or Parquet; one, or a list
    outcome: str = ""  # the column that is predicted, numbers or labels 0, 1, ...; "" is none
    features: tuple[str, ...] | None = None  # what it is predicted from; all others if left out
    groups: str = ""  # a column that says which group a row is in
    id: str = ""  # a column that says whose row it is: for `fedmin align` only, never a feature
    separator: str = ","  # of a CSV file
    rows_told: bool = True  # say how many there are; false: for runs with weights = "secret" only

    @property
    def files(self) -> list[Path]:
        """The files, one or several."""
        return [Path(f) for f in ([self.file] if isinstance(self.file, str) else self.file)]


@dataclass(frozen=True)
class SiteFile:
    """A site's own file, read and checked as far as it can be without its rows.

    >>> from fedmin.runs.site_file import SiteFile
    >>> text = 'name = "a"\\nserver = "localhost:8443"\\nkeys = "a"\\n[data]\\nfile = "rows.csv"\\n'
    >>> SiteFile.of(text + '[policy]\\nmost_rounds = 5\\n').policy.most_rounds
    5
    >>> SiteFile.of(text + '[policy]\\nmost_rouns = 5\\n')
    Traceback (most recent call last):
        ...
    fedmin.runs.document.ConfigError: site.toml, line 7: unknown key 'most_rouns' in [policy]; \
did you mean 'most_rounds'?
    """

    name: str  # as in its certificate
    server: str  # host:port of whom it calls; nobody calls it
    keys: str  # the folder of its key and certificate
    data: SiteData
    policy: Policy = Policy()
    log: str = ""  # of everything that left; NAME.log beside the file if left out
    state: str = "state"  # the folder in which it keeps what a run needs to go on

    @classmethod
    def read(cls, path: str | Path) -> "SiteFile":
        """Read a file."""
        path = Path(path)
        return cls._made(Document.read(path), path.parent)

    @classmethod
    def of(cls, text: str, folder: str | Path = ".", source: str = "site.toml") -> "SiteFile":
        """From its text, as if it lay in a folder."""
        return cls._made(Document(text, source), Path(folder))

    @classmethod
    def _made(cls, document: Document, folder: Path) -> "SiteFile":
        words = document.words
        for section in ("data", "policy"):
            if not isinstance(words.get(section, {}), dict):
                document.fail(section, f"{section} must be a section, [{section}] and its keys")
        if "data" not in words:
            document.fail("", "there is no [data], which says where the site's rows are")
        data = record(document, "data", words["data"], SiteData)
        policy = _policy(document, words.get("policy", {}))
        found = record(
            document, "", {**words, "data": {}, "policy": {}}, cls, data=data, policy=policy
        )
        found._check(document)
        at = lambda name: str(folder / name)
        files = (
            [at(file) for file in data.files] if not isinstance(data.file, str) else at(data.file)
        )
        return replace(
            found, keys=at(found.keys), log=at(found.log or f"{found.name}.log"),
            state=at(found.state), data=replace(data, file=files),
        )  # fmt: skip

    def _check(self, document: Document) -> None:
        try:
            check_name(self.name)
        except KeysError as error:
            document.fail("name", str(error))
        _check_server(document, self.server)
        data, used = self.data, self.columns or []
        for key in ("keys", "state"):
            if not getattr(self, key):
                document.fail(key, f"{key} is empty; it names a folder")
        if not data.files:
            document.fail("data.file", "file is an empty list; give at least one")
        if "" in ((data.file,) if isinstance(data.file, str) else data.file):
            document.fail("data.file", "file is empty; it names a file of rows")
        if data.features == ():
            document.fail(
                "data.features", "features is an empty list; leave it out for all columns"
            )
        if data.id and data.id in (*(data.features or ()), data.outcome, data.groups):
            document.fail("data.id", f"the column {data.id!r} says whose row it is: it is no other")
        twice = [each for each in used if used.count(each) > 1]
        if twice:
            document.fail("data.features", f"the column {twice[0]!r} is named twice in [data]")
        if len(data.separator) != 1:
            document.fail("data.separator", f"separator must be one letter, got {data.separator!r}")
        unnamed = [file for file in data.files if file.suffix == ".npz"]
        if unnamed and self.policy.columns is not None:
            words = f"{unnamed[0].name} has columns without names: a policy on columns needs names"
            document.fail("data.file", words)
        why = self.policy.refuses_columns(used)
        if why:
            document.fail("data", f"[data] goes beyond [policy]: {why}")

    @property
    def columns(self) -> list[str] | None:
        """The columns of its file that are used; None if all are."""
        if self.data.features is None:
            return None
        return [c for c in (*self.data.features, self.data.outcome, self.data.groups) if c]

    def table(self, classes: int | None = None, group_names: Sequence[str] | None = None) -> Table:
        """The site's rows: features, and the outcome and groups if there are any.

        `classes` is the number of labels, None where the outcome is a number; `group_names` are
        those of all sites, in their order.
        """
        data = self.data
        chosen = self.columns or column_names(data.files[0], data.separator)
        why = self.policy.refuses_columns(chosen)
        if why:
            raise ValueError(f"{data.files[0]}: {why}")
        special = [c for c in (data.outcome, data.groups) if c]
        features = data.features or [c for c in chosen if c not in (*special, data.id)]
        read = read_columns(data.files, [*features, *special], data.separator)
        y = read.numbers([data.outcome])[:, 0] if data.outcome else None
        table = Table(self.name, read.numbers(features), y, classes, feature_names=tuple(features))
        if not data.groups:
            return table
        return table.grouped(read.columns[data.groups], names=group_names)


def _policy(document: Document, words: dict[str, Any]) -> Policy:
    for key in NAMED:
        for name in words.get(key, []) if isinstance(words.get(key), list) else []:
            if (key, name) != ("metrics", "certificate"):
                pick(document, f"policy.{key}", name, KINDS[key])
    return record(document, "policy", words, Policy)


def _check_server(document: Document, server: str) -> None:
    host, _, port = server.rpartition(":")
    right = port.isdecimal() and 1 <= int(port) <= 65535
    if not host or not right or not re.fullmatch(r"[\w.-]+|\[[0-9a-fA-F:.]+\]", host):
        document.fail("server", f'server must be like "fed.example.org:8443", got {server!r}')
