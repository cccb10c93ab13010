"""All attacks on one view: what an observer could rebuild, beside what anybody could guess."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedmin.privacy.audit import inversion
from fedmin.privacy.audit.inversion import Message, Nearest, Rank


class Public(NamedTuple):
    """What everybody may know of rows, and the attacker knows."""

    mean: np.ndarray  # f[k], the average row
    bounds: tuple[float, float]  # within which numbers of rows lie
    classes: int | None  # None: targets are numbers, which the attacker is told
    common: int  # the most frequent label
    image: tuple[int, int, int] | None = None  # the shape of a row, where it is an image

    @property
    def span(self) -> float:
        """How far apart numbers of rows may be."""
        return max(self.bounds[1] - self.bounds[0], 1e-30)


class Target(NamedTuple):
    """A message, what it may be a function of, and the truth to compare with."""

    message: Message  # f[n, k], [n] -> f[m]
    seen: np.ndarray  # f[m]
    z: np.ndarray  # f[n, k], the true rows
    y: np.ndarray  # [n]
    behind: Message | None = None  # what the message was chosen by, where it is an atom
    cuts: tuple[int, ...] = ()  # where the parts of a message end that are scaled apart
    layer: tuple[int, int] | None = None  # embedding, features of a linear first layer
    given: tuple[Any, ...] = ()  # further arguments of the functions


class Effort(NamedTuple):
    """How hard an attacker tries."""

    steps: int = 200  # of the optimizer, for each loss and start
    starts: int = 1  # at random, besides the average row
    rough: float = 1e-4  # the weight of smoothness, for images
    directions: int = inversion.MOST_DIRECTIONS  # in which the rank is measured


class Rebuilt(NamedTuple):
    """What one attack has found."""

    attack: str
    psnr: float  # decibels, the mean over the rows
    rows: np.ndarray  # f[n, k], in the order of the true ones
    misfit: float  # between its message and the one that was seen


class Outcome(NamedTuple):
    """What came of all attacks on a view."""

    rank: Rank
    guess: float  # PSNR of the average row
    found: tuple[Rebuilt, ...]
    labels: float | None  # the share of labels that were inferred
    labels_guess: float | None  # by the most frequent label

    @property
    def best(self) -> Rebuilt:
        """The attack that came nearest, which only the owner of the rows can tell."""
        return max(self.found, key=lambda each: each.psnr)


def attacked(target: Target, public: Public, effort: Effort = Effort(), seed: int = 0) -> Outcome:
    """Try everything: rank, labels, closed form, and matching by both losses from all starts.

    The best of them is chosen by the truth, so it bounds what an attacker who tries them gets.
    """
    z = jnp.asarray(target.z)
    message = lambda rows, y: target.message(rows, y, *target.given)
    rank = inversion.rank_of(message, z, target.y, effort.directions)
    labels, right, guessed = _labels(target, public)
    everywhere = np.tile(public.mean, (len(target.z), 1))
    guess = inversion.nearest(everywhere, target.z, public.span)
    found = [Rebuilt("average row", guess.psnr, guess.rows, float("nan"))]
    found += _closed(target, public)
    found += _matched(target, public, effort, labels, seed)
    return Outcome(rank, guess.psnr, tuple(found), right, guessed)


def _labels(target: Target, public: Public) -> tuple[Any, float | None, float | None]:
    if public.classes is None:
        return target.y, None, None
    count = len(target.z)
    whole, seen = _asked(target)
    guess = jnp.asarray(public.mean, target.z.dtype)
    found = inversion.infer_labels(whole, seen, guess, count, public.classes, target.given)
    if count == 1 and target.layer is not None and target.layer[0] == public.classes:
        found = inversion.lone_label(target.seen, *target.layer)
    common = np.full(count, public.common)
    right = inversion.labels_right
    return found, right(found, target.y), right(common, target.y)


def _asked(target: Target) -> tuple[Message, np.ndarray]:
    """The smoother of what can be compared: an atom is chosen against what is behind it."""
    behind = target.behind
    if behind is None:
        return target.message, target.seen
    rows = jnp.asarray(target.z), jnp.asarray(target.y)
    size = jax.eval_shape(behind, *rows, *target.given).size
    return behind, -target.seen[:size]


def _closed(target: Target, public: Public) -> list[Rebuilt]:
    """The rows of the gradient of a linear first layer, up to brightness and contrast."""
    if target.layer is None or target.seen.size < target.layer[0] * target.layer[1]:
        return []
    candidates = inversion.first_layer_rows(target.seen, *target.layer)
    best = inversion.nearest(candidates, target.z, public.span)
    return [Rebuilt("closed form, first layer", best.psnr, best.rows, 0.0)]


def _matched(
    target: Target, public: Public, effort: Effort, labels: Any, seed: int
) -> list[Rebuilt]:
    rough = None if public.image is None else inversion.roughness(public.image, effort.rough)
    kinds: list[tuple[str, Message, np.ndarray, str]] = []
    if target.behind is not None:  # an atom itself stands still where rows move a little
        kinds.append(("matching what is behind the atom, cosine", *_asked(target), "cosine"))
    else:
        kinds += [
            (f"matching, {loss}", target.message, target.seen, loss) for loss in inversion.LOSSES
        ]
    found = []
    for name, message, seen, loss in kinds:
        found += [
            _one(name, message, seen, loss, start, target, public, effort, labels, rough)
            for start in _starts(target, public, effort, seed)
        ]
    return found


def _starts(target: Target, public: Public, effort: Effort, seed: int) -> list[np.ndarray]:
    rng, shape = np.random.default_rng(seed), target.z.shape
    near = np.tile(public.mean, (shape[0], 1))
    # rows that begin alike would stay alike
    near = near + 0.01 * public.span * rng.standard_normal(shape)
    return [near, *(rng.uniform(*public.bounds, shape) for _ in range(effort.starts))]


def _one(
    name: str,
    message: Message,
    seen: np.ndarray,
    loss: str,
    start: np.ndarray,
    target: Target,
    public: Public,
    effort: Effort,
    labels: Any,
    rough: Callable[[Any], Any] | None,
) -> Rebuilt:
    cuts: Sequence[int] = target.cuts if loss == "cosine" else ()
    rows, misfit = inversion.match(
        message, seen, jnp.asarray(labels), start.astype(target.z.dtype), loss=loss,
        bounds=public.bounds, steps=effort.steps, cuts=cuts, rough=rough,
        given=target.given,
    )  # fmt: skip
    best: Nearest = inversion.nearest(rows, target.z, public.span)
    return Rebuilt(name, best.psnr, best.rows, misfit)
