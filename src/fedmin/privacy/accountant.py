"""The accountant: what rounds of releases add up to, by dp-accounting.

    PLD   privacy loss distributions, the tighter one; what is told unless said otherwise
    RDP   Renyi divergences; the one for what is zero-concentrated, and of which no more is known:
          choices by the exponential mechanism (core/choices.py), noise in whole numbers

Both are upper bounds. Neighbours: one unit is there, or tells nothing ("add or remove"). Mechanisms
are elsewhere (core/release.py); here is arithmetic only.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from fedmin.core.release import Release

Way = Literal["pld", "rdp"]
ORDERS = (*(a / 10 for a in range(20, 110)), *range(11, 65), 96, 128, 256, 512, 1024)  # of RDP
INTERVAL = 1e-3  # of PLD's grid of losses; rounded up, so that epsilon is not too small
MEANINGLESS = 200.0  # an epsilon above which nobody needs a tighter one
LEAST = 0.1  # a multiplier below which hiding in a sample is not counted
GRID = 12  # rounds at which a whole history is computed exactly


def _dp() -> Any:
    try:
        import dp_accounting
    except ImportError:
        raise ImportError(
            "epsilon is computed by dp-accounting: pip install 'fedmin[privacy]'"
        ) from None
    return dp_accounting


def event(releases: Sequence[Release], rounds: int) -> Any:
    """What so many rounds tell of one unit, in dp-accounting's words."""
    dp = _dp()
    found = []
    for each in releases:
        if each.concentrated:
            one = dp.ZCDpEvent(0.5 / each.multiplier**2, 0.0)
        else:
            one = dp.GaussianDpEvent(each.multiplier)
            if each.rate < 1:
                one = dp.PoissonSampledDpEvent(each.rate, one)
        found.append(dp.SelfComposedDpEvent(one, each.times * (1 if each.once else rounds)))
    return dp.ComposedDpEvent(found)


def _accountant(way: Way) -> Any:
    _dp()
    if way == "rdp":
        from dp_accounting import rdp

        return rdp.RdpAccountant(ORDERS)
    from dp_accounting import pld

    return pld.PLDAccountant(value_discretization_interval=INTERVAL)


@lru_cache(maxsize=4096)
def _epsilon(releases: tuple[Release, ...], rounds: int, delta: float, way: Way) -> float:
    accountant = _accountant(way)
    accountant.compose(event(releases, rounds))
    return float(accountant.get_epsilon(delta))


def epsilon(releases: Iterable[Release], rounds: int, delta: float, way: Way = "pld") -> float:
    """epsilon after so many rounds of these releases of one unit, an upper bound.

    Those that are told `once`, before round 0, are in it however few rounds there are.

    >>> from fedmin.core.release import Release
    >>> from fedmin.privacy.accountant import epsilon
    >>> one = [Release("row", multiplier=1.0, rate=0.1)]
    >>> round(epsilon(one, 200, 1e-5, "rdp"), 2)
    11.06
    >>> epsilon([], 200, 1e-5)
    0.0
    """
    given = tuple(each for each in releases if each.once or rounds)
    if not given:
        return 0.0
    if way == "pld" and any(each.concentrated for each in given):
        way = "rdp"
    # hardly any noise: hiding in a sample is not counted, which would take ages and change nothing
    given = tuple(each._replace(rate=1.0) if _bare(each) else each for each in given)
    found = _epsilon(given, int(rounds), float(delta), "rdp")
    if way == "rdp" or found > MEANINGLESS:
        return found
    return min(found, _epsilon(given, int(rounds), float(delta), "pld"))


def _bare(release: Release) -> bool:
    return release.multiplier < LEAST


def calibrated(
    release: Release, rounds: int, target: float, delta: float, beside: Iterable[Release] = ()
) -> float:
    """The smallest multiplier, to 0.1 %, whose epsilon after so many rounds is at most `target`,
    together with what is told `beside` it."""
    like = release._replace(multiplier=1.0)
    return _calibrated(like, int(rounds), float(target), float(delta), tuple(beside))


@lru_cache(maxsize=256)
def _calibrated(
    release: Release, rounds: int, target: float, delta: float, beside: tuple[Release, ...]
) -> float:
    def enough(multiplier: float, way: Way = "pld") -> bool:
        all_of_it = [release._replace(multiplier=multiplier), *beside]
        return epsilon(all_of_it, rounds, delta, way) <= target

    if beside and epsilon(beside, rounds, delta) >= target:
        raise ValueError(
            f"what was told before round 0 costs epsilon = {epsilon(beside, rounds, delta):.4g} "
            f"alone: nothing is left of epsilon = {target:g}"
        )

    high = 1.0  # by RDP, which is quick and never too small; then down from there
    while not enough(high, "rdp"):
        high *= 2
        if high > 1e6:
            raise ValueError(f"no noise gives epsilon = {target:g} at delta = {delta:g}")
    low = high / 2 if high > 1 else 0.05
    while high - low > 0.05 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle, "rdp") else (middle, high)
    low = high / 2
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def asked(
    release: Release, given: Any, rounds: int | None, beside: Iterable[Release] = ()
) -> float:
    """The multiplier of a release by which a run has the epsilon that a mechanism is `given`."""
    if rounds is None:
        raise ValueError(f"{given}: epsilon needs to know the rounds; give multiplier=...")
    return calibrated(release, rounds, float(given.epsilon), float(given.delta), beside)


def rounds_within(
    releases: Iterable[Release], budget: float, delta: float, most: int
) -> tuple[int, float]:
    """The most rounds, up to `most`, whose epsilon is within a budget; and what they cost."""
    given = tuple(releases)
    cost = epsilon(given, most, delta)
    if cost <= budget:
        return most, cost
    low, high = 0, most  # low is within, high is not
    while high - low > 1:
        middle = (low + high) // 2
        if epsilon(given, middle, delta) <= budget:
            low = middle
        else:
            high = middle
    return low, epsilon(given, low, delta)


def column(releases: Iterable[Release], rounds: Sequence[int] | np.ndarray, delta: float) -> Any:
    """epsilon after each of these rounds, for a history: never too small.

    Of many rounds a few are computed by PLD; those between have RDP's number, or that of the next
    round which is known, whichever is smaller.
    """
    given, at = tuple(releases), np.asarray(rounds, int)
    wanted = np.unique(at)
    places = np.unique(np.linspace(0, len(wanted) - 1, GRID).round().astype(int))
    exact = {int(t): epsilon(given, int(t), delta) for t in wanted[places]}
    known = np.array(sorted(exact))
    found = {}
    for t in wanted.tolist():
        above = exact[int(known[np.searchsorted(known, t)])]
        found[t] = exact.get(t, min(above, epsilon(given, t, delta, "rdp")))
    return np.array([found[int(t)] for t in at], float)
