"""What a result says of its model: what predicts, limits, what was measured, whose rows."""

from typing import Any

import numpy as np

from fedmin.core.federation import Federation
from fedmin.core.preparation import About
from fedmin.core.problem import Problem
from fedmin.core.wrapped import Wrapped


def about_of(federation: Federation) -> About | None:
    """What is known of the columns; those of several parties have the numbers that they had."""
    if federation.about is None and federation.columns:
        return About(tuple(f"x{j}" for j in np.concatenate(federation.columns)))
    return federation.about


def unwrapped(problem: Any) -> Any:
    """What predicts, without the set or the constraints around it."""
    while isinstance(problem, Wrapped):
        problem = problem.inner
    return problem


def predicts(problem: Any) -> bool:
    """Whether a problem says what it predicts for a row."""
    return callable(getattr(problem, "predict", None))


def numbered(problem: Any) -> tuple[str, ...]:
    """Names of features that have none; of a problem that does not say how many, none."""
    return tuple(f"x{j}" for j in range(getattr(problem, "features", 0)))


def limits_of(result: Any) -> tuple[dict[str, Any], ...]:
    """The constraints: on what, their limit, and the value if it was measured."""
    names, bounds = result.problem.limit_names(), result.problem.bounds()
    found = result.certificate
    values = [None] * len(names) if found is None else found.constraints
    return tuple(
        {"on": name, "limit": float(bound), "value": None if v is None else float(v + bound)}
        for name, bound, v in zip(names, bounds, values, strict=True)
    )


def domain_of(problem: Problem) -> str:
    """The set that a problem is confined to, in words."""
    words = str(problem.domain)
    return "" if words == "Free()" else words[:300]


def summary_of(certificate: Any) -> dict[str, Any]:
    """What a reader of the model wants to know of its certificate."""
    if certificate is None:
        return {}
    names = ("objective", "gradient", "gap", "convex", "violation", "feasible", "tolerance",
             "best_stationarity", "measured")  # fmt: skip
    return {name: getattr(certificate, name) for name in names}


def data_of(result: Any) -> dict[str, Any]:
    """Which rows it is of, by their hashes."""
    found = {} if result.certificate is None else dict(result.certificate.data)
    if result.about is not None and result.about.fingerprint:
        found["sites"] = dict(result.about.fingerprint)
    return found
