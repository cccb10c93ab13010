"""From the sections of a configuration file to what `minimize` is given.

`pieces` makes the values; `with_defaults` writes every default out, so that the words of two files
that run the same thing are the same. What a section takes is in sections.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from fedmin import data
from fedmin.core import checks
from fedmin.core.federation import Federation
from fedmin.core.method import Method
from fedmin.core.metrics import Metric
from fedmin.core.problem import Problem
from fedmin.core.serialize import serialize
from fedmin.problems import over, smallest, subject_to
from fedmin.runs.document import Document
from fedmin.runs.own_tables import (
    is_own,
    own_federation,
    own_with_defaults,
    shapes_of,
    with_intercept,
)
from fedmin.runs.path_terms import along_of, path_terms
from fedmin.runs.registries import KINDS
from fedmin.runs.sections import PARTITION_OPTIONS, SECTIONS, SMALLEST, fields_at
from fedmin.runs.terms import Terms
from fedmin.runs.values import make, pick, read, record

Words = Mapping[str, Any]  # a part of a document

DEFAULTS = {"channel": {"name": "plain"}, "participation": {"name": "everyone"}}
ON_MACHINES = ("deadline", "wait")  # of [federation]: nor do these change the result
NO_EFFECT = ("checkpoint_rounds", "checkpoint_seconds", "log")  # of [run]: the result is the same


class Pieces(NamedTuple):
    """What `minimize` is given."""

    problem: Problem
    federation: Federation
    method: Method
    options: dict[str, Any]


def pieces(document: Document, words: Words) -> Pieces:
    """What `minimize` is given for the words of one run."""
    if is_own(words["data"]):
        federation = _named(
            document,
            words,
            own_federation(document, words, options(document, words).get("channel")),
        )
        table: Any = shapes_of(federation)
    else:
        table = _table(document, words["data"])
        federation = _federation(document, words, table)
    problem = problem_of(document, words, table)
    way = along_of(document, words, problem)
    if way is not None:  # at its last value, which is the largest problem
        problem = way.at(way.values[-1])
    return Pieces(
        problem, federation, section_of(document, words, "method"), options(document, words)
    )


def section_of(document: Document, words: Words, section: str) -> Any:
    """The value that a section names."""
    return make(document, section, words[section], SECTIONS[section])


def _table(document: Document, words: Words) -> Any:
    table: Any
    if "name" not in words:
        near = checks.nearest("", data.DATASETS)
        document.fail("data", f"[data] needs a name, or files of your own; {near}")
    pick(document, "data.name", words["name"], SECTIONS["data"])
    chosen = _own(document, words, "data")
    standardize, groups = chosen.pop("standardize", False), chosen.pop("groups", None)
    try:
        table = data.load(words["name"], **chosen)
        if groups is not None:  # before any scaling
            table = _grouped(table, groups)
        return _standardized(table) if standardize else table
    except (ValueError, TypeError) as error:
        document.refuse("data", words, error)


def _standardized(table: Any) -> Any:
    if isinstance(table, data.Synthetic):
        raise ValueError(
            f"standardize is not for {table.name}: its rows are made by formulas, and their true "
            f"answers are on the rows' own scale; leave standardize out"
        )
    return table.standardized()


def _grouped(table: Any, by: str | int) -> Any:
    if isinstance(table, data.Synthetic):
        return replace(table, table=table.table.grouped(by))
    return table.grouped(by)


def _own(document: Document, words: Words, section: str, *only: str) -> dict[str, Any]:
    """The fields of a section that no class reads: each by its type. Unknown ones stay."""
    fields = fields_at(section, words.get("name"))
    found = {
        key: value for key, value in words.items() if key != "name" and (not only or key in only)
    }
    return {
        key: read(document, f"{section}.{key}", value, fields[key]) if key in fields else value
        for key, value in found.items()
    }


def _federation(document: Document, words: Words, table: Any) -> Federation:
    given = words.get("partition", {})
    outer = _own(document, given, "partition", *PARTITION_OPTIONS)
    how, sites = partitioner(document, given), terms(document, words)
    try:
        if sites is not None and outer.get("labels") in sites.sites:
            outer["labels"] = _as_client(how, table, outer["labels"], sites.sites)
        federation = data.partition(table, how, **outer)
    except (ValueError, TypeError) as error:
        document.refuse("partition", given, error)
    return _named(document, words, federation)


def _as_client(how: Any, table: Any, site: str, sites: Sequence[str]) -> str:
    """What a site is called before clients get the sites' names."""
    names = how.names(table) if hasattr(how, "names") else None
    names = [str(i) for i in range(len(sites))] if names is None else list(names)
    return site if site in names else (names + [site] * len(sites))[sites.index(site)]


def _named(document: Document, words: Words, federation: Federation) -> Federation:
    """The clients under the names of the sites, if the file names any."""
    sites = terms(document, words)
    if sites is None:
        return federation
    try:
        return sites.named(federation)
    except ValueError as error:
        document.refuse("federation", words["federation"], error)


def terms(document: Document, words: Words) -> Terms | None:
    """Who takes part on real machines, if the file says so."""
    if "federation" not in words:
        return None
    return record(document, "federation", words["federation"], Terms)


def partitioner(document: Document, given: Words) -> Any:
    """The partitioner of a section, or None for clients that the data bring with them."""
    own = {key: value for key, value in given.items() if key not in PARTITION_OPTIONS}
    return make(document, "partition", own, SECTIONS["partition"]) if own else None


def problem_of(document: Document, words: Words, table: Any) -> Problem:
    """The problem on data with such features, classes and images."""
    image = getattr(getattr(table, "table", table), "image_shape", None)
    known = {"features": table.features, "classes": table.classes, "image": image}
    filled = {key: value for key, value in known.items() if value is not None}
    given = with_intercept(words)
    limit = _own(document, given, "problem", SMALLEST).get(SMALLEST)
    given.pop(SMALLEST, None)
    problem = make(document, "problem", given, SECTIONS["problem"], filled)
    if limit is not None:
        problem = smallest(problem, loss_at_most=limit)
    limits = constraints(document, words)
    if limits:
        problem = subject_to(problem, *limits)
    if "domain" not in words:
        return problem
    domain = section_of(document, words, "domain")
    try:
        return over(problem, domain)
    except (ValueError, TypeError) as error:
        document.refuse("domain", words["domain"], error)


def constraints(document: Document, words: Words) -> list[Any]:
    """The constraints of a run."""
    given = words.get("constraint", [])
    return [
        make(document, f"constraint[{k}]", each, SECTIONS["constraint"])
        for k, each in enumerate(given)
    ]


def options(document: Document, words: Words) -> dict[str, Any]:
    """Everything else that `minimize` is given, by the names of its arguments."""
    run = words["run"]
    found: dict[str, Any] = {"rounds": run["rounds"], "seed": run["seeds"][0]}
    found["every"] = run.get("every", 1)
    for section in ("channel", "participation"):
        if section in words:
            found[section] = section_of(document, words, section)
    if "engine" in run:
        found["engine"] = pick(document, "run.engine", run["engine"], KINDS["engines"])()
    if "record" in run:
        found["record"] = [_metric(document, each) for each in run["record"]]
    if run.get("statistics"):
        found["statistics"] = True
    if "stop" in run:
        found["stop"] = make(document, "run.stop", run["stop"], KINDS["rules"])
    return found


def _metric(document: Document, words: Any) -> Metric:
    words = {"name": words} if isinstance(words, str) else words
    return make(document, "run.record", words, KINDS["metrics"])


def with_defaults(document: Document, words: Words) -> dict[str, Any]:
    """The words of a run with every default that needs no data written out."""
    found = {**DEFAULTS, **words}
    for section in ("method", "channel", "participation", "domain"):
        if section in found:
            found[section] = serialize(section_of(document, found, section))
    named = ("problem",) if is_own(words["data"]) else ("data", "problem")
    if is_own(words["data"]):
        found |= own_with_defaults(document, words)
    for section in named:
        given = with_intercept(words) if section == "problem" else words[section]
        pick(document, f"{section}.name", given.get("name", ""), SECTIONS[section])
        fields = fields_at(section, given["name"])
        usual = {key: field.default for key, field in fields.items() if not field.needed}
        found[section] = serialize({**usual, **given})
    if "partition" in words:
        found["partition"] = _partition_with_defaults(document, words["partition"])
    sites = terms(document, words)
    if sites is not None:
        found["federation"] = {"sites": list(sites.sites), "quorum": sites.quorum}
        if sites.secrets != "system":
            found["federation"]["secrets"] = sites.secrets
    path = path_terms(document, words)
    if path is not None:
        found["path"] = {k: v for k, v in serialize(asdict(path)).items() if v is not None}
    run = {key: value for key, value in words["run"].items() if key not in NO_EFFECT}
    found["run"] = {"every": 1, "engine": "simulator"} | run
    return found


def _partition_with_defaults(document: Document, given: Words) -> dict[str, Any]:
    """With the defaults of the partitioner, and of partition() itself."""
    how = partitioner(document, given)
    outer = fields_at("partition", given.get("name"))
    usual = {key: outer[key].default for key in PARTITION_OPTIONS} | dict(given)
    own = {} if how is None else serialize(how)
    return own | {key: usual[key] for key in PARTITION_OPTIONS}
