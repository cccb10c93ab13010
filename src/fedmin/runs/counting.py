"""How many rows are in each group, counted over machines before the run is built.

A limit on groups is on each group's own mean loss, and so needs the groups' shares of all rows
(core/fitting.py). The server asks by the run's document and roster; a site builds the problem from
them, asks its policy, and answers with the counts of its own rows. Their sums are told to all with
the run itself. A run without such limits asks nothing.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedmin.assembling import placed
from fedmin.channels import Plain
from fedmin.core.fitting import counting, numbers_to_count, own_counts, summed
from fedmin.core.participation import Everyone
from fedmin.core.problem import Problem
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows
from fedmin.core.serialize import digest
from fedmin.engines.round import Run
from fedmin.privacy.departures import PREPARING, Departures
from fedmin.runs.agreement import document_of, only_job, seen_by_all
from fedmin.runs.config import Config
from fedmin.runs.grid import Job
from fedmin.runs.own_rows import OwnRows, read_own
from fedmin.runs.pieces import options, problem_of, section_of
from fedmin.runs.preparing import prepared_rows
from fedmin.runs.rosters import roster_from, roster_words
from fedmin.runs.site_file import SiteFile

WHAT = "counts"


def problem_for(config: Config, job: Job, roster: Roster, image: Any) -> Problem:
    """The problem of a run, before anything was counted."""
    return placed(problem_of(config, job.words, seen_by_all(roster, image)), roster)


# ---------------------------------------------------------------- the server


def askers(problem: Problem, roster: Roster) -> tuple[str, ...]:
    """The sites that are asked to count, () where nothing needs to be."""
    if not numbers_to_count(problem, roster):
        return ()
    return tuple(roster.names[i] for i in counting(roster))


def question(job: Job, roster: Roster, image: Any, more: Mapping[str, Any] = {}) -> bytes:
    """What those sites are sent; `more` is what all agreed on of their columns."""
    words = {"document": document_of(job), "roster": roster_words(roster), "image": image, **more}
    return json.dumps({"what": WHAT, **words}).encode()


def counts_in(name: str, data: bytes, problem: Problem, roster: Roster) -> np.ndarray:
    """f8[2, k + 1]: what a site answered, checked."""
    shape = 2, numbers_to_count(problem, roster) + 1
    if len(data) != 8 * shape[0] * shape[1]:
        raise ValueError(f"{name} sent {len(data)} bytes as its counts of groups; they are {shape}")
    found = np.frombuffer(data, "<f8").reshape(shape)
    if not (np.isfinite(found).all() and (found >= 0).all() and (found[:, -1] > 0).all()):
        raise ValueError(f"{name} sent counts of groups that no rows have")
    return found


def totals(
    problem: Problem, roster: Roster, each: Mapping[str, np.ndarray], own: Rows | None
) -> np.ndarray | None:
    """f8[2, k]: the sums over all who count; the server itself where only it knows the labels."""
    if not numbers_to_count(problem, roster):
        return None
    if each:
        return summed(list(each.values()), roster)
    if own is None:
        raise ValueError("limits on groups need the server's own rows, whose labels are counted")
    return summed([own_counts(problem, own, roster)], roster)


# ---------------------------------------------------------------- a site


def told(file: SiteFile, own: OwnRows | None, log: Departures, data: bytes) -> bytes:
    """A site's answer, written down before it leaves; `ValueError` if its policy says no."""
    words = json.loads(data)
    if not isinstance(words, dict) or words.get("what") != WHAT:
        raise ValueError("the server asks before the run what this fedmin does not know")
    config = Config(str(words["document"]), "the server's run.toml")
    job, roster = only_job(config), roster_from(words["roster"])
    if file.name not in roster.names:
        raise ValueError(f"{file.name} is not in the roster: {', '.join(roster.names)}")
    me = roster.names.index(file.name)
    problem = problem_for(config, job, roster, words["image"])
    if not numbers_to_count(problem, roster) or me not in counting(roster):
        raise ValueError(f"the server asks {file.name} for counts that its run does not need")
    if "prepared" in words:
        own = prepared_rows(file, config, job, words["prepared"], me)
    elif own is None:  # says what is no number, and where
        own = read_own(file)
    rows = own.fitted(roster)
    roster.check(me, rows)
    name = digest((words["document"], roster))[:16]
    _check_policy(file, config, job, problem, roster, name, own)
    counts = own_counts(problem, rows, roster).astype("<f8")
    answer = counts.tobytes()
    log.add(
        answer, run=name, round=0, when=PREPARING, parts={WHAT: len(answer)},
        shapes={WHAT: f"float64{list(counts.shape)}"}, asked=data,
    )  # fmt: skip
    return answer


def _check_policy(
    file: SiteFile, config: Config, job: Job, problem: Problem, roster: Roster, name: str,
    own: OwnRows,
) -> None:  # fmt: skip
    """The run as far as it is known must be allowed; what it measures is asked later."""
    assert config.terms is not None
    chosen, method = options(config, job.words), section_of(config, job.words, "method")
    run = Run(
        problem, method, chosen.get("channel", Plain()), chosen.get("participation", Everyone()),
        record=(), stop=None,
    )  # fmt: skip
    why = file.policy.refuses_counts() or file.policy.refuses(
        run, roster, chosen["rounds"], quorum=config.terms.quorum, columns=own.columns, name=name,
        seeded=config.terms.secrets == "seed",
    )  # fmt: skip
    if why:
        raise ValueError(why)
