"""The entry points: do the pieces fit? Then hand them to an engine."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from fedmin.channels import Plain
from fedmin.core import checks
from fedmin.core.channel import Channel
from fedmin.core.column_problem import OnColumns, SplitProblem
from fedmin.core.domain import Free
from fedmin.core.federation import Federation
from fedmin.core.method import Method, complete
from fedmin.core.metrics import Metric, Objective, Optimality, Scores, WolfeGap
from fedmin.core.participation import Everyone, Participation
from fedmin.core.problem import Problem
from fedmin.core.result import Result
from fedmin.core.roster import Roster
from fedmin.core.stopping import Rule
from fedmin.domains import Entries
from fedmin.engines.drive import Engine, Interrupt, Settings
from fedmin.engines.messages import reports_of
from fedmin.engines.progress import Show
from fedmin.engines.round import Run
from fedmin.engines.sessions.checkpoint import Checkpoint
from fedmin.engines.simulator.simulator import Simulator
from fedmin.engines.simulator.sweep import Sweep, run_many
from fedmin.judging import judged, warn
from fedmin.methods import SparseNewton
from fedmin.problems.over import Over, over


def minimize(
    problem: Problem,
    federation: Federation,
    method: Method,
    *,
    rounds: int,
    seed: int = 0,
    participation: Participation = Everyone(),
    channel: Channel = Plain(),
    record: Sequence[Metric] | None = None,
    every: int = 1,
    stop: Rule | None = None,
    engine: Engine | None = None,
    progress: Show = None,
    certificate: bool = True,
    checkpoint: Checkpoint | None = None,
    interrupt: Interrupt | None = None,
) -> Result:
    """Minimize F(x) = sum_i p_i f_i(x) + r(x) over a federation, by a method.

    problem        what is lost on a row
    federation     who holds which rows, and p_i
    method         how: FedAvg(...), Scaffold(...), ...
    rounds, seed   how long, and where chance begins; the same seed gives the same run
    participation  who takes part in a round; everyone, unless said otherwise
    channel        what happens to replies on their way; nothing, unless said otherwise
    record, every  what is measured (the objective, and scores on test rows), every so many rounds
    stop           a rule that ends the run early
    engine         Simulator(), Loopback() or Processes()
    progress       a bar on standard error: yes, no, or only at a terminal (None); or a function
                   that is told how far the run is
    certificate    measure the last model on all rows, under constraints or over a set with atoms
    checkpoint     where to keep what is needed to go on after a crash, and how often
    interrupt      a function that is asked between rounds whether to stop: "", or why. Without it
                   Ctrl-C raises KeyboardInterrupt, and the last checkpoint is there to go on from

    >>> import fedmin
    >>> table = fedmin.data.load("breast_cancer").standardized()
    >>> federation = fedmin.data.partition(table, fedmin.data.IID(5))
    >>> result = fedmin.minimize(
    ...     fedmin.Logistic(30), federation, fedmin.FedAvg(step=0.5, local_steps=5), rounds=20
    ... )
    >>> result.final("accuracy") > 0.9
    True
    """
    run = assemble(problem, federation, method, participation, channel, record, stop)
    checks.at_least("rounds", rounds, 1)
    checks.at_least("every", every, 1)
    checks.seed("seed", seed)
    engine = Simulator() if engine is None else engine
    checks.is_a("engine", engine, Engine, "Simulator(), Loopback() or Processes()")
    if checkpoint is not None:
        checks.is_a("checkpoint", checkpoint, Checkpoint, 'Checkpoint("folder")')
    settings = Settings(rounds, seed, every, progress, checkpoint, interrupt)
    result = judged(engine.run(run, federation, settings), run, federation, certificate)
    warn(result)
    return result


def sweep(
    problem: Problem,
    federation: Federation,
    method: Method,
    *,
    rounds: int,
    over: dict[str, Iterable[Any]] | None = None,
    seeds: Iterable[int] = (0,),
    participation: Participation = Everyone(),
    channel: Channel = Plain(),
    record: Sequence[Metric] | None = None,
    every: int = 1,
    engine: Simulator | None = None,
) -> Sweep:
    """Many runs in one compiled call: every combination of the values in `over`, for every seed.

    `over` names fields of the method that are numbers (a step size, not a count of steps). A run
    that diverges is marked so and does not disturb the others.

    >>> import fedmin
    >>> wine = fedmin.data.load("wine").standardized()
    >>> federation = fedmin.data.partition(wine, fedmin.data.IID(4))
    >>> grid = fedmin.sweep(
    ...     fedmin.Softmax(13, 3), federation, fedmin.FedSGD(), rounds=5, over={"step": [0.1, 0.5]}
    ... )
    >>> grid.best("objective").method.step
    0.5
    """
    checks.at_least("rounds", rounds, 1)
    checks.at_least("every", every, 1)
    seeds = list(seeds)
    checks.seeds(seeds)
    run = assemble(problem, federation, method, participation, channel, record, None)
    engine = Simulator() if engine is None else engine
    checks.is_a("engine", engine, Simulator, "Simulator()")
    found = run_many(engine, run, federation, over or {}, seeds=seeds, rounds=rounds, every=every)
    return Sweep(judged(each, run, federation, certificate=False) for each in found)


def refit(
    problem: Problem,
    federation: Federation,
    x: Any,
    *,
    rounds: int = 30,
    method: Method | None = None,
    **options: Any,
) -> Result:
    """Minimize on the support of a model that was found, over the same federation.

    Thresholding stops before the entries that it keeps are at their best; this goes on with those
    entries alone, by `SparseNewton` unless another method is given. Options are `minimize`'s.

    >>> import fedmin
    >>> sample = fedmin.data.sparse_regression(200, 30, support=3, clients=4)
    >>> problem, federation = fedmin.LeastSquares(30), fedmin.data.partition(sample)
    >>> sparse = fedmin.over(problem, fedmin.L0Ball(3))
    >>> found = fedmin.minimize(sparse, federation, fedmin.DistributedIHT(0.1), rounds=20)
    >>> again = fedmin.refit(sparse, federation, found.solution, rounds=10)
    >>> bool(abs(again.final("objective") - sample.truth["optimum"]) < 1e-6)
    True
    """
    support = np.flatnonzero(np.asarray(x))
    if not len(support):
        raise ValueError("the model has no non-zeros: there is no support to fit on")
    inner = problem.inner if isinstance(problem, Over) else problem
    on_support = over(inner, Entries(support))
    method = SparseNewton() if method is None else method
    return minimize(on_support, federation, method, rounds=rounds, **options)


def assemble(
    problem: Problem,
    federation: Federation,
    method: Method,
    participation: Participation,
    channel: Channel,
    record: Sequence[Metric] | None,
    stop: Rule | None,
) -> Run:
    """Refuse pieces that do not fit together; else the run they make."""
    checks.is_a("problem", problem, Problem, "Logistic(30)")
    checks.is_a("federation", federation, Federation, "Federation.from_parts(...)")
    checks.is_a("method", method, Method, "FedAvg(step=0.1)")
    checks.is_a("participation", participation, Participation, "Uniform(10)")
    checks.is_a("channel", channel, Channel, "Plain() or TopK(100)")
    _check_handles(problem, federation, method)
    roster = federation.roster(participation.everyone)
    problem = placed(problem, roster)
    if problem.size() >= 2**31:
        words = f"a model of {problem.size():,} numbers; fewer than 2^31 can be counted"
        raise ValueError(f"{type(problem).__name__} has {words}")
    method.check(problem)
    participation.check(roster.clients)
    _check_trips(problem, roster, method, participation, channel)
    check_rows(problem, federation)
    record = _recorded(problem, federation, method, roster, record)
    if stop is not None:
        checks.is_a("stop", stop, Rule, 'Stop("accuracy", above=0.9)')
    run = Run(problem, method, channel, participation, record, stop)
    if stop is not None:
        stop.check(reports_of(run, roster, federation.server_rows).names)
    return run


def placed(problem: Problem, roster: Roster) -> Problem:
    """The problem as methods get it: where columns are split, with who holds what."""
    if isinstance(problem, SplitProblem) and roster.owners is not None:
        return OnColumns(problem, roster.owners)
    return problem


def check_rows(problem: Problem, federation: Federation) -> None:
    """Refuse rows that the problem does not fit."""
    for rows in (federation.pool, federation.test):
        if rows is not None:
            problem.check(rows.x.shape[1], federation.classes, np.asarray(rows.y))


def _recorded(
    problem: Problem,
    federation: Federation,
    method: Method,
    roster: Roster,
    record: Sequence[Metric] | None,
) -> tuple[Metric, ...]:
    """What is recorded, by default or as asked for; refuses what cannot be."""
    reports = problem.num_constraints > 0 and _reports_multipliers(problem, method, roster)
    if record is None:
        limits: list[Metric] = [Optimality()] if reports else []
        if problem.domain.has_atoms and not problem.num_constraints:
            limits.append(WolfeGap())
        record = (Objective(), *limits, *([Scores("test")] if federation.test is not None else []))
    for metric in record:
        checks.is_a("record", metric, Metric, "[Objective(), GradientNorm()]")
        if isinstance(metric, WolfeGap) and not problem.domain.has_atoms:
            raise ValueError(f"WolfeGap needs a set with atoms; the problem has {problem.domain}")
        if isinstance(metric, Optimality) and problem.num_constraints and not reports:
            raise ValueError(
                f"Optimality needs multipliers, which {type(method).__name__} does not report"
            )
        if metric.on == "test" and federation.test is None:
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


def _check_trips(
    problem: Problem,
    roster: Roster,
    method: Method,
    participation: Participation,
    channel: Channel,
) -> None:
    """Refuse absent clients where all are needed, and a channel that cannot carry the replies."""
    name = type(method).__name__
    trips = method.exchanges(problem, roster)
    if (roster.owners is not None or any(map(complete, trips))) and not participation.everyone:
        raise ValueError(
            f"{name} needs every client in every round; participation is {participation}, "
            f"give Everyone()"
        )
    if roster.owners is not None and channel.for_evaluation() is not None:
        raise ValueError(
            f"{channel} carries what is recorded too, as sums over rows; where columns are split "
            f"nobody has a whole row: give another channel"
        )
    for trip in trips:
        why = channel.refuses(trip)
        if why:
            raise ValueError(f"{name} {why}; channel is {channel}, give Plain()")


def _check_handles(problem: Problem, federation: Federation, method: Method) -> None:
    name, has = type(method).__name__, f"{type(problem).__name__}(...)"
    if federation.split not in method.handles:
        splits = " or ".join(sorted(method.handles & {"rows", "features"}))
        raise ValueError(
            f"{name} works on data split by {splits}; this federation's are split by "
            f"{federation.split}"
        )
    if federation.split == "features" and not isinstance(problem, SplitProblem):
        raise ValueError(
            f"{has} cannot be cut by columns; a SplitProblem can: LeastSquares, Logistic, Softmax, "
            f"MLP, or your own with cut, join, embed and head"
        )
    if not isinstance(problem.domain, Free) and "domain" not in method.handles:
        raise ValueError(f"{name} does not handle a domain; {has} has {problem.domain}")
    if problem.num_constraints and "constraints" not in method.handles:
        raise ValueError(f"{name} does not handle constraints; {has} has {problem.num_constraints}")
