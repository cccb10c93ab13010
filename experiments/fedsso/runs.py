"""One run (`Spec`), what it gives (`Curve`), and the book in which all runs are kept.

`RIVALS` has a line a method: what makes it, given the local steps and batches. A method is searched
over the fields in `over`, each with one of the setting's grids.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedmin
from experiments.fedsso.worlds import WORLDS
from experiments.paper import kept, recalled, whole
from fedmin import (
    DONE,
    LBFGS,
    DenseInverse,
    FedAC,
    FedAvg,
    FedDANE,
    FedNL,
    FedOpt,
    FedSSO,
    Scaffold,
)

# an objective is a pass over all training rows, twice a round's own work: on MNIST, where claims
# are about accuracies, it is measured in the grid only
BOTH = (fedmin.Objective(), fedmin.Scores("test"))
RECORD = dict.fromkeys(("mnist", "mnist-two", "mnist-cnn"), BOTH[1:])
COUNTS = ("pairs_accepted", "pairs_repaired", "pairs_skipped", "resets", "steps_cut")
STEPS = {"step": "steps", "server_step": "server_steps"}  # the paper's alpha and eta


class Rival(NamedTuple):
    """A method, and which of its numbers are searched, each over which grid of the setting."""

    make: Callable[..., fedmin.Method]
    over: dict[str, str] = STEPS


def sso(**changes) -> Callable[..., fedmin.Method]:
    """FedSSO with L-BFGS, which a grid of runs has room for; the defaults otherwise."""
    settings = {"curvature": LBFGS(10)} | changes
    return lambda **given: FedSSO(**given, **settings)


PRINTED = {"curvature": DenseInverse(), "bad_pairs": "printed", "scaled": False}

RIVALS: dict[str, Rival] = {
    "fedavg": Rival(FedAvg),
    "scaffold": Rival(Scaffold),
    "fedopt": Rival(lambda **given: FedOpt(**given, second=fedmin.Adagrad())),
    "fedsso": Rival(sso()),
    "fedac": Rival(FedAC, {"step": "steps", "mu": "strong"}),
    "feddane": Rival(FedDANE, {"step": "steps", "mu": "strong"}),
    # whole gradients; twenty products with the Hessian of a batch, its default
    "done": Rival(
        lambda local_steps, batches, **given: DONE(local_steps=20, batches=batches, **given),
        {"alpha": "steps", "step": "server_steps"},
    ),
    # whole gradients and Hessians, no local steps
    "fednl": Rival(lambda local_steps, batches, **given: FedNL(**given), {"alpha": "learning"}),
    # with the steps that were found for fedsso, or with the paper's
    "fedsso-dense": Rival(sso(curvature=DenseInverse())),
    "fedsso-printed": Rival(sso(**PRINTED)),
    "fedsso-skip": Rival(sso(bad_pairs="skip")),
    # remedies for absent clients, one at a time and together
    "fedsso-same": Rival(sso(pairs="same clients")),
    "fedsso-points": Rival(sso(pairs="both points")),
    "fedsso-memory": Rival(sso(remember=True)),
    "fedsso-same-memory": Rival(sso(pairs="same clients", remember=True)),
    "fedsso-points-memory": Rival(sso(pairs="both points", remember=True)),
}
FIRST_ORDER = ("fedavg", "scaffold", "fedopt")
SEARCHED = ("fedsso", *FIRST_ORDER, "fedac", "feddane", "done")

WHO = {
    "everyone": fedmin.Everyone(),
    "drop 30 %": fedmin.Bernoulli(0.7),
    "5 of 20": fedmin.Uniform(5),
}


class Spec(NamedTuple):
    """All that decides a run."""

    world: str
    method: str
    steps: tuple[float, ...]  # the values of what is searched: alpha, eta
    rounds: int
    every: int = 1
    seed: int = 0
    local_steps: int = 5  # tau
    batch: int = 100
    who: str = "everyone"


@dataclass(frozen=True)
class Curve:
    """The recorded rounds of a run."""

    spec: Spec
    status: str
    seconds: float
    round: list[int]
    objective: list[float]
    accuracy: list[float]
    bytes: float = 0.0  # a round, all clients, up and down
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """The objective at the end; infinite if the run diverged, NaN if it was not measured."""
        if self.status == "diverged":
            return float("inf")
        return self.objective[-1] if self.objective else float("nan")

    def reached(self, level: float) -> float:
        """The first recorded round with this test accuracy; infinite if none."""
        there = np.flatnonzero(np.asarray(self.accuracy) >= level)
        return float(self.round[there[0]]) if len(there) else float("inf")


@dataclass
class Place:
    """A world's federation and problem, made when first needed."""

    name: str

    @cached_property
    def federation(self) -> fedmin.Federation:
        return WORLDS[self.name][0]()

    @cached_property
    def problem(self) -> fedmin.Problem:
        return WORLDS[self.name][1](self.federation)


@dataclass
class Book:
    """The runs that are there already, and a way to make those that are not."""

    path: Path | None = None
    done: dict[Spec, Curve] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    say: Callable[[str], None] = print

    def place(self, name: str) -> Place:
        return self.places.setdefault(name, Place(name))

    def method(self, spec: Spec) -> fedmin.Method:
        rival = RIVALS[spec.method]
        values = dict(zip(rival.over, spec.steps, strict=True))
        batches = fedmin.WithoutReplacement(spec.batch)
        return rival.make(local_steps=spec.local_steps, batches=batches, **values)

    def curve(self, spec: Spec) -> Curve:
        """One run."""
        if spec not in self.done:
            place = self.place(spec.world)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # diverged: the status says so
                result = fedmin.minimize(
                    place.problem, place.federation, self.method(spec), rounds=spec.rounds,
                    seed=spec.seed, every=spec.every, participation=WHO[spec.who],
                    record=RECORD.get(spec.world, BOTH), progress=False,
                )  # fmt: skip
            self._enter([(spec, result)])
        return self.done[spec]

    def curves(self, specs: Iterable[Spec]) -> list[Curve]:
        """Some runs, one after the other."""
        return [self.curve(spec) for spec in specs]

    def grid(self, spec: Spec, over: dict[str, tuple[float, ...]]) -> list[Curve]:
        """Every combination of the values of what is searched, in one compiled call."""
        wanted = [spec._replace(steps=steps) for steps in _product(over.values())]
        if not all(one in self.done for one in wanted):
            place = self.place(spec.world)
            found = fedmin.sweep(
                place.problem, place.federation, self.method(wanted[0]), rounds=spec.rounds,
                over=over, seeds=(spec.seed,), participation=WHO[spec.who], every=spec.every,
            )  # fmt: skip
            self._enter(zip(wanted, found, strict=True))
        return [self.done[one] for one in wanted]

    def _enter(self, found: Iterable[tuple[Spec, fedmin.Result]]) -> None:
        specs, results = zip(*found, strict=True)
        for spec, result in zip(specs, whole(results), strict=True):
            self.done[spec] = curve = _curve(spec, result)
        best = max(curve.accuracy)
        self.say(f"# {tuple(curve.spec)} {curve.status} best {best:.4f} {curve.seconds} s")
        self.save()

    def recall(self) -> None:
        """Take up the runs that the book has."""
        self.done |= recalled(self.path, Spec, Curve)

    def save(self) -> None:
        """Write the book, a line a run."""
        kept(self.path, self.done.values())


def _product(values: Iterable[Iterable[float]]) -> list[tuple[float, ...]]:
    found: list[tuple[float, ...]] = [()]
    for some in values:
        found = [(*one, value) for one in found for value in some]
    return found


def _curve(spec: Spec, result: fedmin.Result) -> Curve:
    history = result.history
    sent = result.ledger.bytes() / max(1, result.rounds)
    counts = {name: int(history[name][-1]) for name in COUNTS if name in history}
    return Curve(
        spec,
        result.status,
        round(result.run_seconds, 2),
        [int(t) for t in history["round"]],
        _short(history.get("objective", ()), 5),
        _short(history["accuracy"], 4),
        round(sent, 1),
        counts,
    )


def _short(values: Any, digits: int) -> list[float]:
    """A few digits are enough, and keep the book small."""
    return [float(f"{v:.{digits}g}") for v in np.asarray(values)]
