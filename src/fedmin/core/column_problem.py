"""Problems on data split by columns: each client embeds its own columns, a head joins them.

The model stays one flat x in the layout of the ordinary problem, so that what is recorded and what
is returned mean the same as on rows. A split problem says how x is cut into the head's numbers and
one block a client, and how it is joined again.
"""

from abc import abstractmethod
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedmin.core.problem import Problem
from fedmin.core.roster import ColumnOwners
from fedmin.core.rows import Rows
from fedmin.core.wrapped import Wrapped


class SplitProblem(Problem):
    """A problem whose losses are head(params, embeddings of the clients' columns).

    `losses(x, rows)` must be what `composed` computes; a head that is not additive depends on who
    holds what, and may use `composed` for its `losses`.

    >>> import fedmin
    >>> isinstance(fedmin.Logistic(3), fedmin.SplitProblem), fedmin.Logistic(3).additive
    (True, True)
    """

    additive: ClassVar[bool] = True  # the head needs only the sum of the embeddings

    @abstractmethod
    def cut(self, x: Array, starts: Any, sizes: Any, width: int) -> tuple[Array, Array]:
        """The head's numbers f[head] and the clients' blocks f[N, block], padded by zeros."""

    @abstractmethod
    def join(self, head: Array, blocks: Array, starts: Any, sizes: Any) -> Array:
        """x f[d] from its parts: the inverse of `cut`."""

    @abstractmethod
    def embed(self, block: Array, rows: Rows) -> Array:
        """f[n, e]: what a client computes from its own columns (`width` of them)."""

    @abstractmethod
    def head(self, params: Array, h: Array, rows: Rows) -> Array:
        """f[n, 1 + M]: losses from the sum of the embeddings f[n, e] (additive), or from all of
        them f[N, n, e]; of `rows` it may read y only."""

    def head_scores(self, params: Array, h: Array, rows: Rows) -> dict[str, Array]:
        """`scores` from what `head` is given; {} if they cannot be told from that."""
        return {}

    def composed(self, x: Array, rows: Rows, owners: ColumnOwners) -> Array:
        """f[n, 1 + M]: the losses by way of the embeddings."""
        starts, sizes = jnp.asarray(owners.starts), jnp.asarray(owners.sizes)
        head, blocks = self.cut(x, starts, sizes, owners.width)

        def own(block, first, count):
            part = rows.x.columns(first, count, owners.width)
            return self.embed(block, rows.holding(part))

        h = jax.vmap(own)(blocks, starts, sizes)
        return self.head(head, jnp.sum(h, axis=0) if self.additive else h, rows)

    def check_split(self) -> None:
        """Refuse what cannot be computed where no client has a whole row."""

    @property
    def head_size(self) -> int:
        """How many numbers of x belong to the head."""
        one = np.zeros(1, np.int32)
        x = jax.ShapeDtypeStruct((self.size(),), jnp.result_type(float))
        return jax.eval_shape(lambda u: self.cut(u, one, one + 1, 1)[0], x).shape[0]


class FirstLayer(SplitProblem):
    """x is a matrix W [embedding, features] and then the head's numbers; h = W z, additive."""

    @property
    @abstractmethod
    def embedding(self) -> int:
        """The rows of W."""

    def cut(self: Any, x, starts, sizes, width):  # subclasses have `features`
        e, K = self.embedding, self.features
        place = jnp.asarray(starts)[:, None] + jnp.arange(width, dtype=jnp.int32)
        mine = jnp.arange(width, dtype=jnp.int32) < jnp.asarray(sizes)[:, None]
        blocks = x[: e * K].reshape(e, K)[:, jnp.minimum(place, K - 1)]  # [e, N, width]
        blocks = jnp.where(mine, blocks, 0).swapaxes(0, 1)
        return x[e * K :], blocks.reshape(len(starts), e * width)

    def join(self: Any, head, blocks, starts, sizes):
        e, K, N = self.embedding, self.features, len(starts)
        width = blocks.shape[1] // e
        starts, column = jnp.asarray(starts), jnp.arange(K, dtype=jnp.int32)
        owner = jnp.searchsorted(starts, column, side="right").astype(jnp.int32) - 1
        side_by_side = blocks.reshape(N, e, width).swapaxes(0, 1).reshape(e, N * width)
        matrix = side_by_side[:, owner * width + column - starts[owner]]
        return jnp.concatenate([matrix.ravel(), head])

    def embed(self, block, rows):
        return rows.x @ block.reshape(self.embedding, -1).T


class OnColumns(Wrapped):
    """A split problem together with who holds what: what a method is given on columns.

    Everything that is asked of the whole model is answered by the problem itself.

    >>> import numpy as np, jax.numpy as jnp, fedmin
    >>> from fedmin.core.column_problem import ColumnOwners, OnColumns
    >>> two = ColumnOwners(np.array([0, 2]), np.array([2, 1]), 2, 10)
    >>> head, blocks = OnColumns(fedmin.Logistic(3), two).cut(jnp.arange(3.0))
    >>> blocks.tolist()
    [[0.0, 1.0], [2.0, 0.0]]
    """

    inner: SplitProblem
    owners: ColumnOwners

    def cut(self, x: Array) -> tuple[Array, Array]:
        """The head's numbers and the clients' blocks."""
        owners = self.owners
        starts, sizes = jnp.asarray(owners.starts), jnp.asarray(owners.sizes)
        return self.inner.cut(x, starts, sizes, owners.width)

    def join(self, head: Array, blocks: Array) -> Array:
        """x from its parts; gradients too."""
        owners = self.owners
        return self.inner.join(head, blocks, jnp.asarray(owners.starts), jnp.asarray(owners.sizes))

    def totals(self, x, rows):
        return self.inner.totals(x, rows)

    def check(self, features, classes, y):
        super().check(features, classes, y)
        self.inner.check_split()


class StartingAt(Wrapped):
    """A problem whose first x is a model that was given; what a method's `init_*` see of it."""

    start: Array

    def init(self, key):
        return jnp.asarray(self.start)


class ColumnsStartingAt(OnColumns):
    """The same where columns are split."""

    start: Array

    def init(self, key):
        return jnp.asarray(self.start)


def starting_at(problem: Problem, start: Array | None) -> Problem:
    """The problem with this first x, or with its own."""
    if start is None:
        return problem
    if isinstance(problem, OnColumns):
        return ColumnsStartingAt(problem.inner, problem.owners, start)
    return StartingAt(problem, start)
