"""What is said of a run that has ended: by its metrics, its certificate and its constraints.

A run that went through all its rounds is not yet one that went well:

    risen      the objective ended above where it began, or rose again by a factor
    stalled    the model stood still although a plain gradient step lowers the objective

Noise at the end and methods that are not monotone are no reason: what counts is the lowest value of
the last quarter, and in the first rounds only a rise to the double. Under constraints an objective
may have to rise, and nothing is said of it.
"""

import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.core.constants import constants
from fedmin.core.federation import Federation
from fedmin.core.measured import objective_at
from fedmin.core.privacy import Privacy, Shown
from fedmin.core.result import Result
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows
from fedmin.engines.messages import messages_of, reports_of
from fedmin.engines.round import Run
from fedmin.privacy.exposures import exposures
from fedmin.privacy.observers import table as observers_table
from fedmin.privacy.observers import who_counts, who_learns

SMALL = 1e-3  # of the objective: less is noise
EARLY = 20  # rounds in which many methods go up before they go down
AFFORDABLE = 3e7  # rows times entries of x up to which constants are measured unasked


def judged(result: Result, run: Run, federation: Federation, measure: bool = True) -> Result:
    """The result of an engine with all that can be said of it.

    Where something went wrong, `measure` finds out more from the rows: what the objective is
    elsewhere, and which step would be right.
    """
    roster = federation.roster(run.participation.everyone)
    seen = federation if measure else None
    return _judged(result, run, roster, federation.server_rows, seen)


def judged_apart(result: Result, run: Run, roster: Roster, server_rows: Rows | None) -> Result:
    """The same for whoever has a roster and no client's rows."""
    return _judged(result, run, roster, server_rows, None)


def _judged(
    result: Result, run: Run, roster: Roster, server_rows: Rows | None, seen: Federation | None
) -> Result:
    rising = reports_of(run, roster, server_rows).rising
    result, problem = _with_constraints(replace(result, rising=rising)), run.problem
    if result.status == "done" and not problem.num_constraints and "objective" in result.history:
        result = _with_trend(result, run, seen)
    result = replace(result, shown=_shown(result, run, roster))
    said = _joined(run.method.concerns(result.info), run.channel.concerns(result.info))
    return replace(result, reason=_joined(result.reason, said)) if said else result


def _shown(result: Result, run: Run, roster: Roster) -> Privacy:
    """Who learnt what in the run, from its channel's and its method's own words."""
    messages = messages_of(run, roster)
    found = [
        *who_counts(run.problem, roster),
        *who_learns(messages.purposes, roster.names),
    ]
    lines = zip(found, observers_table(found), strict=True)
    shown = tuple(
        Shown(when, int(trip), who, parts, to, sees, not each.summed)
        for each, (when, trip, who, parts, to, sees) in lines
    )
    there = [int(count) for count in result.ledger.counts if count]
    sums = all(e.summed for e in found if e.when == "training" and e.kind == "reply")
    told = exposures(run, roster, (messages.training, messages.evaluation))
    return Privacy(shown, min(there) if there else None, sums, tuple(told))


def _joined(*words: str) -> str:
    return "; ".join(each for each in words if each)


def _with_constraints(result: Result) -> Result:
    """With what the certificate says of the constraints; or with the words that nobody looked."""
    if not result.problem.num_constraints or result.status not in ("done", "stopped", "infeasible"):
        return result
    found, status, said = result.certificate, result.status, [result.reason]
    if found is not None and not found.feasible:
        status = "infeasible"
        said.append(found.verdict)
    if found is None and result.best is None and "violation" not in result.history:
        said.append("the constraints were not measured: record Optimality(), or take a certificate")
    return replace(result, status=status, reason=_joined(*said))


def _with_trend(result: Result, run: Run, seen: Federation | None) -> Result:
    """With the words that it ended higher than it was, or that it stood still."""
    values = np.asarray(result.history["objective"], float)
    if len(values) < 2:
        return result
    there = seen is not None and result.solution is not None
    found = _stood_still(result, seen, values) if there else ""  # type: ignore[arg-type]
    if found:
        return replace(result, status="stalled", reason=_joined(result.reason, found))
    found = _rose(result, run, seen, values)
    if found:
        todo = _step_to_try(result, seen)
        return replace(result, status="risen", reason=_joined(result.reason, found, todo))
    return result


def _rose(result: Result, run: Run, seen: Federation | None, values: np.ndarray) -> str:
    width = max(1, len(values) // 4)
    places = np.unique(np.linspace(0, len(values) - width, 50).astype(int))
    middles = [np.median(values[i : i + width]) for i in places]
    first, lowest = values[0], min(middles)
    end = values[-width:].min()  # noise comes back down once in a while
    early, scale = result.rounds < EARLY, abs(first)
    if end > first and run.start is not None and seen is not None:
        # a start near the minimum: what is a lot is told by where the problem itself begins
        scale = max(scale, abs(objective_at(result.problem, seen, _usual(result.problem))))
    if end - first > (1 if early else SMALL) * scale + 1e-6:
        return f"the objective ended at {values[-1]:.4g}, above {first:.4g} where it began"
    back = (end - lowest) / max(first - lowest, np.finfo(float).tiny)
    doubled = 0 < 2 * lowest <= end
    if not early and end > lowest and (back >= 0.5 or (doubled and back >= 0.1)):
        at = result.history["round"][places[int(np.argmin(middles))]]
        return f"the objective rose again to {values[-1]:.4g}, after {lowest:.4g} near round {at}"
    return ""


def _stood_still(result: Result, federation: Federation, values: np.ndarray) -> str:
    """Why the model did not move although it could, or ""."""
    whole = bool(np.all(values == values[0]))
    half = values[len(values) // 2 :]
    if not (whole or (len(half) >= 5 and np.all(half == half[0]))) or result.rounds < 2:
        return ""
    if not any(result.ledger.counts):
        return "nobody took part in any round"
    problem, x = result.problem, jnp.asarray(result.solution)
    lower, step = _after_a_step(problem, federation, x)
    if not lower < values[-1] - SMALL * max(abs(values[-1]), values[0] - values[-1]):
        return ""
    since = "from the start" if whole else f"from round {_last_change(result, values)} on"
    return (
        f"the model did not move {since}: every step was refused, or too small to count; "
        f"a gradient step of {step:.3g} would lower the objective from {values[-1]:.4g} to "
        f"{lower:.4g}"
    )


def _last_change(result: Result, values: np.ndarray) -> int:
    moved = np.flatnonzero(values != values[-1])
    return int(result.history["round"][moved[-1] + 1])


def _after_a_step(problem: Any, federation: Federation, x: Any) -> tuple[float, float]:
    """The objective after one gradient step of 1/L, within the problem's set; and 1/L."""
    if not problem.domain.can_prox:
        return np.inf, 0.0
    slope = objective_at(problem, federation, x, gradient=True)[1]
    # the curvature along the gradient is enough for one step, and is one look at the data
    curve, length = _curvature(problem, federation, x, slope), float(np.linalg.norm(slope))
    step = 1 / curve if curve > 0 else 1e-3 / max(length, 1e-30)
    moved = problem.domain.prox(jnp.asarray(x - step * slope, x.dtype), step)
    return objective_at(problem, federation, moved), step


def _curvature(problem: Any, federation: Federation, x: Any, slope: np.ndarray) -> float:
    """The second derivative along the gradient, by a difference of two gradients."""
    length = float(np.linalg.norm(slope))
    if length == 0:
        return 0.0
    h = 1e-2 * max(float(np.linalg.norm(x)), 1.0) / length
    beyond = objective_at(problem, federation, jnp.asarray(x - h * slope, x.dtype), gradient=True)
    return float(slope @ (slope - beyond[1])) / (h * length**2)


def _usual(problem: Any) -> Any:
    return problem.init(jax.random.key(0))


def _step_to_try(result: Result, seen: Federation | None) -> str:
    """What to do about a step that is too long."""
    method, problem = result.method, result.problem
    field = next((name for name in ("step", "alpha", "gamma") if hasattr(method, name)), None)
    if field != "step":
        return "" if field is None else f"try a smaller {field}"
    if seen is None or seen.pool.count * problem.size() > AFFORDABLE:
        return "try a smaller step: fedmin.constants(problem, federation) measures one"
    found = constants(problem, seen, iterations=10)
    local = hasattr(method, "local_steps")
    size, name = (found.local_step, "1/max l_i") if local else (found.step, "1/L")
    return f"try a smaller step: {name} is {size:.3g} where the problem begins (fedmin.constants)"


def warn(result: Result, run: Run, stacklevel: int = 3) -> None:
    """Warn of a run that did not end well."""
    name, words = type(result.method).__name__, ""
    if result.status == "diverged":
        words = f"{name} stopped at {result.reason}; the result has what came before"
    elif result.status in ("infeasible", "risen", "stalled") or (
        result.status in ("done", "stopped") and run.channel.concerns(result.info)
    ):
        words = f"{name}: {result.reason}"
    elif result.status == "done" and result.method.concerns(result.info):
        words = f"{name}: {result.method.concerns(result.info)}"
    if words:
        warnings.warn(words, RuntimeWarning, stacklevel=stacklevel)
