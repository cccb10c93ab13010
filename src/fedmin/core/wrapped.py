"""A problem around another one."""

import dataclasses
from typing import Any

from jax import Array

from fedmin.core.problem import Problem
from fedmin.core.rows import Rows


class Wrapped(Problem):
    """A problem around another one, which answers whatever is not said anew."""

    inner: Problem

    @property
    def window(self) -> int:  # type: ignore[override]
        return self.inner.window

    @property
    def link(self) -> str:  # type: ignore[override]
        return self.inner.link

    @property
    def domain(self):
        return self.inner.domain

    @property
    def num_constraints(self):
        return self.inner.num_constraints

    @property
    def tolerance(self):
        return self.inner.tolerance

    def bounds(self):
        return self.inner.bounds()

    @property
    def convex(self):
        return self.inner.convex

    @property
    def limits_convex(self):
        return self.inner.limits_convex

    @property
    def bare(self):
        return self.inner.bare

    @property
    def parts(self):
        return self.inner.parts

    def init(self, key):
        return self.inner.init(key)

    def losses(self, x, rows):
        return self.inner.losses(x, rows)

    def regularizer(self, x):
        return self.inner.regularizer(x)

    def ridge_weight(self):
        return self.inner.ridge_weight()

    def tensors(self, x):
        return self.inner.tensors(x)

    def scores(self, x, rows):
        return self.inner.scores(x, rows)

    def check(self, features, classes, y):
        self.inner.check(features, classes, y)

    def tally(self, rows, roster):
        return self.inner.tally(rows, roster)

    def fitted(self, counts, roster):
        return dataclasses.replace(self, inner=self.inner.fitted(counts, roster))

    def limit_names(self):
        return self.inner.limit_names()

    def limit_sizes(self):
        return self.inner.limit_sizes()

    def predict(self, x: Array, rows: Rows) -> Array:
        """What the problem predicts, if it does."""
        inner: Any = self.inner
        return inner.predict(x, rows)
