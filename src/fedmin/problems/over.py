"""Any problem over a set: the same losses, with x confined to a domain."""

from jax import lax

from fedmin.core import checks
from fedmin.core.domain import Domain
from fedmin.core.problem import Problem
from fedmin.core.wrapped import Wrapped


class Over(Wrapped):
    """A problem over a set; made by `over`."""

    within: Domain

    def __check_init__(self):
        checks.is_a("problem", self.inner, Problem, "Logistic(30)")
        checks.is_a("domain", self.within, Domain, "L1Ball(10.0)")

    @property
    def domain(self):
        return self.within

    # the losses are the same, so every shortcut of the problem is too

    def totals(self, x, rows):
        return self.inner.totals(x, rows)

    def grad(self, x, rows):
        return self.inner.grad(x, rows)

    def step(self, x, rows, size):
        return self.inner.step(x, rows, size)

    def init(self, key):
        """The problem's own start, moved into the set if it is not in it."""
        x = self.inner.init(key)
        if not self.within.can_project:
            return x
        # a start is often a constant: the compiler would project it, a minute for a million entries
        return self.within.project(lax.optimization_barrier(x))


def over(problem: Problem, domain: Domain) -> Over:
    """The same problem, with x confined to a domain.

    >>> import fedmin
    >>> fedmin.over(fedmin.Logistic(4), fedmin.Free()).domain
    Free()
    """
    checks.is_a("problem", problem, Problem, "Logistic(30)")
    checks.is_a("domain", domain, Domain, "L1Ball(10.0)")
    if isinstance(problem, Over):
        raise ValueError(f"the problem is over {problem.domain} already; give one domain")
    return Over(problem, domain.fitted(problem.parts))
