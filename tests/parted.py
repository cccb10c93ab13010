"""Small data split by columns, problems on them, and a run that is made once for all tests."""

from functools import cache
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

import fedmin
from agreement import ONE_BY_ONE
from fedmin import Federation, SplitSGD, WithoutReplacement
from fedmin.core.column_problem import FirstLayer
from fedmin.engines.round import SERVER, start_key

K, N, CLASSES = 7, 12, 3
ORDER = [3, 0, 5, 1, 6, 2, 4]
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, K)) * (RNG.random((N, K)) < 0.6)
LABELS = RNG.integers(0, CLASSES, N)
FLAGS = RNG.integers(0, 2, N)
SPLITS = {1: (7,), 2: (2, 5), 3: (3, 1, 3), 7: (1,) * 7}


def cut(sizes, order=ORDER) -> list[list[int]]:
    edges = np.cumsum([0, *sizes])
    return [order[a:b] for a, b in pairwise(edges)]


def split(sizes, y=LABELS, x=X, **options) -> Federation:
    return Federation.from_columns(x, y, cut(sizes), names=list("abcdefg")[: len(sizes)], **options)


class Product(FirstLayer):
    """A head that needs each embedding: squares of w_0 . prod_i (1 + W_i z_i) - y."""

    features: int = eqx.field(static=True)
    owners: fedmin.ColumnOwners
    additive = False
    embedding = 2

    def init(self, key):
        return 0.3 * jax.random.normal(key, (2 * self.features + 2,))

    def head(self, params, h, rows):
        return 0.5 * (jnp.prod(1 + h, axis=0) @ params - rows.y.astype(h.dtype))[:, None] ** 2

    def losses(self, x, rows):
        return self.composed(x, rows, self.owners)


class Bounded(fedmin.Logistic):
    """Two constraints beside the objective."""

    num_constraints = 2

    def losses(self, x, rows):
        return self._three(super().losses(x, rows))

    def head(self, params, h, rows):
        return self._three(super().head(params, h, rows))

    def _three(self, loss):
        return jnp.concatenate([loss, loss**2 - 0.3, jnp.sin(loss)], axis=1)


def problems(federation: Federation) -> dict[str, tuple]:
    return {
        "swish": (fedmin.MLP(K, CLASSES, hidden=(4,), l2=0.1), LABELS),
        "deep": (fedmin.MLP(K, CLASSES, hidden=(4, 5), bias=True), LABELS),
        "flat": (fedmin.MLP(K, CLASSES, hidden=()), LABELS),
        "logistic": (fedmin.Logistic(K, bias=True, l2=0.2), FLAGS),
        "softmax": (fedmin.Softmax(K, CLASSES, bias=True, l2=0.1), LABELS),
        "plain": (fedmin.LeastSquares(K), LABELS),
        "bounded": (Bounded(K), FLAGS),
        "product": (Product(K, federation.roster().owners), FLAGS),
    }


@cache
def run(name="swish", sizes=(3, 1, 3), labels="everyone", sparse=False, **options) -> fedmin.Result:
    x = scipy.sparse.csr_matrix(X) if sparse else X
    problem, y = problems(split(sizes))[name]
    federation = split(sizes, y, x, labels=labels)
    settings = {"rounds": 3, "engine": ONE_BY_ONE, "progress": False} | options
    method = settings.pop("method", SplitSGD(0.4, WithoutReplacement(5)))
    return fedmin.minimize(problem, federation, method, **settings)


def start(problem, seed=0) -> np.ndarray:
    key = start_key(jax.random.key(seed), SERVER)
    return np.asarray(problem.init(key))
