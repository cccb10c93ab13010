"""Runs: what is asked (`Spec`), what comes out (`Curve`), and the book that keeps them.

Steps are the paper's: its grid is run in one sweep for each method and K.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedmin
from experiments.fedht.worlds import World
from experiments.paper import kept, recalled, whole

STEPS = (10.0, 1.0, 0.6, 0.3, 0.1, 0.06, 0.03, 0.01, 0.001)  # the paper's grid
LOCAL = (3, 5, 8, 10)  # the paper's K


class Spec(NamedTuple):
    """All that decides a run."""

    world: str
    method: str  # fedht, fediterht, distributediht, scaffoldht, sparsenewton
    local_steps: int  # K
    step: float  # gamma, as in the paper
    rounds: int
    every: int
    batch: int  # rows a local step; 0 for all
    seed: int  # of the data and of the run


@dataclass(frozen=True)
class Curve:
    """The recorded rounds of a run, the objective as in the paper."""

    spec: Spec
    status: str
    seconds: float
    round: list[int]
    objective: list[float]
    megabytes: list[float]
    f1: list[float] | None

    @property
    def end(self) -> float:
        """The objective at the end; infinite if the run diverged."""
        return float("inf") if self.status == "diverged" else self.objective[-1]

    def reached(self, level: float) -> float:
        """The first recorded round with at most this objective; infinite if none."""
        there = np.flatnonzero(np.asarray(self.objective) <= level)
        return float(self.round[there[0]]) if len(there) else float("inf")


def method_of(spec: Spec, scale: float) -> fedmin.Method:
    """fedmin's method; its loss is the paper's over `scale`, so a step is `scale` times as long."""
    step = scale * spec.step
    batches = fedmin.WithoutReplacement(spec.batch) if spec.batch else fedmin.Full()
    if spec.method == "distributediht":
        return fedmin.DistributedIHT(step)  # full gradients: the best it can be
    if spec.method == "sparsenewton":
        return fedmin.SparseNewton(step)
    kind = {"fedht": fedmin.FedHT, "fediterht": fedmin.FedIterHT, "scaffoldht": fedmin.ScaffoldHT}
    return kind[spec.method](step, spec.local_steps, batches=batches)


@dataclass
class Book:
    """The worlds, made when they are needed, and the runs that are there already."""

    make: Callable[[str, int], World]
    path: Path | None = None
    done: dict[Spec, Curve] = field(default_factory=dict)
    made: dict[tuple[str, int], World] = field(default_factory=dict)
    say: Callable[[str], Any] = lambda words: None

    def world(self, name: str, seed: int) -> World:
        """One world at a time is kept: the largest takes 400 MB."""
        if (name, seed) not in self.made:
            self.made.clear()
            self.made[name, seed] = self.make(name, seed)
        return self.made[name, seed]

    def curves(self, specs: list[Spec]) -> list[Curve]:
        """Runs that differ in the step only, in one sweep; from the book where they are there."""
        missing = [spec for spec in specs if spec not in self.done]
        if missing:
            clock = time.perf_counter()
            for spec, curve in zip(missing, self._sweep(missing), strict=True):
                self.done[spec] = curve
            self.save()
            first, spent = missing[0], time.perf_counter() - clock
            self.say(f"# {first.world} {first.method} K={first.local_steps} {spent:.0f} s")
        return [self.done[spec] for spec in specs]

    def _sweep(self, specs: list[Spec]) -> list[Curve]:
        first = specs[0]
        world = self.world(first.world, first.seed)
        truth = world.truth is not None
        record = (fedmin.Objective(), *([fedmin.Support(world.truth)] if truth else []))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # diverged: the status says so
            found = fedmin.sweep(
                world.problem, world.federation, method_of(first, world.scale), seeds=[first.seed],
                rounds=first.rounds, every=first.every, record=record,
                over={"step": [world.scale * spec.step for spec in specs]},
            )  # fmt: skip
        return [
            curve(spec, one, world.scale) for spec, one in zip(specs, whole(found), strict=True)
        ]

    def recall(self) -> None:
        """Take up the runs that the book has."""
        self.done |= recalled(self.path, Spec, Curve)

    def save(self) -> None:
        """Write the book, a line a run."""
        kept(self.path, self.done.values())


def curve(spec: Spec, result: Any, scale: float) -> Curve:
    """What is kept of a run."""
    history = result.history
    sent = np.asarray(history["bytes_down"]) + np.asarray(history["bytes_up"])
    return Curve(
        spec, result.status, round(float(result.run_seconds), 2),
        [int(t) for t in history["round"]], _short(scale * np.asarray(history["objective"])),
        _short(sent / 1e6), _short(history["f1"]) if "f1" in history else None,
    )  # fmt: skip


def _short(values: Any) -> list[float]:
    """Six digits are enough, and keep the book small."""
    return [float(f"{v:.6g}") for v in np.asarray(values)]
