"""Matrix completion: some entries of a matrix are seen, by several clients; the others are wanted.

A row of the data is one seen entry: its row i and its column j, counted from 0, and y, what it is.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from fedmin.core import checks
from fedmin.core.problem import Problem
from fedmin.core.rows import Rows
from fedmin.problems.network import dense_rows
from fedmin.problems.shared import check_ridge, ridge, ridge_curvature


class MatrixCompletion(Problem):
    """mean of (X_ij - y)^2 / 2 over the entries that are seen  +  l2/2 |X|^2.

    Over a `NuclearBall` X is of low rank or nearly so, and the entries that nobody has seen follow.
    An entry outside of the matrix has the loss NaN, which ends a run and is told.

    >>> import fedmin
    >>> seen = fedmin.data.matrix_completion(20, 12, rank=2, clients=3)
    >>> ball = fedmin.NuclearBall(seen.truth["nuclear"])
    >>> problem = fedmin.over(fedmin.MatrixCompletion(20, 12), ball)
    >>> federation = fedmin.data.partition(seen)
    >>> result = fedmin.minimize(problem, federation, fedmin.DFWTrace(), rounds=20)
    >>> bool(result.final("objective") < 0.1 * result.history["objective"][0])
    True
    """

    rows: int = eqx.field(static=True)  # of the matrix
    columns: int = eqx.field(static=True)
    l2: float | None = None

    def __check_init__(self):
        checks.at_least("rows", self.rows, 1)
        checks.at_least("columns", self.columns, 1)
        check_ridge(self.l2)

    @property
    def convex(self):
        return True

    @property
    def parts(self):
        return {"matrix": (self.rows, self.columns)}

    def init(self, key):
        return jnp.zeros(self.rows * self.columns)

    def predict(self, x: Array, rows: Rows) -> Array:
        """f[n]: X_ij; NaN where there is no such entry."""
        z = dense_rows(self, rows)
        most = jnp.array([self.rows, self.columns], z.dtype)
        inside = jnp.all((z == jnp.floor(z)) & (z >= 0) & (z < most), axis=1)
        i, j = z[:, 0].astype(jnp.int32), z[:, 1].astype(jnp.int32)
        return jnp.where(inside, x[jnp.where(inside, i * self.columns + j, 0)], jnp.nan)

    def losses(self, x, rows):
        return 0.5 * self._squares(x, rows)[:, None]

    def scores(self, x, rows):
        return {"squared_error": self._squares(x, rows)}

    def _squares(self, x: Array, rows: Rows) -> Array:
        """The squared errors; a row of weight 0 may be no entry."""
        wrong = self.predict(x, rows) - rows.y.astype(x.dtype)
        return jnp.where(rows.weight > 0, wrong**2, 0)

    def regularizer(self, x):
        return ridge(self.l2, x)

    def ridge_weight(self):
        return ridge_curvature(self.l2)

    def check(self, features, classes, y):
        if features != 2:
            raise ValueError(
                f"MatrixCompletion needs two columns, an entry's row and column, counted from 0; "
                f"the data have {features}"
            )
