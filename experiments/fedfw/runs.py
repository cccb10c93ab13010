"""One run of one method: what it is asked (`Spec`), what it gives (`Curve`), where it is kept."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedmin
from experiments.paper import kept, recalled, whole
from experiments.ssca.runs import bar
from fedmin import data

RADIUS = 10.0
LABELS = 3  # of a client that is not IID


class Spec(NamedTuple):
    """All that decides a run."""

    table: str
    scaling: str  # "0-1" or "standardized": the paper does not say which
    split: str  # "iid" or "non-iid"
    model: str  # "mclr", "dnn" or "cnn"
    ball: str  # "l1" or "l2"
    method: str  # a line of METHODS
    knobs: tuple[float, ...]
    rounds: int
    clients: int = 10
    p: float = 1.0  # the chance that a client takes part
    batch: int = 0  # rows of a batch, 0 for all
    most: int = 0  # training rows, 0 for all
    seed: int = 0


@dataclass(frozen=True)
class Curve:
    """The recorded rounds of a run."""

    spec: Spec
    status: str
    seconds: float
    bytes_up: int  # of all clients and rounds, headers included
    bytes_down: int
    round: list[int]
    objective: list[float]
    gap: list[float]
    accuracy: list[float]  # on the test rows

    @property
    def end(self) -> float:
        """The test accuracy at the end, in percent; nothing if it diverged."""
        return 0.0 if self.status == "diverged" else 100 * self.accuracy[-1]

    @property
    def cost(self) -> float:
        """The objective at the end; infinite if it diverged."""
        return float("inf") if self.status == "diverged" else self.objective[-1]


@cache
def rows_of(table: str, scaling: str, most: int) -> data.Table:
    """The table with its inputs scaled, cut to the first rows of a random order."""
    found = data.softmax_fedfw(rows=20_000).table if table == "synthetic" else data.load(table)
    if most and most < found.rows:
        found = found.subset(np.random.default_rng(0).permutation(found.rows)[:most])
    return found.standardized() if scaling == "standardized" else found


@cache
def federation(table: str, scaling: str, split: str, clients: int, most: int):
    """Who holds what."""
    how = data.IID(clients) if split == "iid" else data.LabelsPerClient(clients, k=LABELS)
    return data.partition(rows_of(table, scaling, most), how, seed=0)


@cache
def bend(table: str, scaling: str, most: int) -> float:
    """Half the largest eigenvalue of X^T X / N: softmax regression is no more curved than this."""
    x = np.asarray(rows_of(table, scaling, most).x)[:5000]
    v = np.ones(x.shape[1]) / np.sqrt(x.shape[1])
    for _ in range(50):
        v = x.T @ (x @ v)
        v /= np.linalg.norm(v)
    return float(0.5 * np.linalg.norm(x @ v) ** 2 / len(x))


def problem(spec: Spec) -> fedmin.Problem:
    """The model over the ball; a network has a ball a tensor, as in the authors' code."""
    rows = rows_of(spec.table, spec.scaling, spec.most)
    ball = {"l1": fedmin.L1Ball, "l2": fedmin.L2Ball}[spec.ball](RADIUS)
    if spec.model == "mclr":
        return fedmin.over(fedmin.Softmax(rows.features, rows.classes), ball)
    if spec.model == "dnn":
        return fedmin.over(
            fedmin.MLP(rows.features, rows.classes, hidden=(64, 32)), fedmin.Product(ball)
        )
    network = fedmin.CNN((28, 28, 1), rows.classes, channels=(4, 8), hidden=(32,))
    return fedmin.over(network, fedmin.Product(ball))


# ---------------------------------------------------------------- the methods


def steps(spec: Spec) -> Any:
    """The paper's schedule for this model and participation."""
    if spec.model == "mclr":
        return fedmin.ConvexSteps(spec.p)
    return fedmin.NonconvexSteps(float(spec.rounds), spec.p if spec.p < 1 else None)


def frank_wolfe(spec: Spec) -> fedmin.Method:
    """knobs: c_0 = n lambda_0."""
    kinds = {"fedfw": fedmin.FedFW, "fedfw+": fedmin.FedFWPlus}
    return kinds[spec.method].printed(spec.knobs[0], steps=steps(spec))


def stochastic(spec: Spec) -> fedmin.Method:
    """knobs: c_0 = n lambda_0."""
    return fedmin.FedFWSto.printed(spec.knobs[0], batches=fedmin.WithoutReplacement(spec.batch))


def feddr(spec: Spec) -> fedmin.Method:
    """knobs: eta times L, the number of local steps, and those steps' length times L + 1/eta."""
    scale, local, length = spec.knobs
    L = bend(spec.table, spec.scaling, spec.most) if spec.model == "mclr" else 10.0
    batches = fedmin.WithoutReplacement(spec.batch) if spec.batch else fedmin.Full()
    eta = scale / L
    step = length / (L + 1 / eta)
    return fedmin.FedDR(eta=eta, step=step, local_steps=int(local), batches=batches)


METHODS: dict[str, Callable[[Spec], fedmin.Method]] = {
    "fedfw": frank_wolfe,
    "fedfw+": frank_wolfe,
    "fedfw-sto": stochastic,
    "feddr": feddr,
}
RECORD = (fedmin.Objective(), fedmin.WolfeGap(), fedmin.Scores("test"))


@dataclass
class World:
    """The runs that are there already."""

    book: Path | None = None  # runs are kept here as they end, so that no work is lost
    records: int = 10  # how often a run is measured
    done: dict[Spec, Curve] = field(default_factory=dict)

    def curves(self, specs: Iterable[Spec], title: str, records: int | None = None) -> list[Curve]:
        """One a spec; what is not there yet is run, under a progress bar."""
        specs = list(specs)
        with bar(title, len(specs)) as tick:
            for spec in specs:
                if spec not in self.done:
                    self.done[spec] = self.run(spec, records or self.records)
                    self.save()
                tick()
        return [self.done[spec] for spec in specs]

    def run(self, spec: Spec, records: int) -> Curve:
        """Run one, measured so many times."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # diverged: the status says so
            result = fedmin.minimize(
                problem(spec), federation(*spec[:3], spec.clients, spec.most),
                METHODS[spec.method](spec), rounds=spec.rounds, seed=spec.seed,
                every=max(1, spec.rounds // records), record=RECORD, progress=False,
                participation=fedmin.Bernoulli(spec.p) if spec.p < 1 else fedmin.Everyone(),
                certificate=False,
            )  # fmt: skip
        history = whole([result])[0].history
        columns = {name: _short(history[name]) for name in ("objective", "gap", "accuracy")}
        return Curve(
            spec, result.status, round(result.run_seconds, 2),
            result.ledger.bytes("up"), result.ledger.bytes("down"),
            [int(t) for t in history["round"]], **columns,
        )  # fmt: skip

    def recall(self) -> None:
        """Take up the runs that the book has."""
        self.done |= recalled(self.book, Spec, Curve)

    def save(self) -> None:
        """Write the book, a line a run."""
        kept(self.book, self.done.values())


def _short(values: Any) -> list[float]:
    """Six digits are enough, and keep the book small."""
    return [float(f"{v:.6g}") for v in np.asarray(values)]
