"""Models along sizes, radii or limits, each from where the last one ended, and the one to take."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path as Place
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from fedmin.channels import Plain
from fedmin.core import checks
from fedmin.core.channel import Channel
from fedmin.core.federation import Federation
from fedmin.core.ledger import Ledger
from fedmin.core.method import Method
from fedmin.core.metrics import Metric
from fedmin.core.problem import Problem
from fedmin.core.result import Result
from fedmin.engines import private
from fedmin.engines.drive import Engine, Interrupt
from fedmin.engines.progress import Show
from fedmin.engines.sessions.checkpoint import SECONDS, Checkpoint
from fedmin.engines.simulator.simulator import Simulator
from fedmin.minimizing import validation
from fedmin.minimizing.along import Along, along, usual_method
from fedmin.minimizing.found import Path, PathLedger, Point
from fedmin.minimizing.running import minimize
from fedmin.minimizing.validation import Looks, parts

CHOICES = ("folds", "holdout", "bic")


class PathStoppedError(RuntimeError):
    """A path that was told to stop; `result` is the run in which it was."""

    def __init__(self, result: Result):
        super().__init__(result.reason)
        self.result = result


def path(
    problem: Problem,
    federation: Federation,
    sizes: Any = None,
    *,
    radii: Any = None,
    limits: Any = None,
    set: Any = None,
    constraint: int = 0,
    method: Method | None = None,
    rounds: int | None = None,
    choose: Literal["folds", "holdout", "bic"] = "folds",
    folds: int = 5,
    share: float = 0.2,
    one_standard_error: bool = True,
    seed: int = 0,
    channel: Channel = Plain(),
    record: Sequence[Metric] | None = None,
    engine: Engine | None = None,
    progress: Show = False,
    checkpoint: str | Place | None = None,
    interrupt: Interrupt | None = None,
) -> Path:
    """Models along sizes, radii or limits, each from where the last one ended, and which to take.

    sizes       of an L0Ball: at most so many non-zeros, an intercept not counted; or of a RankBall
    radii       of an L1Ball, or of any set with a radius that `set` names
    limits      of one of the problem's constraints, number `constraint`: the trade-off curve
    method      SparseNewton over an L0Ball, SSCA over convex sets and under constraints; both find
                their own step. With another method give `rounds` too
    choose      "folds": by the mean loss on `folds` folds of every site's rows, each held out once;
                "holdout": on a share of every site's rows; "bic": by BIC, with all rows
    one_standard_error    the first model within one standard error of the best, not the best
    seed        of the runs, and of the division of rows at the sites
    channel, record, engine    as in `minimize`, of every run
    checkpoint  a folder in which what is done is kept: the same call goes on from there

    Models are those of all rows; the fits that choose leave rows out. Over an L0Ball, which is not
    convex, each size is also tried from the next larger model, and the better one stays.

    >>> import fedmin
    >>> sample = fedmin.data.sparse_regression(200, 30, support=3, clients=4)
    >>> federation = fedmin.data.partition(sample)
    >>> found = fedmin.path(fedmin.LeastSquares(30), federation, sizes=[2, 3], choose="bic")
    >>> found.value, found.result.solution.nonzero()[0].tolist() == sample.truth["support"].tolist()
    (3, True)
    """
    way = along(problem, sizes, radii, limits, set, constraint)
    problems = way.problems
    checks.known("choose", choose, CHOICES)
    if choose == "bic":
        check_bic(way, problems[0])
    method, rounds = _method(problems[0], method, rounds)
    checks.is_a("federation", federation, Federation, "Federation.from_parts(...)")
    _check(federation, method, channel)
    if federation.most_rows is not None and choose != "folds":
        raise ValueError(
            f"choose={choose!r} needs to know how many rows there are, and sizes are secret here: "
            f"take choose='folds'"
        )
    engine = Simulator() if engine is None else engine
    divided = list(parts(federation, choose, folds, share, seed))
    keep = None if checkpoint is None else Place(checkpoint)
    options = {
        "rounds": rounds, "seed": seed, "channel": channel, "engine": engine, "every": rounds,
        "progress": progress, "interrupt": interrupt,
    }  # fmt: skip
    fits = Fits(problems, method, options, keep)
    looks = Looks(way.loss, channel, engine, seed)
    scores, ledgers = [], PathLedger((), (), ())
    for part in divided:
        found = fits.along(part.name, part.fit, record=record, certificate=False)
        seen = [looks.at(result.solution, part.held) for result in found.results]
        scores.append(seen)
        ledgers = _more(ledgers, choice=found.ledgers, looks=[each.ledger for each in seen])
    found = fits.along("all rows", federation, record=record)
    seen = [looks.at(result.solution, federation) for result in found.results]
    ledgers = _more(ledgers, models=found.ledgers, looks=[each.ledger for each in seen])
    points = _points(way, found.results, seen, scores, federation)
    return _chosen(way, choose, points, one_standard_error, ledgers)


def check_bic(way: Along, first: Problem) -> None:
    """Refuse a BIC where there is no likelihood, or where non-zeros do not count what is free."""
    validation.check_likelihood(way.loss)
    counts = "L0Ball" in str(first.domain) or "L1Ball" in str(first.domain)
    if way.kind == "limits" or not counts:
        raise ValueError(
            f"choose='bic' counts non-zeros, which says how free a model is over an L0Ball or an "
            f"L1Ball only, not along the {way.label}; take choose='folds'"
        )


def _method(problem: Problem, method: Method | None, rounds: int | None) -> tuple[Method, int]:
    if method is None:
        method, usual = usual_method(problem)
        rounds = usual if rounds is None else rounds
    elif rounds is None:
        raise ValueError(f"give rounds too, with a method of your own: {type(method).__name__}")
    checks.at_least("rounds", rounds, 1)
    return method, rounds


def _check(federation: Federation, method: Method, channel: Channel) -> None:
    """Refuse what a path cannot be made of."""
    if federation.split != "rows":
        raise ValueError("a path is for rows split over sites; here columns are split")
    if private.is_private(method, channel):
        raise ValueError(
            "a path is many runs over the same rows, and no epsilon covers them all: choose the "
            "size without noise on public rows, then minimize with noise at that size"
        )
    if channel.blind:
        raise ValueError(f"{channel}: the server has no model, so that it cannot choose one")


class Found(NamedTuple):
    """The runs along a path on the same rows."""

    results: list[Result]
    ledgers: list[Ledger]  # of all runs, also of those that others were better than


class Fits(NamedTuple):
    """How the models of a path are fitted."""

    problems: list[Problem]
    method: Method
    options: dict[str, Any]
    keep: Place | None

    def along(self, name: str, federation: Federation, **more: Any) -> Found:
        """A model for each problem, each from the one before; a set that is not convex also from
        the one behind, and the better of the two."""
        found, start = Found([], []), _first(self.problems[0])
        for k, problem in enumerate(self.problems):
            result = self._fit(f"{name}, {k + 1}", problem, federation, start, more)
            found.results.append(result)
            found.ledgers.append(result.ledger)
            start = result.solution
        if self.problems[0].domain.convex:
            return found
        for k in reversed(range(len(self.problems) - 1)):
            problem, behind = self.problems[k], found.results[k + 1].solution
            start = np.asarray(problem.domain.project(jax.numpy.asarray(behind)))
            other = self._fit(f"{name}, {k + 1} again", problem, federation, start, more)
            found.ledgers.append(other.ledger)
            found.results[k] = min(found.results[k], other, key=_height)
        return found

    def _fit(
        self, name: str, problem: Problem, federation: Federation, start: Any, more: Any
    ) -> Result:
        keep = None
        if self.keep is not None:
            place = self.keep / name.replace(",", "").replace(" ", "-")
            place.mkdir(parents=True, exist_ok=True)
            keep = Checkpoint(place, None, SECONDS)
        with warnings.catch_warnings():
            # how a run ended is in the path's table; of fits that only choose it would be noise
            warnings.simplefilter("ignore", RuntimeWarning)
            result = minimize(
                problem, federation, self.method, start=start, checkpoint=keep, **self.options,
                **more,
            )  # fmt: skip
        if result.status == "interrupted":
            raise PathStoppedError(result)
        if result.status == "diverged":
            raise ValueError(f"{name}: {result.reason}; give another method, or a smaller step")
        return result


def _first(problem: Problem) -> np.ndarray:
    """Where the first model begins; given, so that all runs of a size are one program."""
    return np.asarray(problem.init(jax.random.key(0)))


def _height(result: Result) -> tuple[bool, float]:
    """By what one model is better than another of the same problem."""
    return result.status == "infeasible", result.final("objective")


def _more(ledger: PathLedger, **added: Any) -> PathLedger:
    return replace(ledger, **{k: (*getattr(ledger, k), *each) for k, each in added.items()})


def _points(
    way: Along, results: list[Result], seen: list, scores: list[list], federation: Federation
) -> tuple[Point, ...]:
    rows = float(np.sum(np.asarray(federation.pool.weight, float)))
    points = []
    for k, (value, result) in enumerate(zip(way.values, results, strict=True)):
        nonzeros = int(np.count_nonzero(result.solution))
        score, error = _score(way, [each[k] for each in scores], seen[k], rows, nonzeros)
        points.append(Point(value, result, nonzeros, seen[k].loss, score, error))
    return tuple(points)


def _score(way: Along, held: list, seen: Any, rows: float, nonzeros: int) -> tuple[float, float]:
    """A model's score, and its standard error: over folds, or over the rows held out."""
    if not held:
        return validation.bic(way.loss, seen.loss, rows, nonzeros), float("nan")
    if len(held) == 1:
        return held[0].loss, held[0].error
    losses = np.array([each.loss for each in held])
    return float(losses.mean()), float(losses.std(ddof=1) / np.sqrt(len(losses)))


def _chosen(
    way: Along, choose: str, points: tuple[Point, ...], spare: bool, ledger: PathLedger
) -> Path:
    """The path with its best point, and the first within one standard error of it; of those that
    meet their limits, if any does."""
    met = [k for k, point in enumerate(points) if point.met] or list(range(len(points)))
    best = min(met, key=lambda k: points[k].score)
    chosen = best
    if spare and choose != "bic":
        enough = points[best].score + points[best].error
        chosen = next(k for k in met if points[k].score <= enough)
    return Path(way.kind, way.label, choose, points, best, chosen, ledger)
