"""Worlds with a known answer: a problem, unequal clients, the minimiser found without fedmin."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

import numpy as np
import scipy.optimize

import fedmin

SIZES = (3, 5, 4, 6, 2)
FEATURES = 3


@dataclass(frozen=True, eq=False)
class World:
    """A problem on clients, and where its objective is least."""

    problem: fedmin.Problem
    clients: tuple[tuple[np.ndarray, np.ndarray], ...]
    weights: str | Sequence[float] = "sizes"

    @property
    def federation(self) -> fedmin.Federation:
        return fedmin.Federation.from_clients(self.clients, weights=self.weights)

    @property
    def shares(self) -> np.ndarray:
        """p_i, by the definition and not by the library."""
        sizes = np.array([len(y) for _, y in self.clients], float)
        given = {"sizes": sizes, "uniform": np.ones(len(sizes))}
        p = given[self.weights] if isinstance(self.weights, str) else np.asarray(self.weights)
        return p / p.sum()

    @property
    def core(self) -> fedmin.Problem:
        """The problem without its set."""
        return getattr(self.problem, "inner", self.problem)

    @property
    def l2(self) -> float:
        return getattr(self.core, "l2", None) or 0.0

    @property
    def dim(self) -> int:
        return self.clients[0][0].shape[1]

    def gradient(self, i: int, x: np.ndarray) -> np.ndarray:
        """grad f_i(x) in NumPy, the regularizer included."""
        z, y = self.clients[i]
        return residual(self.core, z @ x, y) @ z / len(y) + self.l2 * x

    def objective(self, x: np.ndarray) -> float:
        """F(x) in NumPy."""
        each = [np.mean(row_loss(self.core, z @ x, y)) for z, y in self.clients]
        return float(self.shares @ each + 0.5 * self.l2 * x @ x)

    @property
    def minimizer(self) -> np.ndarray:
        """Where F is least: by linear algebra, or by SciPy's Newton method."""
        if isinstance(self.problem.domain, fedmin.L0Ball):
            return min(self._on_supports(self.problem.domain.tau), key=self.objective)
        pairs = list(zip(self.shares, self.clients, strict=True))
        if isinstance(self.core, fedmin.LeastSquares):
            H = sum(p * z.T @ z / len(y) for p, (z, y) in pairs) + self.l2 * np.eye(self.dim)
            b = sum(p * z.T @ y / len(y) for p, (z, y) in pairs)
            # a matrix of one column has one singular value, its length
            if not isinstance(self.problem.domain, fedmin.L2Ball | fedmin.NuclearBall):
                return np.linalg.solve(H, b)
            # within a ball: the multiplier m >= 0 with |x| = r, by a root of one number
            radius, x = (
                self.problem.domain.radius,
                lambda m: np.linalg.solve(H + m * np.eye(len(b)), b),
            )
            far = scipy.optimize.brentq(lambda m: np.linalg.norm(x(m)) - radius, 0, 1e6, xtol=1e-15)
            return x(far)

        def gradient(x):
            return sum(p * self.gradient(i, x) for i, p in enumerate(self.shares))

        def hessian(x):
            curves = [1 / (4 * np.cosh(z @ x / 2) ** 2) for z, _ in self.clients]
            H = sum(
                p * (z.T * k) @ z / len(y) for k, (p, (z, y)) in zip(curves, pairs, strict=True)
            )
            return H + self.l2 * np.eye(self.dim)

        found = scipy.optimize.root(gradient, np.zeros(self.dim), jac=hessian, tol=1e-14)
        assert np.linalg.norm(gradient(found.x)) < 1e-10
        return found.x

    def _on_supports(self, tau: int) -> Iterator[np.ndarray]:
        """The minimizer on each support of tau entries."""
        for support in combinations(range(self.dim), tau):
            i = list(support)
            kind = type(self.core)(tau, self.core.l2)
            part = World(kind, tuple((z[:, i], y) for z, y in self.clients), self.weights)
            x = np.zeros(self.dim)
            x[i] = part.minimizer
            yield x

    def with_clients(self, clients) -> "World":
        return replace(self, clients=tuple(clients))

    def with_weights(self, weights) -> "World":
        return replace(self, weights=weights)


def residual(problem: fedmin.Problem, prediction: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The derivative of a row's loss by the prediction."""
    if isinstance(problem, fedmin.Logistic):
        prediction = 1 / (1 + np.exp(-prediction))
    return prediction - y


def row_loss(problem: fedmin.Problem, prediction: np.ndarray, y: np.ndarray) -> np.ndarray:
    if isinstance(problem, fedmin.Logistic):
        return np.logaddexp(0, prediction) - y * prediction
    return 0.5 * (prediction - y) ** 2


def unit_rows(rng: np.random.Generator, count: int, features: int = FEATURES) -> np.ndarray:
    """Random directions: every client's loss then has curvature of at most 1."""
    z = rng.standard_normal((count, features))
    return z / np.linalg.norm(z, axis=1, keepdims=True)


@cache
def apart(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> World:
    rng = np.random.default_rng(seed)
    clients = []
    for size in sizes:
        z = unit_rows(rng, size)
        clients.append((z, z @ rng.standard_normal(FEATURES) + 0.1 * rng.standard_normal(size)))
    return World(fedmin.LeastSquares(FEATURES, l2=0.1), tuple(clients))


@cache
def confined(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> World:
    """`apart` within a ball that its minimizer is not in."""
    free = apart(seed, sizes)
    return replace(free, problem=fedmin.over(free.problem, fedmin.L2Ball(0.5)))


@cache
def one_column(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> World:
    """`confined` with x as a matrix of one column."""
    free = apart(seed, sizes)
    ball = fedmin.NuclearBall(0.5, shape=(FEATURES, 1))
    return replace(free, problem=fedmin.over(free.problem, ball))


@cache
def shared(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> World:
    rng = np.random.default_rng(seed)
    best = rng.standard_normal(FEATURES)
    inputs = [unit_rows(rng, size) for size in sizes]
    return World(fedmin.LeastSquares(FEATURES), tuple((z, z @ best) for z in inputs))


@cache
def sparse(seed: int = 0) -> World:
    """Noise-free as `shared`, with a best vector of two entries, over vectors of two entries."""
    rng = np.random.default_rng(seed)
    best = np.array([1.0, 0.0, -2.0])
    inputs = [unit_rows(rng, size) for size in SIZES]
    problem = fedmin.over(fedmin.LeastSquares(FEATURES), fedmin.L0Ball(2))
    return World(problem, tuple((z, z @ best) for z in inputs))


@cache
def sparse_logistic(seed: int = 0) -> World:
    """`logistic` over vectors of two entries; the clients want different things."""
    world = logistic(seed)
    return replace(world, problem=fedmin.over(world.problem, fedmin.L0Ball(2)))


@cache
def logistic(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> World:
    rng = np.random.default_rng(seed)
    clients = []
    for size in sizes:
        z = rng.standard_normal((size, FEATURES))
        clients.append((z, (rng.random(size) < 0.5).astype(int)))
    return World(fedmin.Logistic(FEATURES, l2=0.1), tuple(clients))
