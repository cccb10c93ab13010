"""One run of one algorithm: what it is asked (`Spec`), what it gives (`Curve`), where it is kept.

`SOLVERS` has a line an algorithm, (world, spec) -> Curve. Algorithms 3 and 4 are 1 and 2 where each
client holds columns of all rows.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedmin
from experiments.paper import kept, recalled, whole
from fedmin import SSCA, FedAvg, FedSGD, Power, WithoutReplacement

ON_COLUMNS = ("alg3", "alg4")
TAU, PENALTY = 0.1, 1e5  # tau and c
PAPER = {1: (0.4, 0.4, 0.4), 10: (0.6, 0.9, 0.3), 100: (0.9, 0.9, 0.3)}  # B: (a1, a2, alpha)


class Spec(NamedTuple):
    """All that decides a run, besides the data."""

    algorithm: str  # a line of SOLVERS
    batch: int  # B, rows a client and local step
    seed: int
    rounds: int
    every: int  # rounds between two records; a record is a pass over all rows
    schedule: tuple[float, ...]  # (a1, a2, alpha) of SSCA; (abar, albar) of SGD
    local_steps: int = 1  # E
    weight: float = 0.0  # lambda of F + lambda |w|^2
    limit: float = 0.0  # U of F <= U
    start: float = 1.0  # times He's normal start; the papers do not say where they start


@dataclass(frozen=True)
class Curve:
    """The recorded rounds of a run: cost on all training rows, accuracy on the test rows."""

    spec: Spec
    status: str
    seconds: float
    round: list[int]
    cost: list[float]  # F, without the regularizer
    square: list[float]  # |w|^2
    accuracy: list[float]
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """The cost at the end; infinite if the run diverged."""
        return float("inf") if self.status == "diverged" else self.cost[-1]


class Started(fedmin.MLP):
    """The network with its start scaled."""

    start: float = 1.0

    def init(self, key):
        return self.start * fedmin.MLP.init(self, key)


@dataclass
class World:
    """The data, and the runs that are there already."""

    federation: fedmin.Federation
    book: Path | None = None  # runs are kept here as they end, so that no work is lost
    done: dict[Spec, Curve] = field(default_factory=dict)

    @cached_property
    def columns(self) -> fedmin.Federation:
        """The same rows, each client with an equal share of the columns."""
        rows, test = self.federation.pool, self.federation.test
        blocks = np.array_split(np.arange(rows.x.shape[1]), self.federation.num_clients)
        held_out = None if test is None else (np.asarray(test.x.values), np.asarray(test.y))
        return fedmin.Federation.from_columns(
            np.asarray(rows.x.values), np.asarray(rows.y), blocks, test=held_out,
            classes=self.federation.classes,
        )  # fmt: skip

    def network(self, spec: Spec) -> fedmin.MLP:
        """The papers' network: 128 swish units, no biases; lambda |w|^2 is l2/2 |w|^2."""
        features, classes = self.federation.pool.x.shape[1], self.federation.classes
        if spec.start == 1:
            return fedmin.MLP(features, classes, l2=2 * spec.weight)
        return Started(features, classes, l2=2 * spec.weight, start=spec.start)

    def curves(self, specs: Iterable[Spec], title: str) -> list[Curve]:
        """One a spec; what is not there yet is run, under a progress bar."""
        specs = list(specs)
        with bar(title, len(specs)) as tick:
            for spec in specs:
                if spec not in self.done:
                    self.done[spec] = SOLVERS[spec.algorithm](self, spec)
                    self.save()
                tick()
        return [self.done[spec] for spec in specs]

    def recall(self) -> None:
        """Take up the runs that the book has."""
        self.done |= recalled(self.book, Spec, Curve)

    def save(self) -> None:
        """Write the book, a line a run."""
        kept(self.book, self.done.values())


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar at a terminal, one line at the end elsewhere."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr)) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)


# ---------------------------------------------------------------- the algorithms


def square(problem: Any, x: Any) -> Any:
    """|w|^2, at module level: the same function each time, so that nothing is compiled twice."""
    return x @ x


RECORD = (fedmin.Objective(), fedmin.Measure("square", square), fedmin.Scores("test"))


def surrogates(spec: Spec) -> SSCA:
    """Algorithms 1 and 2 with the papers' schedules: rho = a1/t^alpha, gamma = a2/t^(alpha+.05)."""
    a1, a2, alpha = spec.schedule
    rho, gamma = Power(a1, alpha), Power(a2, alpha + 0.05)
    return SSCA(rho, gamma, TAU, WithoutReplacement(spec.batch), PENALTY)


def algorithm_1(world: World, spec: Spec) -> Curve:
    """minimize F(w) + lambda |w|^2."""
    return _free(world, spec, surrogates(spec))


def algorithm_2(world: World, spec: Spec) -> Curve:
    """minimize |w|^2 subject to F(w) <= U."""
    problem = fedmin.smallest(world.network(spec), loss_at_most=spec.limit)
    result = _minimize(world, spec, problem, surrogates(spec))
    history, certificate = result.history, result.certificate
    more = {
        "stationarity": history["stationarity"],
        "multiplier": history["multiplier"],
        "slack": history["slack"],
    }
    found = {name: _short(values) for name, values in more.items()}
    if certificate is not None:
        found |= {
            "best_round": certificate.best_round,
            "best_square": certificate.best_objective,
            "final_gradient": certificate.gradient,  # |grad F_0| = 2 |w|, to compare with
            "final_stationarity": certificate.stationarity,
            "final_best_stationarity": certificate.best_stationarity,
        }
    return _curve(spec, result, history["constraint"] + spec.limit, history["objective"], found)


def sgd(world: World, spec: Spec) -> Curve:
    """minimize F(w) + lambda |w|^2 by E local steps a round, each abar/t^albar."""
    step, batches = Power(*spec.schedule), WithoutReplacement(spec.batch)
    if spec.local_steps == 1:
        return _free(world, spec, FedSGD(step, batches))
    return _free(world, spec, FedAvg(step, spec.local_steps, batches=batches))


SOLVERS: dict[str, Callable[[World, Spec], Curve]] = {
    "alg1": algorithm_1,
    "alg2": algorithm_2,
    "alg3": algorithm_1,
    "alg4": algorithm_2,
    "sgd": sgd,
}


def _free(world: World, spec: Spec, method: fedmin.Method) -> Curve:
    problem = world.network(spec)
    result = _minimize(world, spec, problem, method, record=RECORD)
    squares = result.history["square"]
    return _curve(spec, result, result.history["objective"] - spec.weight * squares, squares)


def _minimize(world: World, spec: Spec, problem, method, **options) -> fedmin.Result:
    with warnings.catch_warnings():
        # diverged or infeasible: the curve's status says so
        warnings.simplefilter("ignore", RuntimeWarning)
        split = world.columns if spec.algorithm in ON_COLUMNS else world.federation
        result = fedmin.minimize(
            problem, split, method, rounds=spec.rounds, seed=spec.seed,
            every=spec.every, progress=False, **options,
        )  # fmt: skip
    return whole([result])[0]


def _curve(spec: Spec, result: fedmin.Result, cost, squares, more=None) -> Curve:
    return Curve(
        spec,
        result.status,
        round(result.run_seconds, 2),
        [int(t) for t in result.history["round"]],
        _short(cost),
        _short(squares),
        _short(result.history["accuracy"]),
        more or {},
    )


def _short(values: Any) -> list[float]:
    """Six digits are enough, and keep the book small."""
    return [float(f"{v:.6g}") for v in np.asarray(values)]
