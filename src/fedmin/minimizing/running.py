"""The entry points: put the pieces together, and hand them to an engine."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedmin.assembling import assemble
from fedmin.channels import Plain
from fedmin.core import checks
from fedmin.core.channel import Channel
from fedmin.core.federation import Federation
from fedmin.core.method import Method
from fedmin.core.metrics import Metric, Objective
from fedmin.core.model_origin import about_of
from fedmin.core.participation import Everyone, Participation
from fedmin.core.problem import Problem
from fedmin.core.result import Result
from fedmin.core.roster import Roster
from fedmin.core.stopping import Rule
from fedmin.domains import Entries
from fedmin.engines import private
from fedmin.engines.auditing import (
    AuditSettings,
    Observers,
    check_groups,
    cut,
    findings,
    public_of,
)
from fedmin.engines.auditing_columns import ColumnScene, column_findings
from fedmin.engines.drive import Engine, Interrupt, Settings
from fedmin.engines.messages import messages_of
from fedmin.engines.observing import Before, Scene, first_states
from fedmin.engines.progress import Show
from fedmin.engines.round import Run
from fedmin.engines.sessions.checkpoint import Checkpoint
from fedmin.engines.simulator.simulator import Simulator
from fedmin.engines.simulator.sweep import Sweep, run_many
from fedmin.engines.weighing import count_lines
from fedmin.judging import judged, warn
from fedmin.methods import SparseNewton
from fedmin.privacy.audit.attack import Effort
from fedmin.privacy.audit.findings import Audit, Finding
from fedmin.privacy.exposures import PrivacyWarning, exposures
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
    start: Any = None,
    record: Sequence[Metric] | None = None,
    every: int = 1,
    stop: Rule | None = None,
    engine: Engine | None = None,
    progress: Show = None,
    certificate: bool = True,
    statistics: bool = False,
    checkpoint: Checkpoint | None = None,
    interrupt: Interrupt | None = None,
    tap: str | Path | None = None,
) -> Result:
    """Minimize F(x) = sum_i p_i f_i(x) + r(x) over a federation, by a method.

    problem        what is lost on a row
    federation     who holds which rows, and p_i
    method         how: FedAvg(...), Scaffold(...), ...
    rounds, seed   how long, and where chance begins; the same seed gives the same run
    participation  who takes part in a round; everyone, unless said otherwise
    channel        what happens to replies on their way; nothing, unless said otherwise
    start          the first model, f[d]: another result's solution, for one; the problem's own if
                   it is not given
    record, every  what is measured (the objective, and scores on test rows), every so many rounds
    stop           a rule that ends the run early
    engine         Simulator(), Loopback() or Processes()
    progress       a bar on standard error: yes, no, or only at a terminal (None); or a function
                   that is told how far the run is
    certificate    measure the last model on all rows, under constraints or over a set with atoms
    statistics     `Result.statistics`: standard errors, intervals and tests of LeastSquares,
                   Logistic and Poisson models, from sums of all sites
    checkpoint     where to keep what is needed to go on after a crash, and how often
    interrupt      a function that is asked between rounds whether to stop: "", or why. Without it
                   Ctrl-C raises KeyboardInterrupt, and the last checkpoint is there to go on from
    tap            a file that keeps every byte that the parties send; Loopback() or Processes()

    >>> import fedmin
    >>> table = fedmin.data.load("breast_cancer").standardized()
    >>> federation = fedmin.data.partition(table, fedmin.data.IID(5))
    >>> result = fedmin.minimize(
    ...     fedmin.Logistic(30), federation, fedmin.FedAvg(step=0.5, local_steps=5), rounds=20
    ... )
    >>> result.final("accuracy") > 0.9
    True
    """
    run = assemble(
        problem, federation, method, participation, channel, record, stop, start, certificate,
        rounds, statistics,
    )  # fmt: skip
    return carry_out(
        run, federation, rounds=rounds, seed=seed, every=every, engine=engine, progress=progress,
        checkpoint=checkpoint, interrupt=interrupt, tap=tap,
    )  # fmt: skip


def carry_out(
    run: Run,
    federation: Federation,
    *,
    rounds: int,
    seed: int = 0,
    every: int = 1,
    engine: Engine | None = None,
    progress: Show = None,
    checkpoint: Checkpoint | None = None,
    interrupt: Interrupt | None = None,
    tap: str | Path | None = None,
) -> Result:
    """Hand a run to an engine, and judge how it ended; the settings are those of `minimize`."""
    checks.at_least("rounds", rounds, 1)
    checks.at_least("every", every, 1)
    checks.seed("seed", seed)
    engine = Simulator() if engine is None else engine
    checks.is_a("engine", engine, Engine, "Simulator(), Loopback() or Processes()")
    if checkpoint is not None:
        checks.is_a("checkpoint", checkpoint, Checkpoint, 'Checkpoint("folder")')
    if tap is not None and isinstance(engine, Simulator):
        raise ValueError(
            "a tap keeps what is sent, and the simulator sends nothing: give engine=Loopback() or "
            'Processes(); in a file: engine = "loopback" in [run]'
        )
    roster = federation.roster(run.participation.everyone)
    rounds, spent = private.affordable(run, roster, rounds)
    settings = Settings(rounds, seed, every, progress, checkpoint, interrupt, tap)
    told = exposed(run, roster)
    exact = federation.about is not None and federation.about.told is None
    if exact and private.is_private(run.method, run.channel):
        told.append("privacy: tables were prepared by sums without noise: epsilon is without them")
    for words in told:
        warnings.warn(words, PrivacyWarning, stacklevel=3)
    result = judged(engine.run(run, federation, settings), run, federation)
    prepared = [] if federation.about is None else federation.about.lines
    result.ledger.prepared = [*prepared, *count_lines(run.problem, roster)]
    result = replace(result, about=about_of(federation))
    result = private.accounted(result, run, roster, spent)
    warn(result, run, stacklevel=4)
    return result


def exposed(run: Run, roster: Roster) -> list[str]:
    """What follows exactly from single messages of a run, in sentences (`privacy/exposures.py`);
    and what its noise, if it has some, does not cover."""
    messages = messages_of(run, roster)
    found = exposures(run, roster, (messages.training, messages.evaluation))
    return found + private.uncovered(run, roster)


def audit(
    problem: Problem,
    federation: Federation,
    method: Method,
    channel: Channel = Plain(),
    *,
    rounds: int = 0,
    batch: int | None = None,
    observers: Observers | None = None,
    steps: int = 200,
    seed: int = 0,
    image: tuple[int, int, int] | None = None,
) -> Audit:
    """What each observer could infer of the clients' rows from one round of a run.

    For every observer: the numerical rank of the map from the rows to what it sees, the labels and
    rows that attacks rebuild from it, and what anybody would guess. What it sees is what the method
    sends, through the channel; the attacks are told which rows a batch has places for, the average
    row and the bounds of numbers, and the best of them is chosen by the truth.

    rounds      how many rounds come before the one that is audited
    batch       rows of each client in it; as many as the method's batches have, unless given
    observers   coalitions, such as [("server",), ("server", "a")]; the server, a client, and under
                a channel that hides replies the server with some clients, unless given
    steps       of each optimizer
    image       (height, width, channels), where rows are images: attacks prefer smooth ones

    >>> import fedmin
    >>> federation = fedmin.data.partition(fedmin.data.load("wine"), fedmin.data.IID(3))
    >>> found = fedmin.audit(fedmin.Softmax(13, 3), federation, fedmin.FedSGD(), batch=1, steps=5)
    >>> server = found.of("server").outcome
    >>> print(server.rank, server.labels, server.best.psnr > 60)
    13 of 13 1.0 True
    """
    columns = federation.roster().split == "features"
    check_groups(problem, columns and bool(federation.groups))
    checks.at_least("rounds", rounds, 0)
    checks.at_least("steps", steps, 1)
    checks.seed("seed", seed)
    size = _batch_of(method, federation) if batch is None else batch
    checks.at_least("batch", size, 1)
    everyone, record = Everyone(), (Objective(),)
    effort = Effort(steps)
    how = AuditSettings(observers, public_of(federation, image), effort, seed)
    title = f"{type(method).__name__}, {channel}"
    if columns:
        found = _on_columns(problem, federation, method, channel, rounds, size, how)
        return Audit(title, rounds + 1, size, found, image)
    few = cut(federation, size, seed)
    # limits on groups are by the shares of all rows, and not by those of a batch
    run = assemble(problem, federation, method, everyone, channel, record, None)
    before = first_states(run, few, seed)
    if rounds:
        settings = Settings(rounds, seed, rounds)
        reached = Simulator().run(run, federation, settings)
        before = Before(reached.server, reached.clients, reached.memory)
    scene = Scene(run, few, before, rounds, seed)
    return Audit(title, rounds + 1, size, findings(run, scene, how), image)


def _on_columns(
    problem: Problem, federation: Federation, method: Method, channel: Channel, rounds: int,
    size: int, how: AuditSettings,
) -> tuple[Finding, ...]:  # fmt: skip
    """The same where columns are split: a batch of whole rows, at the model of that round."""
    run = assemble(problem, federation, method, Everyone(), channel, (Objective(),), None)
    before = first_states(run, federation, how.seed)
    x = run.method.solution(before.server)
    if rounds:
        x = Simulator().run(run, federation, Settings(rounds, how.seed, rounds)).solution
    pool = federation.pool
    whole = np.asarray(pool.x @ np.eye(pool.x.shape[1], dtype=pool.x.dtype))
    if pool.count < size:
        raise ValueError(f"there are {pool.count} rows, fewer than a batch of {size}")
    picked = np.random.default_rng(how.seed).permutation(pool.count)[:size]
    rows = whole[picked], np.asarray(pool.y)[picked]
    return column_findings(ColumnScene(run, federation, x, rounds, rows), how)


def _batch_of(method: Method, federation: Federation) -> int:
    """How many rows a reply is of; no more than the smallest client has."""
    held = int(np.min(federation.sizes))
    batches = getattr(method, "batches", None)
    return min(held, int(getattr(batches, "size", getattr(batches, "first", held))))


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
    start: Any = None,
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
    run = assemble(
        problem, federation, method, participation, channel, record, None, start, rounds=rounds
    )
    engine = Simulator() if engine is None else engine
    checks.is_a("engine", engine, Simulator, "Simulator()")
    found = run_many(engine, run, federation, over or {}, seeds=seeds, rounds=rounds, every=every)
    roster = federation.roster(run.participation.everyone)
    about = about_of(federation)
    ended = (judged(replace(each, about=about), run, federation, measure=False) for each in found)
    return Sweep(private.accounted(each, run, roster) for each in ended)


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

    Thresholding stops before the entries that it keeps are at their best; this goes on from x with
    those entries alone, by `SparseNewton` unless another method is given. Options are `minimize`'s.

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
    return minimize(on_support, federation, method, rounds=rounds, **{"start": x, **options})
