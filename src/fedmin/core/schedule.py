"""Numbers that may change from round to round: a plain number, or a value called with the round."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin.core import checks


class Power(eqx.Module):
    """scale / (1 + round)^exponent, rounds counted from 0.

    >>> import fedmin
    >>> float(fedmin.Power(1.0, 0.5)(3))
    0.5
    """

    scale: float
    exponent: float

    def __call__(self, round: Array) -> Array:
        return self.scale / (1.0 + jnp.asarray(round, float)) ** self.exponent


class Stages(eqx.Module):
    """One value after the other: values[j] from round starts[j] on, rounds counted from 0.

    The values are static: other ones compile anew. Whole numbers can be a method's `local_steps`.

    >>> import fedmin
    >>> fewer = fedmin.Stages((20, 5), starts=(0, 10))
    >>> [int(fewer(round)) for round in (0, 9, 10, 99)]
    [20, 20, 5, 5]
    >>> fedmin.FedSSO(step=0.1, local_steps=fewer).local_steps
    Stages(values=(20, 5), starts=(0, 10))
    """

    values: tuple[float, ...] = eqx.field(static=True, converter=tuple)
    starts: tuple[int, ...] = eqx.field(static=True, converter=tuple)

    def __check_init__(self):
        checks.positive("values", self.values)
        if len(self.values) != len(self.starts):
            raise ValueError(
                f"values and starts must have as many numbers, got {len(self.values)} and "
                f"{len(self.starts)}"
            )
        for start in self.starts:
            checks.at_least("starts", start, 0)
        later = zip(self.starts, self.starts[1:], strict=False)
        if self.starts[:1] != (0,) or any(a >= b for a, b in later):
            raise ValueError(f"starts must begin with 0 and rise, got {self.starts}")

    @property
    def counts(self) -> bool:
        """Whether the values are whole numbers."""
        return all(isinstance(value, int) for value in self.values)

    def __call__(self, round: Array) -> Array:
        starts = jnp.array(self.starts, jnp.int32)
        stage = jnp.sum(starts <= jnp.asarray(round, jnp.int32)) - 1
        return jnp.array(self.values, jnp.int32 if self.counts else float)[stage]


class ConvexSteps(eqx.Module):
    """FedFW where f_i are convex: eta = 2/(p(t-1)+2), the penalty grows as sqrt(p(t-1)+2).

    t counts steps from 1, p is the chance that a client takes part; p = 1 is Theorem 1 of
    [dadras2024federated], other p its section 4.2.

    >>> import fedmin
    >>> float(fedmin.ConvexSteps().eta(3))
    0.5
    """

    p: float = 1.0

    def __check_init__(self):
        checks.between("p", self.p, 0.0, 1.0, open_low=True)

    def eta(self, t: Array) -> Array:
        """The step, in (0, 1]."""
        return 2 / (self.p * (t - 1) + 2)

    def growth(self, t: Array) -> Array:
        """What the penalty is multiplied by."""
        return jnp.sqrt(self.p * (t - 1) + 2.0)


class NonconvexSteps(eqx.Module):
    """FedFW where f_i need not be convex: eta = T^(-2/3), the penalty times T^(1/3).

    T is the number of rounds, known before: Theorem 2 of [dadras2024federated]. Where a client
    takes part with chance p, give p: T becomes pT + 1, section 4.2.

    >>> import fedmin
    >>> round(float(fedmin.NonconvexSteps(1000).eta(7)), 6)
    0.01
    """

    rounds: float  # T
    p: float | None = None

    def __check_init__(self):
        checks.between("rounds", self.rounds, 1.0)
        if self.p is not None:
            checks.between("p", self.p, 0.0, 1.0, open_low=True)

    def eta(self, t: Array) -> Array:
        """The step, in (0, 1]."""
        return self._length() ** (-2 / 3)

    def growth(self, t: Array) -> Array:
        """What the penalty is multiplied by."""
        return self._length() ** (1 / 3)

    def _length(self) -> Array:
        return jnp.asarray(self.rounds if self.p is None else self.p * self.rounds + 1, float)


class StochasticSteps(eqx.Module):
    """FedFW-sto, convex: eta = 9/(t+8), penalty times sqrt(t+8), rho = 4/(t+7)^(2/3).

    Theorem 3 of [dadras2024federated].

    >>> import fedmin
    >>> round(float(fedmin.StochasticSteps().rho(1)), 6)
    1.0
    """

    def eta(self, t: Array) -> Array:
        """The step, in (0, 1]."""
        return 9 / (t + 8.0)

    def growth(self, t: Array) -> Array:
        """What the penalty is multiplied by."""
        return jnp.sqrt(t + 8.0)

    def rho(self, t: Array) -> Array:
        """How much of the new gradient is in the running one."""
        return 4 / (t + 7.0) ** (2 / 3)


class Auto(eqx.Module):
    """A step that nobody gives: 1/L of the clients' curvature, then what the objective allows.

    Clients say what their part of the objective is at the model that they got. A step that raises
    it by more than `rise` times what was gained since the start is undone and made again `shrink`
    times as long; each one that is kept makes the next `grow` times as long. `step="auto"` is the
    same (server/guard.py).

    >>> import fedmin
    >>> fedmin.FedAvg("auto", local_steps=5).step
    Auto()
    """

    rise: float = 0.02  # of what was gained so far: a smaller rise is noise
    shrink: float = 0.5
    grow: float = 1.1

    def __check_init__(self):
        checks.between("rise", self.rise, 0.0)
        checks.between("shrink", self.shrink, 0.0, 1.0, open_low=True, open_high=True)
        checks.between("grow", self.grow, 1.0)


def step(given: Any) -> Any:
    """A step as it was given; the word "auto" stands for `Auto()`."""
    return Auto() if isinstance(given, str) and given == "auto" else given


def at(value: Any, round: Array) -> Any:
    """A setting's value at this round."""
    return value(round) if callable(value) else value


def check(name: str, value: Any) -> None:
    """Refuse a weight outside (0, 1], now or in a later round."""
    if isinstance(value, Power):
        checks.positive(f"{name}'s scale", value.scale)
        checks.between(f"{name}'s exponent", value.exponent, 0.0)
        checks.between(f"{name} in round 0", value.scale, 0.0, 1.0, open_low=True)
    elif callable(value):
        for round in (0, 1, 10, 1000, 100_000):
            now = np.asarray(value(jnp.int32(round)))
            checks.between(f"{name} in round {round}", now, 0.0, 1.0, open_low=True)
    else:
        checks.between(name, value, 0.0, 1.0, open_low=True)


def outside_theorem(rho: Any, gamma: Any) -> tuple[str, ...]:
    """What of the conditions for convergence these two do not meet, in words.

    The conditions [ye2022sample]: both tend to 0 with infinite sums, gamma^2 has a finite sum, and
    gamma/rho tends to 0.
    """

    def exponent(value):
        if callable(value):
            return value.exponent if isinstance(value, Power) else None
        return 0.0

    r, g = exponent(rho), exponent(gamma)
    if r is None or g is None:
        return ("a schedule of your own: the theorem's conditions were not checked",)
    broken = [
        (np.any(r <= 0), "rho does not tend to 0"),
        (np.any(g <= 0), "gamma does not tend to 0"),
        (np.any(r > 1), "the sum of rho is finite"),
        (np.any(g > 1), "the sum of gamma is finite"),
        (np.any(g <= 0.5), "the sum of gamma^2 is infinite"),
        (np.any(g <= r), "gamma/rho does not tend to 0"),
    ]
    return tuple(f"outside the theorem: {words}" for holds, words in broken if holds)


AtomSteps = ConvexSteps | NonconvexSteps | StochasticSteps

# numbers that change with the round, and the steps and penalties of Frank-Wolfe methods
SCHEDULES = {"power": Power, "stages": Stages, "auto": Auto}
FRANK_WOLFE_STEPS = {
    "convexsteps": ConvexSteps,
    "nonconvexsteps": NonconvexSteps,
    "stochasticsteps": StochasticSteps,
}
