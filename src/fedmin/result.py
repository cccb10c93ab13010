"""What a run returns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmin.certificate import Certificate
from fedmin.ledger import Ledger
from fedmin.method import Method
from fedmin.problem import Problem


@dataclass(frozen=True, eq=False)
class Result:
    """The solution of a run and how it came about.

    `history` has a column a quantity (round, seconds, bytes_down, bytes_up, objective, ...) and a
    row a recorded round, the start (round 0) included. `status` is "done", "stopped" (by the
    stopping rule), "interrupted" (Ctrl-C), "diverged" or "infeasible" (no recorded model met the
    constraints); `reason` says it in words.

    >>> import fedmin
    >>> federation = fedmin.data.partition(fedmin.data.load("wine"), fedmin.data.IID(3))
    >>> result = fedmin.minimize(fedmin.Softmax(13, 3), federation, fedmin.FedSGD(0.01), rounds=2)
    >>> result.history["round"]
    array([0, 1, 2])
    """

    solution: Any  # f[d]
    history: Mapping[str, np.ndarray]
    ledger: Ledger
    server: Any
    clients: Any
    problem: Problem
    method: Method
    rounds: int  # completed
    seed: int
    status: str
    reason: str
    compile_seconds: float
    run_seconds: float
    memory: Any = ()  # the channel's, a client
    best: Any = None  # where there are constraints: x, objective, violation, round
    certificate: Certificate | None = None

    @property
    def best_feasible(self) -> Any:
        """The recorded model of lowest objective among those that met the constraints, or None."""
        fits = self.best is not None and self.best.violation <= self.problem.tolerance
        return self.best.x if fits else None

    def final(self, column: str) -> float:
        """The last recorded value of a column."""
        return float(self._column(column)[-1])

    def first(self, column: str, level: float, of: str = "round") -> float | None:
        """The `of` at which a column first came to a level (from either side), or None.

        >>> import fedmin
        >>> federation = fedmin.data.partition(fedmin.data.load("wine"), fedmin.data.IID(3))
        >>> problem = fedmin.Softmax(13, 3)
        >>> result = fedmin.minimize(problem, federation, fedmin.FedSGD(0.01), rounds=2)
        >>> result.first("objective", 0.0) is None
        True
        """
        values = self._column(column)
        there = values <= level if values[0] > level else values >= level
        return self._column(of)[int(np.argmax(there))].item() if there.any() else None

    def _column(self, name: str) -> np.ndarray:
        from fedmin import checks

        checks.known("column", name, self.history)
        return self.history[name]

    def plot(self, column: str = "objective", against: str = "round", ax: Any = None) -> Any:
        """Draw a column of the history against another; returns the matplotlib axes."""
        from fedmin.curves import draw

        return draw({type(self.method).__name__: self}, column, against, ax)

    def __repr__(self) -> str:
        shown = [c for c in self.history if c not in ("round", "seconds", "bytes_down", "bytes_up")]
        finals = ", ".join(f"{c} {self.final(c):.6g}" for c in shown)
        speed = self.rounds / self.run_seconds if self.run_seconds > 0 else float("nan")
        name, down, up = type(self.method).__name__, *map(self.ledger.bytes, ("down", "up"))
        return (
            f"Result({name}, {self.status} after {self.rounds} rounds: {finals}; "
            f"{down / 1e6:.3g} MB down, {up / 1e6:.3g} MB up; "
            f"{speed:.0f} rounds/s, compiled in {self.compile_seconds:.2g} s)"
        )
