"""From a message back to rows: is there a unique answer, which labels, which rows, how near.

rank         singular values of the derivative of a message by the rows: where the rank is
             below the number of unknowns, rows can be changed without changing the message, to
             first order: the papers' "infinitely many solutions" [ye2022sample] III.A.2
labels       which mixture of messages of an average row explains the message [zhao2020idlg]
closed form  the gradient of a linear first layer is sum of slope z^T: its rows are the rows
matching     rows whose message is like the one that was seen [zhu2019deep, geiping2020inverting]
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# (rows f[B, k], targets [B], and what is given besides) -> f[m], differentiable
Message = Callable[..., Any]
EXACT = 300.0  # decibels; more is the rounding of the numbers themselves
MOST_DIRECTIONS = 1024  # of the rows in which a derivative is taken; more unknowns are sampled


class Rank(NamedTuple):
    """The numerical rank of the map from rows to a message.

    >>> from fedmin.privacy.audit.inversion import Rank
    >>> print(Rank(12, 20, 20, 3.0, 0.5))
    12 of 20
    """

    rank: int
    unknowns: int  # numbers in the rows
    tried: int  # directions in which the derivative was taken; fewer than unknowns: a sample
    largest: float  # singular value
    smallest: float  # of those that count

    @property
    def full(self) -> bool:
        """Whether the message determines the rows, to first order."""
        return 0 < self.tried == self.rank

    def __str__(self) -> str:
        if self.tried == 0:
            return "not measured"
        if self.tried == self.unknowns:
            return f"{self.rank} of {self.unknowns}"
        more = "at least " if self.full else ""
        return f"{more}{self.rank} of {self.unknowns} ({self.tried} directions tried)"


def rank_of(message: Message, z: Any, y: Any, most: int = MOST_DIRECTIONS, seed: int = 0) -> Rank:
    """How many directions of the rows z change the message, to first order.

    More unknowns than `most` are tried in as many random directions: the rank found is then that of
    the derivative on this sample, which is the true one as long as it is below `most`.

    >>> import jax.numpy as jnp
    >>> from fedmin.privacy.audit.inversion import rank_of
    >>> print(rank_of(lambda z, y: z.sum(axis=0), jnp.ones((3, 4)), None))
    4 of 12
    """
    z = jnp.asarray(z)
    size = z.size
    if most == 0:
        return Rank(0, size, 0, float("nan"), float("nan"))
    if size <= most:
        directions = jnp.eye(size, dtype=z.dtype)
    else:
        directions = jax.random.normal(jax.random.key(seed), (most, size), z.dtype)
    along = jax.jit(lambda v: jax.jvp(lambda a: message(a, y), (z,), (v.reshape(z.shape),))[1])
    columns = np.asarray(jax.lax.map(along, directions, batch_size=64), np.float64)
    if not np.isfinite(columns).all():  # an atom that is searched for has no derivative
        return Rank(0, size, 0, float("nan"), float("nan"))
    found = np.linalg.svd(columns, compute_uv=False) if columns.size else np.zeros(0)
    largest = float(found[0]) if found.size else 0.0
    # what is below is the rounding of the derivatives, which are in the type of the rows
    floor = largest * max(columns.shape) * float(np.finfo(z.dtype).eps)
    counted = found[found > floor] if largest > 0 else found[:0]
    last = float(counted[-1]) if counted.size else 0.0
    return Rank(len(counted), size, len(directions), largest, last)


# ---------------------------------------------------------------- labels


def infer_labels(
    message: Message, seen: Any, guess: Any, batch: int, classes: int, given: Any = ()
) -> np.ndarray:
    """The labels of a batch, sorted: those whose mixture of messages is nearest to what was seen.

    `guess` is an average row, of which a message with every label is made.
    """
    rows = jnp.tile(jnp.asarray(guess)[None], (batch, 1))
    labels = [jnp.full((batch,), c, jnp.int32) for c in range(classes)]
    dictionary = np.stack([np.asarray(_ready(message)(rows, y, *given), float) for y in labels])
    return mixture(dictionary, np.asarray(seen, np.float64).ravel(), batch)


@lru_cache(maxsize=32)
def _ready(message: Message) -> Message:
    """Compiled once, for all who ask the same function."""
    return jax.jit(message)


def mixture(dictionary: np.ndarray, seen: np.ndarray, batch: int) -> np.ndarray:
    """Which `batch` rows of a dictionary, some of them several times, add up to a vector in the
    direction of `seen`, as near as one at a time can be added; sorted.

    >>> import numpy as np
    >>> from fedmin.privacy.audit.inversion import mixture
    >>> mixture(np.eye(3), np.array([0.1, 2.0, 1.0]), 3).tolist()
    [1, 1, 2]
    """
    gram, along = dictionary @ dictionary.T, dictionary @ seen
    sizes, counts = np.diagonal(gram), np.zeros(len(dictionary))
    for _ in range(batch):
        lengths = counts @ gram @ counts + 2 * (gram @ counts) + sizes
        # the angle is all that a message of unknown scale tells
        angles = (counts @ along + along) / np.sqrt(np.maximum(lengths, 1e-300))
        counts[int(np.argmax(np.nan_to_num(angles, nan=-np.inf)))] += 1
    return np.repeat(np.arange(len(counts)), counts.astype(int)).astype(np.int32)


def lone_label(seen: Any, classes: int, features: int) -> np.ndarray:
    """The label of one row, where the first layer is the last one too: its gradient is p - y times
    the row, so the rows of all classes but the label point the same way."""
    slope = np.asarray(seen, float).ravel()[: classes * features].reshape(classes, features)
    return np.array([int(np.argmin(slope @ slope.sum(axis=0) - (slope**2).sum(axis=1)))], np.int32)


def labels_right(found: Any, true: Any) -> float:
    """The share of labels that were found, whichever row they are of."""
    found, true = np.asarray(found), np.asarray(true)
    kinds = np.union1d(found, true)
    both = sum(min((found == k).sum(), (true == k).sum()) for k in kinds)
    return float(both / len(true))


# ---------------------------------------------------------------- rows


def first_layer_rows(seen: Any, embedding: int, features: int) -> np.ndarray:
    """What a gradient of a linear first layer, the first numbers of a message, tells of rows.

    The rows of that gradient, each a mixture of the batch's rows; with one row in it, that row.
    """
    slope = np.asarray(seen, np.float64).ravel()[: embedding * features]
    slope = slope.reshape(embedding, features)
    sizes = np.linalg.norm(slope, axis=1)
    return slope[sizes > 1e-12 * max(sizes.max(initial=0.0), 1e-300)]


Loss = Callable[[Any, Any], Any]


def square(one: Any, other: Any, cuts: Sequence[int] = ()) -> Any:
    """|one - other|^2 over |other|^2."""
    return jnp.sum((one - other) ** 2) / jnp.maximum(jnp.sum(other**2), 1e-30)


def cosine(one: Any, other: Any, cuts: Sequence[int] = ()) -> Any:
    """1 - cosine of the angle between the two, the mean over the parts that `cuts` make of them."""
    pairs = zip(jnp.split(one, list(cuts)), jnp.split(other, list(cuts)), strict=True)
    angles = [a @ b / jnp.maximum(jnp.linalg.norm(a) * jnp.linalg.norm(b), 1e-30) for a, b in pairs]
    return 1 - jnp.mean(jnp.stack(angles))


LOSSES: dict[str, Any] = {"l2": square, "cosine": cosine}


def match(
    message: Message,
    seen: Any,
    y: Any,
    start: Any,
    *,
    loss: str = "l2",
    bounds: tuple[float, float],
    steps: int = 200,
    cuts: Sequence[int] = (),
    rough: Callable[[Any], Any] | None = None,
    given: Any = (),
) -> tuple[np.ndarray, float]:
    """Rows within bounds whose message is like the one that was seen, and how unlike it still is.

    By L-BFGS-B from `start`, for so many steps. `rough` is added to the loss: how rough images are.
    """
    from scipy.optimize import minimize  # takes long to import

    shape, kind = np.shape(start), jnp.asarray(start).dtype
    target = jnp.asarray(np.asarray(seen), kind)

    value = _valued(message, loss, tuple(cuts), rough)
    y = jnp.asarray(y)

    def flat(v):
        f, g = value(jnp.asarray(v.reshape(shape), kind), y, target, *given)
        f, g = float(f), np.asarray(g, np.float64).ravel()
        return (f, g) if np.isfinite(f) and np.isfinite(g).all() else (1e30, np.zeros_like(g))

    begin = np.clip(np.asarray(start, np.float64).ravel(), *bounds)
    found = minimize(
        flat, begin, jac=True, method="L-BFGS-B", bounds=[bounds] * begin.size,
        options={"maxiter": steps, "maxfun": 2 * steps, "maxcor": 20, "ftol": 0, "gtol": 0},
    )  # fmt: skip
    return found.x.reshape(shape), float(found.fun)


@lru_cache(maxsize=32)
def _valued(message: Message, loss: str, cuts: tuple[int, ...], rough: Any) -> Callable[..., Any]:
    """The cost and its slope, compiled once for all who match the same function."""

    def cost(z, y, target, *given):
        found = LOSSES[loss](message(z, y, *given), target, cuts)
        return found if rough is None else found + rough(z)

    return jax.jit(jax.value_and_grad(cost))


@lru_cache(maxsize=32)
def roughness(image: tuple[int, int, int], weight: float) -> Callable[[Any], Any]:
    """`weight` times the mean size of steps between neighboring pixels."""

    def rough(z):
        pictures = z.reshape(-1, *image)
        down, across = jnp.diff(pictures, axis=1), jnp.diff(pictures, axis=2)
        return weight * (jnp.mean(jnp.abs(down)) + jnp.mean(jnp.abs(across)))

    return rough


# ---------------------------------------------------------------- how near


def psnr(found: Any, true: Any, span: float) -> float:
    """The peak signal-to-noise ratio in decibels, at most 300.

    >>> from fedmin.privacy.audit.inversion import psnr
    >>> round(psnr([0.0, 0.1], [0.0, 0.0], 1.0), 1)
    23.0
    """
    error = float(np.mean((np.asarray(found, float) - np.asarray(true, float)) ** 2))
    return EXACT if error == 0 else float(min(EXACT, 10 * np.log10(span**2 / error)))


def fitted(found: np.ndarray, true: np.ndarray) -> np.ndarray:
    """a + b times a row that was found, a and b the best for the true one: what a person sees in a
    picture whose brightness and contrast may be turned."""
    centered = found - found.mean()
    length = float(centered @ centered)
    slope = float(centered @ (true - true.mean())) / length if length > 0 else 0.0
    return true.mean() + slope * centered


class Nearest(NamedTuple):
    """Rows that were found, in the order of the true ones."""

    rows: np.ndarray  # f[B, k]
    psnr: float  # the mean over the batch


def nearest(found: Any, true: Any, span: float) -> Nearest:
    """For every true row the row that was found nearest to it, up to brightness and contrast: many
    messages say nothing of either. Each is taken once where there are enough of them."""
    from scipy.optimize import linear_sum_assignment  # takes long to import

    found, true = np.asarray(found, float), np.asarray(true, float)
    if not len(found):
        found = np.zeros((1, true.shape[1]))
    made = [[fitted(f, t) for f in found] for t in true]
    scores = np.array([[psnr(m, t, span) for m in row] for row, t in zip(made, true, strict=True)])
    enough = len(found) >= len(true)
    picked = linear_sum_assignment(-scores)[1] if enough else scores.argmax(axis=1)
    rows = np.stack([made[i][j] for i, j in enumerate(picked)])
    return Nearest(rows, float(np.mean([scores[i, j] for i, j in enumerate(picked)])))
