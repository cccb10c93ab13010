"""Problems under constraints: what they are, and their optimum where one is known.

The optimum of the convex ones is the largest value of the dual, in NumPy and SciPy and in double
precision, from the rows alone: for multipliers nu the Lagrangian is a regression with other weights
of the rows, solved by L-BFGS, and its value is below the optimum whatever nu is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize

import fedmin
from fedmin import data
from fedmin.core.matrix import Dense


@dataclass(frozen=True)
class World:
    """A problem, its rows at the clients, and how it is spoken of."""

    title: str
    chosen_on: bool  # whether constants of the automatic rule were chosen on it
    problem: Callable[[fedmin.Federation], Any]
    federation: Callable[[], fedmin.Federation]
    rounds: int = 1000
    loss: str = ""  # of the convex ones: "logistic" or "softmax"
    l2: float = 0.0
    bias: bool = True
    limits: dict[int, float] | None = None  # of labels; None: |x|^2 is minimized under loss <= U
    bound: float = 0.0  # U


def split(name: str, clients: int, scaled: bool = False) -> Callable[[], fedmin.Federation]:
    """The rows of a table, dealt out alike."""

    def make() -> fedmin.Federation:
        table = data.load(name)
        return data.partition(table.standardized() if scaled else table, data.IID(clients), seed=0)

    return make


def by_label(loss: str, l2: float, limits: dict[int, float], bias: bool = True) -> dict[str, Any]:
    """The mean loss, where some labels' mean losses have limits."""

    def problem(federation: fedmin.Federation) -> Any:
        features = federation.pool.x.shape[1]
        base: Any = (
            fedmin.Logistic(features, l2=l2, bias=bias)
            if loss == "logistic"
            else fedmin.Softmax(features, federation.classes, l2=l2, bias=bias)
        )
        named = {str(label): limit for label, limit in limits.items()}
        return fedmin.subject_to(base, fedmin.GroupLossAtMost(named))

    return {"problem": problem, "loss": loss, "l2": l2, "bias": bias, "limits": limits}


def network(federation: fedmin.Federation) -> Any:
    """The SSCA papers' network and limit."""
    inner = fedmin.MLP(federation.pool.x.shape[1], federation.classes)
    return fedmin.smallest(inner, loss_at_most=0.13)


def smallest_softmax(federation: fedmin.Federation) -> Any:
    inner = fedmin.Softmax(federation.pool.x.shape[1], federation.classes)
    return fedmin.smallest(inner, loss_at_most=0.2)


FIVE = {1: 0.1, 3: 0.15, 5: 0.1, 8: 0.2, 9: 0.15}
WORLDS = {
    "breast-cancer": World(
        "Neyman-Pearson, breast cancer: loss of malignant <= 0.05", True,
        federation=split("breast_cancer", 5, True), **by_label("logistic", 1e-3, {0: 0.05}),
    ),
    "ijcnn1": World(
        "Neyman-Pearson, ijcnn1: loss of label 1 <= 0.3", True,
        federation=split("ijcnn1", 10), **by_label("logistic", 1e-4, {1: 0.3}),
    ),
    "mnist": World(
        "smallest network, MNIST: loss <= 0.13", True, network, split("mnist", 10), rounds=500
    ),
    "a9a": World(
        "two groups' limits, a9a: 0.4 and 0.45", False,
        federation=split("a9a", 10), **by_label("logistic", 1e-4, {0: 0.4, 1: 0.45}, False),
    ),
    "digits-5": World(
        "five labels' limits, digits", False,
        federation=split("digits", 5), **by_label("softmax", 1e-3, FIVE),
    ),
    "credit": World(
        "Neyman-Pearson, credit default: loss of default <= 0.6", False,
        federation=split("default_credit", 10), **by_label("logistic", 1e-4, {1: 0.6}),
    ),
    "digits-small": World(
        "smallest softmax, digits: loss <= 0.2", False, smallest_softmax, split("digits", 5),
        loss="softmax", bias=False, bound=0.2,
    ),
}  # fmt: skip
TINY = World(
    "Neyman-Pearson, breast cancer, tiny", False, rounds=20,
    federation=split("breast_cancer", 2, True), **by_label("logistic", 1e-3, {0: 0.05}),
)  # fmt: skip


def optimum(world: World, federation: fedmin.Federation) -> float | None:
    """The least objective that meets the limits, where the problem is convex."""
    if not world.loss:
        return None
    z = np.asarray(_dense(federation), float)
    y = np.asarray(federation.pool.y)
    if world.bias:
        z = np.hstack([z, np.ones((len(z), 1))])
    classes = 2 if world.loss == "logistic" else federation.classes
    rows, least = _Rows(z, y, classes, world), None
    marks = [y == label for label in (world.limits or {})] or [np.ones(len(y), bool)]
    bounds = np.array(list((world.limits or {0: world.bound}).values()))

    def dual(nu: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal least
        weight = np.full(len(y), 0.0 if world.limits is None else 1 / len(y))
        for price, mark in zip(nu, marks, strict=True):
            weight = weight + price * mark / mark.sum()
        least, value = rows.lowest(weight, least)
        slope = np.array([rows.losses(least)[mark].mean() for mark in marks]) - bounds
        return -(value - nu @ bounds), -slope

    # |x|^2 has far larger multipliers than a loss
    first = np.full(len(bounds), 0.5 if world.limits else 50.0)
    found = scipy.optimize.minimize(
        dual, first, jac=True, method="L-BFGS-B", bounds=[(0, 1e5)] * len(bounds),
        options={"ftol": 1e-12, "maxiter": 100},
    )  # fmt: skip
    return float(-found.fun)


def _dense(federation: fedmin.Federation) -> np.ndarray:
    x = federation.pool.x
    return np.asarray(x.values if isinstance(x, Dense) else x @ np.eye(x.shape[1]))


class _Rows:
    """Regression in NumPy, with a weight a row."""

    def __init__(self, z: np.ndarray, y: np.ndarray, classes: int, world: World):
        self.z, self.y, self.classes, self.world = z, y, classes, world
        self.free = z.shape[1] - world.bias  # features; the bias is not regularized

    def _logits(self, x: np.ndarray) -> np.ndarray:
        if self.classes == 2:
            score = self.z @ x
            return np.stack([np.zeros_like(score), score], axis=1)
        return self.z @ x.reshape(self.classes, -1).T

    def losses(self, x: np.ndarray) -> np.ndarray:
        """f[n]: cross-entropy."""
        a = self._logits(x)
        top = a.max(axis=1)
        return top + np.log(np.exp(a - top[:, None]).sum(axis=1)) - a[range(len(a)), self.y]

    def lowest(self, weight: np.ndarray, near: np.ndarray | None) -> tuple[np.ndarray, float]:
        """Where the weighted sum of losses and the regularizer is least, and its value."""
        ridge = 1.0 if self.world.limits is None else self.world.l2 / 2

        def value(x: np.ndarray) -> tuple[float, np.ndarray]:
            a = self._logits(x)
            p = np.exp(a - a.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            p[range(len(p)), self.y] -= 1
            p *= weight[:, None]
            slope = p[:, 1] @ self.z if self.classes == 2 else (p.T @ self.z).ravel()
            kept = x.reshape(-1, self.z.shape[1]).copy()
            kept[:, self.free :] = 0
            kept = kept.ravel()
            return weight @ self.losses(x) + ridge * kept @ kept, slope + 2 * ridge * kept

        size = self.z.shape[1] * (1 if self.classes == 2 else self.classes)
        start = np.zeros(size) if near is None else near
        found = scipy.optimize.minimize(
            value, start, jac=True, method="L-BFGS-B",
            options={"ftol": 1e-13, "gtol": 1e-8, "maxiter": 3000, "maxcor": 30},
        )  # fmt: skip
        return found.x, float(found.fun)
