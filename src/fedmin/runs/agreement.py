"""What server and sites must agree on, in words: the document, the roster, and the run they make.

Both ends build problem, method and all the rest from the same document by the registries, and
compare what they have built, part by part. Nothing travels here but words and numbers.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
import tomli_w

from fedmin.assembling import Known, assembled
from fedmin.channels import Plain
from fedmin.core import groups
from fedmin.core.environment import __version__
from fedmin.core.fitting import numbers_to_count
from fedmin.core.given import shares_of
from fedmin.core.participation import Everyone
from fedmin.core.roster import ColumnOwners, Roster
from fedmin.core.rows import Rows
from fedmin.core.serialize import digest
from fedmin.engines.round import Run
from fedmin.engines.transports.grpc.frames import PROTOCOL
from fedmin.runs.config import Config
from fedmin.runs.costs import takes_certificate
from fedmin.runs.document import ConfigError
from fedmin.runs.grid import Job
from fedmin.runs.own_tables import on_machines
from fedmin.runs.pieces import Pieces, options, partitioner, problem_of, section_of
from fedmin.runs.terms import Terms

PLACES = ("everyone", "server")


class Agreed(NamedTuple):
    """A run that both ends have built, and all that it was built from."""

    run: Run
    roster: Roster
    pieces: Pieces  # without a federation
    terms: Terms

    def parts(self) -> dict[str, str]:
        """A hash of each part: two ends that differ can say in what."""
        seed = self.pieces.options["seed"]
        found = {name: digest(getattr(self.run, name)) for name in Run.__annotations__}
        return {**found, "roster": digest(self.roster), "seed": digest(seed)}


def only_job(config: Config) -> Job:
    """The one run of a file for machines."""
    jobs = config.jobs()
    if config.terms is None:
        raise ConfigError(
            f"{config.source}: there is no [federation]; it names the sites: sites = ['a', 'b']"
        )
    if len(jobs) != 1:
        raise ConfigError(
            f"{config.source} is {len(jobs)} runs; machines do one at a time: give one value for "
            f"everything, and one seed"
        )
    return jobs[0]


def document_of(job: Job) -> str:
    """The document of a run as text, every default written out."""
    return tomli_w.dumps(on_machines(job.resolved()))


# ---------------------------------------------------------------- the roster


def roster_of(config: Config, job: Job, shapes: Mapping[str, Mapping[str, Any]]) -> Roster:
    """What all may know of each other, from what each site says of its own rows."""
    assert config.terms is not None
    names = config.terms.sites
    each = [shapes[name] for name in names]
    for key in ("type", "image"):
        _alike(names, each, key)
    split = _split(config, job)
    if split == "rows":
        _alike(names, each, "features")
    classes, target = _target(config, job, names, each, split)
    given = job.words.get("partition", {})
    dtype = each[0]["type"]
    weights = given.get("weights", "sizes") if split == "rows" else "uniform"
    told = not isinstance(weights, str) or weights != "secret"
    if not told:  # whatever sites have said of their sizes, nobody goes by it
        most = _most_rows(config, given)
        weights, each = "uniform", [{**said, "rows": most, "weight": most} for said in each]
    _check_told(names, each)
    sizes = np.array([said["rows" if split == "rows" else "features"] for said in each])
    slots = [said["slots"] for said in each]
    even = (
        told and split == "rows" and len(set(sizes.tolist())) == 1 and all(s["even"] for s in each)
    )
    held = np.array([said["weight"] for said in each]) if split == "rows" else sizes
    return Roster(
        shares=shares_of(weights, held).astype(dtype),
        owners=None if split == "rows" else _owners(config, given, names, each, sizes),
        names=tuple(names),
        clients=len(names),
        capacity=int(sizes.max()) if split == "rows" else int(each[0]["rows"]),
        features=int(each[0]["features"]) if split == "rows" else int(sizes.sum()),
        classes=classes,
        dtype=dtype,
        slots=None if slots[0] is None else max(slots),
        target=target,
        even=even,
        everyone=options(config, job.words).get("participation", Everyone()).everyone,
        by_rows=split == "rows" and _by_rows(weights, held),
        groups=groups.together([said["groups"] for said in each]),
        identities=_identities(each),
        sizes_told=told,
    )


def _most_rows(config: Config, given: Mapping[str, Any]) -> int:
    """What is told in place of sizes, where these are secret."""
    if given.get("most_rows") is None:
        config.fail("partition.weights", "weights = 'secret' between machines needs most_rows = N "
                    "beside it: no site has more rows, which is all that they tell")  # fmt: skip
    return int(given["most_rows"])


def _check_told(names: Any, each: list[Mapping[str, Any]]) -> None:
    """Refuse to count by sizes that a site does not tell."""
    for name, said in zip(names, each, strict=True):
        if said["rows"] is None:
            raise ValueError(
                f"{name} does not say how many rows it has (rows_told = false in its site.toml): "
                f"give weights = 'secret' and most_rows in [partition], and a secure sum"
            )


def _by_rows(weights: Any, held: np.ndarray) -> bool:
    """Whether p_i is client i's share of all rows, by their weight."""
    return bool(np.allclose(shares_of(weights, held), held / held.sum(), rtol=1e-9, atol=0))


def _identities(each: list[Mapping[str, Any]]) -> tuple[str, ...]:
    """The keys that sites sign with, if all have one; each site checks the others' itself."""
    said = [one.get("identity") for one in each]
    keys = [str(one.get("key")) for one in said if isinstance(one, dict)]
    return tuple(keys) if len(keys) == len(each) else ()


def _alike(names: Any, each: list[Mapping[str, Any]], key: str) -> None:
    for name, said in zip(names, each, strict=True):
        if said[key] != each[0][key]:
            raise ValueError(
                f"the {key} of the rows of {name} is {said[key]}, of {names[0]} {each[0][key]}: "
                f"all sites need the same"
            )


def _split(config: Config, job: Job) -> str:
    how = partitioner(config, job.words.get("partition", {}))
    if how is not None:
        return getattr(how, "split", "rows")
    return "rows" if "rows" in section_of(config, job.words, "method").handles else "features"


def _target(
    config: Config, job: Job, names: Any, each: Any, split: str
) -> tuple[int | None, tuple[str, tuple[int, ...]]]:
    """How many classes there are, and the type of a row's y."""
    said = {s["classes"] for s in each if s["classes"] is not None}
    if len(said) > 1:
        raise ValueError(f"the sites' files say {sorted(said)} classes: all need the same")
    classes = job.words["problem"].get("classes") or next(iter(said), None)
    known = [s["target"] for s in each if s["target"] is not None]
    if not known:
        raise ValueError("no site has an outcome: name one in [data] of a site.toml")
    exact = [s["target"] for s in each if s["exact"] and s["target"] is not None]
    if exact:
        return classes, (exact[0][0], tuple(exact[0][1]))
    labels = [s["labels"] for s in each if s["target"] is not None]
    if classes is None and None not in labels and _wants_labels(config, job, split, each):
        classes = max(2, *labels)
    kind = "int32" if classes is not None else str(np.dtype(each[0]["type"]))
    return classes, (kind, tuple(known[0][1]))


def _wants_labels(config: Config, job: Job, split: str, each: Any) -> bool:
    """Whether the problem takes labels only."""
    widths = [said["features"] for said in each]
    features = widths[0] if split == "rows" else sum(widths)
    table = SimpleNamespace(features=features, classes=2, image_shape=None)
    problem = problem_of(config, job.words, table)
    try:
        problem.check(features, None, np.full(1, 0.5, np.float32))
    except ValueError:
        return True
    return False


def _owners(config: Config, given: Any, names: Any, each: Any, sizes: np.ndarray) -> ColumnOwners:
    _alike(names, each, "rows")
    labels = given.get("labels", "everyone")
    if labels not in (*PLACES, *names):
        config.fail("partition.labels", f"labels = {labels!r} is nobody: it is 'everyone', "
                    f"'server' or one of {', '.join(names)}")  # fmt: skip
    place = labels if labels in PLACES else names.index(labels)
    sizes = sizes.astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    return ColumnOwners(starts, sizes, int(sizes.max()), int(each[0]["rows"]), place)


# ---------------------------------------------------------------- the run


def agree(
    config: Config,
    job: Job,
    roster: Roster,
    targets: tuple[tuple[int, np.ndarray], ...],
    *,
    tested: bool,
    image: Any = None,
    server_rows: Rows | None = None,
    counts: Any = None,
) -> Agreed:
    """The run that a document and a roster make; `targets` are those that this end can check, and
    `counts` what was counted over all sites."""
    assert config.terms is not None
    words = job.words
    problem, chosen = problem_of(config, words, seen_by_all(roster, image)), options(config, words)
    method = section_of(config, words, "method")
    chosen.pop("engine", None)
    known = Known(targets, tested, server_rows, lambda p: _with_counts(p, roster, counts))
    run = assembled(
        problem, roster, known, method, chosen.get("participation", Everyone()),
        chosen.get("channel", Plain()), chosen.get("record"), chosen.get("stop"),
        chosen.get("start"), certificate=True, rounds=chosen["rounds"],
        statistics=chosen.get("statistics", False),
    )  # fmt: skip
    run = replace(run, certify=run.certify or takes_certificate(run))  # as runs of files
    if run.channel.hides and numbers_to_count(problem, roster):
        raise ValueError(
            f"{run.channel} does not reach the counts of rows in each group: on machines the "
            f"server would see each site's; leave limits on groups out, or give Plain()"
        )
    nobody: Any = None
    return Agreed(run, roster, Pieces(problem, nobody, method, chosen), config.terms)


def seen_by_all(roster: Roster, image: Any) -> Any:
    """What a problem is told of rows that are nowhere together."""
    shape = None if image is None else tuple(image)
    return SimpleNamespace(
        features=roster.features, classes=roster.classes, image_shape=shape
    )  # fmt: skip


def _with_counts(problem: Any, roster: Roster, counts: Any) -> Any:
    """The problem as the rows of all sites make it, by what was counted of them."""
    wanted = numbers_to_count(problem, roster)
    found = np.zeros((2, 0)) if counts is None else np.asarray(counts, float)
    if found.shape != (2, wanted) or not np.isfinite(found).all():
        raise ValueError(f"the run needs {wanted} counts of groups, and {found.shape} are told")
    return problem.fitted(found, roster)


def hello_of(shapes: Mapping[str, Any], identity: Any = None) -> dict[str, Any]:
    """What a site says first; `identity` is its endorsement of the key that it signs with."""
    signs = {} if identity is None else {"identity": identity}
    return {
        "fedmin": __version__, "protocol": PROTOCOL, "jax": jax.__version__,
        "x64": bool(jax.config.read("jax_enable_x64")), "shapes": {**shapes, **signs},
    }  # fmt: skip


def misfit(name: str, words: Mapping[str, Any]) -> str:
    """Why a site that says this cannot take part, in one sentence; "" if it can."""
    here = hello_of({})
    for key, what in (("protocol", "protocol"), ("fedmin", "fedmin"), ("x64", "jax_enable_x64")):
        if words.get(key) != here[key]:
            return f"{name} has {what} {words.get(key)}, the server {here[key]}; both need the same"
    return "" if isinstance(words.get("shapes"), dict) else f"{name} says nothing of its rows"


def misfit_of_numbers(name: str, words: Mapping[str, Any]) -> str:
    """The same where columns are not prepared: a table must be of numbers then."""
    why = misfit(name, words)
    if why or "words" not in words["shapes"]:
        return why
    return (
        f"the table of {name} has entries that are no numbers, and the run prepares no columns: "
        f"its [data] names a data set; give it outcome = ... and a [prepare], or {name} numbers"
    )


def difference(name: str, ours: Mapping[str, str], theirs: Any) -> str:
    """In what two ends differ that were to build the same run; "" if in nothing."""
    theirs = theirs if isinstance(theirs, dict) else {}
    other = [part for part in ours if ours[part] != theirs.get(part)]
    if not other:
        return ""
    return f"{name} builds another run: its {' and its '.join(other)} differ from the server's"
