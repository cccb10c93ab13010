"""Neural networks as problems in one flat vector.

Convolutions are written as patches times a matrix, with pooling built in: inside a compiled loop on
a CPU this is many times faster than XLA's own convolution (docs/performance.md).
Images are rows of height x width x channels numbers, channels last.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedmin.core import checks
from fedmin.core.column_problem import FirstLayer
from fedmin.core.layers import Activation, Affine, ConvolvePool, Flat, Image, Layer
from fedmin.core.matrix import Dense
from fedmin.core.problem import Problem, cut
from fedmin.core.rows import Rows
from fedmin.problems.shared import (
    Classifier,
    check_ridge,
    correct,
    cross_entropy,
    ridge,
    ridge_curvature,
)

Shapes = tuple[tuple[int, ...], ...]


def draw(key: Array, shapes: Shapes) -> Array:
    """He's normal start for weights [out, in], zero for biases [out]."""
    keys = jax.random.split(key, len(shapes))
    parts = [
        jnp.sqrt(2.0 / s[1]) * jax.random.normal(k, (math.prod(s),)) if len(s) > 1 else jnp.zeros(s)
        for k, s in zip(keys, shapes, strict=True)
    ]
    return jnp.concatenate(parts)


def layer_shapes(pairs: Sequence[tuple[int, int]], bias: bool) -> Shapes:
    """Weight [out, in] and, if wanted, bias [out] for each (in, out)."""
    return tuple(s for i, o in pairs for s in (((o, i), (o,)) if bias else ((o, i),)))


def affine(h: Array, weights: list[Array], bias: bool) -> Array:
    """h W^T (+ b), taking W (and b) off the front of the list."""
    out = h @ weights.pop(0).T
    return out + weights.pop(0) if bias else out


def connected(weights: list[Array], bias: bool) -> list[Affine]:
    """Fully connected layers, from their tensors."""
    each = weights[:: 2 if bias else 1]
    biases = weights[1::2] if bias else [None] * len(each)
    return [Affine(w, b) for w, b in zip(each, biases, strict=True)]


def convolve_pool(images: Array, weights: list[Array], kernel: int, padding: int) -> Array:
    """Convolution, then the largest of each 2 x 2 square (an odd last row or column is dropped).

    The patches of the four pixels of a square are built apart, so that pooling is the larger of
    four arrays: no strided reads, and a cheap way back.
    """
    matrix, bias = weights.pop(0), weights.pop(0)
    best, *others = (patch @ matrix.T for patch in pooled_patches(images, kernel, padding))
    for other in others:
        best = jnp.maximum(best, other)
    return best + bias


def pooled_patches(images: Array, kernel: int, padding: int) -> list[Array]:
    """Four arrays [n, h', w', kernel * kernel * c]: the window around each corner of a square."""
    n, h, w, c = images.shape
    h_half, w_half = ((size + 2 * padding - kernel + 1) // 2 for size in (h, w))
    odd = [(size + 2 * padding) % 2 for size in (h, w)]
    pad = ((0, 0), (padding, padding + odd[0]), (padding, padding + odd[1]), (0, 0))
    wide = jnp.pad(images, pad)
    wide = wide.reshape(n, wide.shape[1] // 2, 2, wide.shape[2] // 2, 2, c)

    def window(i, j):
        return wide[:, i // 2 : i // 2 + h_half, i % 2, j // 2 : j // 2 + w_half, j % 2]

    around = [(i, j) for i in range(kernel) for j in range(kernel)]
    corners = [(a, b) for a in (0, 1) for b in (0, 1)]
    return [jnp.concatenate([window(a + i, b + j) for i, j in around], 3) for a, b in corners]


def dense_rows(problem: Problem, rows: Rows) -> Array:
    """The rows' values; a network has no use for sparse ones."""
    if not isinstance(rows.x, Dense):
        raise TypeError(f"{type(problem).__name__} needs dense rows, got {type(rows.x).__name__}")
    return jnp.asarray(rows.x.values)


class Network(Classifier):
    """A classifier whose x is cut into tensors of the given `shapes`; l2 is on all of them."""

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """The tensors, in their order in x: weights [out, in], biases [out]."""

    def init(self, key):
        return draw(key, self.shapes)

    @property
    def parts(self):
        layer, found = 0, {}
        for shape in self.shapes:
            layer += len(shape) > 1
            found[f"{'weights' if len(shape) > 1 else 'bias'}_{layer}"] = shape
        return found

    def regularizer(self: Any, x):  # subclasses have `l2`
        return ridge(self.l2, x)

    def ridge_weight(self: Any):
        return ridge_curvature(self.l2)


class MLP(FirstLayer, Network):
    """A fully connected classifier with cross-entropy and l2/2 |x|^2.

    The default is the network of the SSCA papers: one hidden layer, swish, no biases.

    >>> import fedmin
    >>> fedmin.MLP(784, 10, hidden=(128,)).size()
    101632
    """

    features: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    hidden: tuple[int, ...] = eqx.field(default=(128,), static=True)
    activation: Callable = eqx.field(default=jax.nn.swish, static=True)
    bias: bool = eqx.field(default=False, static=True)
    l2: float | None = None

    def __check_init__(self):
        checks.at_least("features", self.features, 1)
        checks.at_least("classes", self.classes, 2)
        for width in self.hidden:
            checks.at_least("hidden", width, 1)
        check_ridge(self.l2)

    @property
    def shapes(self) -> Shapes:
        """The tensors, in their order in x."""
        widths = (self.features, *self.hidden, self.classes)
        return layer_shapes(list(pairwise(widths)), self.bias)

    def predict(self, x: Array, rows: Rows) -> Array:
        """f[n, classes]: logits."""
        weights = self.tensors(x)
        # the first product works on sparse rows too
        return self._after(rows.x @ weights.pop(0).T, weights)

    def layers(self, x) -> list[Layer]:
        """The same for other programs."""
        name = getattr(self.activation, "__name__", str(self.activation))
        found: list[Layer] = [*connected(self.tensors(x), self.bias)]
        return [each for layer in found for each in (Activation(name), layer)][1:]

    @property
    def embedding(self) -> int:
        """On columns a client sends its part of the first layer."""
        return self.shapes[0][0]

    def head(self, params, h, rows):
        return cross_entropy(self._from_first(params, h), rows.y)[:, None]

    def head_scores(self, params, h, rows):
        return {"accuracy": correct(self._from_first(params, h), rows.y)}

    def _from_first(self, params: Array, h: Array) -> Array:
        """Logits from the sum of the clients' parts of the first layer."""
        # a network without hidden layers or biases has no numbers left for its head
        weights = cut(params, self.shapes[1:]) if self.shapes[1:] else []
        return self._after(h, weights)

    def _after(self, h: Array, weights: list[Array]) -> Array:
        """Logits from the first product."""
        h = h + weights.pop(0) if self.bias else h
        while weights:
            h = affine(self.activation(h), weights, self.bias)
        return h


class CNN(Network):
    """Convolutions with relu and 2 x 2 pooling, then fully connected layers; cross-entropy.

    `image` is (height, width, channels). Each convolution keeps the size ("same" padding) unless
    `same` is off; each is followed by pooling.

    >>> import fedmin
    >>> fedmin.CNN((28, 28, 1), 10, channels=(16, 32), hidden=(128,)).size()
    215370
    """

    image: tuple[int, int, int] = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    channels: tuple[int, ...] = eqx.field(default=(16, 32), static=True)
    kernel: int = eqx.field(default=5, static=True)
    hidden: tuple[int, ...] = eqx.field(default=(128,), static=True)
    same: tuple[bool, ...] = eqx.field(default=(), static=True)  # a convolution; () is all same
    l2: float | None = None

    window = 10  # images whose patches stay in the processor's cache

    def __check_init__(self):
        checks.at_least("classes", self.classes, 2)
        checks.at_least("kernel", self.kernel, 1)
        if len(self.image) != 3:
            raise ValueError(f"image must be (height, width, channels), got {self.image}")
        for width in (*self.channels, *self.hidden, *self.image):
            checks.at_least("image, channels and hidden", width, 1)
        if self.same and len(self.same) != len(self.channels):
            raise ValueError(f"same must be one flag a convolution, got {self.same}")
        if min(self._flat_size()[1]) < 1:
            raise ValueError(f"image {self.image} is too small for {len(self.channels)} poolings")
        check_ridge(self.l2)

    @property
    def features(self) -> int:
        """Numbers in an image."""
        return math.prod(self.image)

    def _paddings(self) -> tuple[int, ...]:
        kept = self.same or (True,) * len(self.channels)
        return tuple(self.kernel // 2 if same else 0 for same in kept)

    def _flat_size(self) -> tuple[int, tuple[int, int]]:
        h, w, c = self.image
        for channels, padding in zip(self.channels, self._paddings(), strict=True):
            shrink = 2 * padding - self.kernel + 1
            h, w, c = (h + shrink) // 2, (w + shrink) // 2, channels
        return h * w * c, (h, w)

    @property
    def shapes(self) -> Shapes:
        """The tensors, in their order in x; a convolution is [out, kernel * kernel * in]."""
        depth = (self.image[2], *self.channels)
        area = self.kernel**2
        convolutions = [(area * i, o) for i, o in pairwise(depth)]
        widths = (self._flat_size()[0], *self.hidden, self.classes)
        return layer_shapes(convolutions + list(pairwise(widths)), True)

    def predict(self, x: Array, rows: Rows) -> Array:
        """f[n, classes]: logits."""
        weights = self.tensors(x)
        h = dense_rows(self, rows).reshape(-1, *self.image)
        for padding in self._paddings():
            # relu after pooling: the same result on a quarter of the numbers
            h = jax.nn.relu(convolve_pool(h, weights, self.kernel, padding))
        h = affine(h.reshape(h.shape[0], -1), weights, True)
        while weights:
            h = affine(jax.nn.relu(h), weights, True)
        return h

    def layers(self, x) -> list[Layer]:
        """The same for other programs."""
        weights, relu = self.tensors(x), Activation("relu")
        found: list[Layer] = [Image(*self.image)]
        for padding in self._paddings():
            found += [ConvolvePool(weights.pop(0), weights.pop(0), self.kernel, padding), relu]
        after = [each for layer in connected(weights, True) for each in (relu, layer)][1:]
        return [*found, Flat(), *after]


def LeNet(
    image: tuple[int, int, int] = (28, 28, 1), classes: int = 10, l2: float | None = None
) -> CNN:
    """LeNet-5 with relu and max-pooling: 6 and 16 channels of 5 x 5, then 120 and 84.

    >>> import fedmin
    >>> fedmin.LeNet().size()
    61706
    """
    return CNN(image, classes, (6, 16), 5, (120, 84), (image[0] <= 28, False), l2)
