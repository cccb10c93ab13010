"""Numbers that a server moves from round to round by what it sees: SSCA's tau and price of slack.

A rule is a value, and the number that it moves is part of the server's state:

    first(w)              the state before round 0; its `value` is the number, of w's type
    update(state, ...)    the state after a round that has shown this much

A rule for tau is shown the curvatures that clients have measured, and is told which way the model
then went; a rule for the price is shown the slack. `rule(field)` makes one of a method's field: a
plain number is a rule that never moves it, so that the method need not ask which of the two it is.
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from fedmin.core import checks


class Fixed(NamedTuple):
    """A number that stays as it is."""

    value: Array


class Followed(NamedTuple):
    """A tau, and along which direction clients measure the curvature for the next one."""

    value: Array
    toward: Array  # v, of length 1; all 0 before the first step


class Raised(NamedTuple):
    """A price, and the round at which it last grew."""

    value: Array
    since: Array


class Constant(eqx.Module):
    """A number that stays as it is, for tau or for the price: what a plain number stands for.

    It checks nothing: it is made anew in compiled code, where the number is not known.
    """

    value: float

    measured: ClassVar[bool] = False  # whether clients measure something for it

    def first(self, w: Array) -> Fixed:
        return Fixed(jnp.asarray(self.value, w.dtype))

    def update(self, state: Fixed, *shown: Any) -> Fixed:
        return state

    def heading(self, state: Fixed, way: Array) -> Fixed:
        return state

    def age(self, state: Fixed, t: Array) -> Array:
        return t


class Tuned(eqx.Module):
    """A tau that follows the curvature: `factor` times what clients measure along the last step.

    >>> import fedmin
    >>> fedmin.Tuned(start=0.1).factor
    1.0
    """

    start: float = 0.1
    factor: float = 1.0
    slowly: float = 0.95  # it falls by no more a round: one flat spot is not a flat valley
    least: float = 1e-3
    most: float = 1e3

    measured: ClassVar[bool] = True

    def __check_init__(self):
        for name in ("start", "factor", "least", "most"):
            checks.positive(name, getattr(self, name))
        checks.between("slowly", self.slowly, 0.0, 1.0, open_low=True)

    def first(self, w: Array) -> Followed:
        return Followed(jnp.asarray(self.start, w.dtype), jnp.zeros_like(w))

    def update(self, state: Followed, curves: Array, rho: Array) -> Followed:
        """tau, moved by rho towards the largest of the curvatures."""
        tau = state.value
        wanted = jnp.clip(self.factor * jnp.max(jnp.abs(curves)), self.least, self.most)
        new = jnp.maximum((1 - rho) * tau + rho * wanted, self.slowly * tau)
        known = jnp.any(state.toward != 0)  # nothing was measured before the first step
        return state._replace(value=jnp.where(known, new, tau))

    def heading(self, state: Followed, way: Array) -> Followed:
        """The same tau, to be measured along this way."""
        length = jnp.maximum(jnp.linalg.norm(way), jnp.finfo(way.dtype).tiny)
        return state._replace(toward=way / length)


class Penalty(eqx.Module):
    """The price c of slack: `start`, times `growth` after every `every` rounds that left slack.

    The schedules of the method begin anew each time it grows.

    >>> import fedmin
    >>> fedmin.Penalty(10.0, growth=10.0, every=100).every
    100
    """

    start: float = 1e5  # c_1
    growth: float = 1.0
    every: int = eqx.field(default=100, static=True)
    slack: float = 1e-3  # what is small enough
    most: float = 1e9

    def __check_init__(self):
        checks.positive("penalty", self.start)
        checks.between("growth", self.growth, 1.0)
        checks.at_least("every", self.every, 1)
        checks.positive("slack", self.slack)
        checks.between("most", self.most, float(jnp.max(jnp.asarray(self.start))))

    def first(self, w: Array) -> Raised:
        return Raised(jnp.asarray(self.start, w.dtype), jnp.zeros((), jnp.int32))

    def update(self, state: Raised, slack: Array, t: Array) -> Raised:
        """A higher price where the stage that ends with round t has left slack, f[M]."""
        if not len(slack):
            return state
        price = state.value
        ended = self.age(state, t) + 1 >= self.every
        left = jnp.max(slack) > self.slack
        grows = ended & left & (price * self.growth <= self.most) & (self.growth > 1)
        return Raised(
            jnp.where(grows, price * self.growth, price),
            jnp.where(grows, t + 1, state.since).astype(jnp.int32),
        )

    def age(self, state: Raised, t: Array) -> Array:
        """How many rounds it has stood, in round t: what the method's schedules count."""
        return t - state.since


def rule(field: Any) -> Any:
    """What moves a method's number: the field itself, or nothing if it is a plain number."""
    return field if isinstance(field, eqx.Module) else Constant(field)


def check(name: str, field: Any, kind: type) -> None:
    """Refuse a number that is not above zero, and a rule for something else."""
    if isinstance(field, eqx.Module):
        checks.is_a(name, field, kind, f"0.1 or {kind.__name__}()")
    else:
        checks.positive(name, field)
