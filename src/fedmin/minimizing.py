"""The entry points: put the pieces together, and hand them to an engine."""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedmin.assembling import assemble
from fedmin.channels import Plain
from fedmin.core import checks
from fedmin.core.channel import Channel
from fedmin.core.federation import Federation
from fedmin.core.method import Method
from fedmin.core.metrics import Metric
from fedmin.core.participation import Everyone, Participation
from fedmin.core.problem import Problem
from fedmin.core.result import Result
from fedmin.core.roster import Roster
from fedmin.core.stopping import Rule
from fedmin.domains import Entries
from fedmin.engines.drive import Engine, Interrupt, Settings
from fedmin.engines.messages import messages_of
from fedmin.engines.progress import Show
from fedmin.engines.round import Run
from fedmin.engines.sessions.checkpoint import Checkpoint
from fedmin.engines.simulator.simulator import Simulator
from fedmin.engines.simulator.sweep import Sweep, run_many
from fedmin.judging import judged, warn
from fedmin.methods import SparseNewton
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
    start          the first model, f[d]: another result's solution, for one; the problem's own if
                   it is not given
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
    run = assemble(
        problem, federation, method, participation, channel, record, stop, start, certificate
    )
    return carry_out(
        run, federation, rounds=rounds, seed=seed, every=every, engine=engine, progress=progress,
        checkpoint=checkpoint, interrupt=interrupt,
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
) -> Result:
    """Hand a run to an engine, and judge how it ended; the settings are those of `minimize`."""
    checks.at_least("rounds", rounds, 1)
    checks.at_least("every", every, 1)
    checks.seed("seed", seed)
    engine = Simulator() if engine is None else engine
    checks.is_a("engine", engine, Engine, "Simulator(), Loopback() or Processes()")
    if checkpoint is not None:
        checks.is_a("checkpoint", checkpoint, Checkpoint, 'Checkpoint("folder")')
    settings = Settings(rounds, seed, every, progress, checkpoint, interrupt)
    for words in exposed(run, federation.roster(run.participation.everyone)):
        warnings.warn(words, PrivacyWarning, stacklevel=3)
    result = judged(engine.run(run, federation, settings), run, federation)
    warn(result, stacklevel=4)
    return result


def exposed(run: Run, roster: Roster) -> list[str]:
    """What follows exactly from single messages of a run, in sentences (`privacy/exposures.py`)."""
    messages = messages_of(run, roster)
    return exposures(run, roster, (messages.training, messages.evaluation))


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
    run = assemble(problem, federation, method, participation, channel, record, None, start)
    engine = Simulator() if engine is None else engine
    checks.is_a("engine", engine, Simulator, "Simulator()")
    found = run_many(engine, run, federation, over or {}, seeds=seeds, rounds=rounds, every=every)
    return Sweep(judged(each, run, federation, measure=False) for each in found)


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
