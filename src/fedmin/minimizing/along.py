"""What a path goes along: sizes of a sparse set, radii of a set, or limits of a constraint.

Each set contains those before it, and so does each region that a limit allows: the values rise.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fedmin.client import Full
from fedmin.core import checks
from fedmin.core.domain import Domain, Free
from fedmin.core.method import Method
from fedmin.core.problem import Problem
from fedmin.core.wrapped import Wrapped
from fedmin.domains import L0Ball, L1Ball, Product, RankBall
from fedmin.methods import SSCA, DistributedIHT, SparseNewton, Tuned
from fedmin.problems import GroupLossAtMost, LossAtMost, NormAtMost, over
from fedmin.problems.constrained import Constrained
from fedmin.problems.over import Over

# methods that find their own step, and how many rounds they are given
SPARSE: tuple[Method, int] = (SparseNewton(), 60)
CONVEX: tuple[Method, int] = (SSCA(rho=1.0, gamma=1.0, tau=Tuned(), batches=Full()), 200)
MOST = 1000  # values of a path: more is a mistake of the keyboard
SIZED: dict[type, str] = {L0Ball: "tau", RankBall: "rank"}  # sets of a size, and what it is called


class Along(NamedTuple):
    """What changes along a path, and the problem at each of its values."""

    kind: str  # "sizes", "radii" or "limits"
    label: str  # of the values, on an axis
    values: tuple[Any, ...]
    at: Callable[[Any], Problem]
    loss: Problem  # whose losses say how good a model is: without set and constraints

    @property
    def problems(self) -> list[Problem]:
        """The problem at each value; names the value that does not fit."""
        return [self.problem(value) for value in self.values]

    def check(self) -> None:
        """Refuse values that do not fit."""
        assert len(self.problems) == len(self.values)

    def problem(self, value: Any) -> Problem:
        """The problem at a value."""
        try:
            return self.at(value)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.kind} has {value}, which does not fit: {error}") from None


def along(
    problem: Problem, sizes: Any, radii: Any, limits: Any, within: Any, constraint: int
) -> Along:
    """What the path of these arguments goes along."""
    checks.is_a("problem", problem, Problem, "Logistic(30)")
    kind, values = given_one(sizes, radii, limits)
    if kind == "limits":
        if within is not None:
            raise ValueError(
                "set= is for sizes and radii; a problem with limits may be over a set "
                "of its own: over(problem, L2Ball(3.0))"
            )
        return _limited(problem, values, constraint)
    make = _sized if kind == "sizes" else _with_radii
    return make(problem, values, within)


def given_one(sizes: Any, radii: Any, limits: Any) -> tuple[str, tuple[Any, ...]]:
    """The one of the three that is given, by its name; refuses none, several, and bad values."""
    given = {"sizes": sizes, "radii": radii, "limits": limits}
    named = [name for name, values in given.items() if values is not None]
    if len(named) != 1:
        raise ValueError(
            f"a path goes along sizes, radii or limits, such as sizes=[5, 10, 20]: give one of "
            f"them, got {' and '.join(named) or 'none'}"
        )
    return named[0], rising(named[0], given[named[0]])


def rising(kind: str, given: Any) -> tuple[Any, ...]:
    """The values of a path, checked: numbers, at least one, each above the one before."""
    array = np.asarray(given)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise TypeError(f"{kind} must be a list of numbers, such as [5, 10, 20], got {given!r}")
    values = tuple(array.tolist())
    if not values:
        raise ValueError(f"{kind} is an empty list; give at least one, such as {kind}=[5, 10, 20]")
    if len(values) > MOST:
        raise ValueError(f"{kind} has {len(values):,} values; {MOST:,} may be at most")
    for before, value in pairwise(values):
        if not before < value:
            said = "twice" if before == value else f"after {before}"
            right = ", ".join(f"{v:g}" for v in sorted(set(values)))
            raise ValueError(
                f"{kind} must rise, each starts from the one before: {value} stands {said}; "
                f"give {kind}=[{right}]"
            )
    for value in values:
        if kind == "sizes":
            checks.at_least(kind, value, 1)
        elif kind == "radii":
            checks.positive(kind, value)
        else:
            checks.between(kind, value, -np.inf)
    return values if kind == "sizes" else tuple(float(value) for value in values)


def bare(problem: Problem) -> Problem:
    """The loss alone: without sets and constraints."""
    while isinstance(problem, Over | Constrained):
        problem = problem.inner
    return problem


def _template(problem: Problem, within: Any, usual: Domain) -> tuple[Problem, Any]:
    """What is over a set, and an example of the set; `within` is a set or its class."""
    if isinstance(problem, Over):
        if within is not None:
            raise ValueError(f"the problem is over {problem.domain} already; leave out set=")
        domain: Any = problem.domain
        if isinstance(domain, Product):  # by names again, as before it was fitted
            sets: Any = domain.sets
            domain = Product(dict(zip(problem.parts, sets, strict=True)))
        return problem.inner, domain
    if within is None:
        return problem, usual
    if isinstance(within, type) and issubclass(within, Domain):
        fields: Any = within
        wanted = SIZED.get(within, "radius")
        if wanted not in getattr(within, "__dataclass_fields__", {}):
            raise ValueError(_no_size(within.__name__))
        free = {"free": _biases(problem)} if within is L0Ball else {}
        return problem, fields(**{wanted: 1 if within in SIZED else 1.0}, **free)
    checks.is_a("set", within, Domain, "L1Ball")
    return problem, within


def _no_size(name: str) -> str:
    return (
        f"{name} has neither a size nor a radius; sizes go with L0Ball and RankBall, radii with "
        f"L1Ball, L2Ball, NuclearBall and other sets that have a radius"
    )


def _biases(problem: Problem) -> tuple[str, ...]:
    return ("bias",) if "bias" in problem.parts else ()


def _sized(problem: Problem, values: tuple[int, ...], within: Any) -> Along:
    inner, example = _template(problem, within, L0Ball(1, free=_biases(problem)))
    field = SIZED.get(type(example))
    if field is None:
        raise ValueError(f"sizes go with an L0Ball or a RankBall, not with {example}")
    label = "rank at most" if field == "rank" else "non-zeros at most"
    # what is known of the parts is found again: it depends on the size
    known = {"reach": None} if isinstance(example, L0Ball) else {}

    def at(value: int) -> Problem:
        return over(inner, replace(example, **{field: value}, **known))

    return Along("sizes", label, values, at, bare(problem))


def _with_radii(problem: Problem, values: tuple[float, ...], within: Any) -> Along:
    inner, example = _template(problem, within, L1Ball(1.0))
    if not isinstance(problem, Over) and _biases(problem) and not isinstance(example, Product):
        free: dict[str, Domain] = {name: Free() for name in problem.parts}
        example = Product({**free, **{n: example for n in problem.parts if n != "bias"}})
    sets = _members(example)
    named = sorted({type(one).__name__ for one in sets if hasattr(one, "radius")})
    if not named:
        raise ValueError(_no_size(type(example).__name__))

    def at(value: float) -> Problem:
        return over(inner, _with_radius(example, value))

    return Along("radii", f"radius of {' and '.join(named)}", values, at, bare(problem))


def _members(domain: Any) -> list[Any]:
    sets = domain.sets if isinstance(domain, Product) else domain
    return list(sets.values()) if isinstance(sets, Mapping) else [sets]


def _with_radius(domain: Any, value: float) -> Any:
    if isinstance(domain, Product):
        sets: Any = domain.sets
        if isinstance(sets, Mapping):
            return Product({name: _with_radius(one, value) for name, one in sets.items()})
        return Product(_with_radius(sets, value))
    return replace(domain, radius=value) if hasattr(domain, "radius") else domain


def _limited(problem: Problem, values: tuple[float, ...], constraint: int) -> Along:
    found = problem
    while isinstance(found, Wrapped) and not isinstance(found, Constrained):
        found = found.inner
    if not isinstance(found, Constrained):
        raise ValueError(
            "limits need a problem with a constraint, such as "
            "subject_to(problem, GroupLossAtMost((0.3, 0.3)))"
        )
    checks.at_least("constraint", constraint, 0)
    if constraint >= len(found.limits):
        raise ValueError(
            f"constraint={constraint}: the problem has {len(found.limits)}, counted from 0"
        )
    chosen, which = found.limits[constraint], constraint
    _limit_of(chosen, values[0])  # refuses one without a limit

    def at(value: float) -> Problem:
        limits = list(found.limits)
        limits[which] = _limit_of(chosen, value)
        changed = replace(found, limits=tuple(limits))
        return replace(problem, inner=changed) if isinstance(problem, Over) else changed

    return Along("limits", f"limit of {type(chosen).__name__}", values, at, bare(problem))


def _limit_of(constraint: Any, value: float) -> Any:
    """The same constraint with another limit; of groups each has it."""
    if isinstance(constraint, LossAtMost):
        return LossAtMost(value)
    if isinstance(constraint, NormAtMost):
        return NormAtMost(value)
    if isinstance(constraint, GroupLossAtMost):
        given = constraint.limits
        if isinstance(given, Mapping):
            return replace(constraint, limits=dict.fromkeys(given, value))
        return replace(constraint, limits=(value,) * len(given))
    raise ValueError(
        f"{type(constraint).__name__} has no limit to change; LossAtMost, GroupLossAtMost and "
        f"NormAtMost have"
    )


def usual_method(problem: Problem) -> tuple[Method, int]:
    """A method that handles such a problem with nothing to set, and how many rounds it is given."""
    domain = problem.domain
    if not problem.num_constraints and domain.keeps_entries:
        return SPARSE
    if not problem.num_constraints and not domain.convex:
        raise ValueError(
            f"no method finds a step of its own over {domain}: give one, such as "
            f"method={DistributedIHT.__name__}(step=0.1), and rounds"
        )
    return CONVEX
