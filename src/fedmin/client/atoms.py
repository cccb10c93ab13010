"""What Frank-Wolfe methods share: sets with atoms, a larger set for some, sums of atoms."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedmin.core import checks, payload
from fedmin.core.choices import ChoiceBatch
from fedmin.core.domain import Domain
from fedmin.core.payload import Sparse
from fedmin.core.problem import Problem


class LargerSet(eqx.Module):
    """A larger set with cheaper atoms for some clients: `whose(rows)` says whether it is this one.

    The sets of all clients must have the problem's as their intersection (section 4.3 of
    [dadras2024federated]); xbar is then in the problem's set in the limit only.

    >>> import fedmin
    >>> fedmin.LargerSet(fedmin.L2Ball(10.0), whose=lambda rows: rows.size > 1000).domain
    L2Ball(radius=10.0)
    """

    domain: Domain
    whose: Callable[[Any], Any] = eqx.field(static=True)

    def __check_init__(self):
        checks.is_a("domain", self.domain, Domain, "L2Ball(10.0)")
        if not callable(self.whose):
            raise TypeError(f"whose must be a function of a client's rows, got {self.whose!r}")


Split = LargerSet  # its first name


@dataclass(frozen=True)
class Sets:
    """Where atoms come from: the problem's set and, if some clients have one, the larger set.

    An atom is a tuple, its form in each of the sets; in the one that is not the client's it is 0.
    """

    domain: Domain
    larger: Domain | None = None

    @property
    def searches(self) -> bool:
        """Whether an atom is searched from the one before it."""
        return self.larger is None and self.domain.searches

    def like(self, x: Any) -> tuple[Any, ...]:
        """The shapes of an atom, for an x of this shape."""
        return jax.eval_shape(lambda g: self.atom(g, jnp.array(False), ()), x)

    def atom(
        self, g: Array, slow: Any, near: tuple[Any, ...], batch: ChoiceBatch | None = None
    ) -> tuple[Any, ...]:
        """The atom with the least <g, s>, as it travels.

        `slow`: whether it is that of the larger set; `near`: the one before it, or (); `batch`: by
        whose noise the atom is drawn, if it is.
        """
        domain: Any = self.domain  # one that searches takes `near` too
        larger = self.larger
        if batch is not None:
            return (domain.packed(batch.vertex(domain, g)),)
        if larger is None:
            return (domain.packed(domain.lmo(g, near[0]) if near else domain.lmo(g)),)
        none = zeros(jax.eval_shape(domain.lmo, g)), zeros(jax.eval_shape(larger.lmo, g))
        return lax.cond(
            slow, lambda g: (none[0], larger.lmo(g)), lambda g: (domain.lmo(g), none[1]), g
        )

    def step(
        self, x, g, eta, smoothness, slow, near, batch=None
    ) -> tuple[Array, tuple[Any, ...], Array]:
        """A step from x towards the atom: the new x, the atom, and eta, how far it went.

        With `smoothness`, an L, the gap chooses eta.
        """
        atom = self.atom(g, slow, near, batch)
        s = self.point(dense(atom), 1.0)
        if smoothness is not None:
            eta = short_step(x, s, g, smoothness)
        return (1 - eta) * x + eta * s, atom, eta

    def point(self, forms: Any, weight: Any) -> Array:
        """The sum of atoms that weigh so much together, from the sum of what travels of them."""
        total = added(forms)
        return total if self.larger is not None else self.domain.unpacked(total, weight)


def check_steps(steps: Any, *names: str) -> None:
    """Refuse what has not these functions of the step, or an eta outside (0, 1]."""
    for name in names:
        if not callable(getattr(steps, name, None)):
            raise TypeError(
                f"steps must have {' and '.join(names)}, like StochasticSteps(), got {steps!r}"
            )
    for t in (1.0, 2.0, 1000.0):
        eta = np.asarray(steps.eta(t))
        checks.between(f"eta of step {t:g}", eta, 0.0, 1.0, open_low=True)


def check_atoms(name: str, problem: Problem) -> None:
    """Refuse a problem without a bounded convex set of atoms, or that begins outside of it."""
    domain = problem.domain
    if not (domain.bounded and domain.convex and domain.has_atoms):
        lacks = "bounded" if not domain.bounded else "convex" if not domain.convex else "atoms"
        words = "a linear minimizer" if lacks == "atoms" else f"to be {lacks}"
        raise ValueError(
            f"{name} needs the problem's set {words}, got {domain}; "
            f"over(problem, L1Ball(10.0)) gives it one"
        )
    if not bool(domain.contains(problem.init(jax.random.key(0)), 1e-4)):
        raise ValueError(f"the problem begins outside of {domain}; {name} must begin inside")


def check_larger(domain: Domain, larger: Domain, size: int) -> None:
    """Refuse a set in which some atoms of the problem's do not lie."""
    for g in jax.random.normal(jax.random.key(0), (3, size)):
        if not bool(larger.contains(dense((domain.lmo(g),)), 1e-4)):
            raise ValueError(f"split's {larger} must contain the problem's {domain}")


def check_swaps(name: str, problem: Problem, smoothness: Any) -> None:
    """Refuse pairwise steps without their length, or over a set that does not know its atoms."""
    if smoothness is None:
        raise ValueError(
            f"{name}(pairwise=True) needs smoothness, an L: the gap says how far to go"
        )
    if not problem.domain.knows_atoms:
        raise ValueError(
            f"{name}(pairwise=True) needs a set that can tell which atoms a point is made of, "
            f"L1Ball or Simplex; got {problem.domain}"
        )


def short_step(x: Array, s: Array, g: Array, smoothness: Any) -> Array:
    """How far to go from x to s by the gap, min(1, <g, x - s> / (L |x - s|^2)): the least of the
    parabola above f."""
    move = x - s
    bend = smoothness * (move @ move)
    return jnp.clip(g @ move / jnp.where(bend > 0, bend, 1), 0, 1)


def swap(domain: Domain, x: Array, g: Array, smoothness: Any) -> Sparse:
    """The move of a pairwise step: weight goes from the worst atom of x to the best of the set.

    With s the best, v the worst and w the weight of v in x, all of v would move by m = w (s - v);
    the share of it that moves is the least of the parabola above f, min(1, <g, -m> / (L |m|^2)).
    """
    s: Any = domain.lmo(g)
    part, w = domain.away(x, g)  # w v, w
    move = Sparse(
        jnp.concatenate([s.indices, part.indices]),
        jnp.concatenate([w * s.values, -part.values]),
        s.size,
    )
    bend = smoothness * move.inner(move.dense())
    return move.scaled(jnp.clip(-move.inner(g) / jnp.where(bend > 0, bend, 1), 0, 1))


def weights(taken: Array) -> tuple[Array, Array]:
    """What is left at the end of the atoms of steps one after the other, and of the start."""
    after = jnp.cumprod((1 - taken)[::-1])[::-1]
    return taken * jnp.append(after[1:], jnp.ones((), taken.dtype)), after[0]


def dense(atom: tuple[Any, ...]) -> Array:
    """An atom as an array, the sum of its forms."""
    return added([part.dense() if payload.is_payload(part) else part for part in atom])


def added(tree: Any) -> Array:
    """The sum of all arrays in a tree."""
    total, *rest = jax.tree.leaves(tree)
    for one in rest:
        total = total + one
    return total


def zeros(like: Any) -> Any:
    """Zeros of these shapes."""
    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)


def size(like: Any) -> int:
    """The bytes of arrays of these shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(like))
