"""What a mechanism tells of one unit, as the accountant must know it.

A mechanism (`channels/noise.py`, `client/private_rows.py`, `client/private_choices.py`) draws its
noise with the numbers of the `Release` that it hands to the accountant (`privacy/accountant.py`),
so that what is accounted is what is drawn. Neighbours differ in the reply of one client, or in one
row, which is there or tells nothing; the roster (who takes part, with how many rows) is known to
all.
"""

from typing import Literal, NamedTuple

from fedmin.core import checks

UNITS = ("client", "row")


class Release(NamedTuple):
    """What every round tells of one unit, or what is told of it once before: `times` releases of a
    mechanism with noise.

    >>> from fedmin.core.release import Release
    >>> Release("row", multiplier=1.0, rate=0.1, times=5).rate
    0.1
    """

    unit: Literal["client", "row"]
    multiplier: float = 0.0  # the noise's standard deviation over the sensitivity
    rate: float = 1.0  # the chance that a unit is in it, drawn for each by itself and not told
    times: int = 1  # a round
    # not a Gaussian, but as concentrated as one of this multiplier, 1 / (2 multiplier^2): whole
    # numbers in a sum, choices by the exponential mechanism
    concentrated: bool = False
    once: bool = False  # before round 0, as preparing columns is, and not in every round


class Private(NamedTuple):
    """How private something is to be: a multiplier, or an epsilon for which one is found."""

    multiplier: float | None
    epsilon: float | None
    delta: float


def check_private(given: Private) -> None:
    """Refuse noise that nothing, or two things, decide."""
    if (given.multiplier is None) == (given.epsilon is None):
        raise ValueError("give multiplier=... or epsilon=..., and not both")
    for name in ("multiplier", "epsilon"):
        if getattr(given, name) is not None:
            checks.positive(name, getattr(given, name))
    checks.between("delta", given.delta, 0.0, 0.5, open_low=True)
