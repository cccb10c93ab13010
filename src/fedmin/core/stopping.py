"""The rules that end a run before its rounds are over, by what was recorded."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from fedmin.core import checks


class Rule(eqx.Module):
    """When to end a run early, by what was just recorded.

    >>> import fedmin
    >>> isinstance(fedmin.Stop("accuracy", above=0.9), fedmin.Rule)
    True
    """

    @abstractmethod
    def check(self, columns: tuple[str, ...]) -> None:
        """Refuse to watch a column that is not recorded."""

    @abstractmethod
    def __call__(self, columns: tuple[str, ...], values: Any) -> Any:
        """Whether to stop."""


class Stop(Rule):
    """A rule that ends a run as soon as a recorded column is `below` or `above` a level.

    >>> import fedmin
    >>> fedmin.Stop("accuracy", above=0.9)
    Stop(column='accuracy', above=0.9)
    """

    column: str = eqx.field(static=True)
    below: float | None = None
    above: float | None = None

    def __check_init__(self):
        if (self.below is None) == (self.above is None):
            raise ValueError("Stop needs below=... or above=..., and not both")

    def check(self, columns):
        checks.known("recorded column", self.column, columns)

    def __call__(self, columns, values):
        value = values[columns.index(self.column)]
        return value >= self.above if self.below is None else value <= self.below


class KKT(Rule):
    """Stop as soon as violation, stationarity and complementarity are all at most `tol`.

    They are recorded by `Optimality`, which is on by default where there are constraints.

    >>> import fedmin
    >>> fedmin.KKT(1e-3)
    KKT(tol=0.001)
    """

    tol: float

    def __check_init__(self):
        checks.positive("tol", self.tol)

    def check(self, columns):
        if "stationarity" not in columns:
            raise ValueError("KKT needs Optimality() among what is recorded")

    def __call__(self, columns, values):
        watched = ("violation", "stationarity", "complementarity")
        fine = [values[columns.index(name)] <= self.tol for name in watched if name in columns]
        return jnp.all(jnp.stack([jnp.asarray(one) for one in fine]))


class Gap(Rule):
    """Stop as soon as the gap (of `WolfeGap`) is at most `tol`: a convex F is then that close.

    >>> import fedmin
    >>> fedmin.Gap(1e-3)
    Gap(tol=0.001)
    """

    tol: float

    def __check_init__(self):
        checks.positive("tol", self.tol)

    def check(self, columns):
        if "gap" not in columns:
            raise ValueError("Gap needs WolfeGap() among what is recorded")

    def __call__(self, columns, values):
        return values[columns.index("gap")] <= self.tol


class Budget(Rule):
    """Stop before a run with noise would cost more than `epsilon` at `delta`, for any unit.

    How many rounds that allows is known before the first, since what noise costs does not depend
    on the data; `fedmin show` says it.

    >>> import fedmin
    >>> fedmin.Budget(3.0, delta=1e-5)
    Budget(epsilon=3.0, delta=1e-05)
    """

    epsilon: float
    delta: float = 1e-5

    def __check_init__(self):
        checks.positive("epsilon", self.epsilon)
        checks.between("delta", self.delta, 0.0, 0.5, open_low=True)

    def check(self, columns):
        return

    def __call__(self, columns, values):
        return jnp.zeros((), bool)  # the run is not given more rounds than its budget allows


RULES: dict[str, type[Rule]] = {kind.__name__.lower(): kind for kind in (Stop, Gap, KKT, Budget)}
