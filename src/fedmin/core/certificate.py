"""How close a model came to a KKT point, measured on all data and written down to be checked.

    stationarity       |g|, g = grad F_0(x) + sum nu_m grad F_m(x); over a convex set
                       |x - P(x - g)|, over an L0Ball |g| on its support: 0 at a KKT point
    violation          max_m F_m(x), or 0
    complementarity    max_m |nu_m F_m(x)|
    reach              |v| of the shortest v with F_m(x) + grad F_m(x).v <= 0 for all m, where some
                       constraint is not met: how far away it could be, to first order, wherever
                       the problem's set is
    gap                max over u in the problem's set of <g, x - u>, minus nu.F(x): where all is
                       convex, F_0(x) is within it of the least under the constraints (core/kkt.py)
    settled            over an L0Ball, the longest eta for which hard thresholding of x - eta g
                       keeps the support of x

Two sets of multipliers nu >= 0 are given: the method's own, and those that make the stationarity
smallest (with nu_m = 0 where constraint m is not active), which depend on nothing but x.

A violation alone does not say whether more rounds would help; the reach does. Where the constraints
are convex, no model within the reach of x meets them all: 0 >= sum a_m F_m(u) >= sum a_m (F_m(x) +
grad F_m(x).(u - x)) for all a >= 0. It is infinite at a stationary point of the infeasibility, as
the least of a loss that is still above its limit, or where two constraints pull against each other.
"""

import json
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedmin.core import kkt
from fedmin.core.domain import Free
from fedmin.core.federation import Federation
from fedmin.core.files import write_text
from fedmin.core.fitting import fitted
from fedmin.core.kept import DamagedError, read_words, value_of
from fedmin.core.measured import FINGERPRINTS, Measured, measured_on
from fedmin.core.problem import Problem

FAR = 10.0  # lengths of the model itself: no run will go there


@dataclass(frozen=True)
class Certificate:
    """What is known of a model; prints as a table, saves as JSON, and can be checked again.

    >>> import fedmin
    >>> federation = fedmin.data.partition(fedmin.data.load("wine"), fedmin.data.IID(3))
    >>> problem = fedmin.Softmax(13, 3)
    >>> fedmin.certify(problem, federation, problem.init(None)).feasible
    True
    """

    objective: float
    constraints: tuple[float, ...]
    violation: float
    tolerance: float
    feasible: bool
    gradient: float  # |grad F_0|, to compare the stationarity with
    multipliers: tuple[float, ...] | None  # the method's
    stationarity: float | None  # with them
    complementarity: float | None
    best_multipliers: tuple[float, ...]
    best_stationarity: float
    slack: tuple[float, ...] | None  # of the method's last convex problem
    gap: float | None  # over the problem's set, if it has atoms and the constraints are met
    convex: bool  # whether all of the problem is: then F_0(x) - min F_0 is at most the gap
    notes: tuple[str, ...]
    problem: str
    method: str
    rounds: int
    seed: int
    best_round: int | None  # the best recorded feasible model
    best_objective: float | None
    data: dict[str, Any]  # rows, features, clients and a checksum of all, or one a client
    version: str
    solution: tuple[float, ...]
    reach: float | None = None  # to where all constraints are met, to first order; None: they are
    names: tuple[str, ...] = ()  # what each constraint is on
    bounds: tuple[float, ...] = ()  # U_m: F_m is the mean of what it is on, minus U_m
    sizes: tuple[int | None, ...] = ()  # the rows that it is on, None where it is on all
    measured: str = "on all rows in one place"  # or by an exchange between the halves of a run
    domain: str = ""  # the problem's set, if it has one
    inside: bool = True  # whether the model is in it
    nonzeros: int | None = None  # of the model, where the set is about them
    settled: float | None = None  # the longest step that keeps them

    @property
    def verdict(self) -> str:
        """Whether the constraints are met and, if not, whether more rounds can help, in words."""
        if not self.inside:
            return f"the model lies outside of {self.domain}"
        if self.reach is None:
            return "the constraints are met" if self.constraints else ""
        within = " (leaving its set aside)" if self.domain else ""
        size = max(1.0, float(np.linalg.norm(self.solution)))
        if self.reach > FAR * size:
            away = f"{self.reach:.3g} away" if np.isfinite(self.reach) else "nowhere"
            return (
                f"the constraints cannot be met near here: this is a stationary point of the "
                f"infeasibility (to first order the nearest model that meets them is {away}"
                f"{within}); loosen a limit, or begin elsewhere"
            )
        return (
            f"the constraints need more rounds: to first order a step of length {self.reach:.3g} "
            f"meets them{within} (the model's own length is {np.linalg.norm(self.solution):.3g})"
        )

    def __str__(self) -> str:
        def row(name, *numbers):
            shown = "  ".join("-" if n is None else f"{n:>12.5g}" for n in numbers)
            return f"{name:<34}{shown}"

        lines = [row("objective F_0", self.objective), row("|grad F_0|", self.gradient)]
        if self.domain:
            lines.append(f"{'in its set' if self.inside else 'NOT in its set':<34}  {self.domain}")
        if self.nonzeros is not None:
            lines.append(row("non-zeros", self.nonzeros))
            lines.append(row("a gradient step keeps them up to", self.settled))
        if self.gap is not None:
            words = "within this gap of the optimum" if self.convex else "gap over the set"
            lines.append(row(words, self.gap))
        if self.constraints:
            lines += [
                row(f"violation (met up to {self.tolerance:g})", self.violation),
                *([] if self.reach is None else [row("reach, to where all are met", self.reach)]),
                row("stationarity, method's multipliers", self.stationarity),
                row("stationarity, best multipliers", self.best_stationarity),
                row("complementarity", self.complementarity),
            ]
            lines += ["", self.limits_table()]
        if self.best_round is not None:
            lines += ["", row(f"best feasible, round {self.best_round}", self.best_objective)]
        verdict = [] if self.reach is None and self.inside else [self.verdict]
        return "\n".join([*lines, *(f"note: {note}" for note in (*verdict, *self.notes))])

    def limits_table(self) -> str:
        """A line a constraint: on what and how many rows, its value, its limit, its multipliers."""
        count = len(self.constraints)
        names = self.names or tuple(f"F_{m + 1}" for m in range(count))
        bounds, sizes = self.bounds or (0.0,) * count, self.sizes or (None,) * count
        nu = self.multipliers or (None,) * count
        heads = ("rows", "value", "limit", "above", "multiplier", "best")
        width = max(20, *map(len, names)) + 4
        lines = ["constraint".ljust(width) + "".join(head.rjust(12) for head in heads)]
        for name, size, bound, value, *both in zip(
            names, sizes, bounds, self.constraints, nu, self.best_multipliers, strict=True
        ):
            numbers = (value + bound, bound, value, *both)
            cells = ["all" if size is None else f"{size:,}"]
            cells += ["-" if n is None else f"{n:.5g}" for n in numbers]
            lines.append(f"  {name}".ljust(width) + "".join(cell.rjust(12) for cell in cells))
        return "\n".join(lines)

    def save(self, path: str | Path) -> Path:
        """Write it as JSON."""
        write_text(Path(path), json.dumps(asdict(self), indent=1))
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> "Certificate":
        """Read what `save` wrote."""
        path = Path(path)
        found = value_of(path, read_words(path), cls)
        several: list[Any] = [found.constraints, found.best_multipliers, found.multipliers]
        several += [each or None for each in (found.names, found.bounds, found.sizes)]  # since 0.3
        if len({len(each) for each in several if each is not None}) > 1:
            raise DamagedError(path, "its constraints and multipliers are not as many")
        return found

    def check(self, problem: Problem, federation: Federation, rtol: float = 1e-3) -> list[str]:
        """Measure the solution again: what does not agree, in words; nothing if all does.

        Rows that sites have named under secrets of their own (`data["fingerprints"]`) are compared
        by nobody here: each site can, by `fedmin site fingerprint`.
        """
        new = certify(problem, federation, np.asarray(self.solution), multipliers=self.multipliers)
        wrong = []
        for name in ("problem", "feasible"):
            if getattr(self, name) != getattr(new, name):
                wrong.append(f"{name}: {getattr(self, name)}, now {getattr(new, name)}")
        # who measured by an exchange does not know how many rows there are
        wrong += [f"data: {key} {old}, now {new.data.get(key)}"
                  for key, old in self.data.items()
                  if key != FINGERPRINTS and old != new.data.get(key)]  # fmt: skip
        numbers = ("objective", "constraints", "stationarity", "complementarity", "gap", "settled")
        for name in numbers:
            old, now = (getattr(one, name) for one in (self, new))
            scale = max(self.gradient, abs(self.objective))
            if (old is None) != (now is None) or (
                old is not None and not np.allclose(old, now, rtol=rtol, atol=1e-4 * rtol * scale)
            ):
                wrong.append(f"{name}: {old}, now {now}")
        return wrong


def certify(
    problem: Problem,
    federation: Federation,
    x: Any,
    *,
    multipliers: Any = None,
    slack: Any = None,
    notes: tuple[str, ...] = (),
    method: str = "",
    rounds: int = 0,
    seed: int = 0,
    best: Any = None,
) -> Certificate:
    """Measure a model on all of a federation's rows.

    >>> import fedmin
    >>> federation = fedmin.data.partition(fedmin.data.load("wine"), fedmin.data.IID(3))
    >>> problem = fedmin.Softmax(13, 3)
    >>> print(round(fedmin.certify(problem, federation, problem.init(None)).objective, 4))
    1.0986
    """
    problem = fitted(problem, federation)
    return certificate_from(
        problem, x, measured_on(problem, federation, x),
        multipliers=multipliers, slack=slack, notes=notes, method=method, rounds=rounds, seed=seed,
        best=best,
    )  # fmt: skip


def certificate_from(
    problem: Problem,
    x: Any,
    measured: Measured,
    *,
    multipliers: Any = None,
    slack: Any = None,
    notes: tuple[str, ...] = (),
    method: str = "",
    rounds: int = 0,
    seed: int = 0,
    best: Any = None,
) -> Certificate:
    """What is known of a model on which these sums were measured."""
    objective, slope, limits, slopes = measured.functions(problem, x)
    violation = max(0.0, limits.max(initial=0.0))
    domain, active = problem.domain, limits >= -problem.tolerance
    at = jnp.asarray(x, measured.dtype)
    inside = bool(domain.contains(at, 1e-4))
    nu = None if multipliers is None else np.asarray(multipliers, float)
    if not len(limits):
        nu = np.zeros(0)
    best_nu = kkt.best_multipliers(domain, at, slope, slopes, active, nu)
    final = slope + (best_nu if nu is None else nu) @ slopes
    met, given = bool(violation <= problem.tolerance), [n for n in (best_nu, nu) if n is not None]
    settled = domain.settled(at, jnp.asarray(final, at.dtype))
    feasible = best is not None and best.violation <= problem.tolerance
    return Certificate(
        objective=float(objective),
        constraints=_numbers(limits),
        violation=float(violation),
        tolerance=float(problem.tolerance),
        feasible=met and (inside or not len(limits)),
        gradient=float(np.linalg.norm(slope)),
        multipliers=None if nu is None else _numbers(nu),
        stationarity=None if nu is None else kkt.stationarity(domain, at, final),
        complementarity=None if nu is None else float(np.abs(nu * limits).max(initial=0.0)),
        best_multipliers=_numbers(best_nu),
        best_stationarity=kkt.stationarity(domain, at, slope + best_nu @ slopes),
        slack=None if slack is None else _numbers(slack),
        gap=kkt.duality_gap(domain, at, slope, limits, slopes, given) if met else None,
        convex=problem.convex and problem.limits_convex,
        notes=notes,
        problem=repr(problem),
        method=method,
        rounds=rounds,
        seed=seed,
        best_round=int(best.round) if feasible else None,
        best_objective=float(best.objective) if feasible else None,
        data=measured.data,
        version=version("fedmin"),
        solution=_numbers(x),
        names=problem.limit_names(),
        bounds=_numbers(problem.bounds()),
        sizes=problem.limit_sizes(),
        reach=None if met else kkt.reach(limits, slopes),
        measured=measured.how,
        domain="" if isinstance(domain, Free) else repr(domain),
        inside=inside,
        nonzeros=None if settled is None else int(np.count_nonzero(at)),
        settled=None if settled is None else float(settled),
    )


def certificate_of(result: Any, measured: Measured) -> Certificate:
    """The certificate of a run's last model, on which these sums were measured."""
    reported = {**result.method.report(result.server), **result.info}
    return certificate_from(
        result.problem,
        result.solution,
        measured,
        multipliers=reported.get("multiplier"),
        slack=reported.get("slack"),
        notes=result.method.notes(),
        method=repr(result.method),
        rounds=result.rounds,
        seed=result.seed,
        best=result.best,
    )


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in np.asarray(values))
