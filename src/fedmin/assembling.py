"""Do the pieces fit? Then they make a run: whatever does not is refused here, before any work."""

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core import checks
from fedmin.core.channel import Channel
from fedmin.core.column_problem import OnColumns, SplitProblem, starting_at
from fedmin.core.domain import Free
from fedmin.core.federation import Federation
from fedmin.core.fitting import fitted
from fedmin.core.inference import check_inference
from fedmin.core.method import Method
from fedmin.core.metrics import Metric, Objective, Optimality, Scores, WolfeGap
from fedmin.core.metrics_by import check_by_site
from fedmin.core.participation import Participation
from fedmin.core.preparation import About
from fedmin.core.problem import Problem
from fedmin.core.release import Release
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows
from fedmin.core.stopping import Rule
from fedmin.engines import private
from fedmin.engines.messages import reports_of
from fedmin.engines.refusals import check_blind, check_trips, check_untold
from fedmin.engines.round import Run


def assemble(
    problem: Problem,
    federation: Federation,
    method: Method,
    participation: Participation,
    channel: Channel,
    record: Sequence[Metric] | None,
    stop: Rule | None,
    start: Any = None,
    certificate: bool = False,
    rounds: int | None = None,
    statistics: bool = False,
) -> Run:
    """Refuse pieces that do not fit together; else the run they make.

    It ends with a certificate, if that is asked for, under constraints or over a set with atoms.
    Noise whose epsilon is given needs `rounds`.
    """
    checks.is_a("problem", problem, Problem, "Logistic(30)")
    checks.is_a("federation", federation, Federation, "Federation.from_parts(...)")
    checks.is_a("participation", participation, Participation, "Uniform(10)")
    checks.is_a("channel", channel, Channel, "Plain() or TopK(100)")
    check_prepared(federation.about, method, channel)
    held = [rows for rows in (federation.pool, federation.test) if rows is not None]
    known = Known(
        tuple((rows.x.shape[1], np.asarray(rows.y)) for rows in held),
        federation.test is not None, federation.server_rows, lambda p: fitted(p, federation),
        (federation.about.told or ()) if federation.about else (),
    )  # fmt: skip
    roster = federation.roster(participation.everyone)
    return assembled(
        problem, roster, known, method, participation, channel, record, stop, start, certificate,
        rounds, statistics,
    )  # fmt: skip


class Known(NamedTuple):
    """What a party knows of the rows of a run besides the roster."""

    targets: tuple[tuple[int, np.ndarray], ...]  # y of rows that it has, and their features
    tested: bool  # whether the server has test rows
    server_rows: Rows | None
    fit: Callable[[Problem], Problem]  # the problem as the rows of all make it
    told: tuple[Release, ...] = ()  # by preparing their columns, with noise


def assembled(
    problem: Problem,
    roster: Roster,
    known: Known,
    method: Method,
    participation: Participation,
    channel: Channel,
    record: Sequence[Metric] | None,
    stop: Rule | None,
    start: Any = None,
    certificate: bool = False,
    rounds: int | None = None,
    statistics: bool = False,
) -> Run:
    """The same for a party that has a roster, and of the rows only its own."""
    checks.is_a("method", method, Method, "FedAvg(step=0.1)")
    checks.is_a("channel", channel, Channel, "Plain() or TopK(100)")
    _check_handles(problem, roster, method)
    problem = placed(problem, roster)
    if problem.size() >= 2**31:
        words = f"a model of {problem.size():,} numbers; fewer than 2^31 can be counted"
        raise ValueError(f"{type(problem).__name__} has {words}")
    start = None if start is None else _checked_start(problem, start)
    participation.check(roster.clients)
    method = method.for_chance(participation.chance(roster.clients))
    method.check(starting_at(problem, start))
    if not roster.sizes_told:
        check_untold(problem, roster, method, participation, channel)
    check_trips(problem, roster, method, participation, channel)
    _check_chance(method, participation, roster.clients)
    if channel.blind:
        check_blind(channel, participation, known.server_rows, record)
    for features, y in known.targets:
        problem.check(features, roster.classes, y)
    problem = known.fit(problem)
    noisy = private.is_private(method, channel)
    tested = known.tested and not channel.blind  # the server has no model to try on them
    record = _recorded(problem, tested, method, roster, record, noisy)
    check_by_site(record, channel, noisy)
    if stop is not None:
        checks.is_a("stop", stop, Rule, 'Stop("accuracy", above=0.9)')
    over_atoms = "domain" in method.handles and problem.domain.has_atoms
    # a certificate is measured without noise: a run with noise has none
    shown = not noisy and not channel.blind  # nor has a run whose server has no model
    certify = certificate and ("constraints" in method.handles or over_atoms) and shown
    if statistics:
        check_inference(problem, roster, channel, noisy)
    rest = (start, certify, known.told, statistics)
    run = Run(problem, method, channel, participation, record, stop, *rest)
    run = private.fitted(run, roster, rounds)
    if start is not None:
        _check_begins(run, roster)
    if stop is not None:
        stop.check(reports_of(run, roster, known.server_rows).names)
    return run


def check_prepared(about: About | None, method: Any, channel: Channel) -> None:
    """Refuse to hide replies, or to add noise, where other sums went without it."""
    on_rows = private.is_private(method, Channel())
    noisy = private.is_private(method, channel)
    if about is None or not (noisy or channel.hides or channel.learns.noisy):
        return
    if about.told is not None or (about.hidden and channel.hides and not noisy):
        return  # no sums, or with noise of its own, which is accounted; or nobody saw single ones
    who = type(method.batches if on_rows else channel).__name__
    why = "; no epsilon covers them" if noisy else ""
    way = "" if noisy else "sites.federation(how, channel=...) prepares by secure sums; or "
    raise ValueError(
        f"{who} does not reach the sums by which columns were prepared: each site's would be seen "
        f"as they are{why}; {way}name ranges and levels in Prepare, with unusable='keep', and no "
        f"sums are sent"
    )


def _checked_start(problem: Problem, start: Any) -> np.ndarray:
    """Refuse a first model that is none, or that lies outside of the problem's set."""
    like = jax.eval_shape(problem.init, jax.random.key(0))
    found = np.asarray(start)
    if found.dtype.kind not in "fiu" or found.shape != like.shape:
        raise ValueError(
            f"start must be a model of {like.shape[0]} numbers, got an array of {found.dtype} of "
            f"shape {found.shape}"
        )
    checks.finite("start", found)
    found = found.astype(like.dtype)
    domain = problem.domain
    if not bool(domain.contains(jnp.asarray(found), 1e-4)):
        way = "; give domain.project(start)" if domain.can_project else ""
        raise ValueError(f"start lies outside of {domain}: every model must be a point of it{way}")
    return found


def _check_begins(run: Run, roster: Roster) -> None:
    """Refuse a method that does not take its first model from the problem it is given."""
    method: Any = run.method
    start: Any = run.start
    server = method.init_server(run.origin, roster, jax.random.key(0))
    if not np.allclose(method.solution(server), start, rtol=1e-6, atol=1e-7):
        raise ValueError(
            f"{type(method).__name__} does not begin at start: its init_server must take the first "
            f"model from starting_point(problem, key)"
        )


def placed(problem: Problem, roster: Roster) -> Problem:
    """The problem as methods get it: where columns are split, with who holds what."""
    if isinstance(problem, SplitProblem) and roster.owners is not None:
        return OnColumns(problem, roster.owners)
    return problem


def _recorded(
    problem: Problem,
    tested: bool,
    method: Method,
    roster: Roster,
    record: Sequence[Metric] | None,
    noisy: bool = False,
) -> tuple[Metric, ...]:
    """What is recorded, by default or as asked for; refuses what cannot be."""
    reports = problem.num_constraints > 0 and _reports_multipliers(problem, method, roster)
    if record is None and noisy and tested:
        record = (Objective("test"), Scores("test"))  # those of the clients' rows would cost
    if record is None:
        limits: list[Metric] = [Optimality()] if reports else []
        if problem.domain.has_atoms and not problem.num_constraints:
            limits.append(WolfeGap())
        record = (Objective(), *limits, *([Scores("test")] if tested else []))
    for metric in record:
        checks.is_a("record", metric, Metric, "[Objective(), GradientNorm()]")
    record = [metric.fitted(problem, roster) for metric in record]
    for metric in record:
        if isinstance(metric, WolfeGap) and not problem.domain.has_atoms:
            raise ValueError(f"WolfeGap needs a set with atoms; the problem has {problem.domain}")
        if isinstance(metric, Optimality) and problem.num_constraints and not reports:
            raise ValueError(
                f"Optimality needs multipliers, which {type(method).__name__} does not report"
            )
        if isinstance(metric, Optimality) and metric.on == "test" and any(problem.limit_sizes()):
            raise ValueError(
                "Optimality on test rows: groups have other shares there than among the clients' "
                "rows, which their limits are measured by; record Optimality() on the clients' rows"
            )
        if metric.on == "test" and not tested:
            raise ValueError(
                f"record asks for {metric} but the federation has no test rows; give test=(x, y)"
            )
        if metric.on == "train" and roster.owners is not None:
            _check_on_columns(problem, metric)
    if not record:
        raise ValueError("record must name at least one metric, got none")
    return tuple(record)


def _check_on_columns(problem: Any, metric: Metric) -> None:
    """Refuse what cannot be told where nobody has a whole row."""
    lacks = "rows" in metric.needs
    if "scores" in metric.needs:
        lacks = type(problem.inner).head_scores is SplitProblem.head_scores
    if lacks:
        raise ValueError(
            f"{metric} cannot be recorded on the clients' rows where columns are split: nobody has "
            f"a whole row; a metric needs of_estimate, scores need the problem's head_scores"
        )


def _reports_multipliers(problem: Problem, method: Method, roster: Roster) -> bool:
    server = jax.eval_shape(lambda key: method.init_server(problem, roster, key), jax.random.key(0))
    return "multiplier" in jax.eval_shape(method.report, server)


def _check_chance(method: Method, participation: Participation, clients: int) -> None:
    """Warn of steps that are made for clients that come more often, or less."""
    made, true = method.chance(), participation.chance(clients)
    if made is not None and abs(made - true) > 0.01 * true:
        words = (
            f"{type(method).__name__}: its steps are for clients that take part with chance "
            f"{made:g}, and with {participation} they do with {true:g}; give the steps p={true:g}"
        )
        warnings.warn(words, RuntimeWarning, stacklevel=4)


def _check_handles(problem: Problem, roster: Roster, method: Method) -> None:
    name, has = type(method).__name__, f"{type(problem).__name__}(...)"
    if roster.split not in method.handles:
        splits = " or ".join(sorted(method.handles & {"rows", "features"}))
        raise ValueError(
            f"{name} works on data split by {splits}; this federation's are split by {roster.split}"
        )
    if roster.split == "features" and not isinstance(problem, SplitProblem):
        raise ValueError(
            f"{has} cannot be cut by columns; a SplitProblem can: LeastSquares, Logistic, Softmax, "
            f"MLP, or your own with cut, join, embed and head"
        )
    if not isinstance(problem.domain, Free) and "domain" not in method.handles:
        others = _handling("domain", roster.split)
        raise ValueError(f"{name} does not handle a domain; {has} has {problem.domain}. {others}")
    if problem.num_constraints and "constraints" not in method.handles:
        others = _handling("constraints", roster.split)
        count = problem.num_constraints
        raise ValueError(f"{name} does not handle constraints; {has} has {count}. {others}")


def _handling(what: str, split: str) -> str:
    """Which of fedmin's methods do, as a way out."""
    kinds, waiting = [], list(Method.__subclasses__())
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("fedmin.methods.") and {what, split} <= kind.handles:
            kinds += [] if inspect.isabstract(kind) else [kind.__name__]
    one = "handles" if len(kinds) == 1 else "handle"
    article = "a " if what == "domain" else ""
    return f"{', '.join(sorted(kinds)) or 'No method'} {one} {article}{what}"
