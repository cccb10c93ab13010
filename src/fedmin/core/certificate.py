"""How close a model came to a KKT point, measured on all data and written down to be checked.

    stationarity       |grad F_0(x) + sum nu_m grad F_m(x)|
    violation          max_m F_m(x), or 0
    complementarity    max_m |nu_m F_m(x)|

    gap                max over u in the problem's set of <grad F_0(x), x - u>, without constraints

Two sets of multipliers nu >= 0 are given: the method's own, and those that make the stationarity
smallest (with nu_m = 0 where constraint m is not active), which depend on nothing but x.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from fedmin.core.federation import Federation
from fedmin.core.problem import Problem, stacked
from fedmin.core.rows import Rows, Shard


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
    gap: float | None  # the largest <grad F_0(x), x - u> over the problem's set, if it has atoms
    convex: bool  # whether the problem is: then F_0(x) - min F_0 is at most the gap
    notes: tuple[str, ...]
    problem: str
    method: str
    rounds: int
    seed: int
    best_round: int | None  # the best recorded feasible model
    best_objective: float | None
    data: dict[str, Any]  # rows, features, clients and a checksum of all of them
    version: str
    solution: tuple[float, ...]

    def __str__(self) -> str:
        def row(name, *numbers):
            shown = "  ".join("-" if n is None else f"{n:>12.5g}" for n in numbers)
            return f"{name:<34}{shown}"

        lines = [row("objective F_0", self.objective), row("|grad F_0|", self.gradient)]
        if self.gap is not None:
            words = "within this gap of the optimum" if self.convex else "gap over the set"
            lines.append(row(words, self.gap))
        if self.constraints:
            lines += [
                row(f"violation (met up to {self.tolerance:g})", self.violation),
                row("stationarity, method's multipliers", self.stationarity),
                row("stationarity, best multipliers", self.best_stationarity),
                row("complementarity", self.complementarity),
            ]
            lines += ["", f"{'constraint':<34}{'F_m':>12}  {'multiplier':>12}  {'best':>12}"]
        nu = self.multipliers or (None,) * len(self.constraints)
        for m, each in enumerate(zip(self.constraints, nu, self.best_multipliers, strict=True)):
            lines.append(row(f"  {m + 1}", *each))
        if self.best_round is not None:
            lines += ["", row(f"best feasible, round {self.best_round}", self.best_objective)]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        Path(path).write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, path: str | Path) -> "Certificate":
        """Read what `save` wrote."""
        found: dict[str, Any] = json.loads(Path(path).read_text())
        names = {f.name for f in fields(cls)}
        if set(found) != names:
            raise ValueError(f"{path} is not a certificate: it has {sorted(set(found) ^ names)}")
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in found.items()
        }
        return cls(**values)

    def check(self, problem: Problem, federation: Federation, rtol: float = 1e-3) -> list[str]:
        """Measure the solution again: what does not agree, in words; nothing if all does."""
        new = certify(problem, federation, np.asarray(self.solution), multipliers=self.multipliers)
        wrong = []
        for name in ("data", "problem", "feasible"):
            if getattr(self, name) != getattr(new, name):
                wrong.append(f"{name}: {getattr(self, name)}, now {getattr(new, name)}")
        for name in ("objective", "constraints", "stationarity", "complementarity", "gap"):
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
    objective, slope, limits, slopes = _measure(problem, federation, x)
    violation = max(0.0, limits.max(initial=0.0))
    active = limits >= -problem.tolerance
    best_nu = np.zeros(len(limits))
    if active.any():
        best_nu[active] = scipy.optimize.nnls(slopes[active].T, -slope)[0]
    nu = None if multipliers is None else np.asarray(multipliers, float)
    if not len(limits):
        nu = np.zeros(0)
    feasible = best is not None and best.violation <= problem.tolerance
    return Certificate(
        objective=float(objective),
        constraints=_numbers(limits),
        violation=float(violation),
        tolerance=float(problem.tolerance),
        feasible=bool(violation <= problem.tolerance),
        gradient=float(np.linalg.norm(slope)),
        multipliers=None if nu is None else _numbers(nu),
        stationarity=None if nu is None else float(np.linalg.norm(slope + nu @ slopes)),
        complementarity=None if nu is None else float(np.abs(nu * limits).max(initial=0.0)),
        best_multipliers=_numbers(best_nu),
        best_stationarity=float(np.linalg.norm(slope + best_nu @ slopes)),
        slack=None if slack is None else _numbers(slack),
        gap=_gap(problem, x, slope),
        convex=problem.convex and not problem.num_constraints,
        notes=notes,
        problem=repr(problem),
        method=method,
        rounds=rounds,
        seed=seed,
        best_round=int(best.round) if feasible else None,
        best_objective=float(best.objective) if feasible else None,
        data=data_checksum(federation),
        version=version("fedmin"),
        solution=_numbers(x),
    )


def certificate_of(result: Any, federation: Federation) -> Certificate:
    """The certificate of a run's last model."""
    reported = {**result.method.report(result.server), **result.info}
    return certify(
        result.problem,
        federation,
        result.solution,
        multipliers=reported.get("multiplier"),
        slack=reported.get("slack"),
        notes=result.method.notes(),
        method=repr(result.method),
        rounds=result.rounds,
        seed=result.seed,
        best=result.best,
    )


def data_checksum(federation: Federation) -> dict[str, Any]:
    """Which data: their shape and a checksum of every number and of who holds it."""
    digest = hashlib.sha256()
    for a in [*jax.tree.leaves(federation.pool), federation.sizes, federation.weights]:
        digest.update(np.ascontiguousarray(a).view(np.uint8).data)
    rows, features = federation.pool.x.shape
    return {
        "rows": rows,
        "features": features,
        "clients": federation.num_clients,
        "sha256": digest.hexdigest(),
    }


def _gap(problem: Problem, x: Any, slope: Any) -> float | None:
    """The gap over the problem's set, if it has atoms; constraints are not in it."""
    if not problem.domain.has_atoms or problem.num_constraints:
        return None
    g = jnp.asarray(slope, jnp.asarray(x).dtype)
    return float(problem.domain.gap(jnp.asarray(x, g.dtype), g))


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in np.asarray(values))


def _measure(problem: Problem, federation: Federation, x: Any) -> tuple[Any, ...]:
    """F_0, grad F_0, F_1..M and their gradients f[M, d], as NumPy arrays."""
    pool = federation.pool
    rows = Rows(pool.x, pool.y, federation.measuring_weights())
    # numbers become arrays, so that a new limit does not compile anew
    fluid = jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, float) else a, problem)
    values, slopes, value, slope = (
        np.asarray(a, float) for a in _sums(fluid, jnp.asarray(x, pool.x.dtype), rows)
    )
    if not problem.bare:
        value, slope = value + values[0], slope + slopes[0]
    return value, slope, problem.limits_of(values), problem.limits_of(slopes)


@eqx.filter_jit
def _sums(problem: Problem, x, rows: Rows):
    values, slopes, _ = Shard.whole(rows).sum(partial(problem.sums, x), problem.window)
    value, slope = jax.value_and_grad(problem.regularizer)(x)
    return values, stacked(slopes), value, slope
