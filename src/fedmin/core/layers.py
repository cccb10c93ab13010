"""What a model computes, layer by layer: the words in which it is written for other programs."""

from typing import Any, NamedTuple


class Affine(NamedTuple):
    """h W^T + b.

    >>> from fedmin.core.layers import Affine
    >>> Affine([[1.0, 2.0]], None).bias is None
    True
    """

    weights: Any  # f[out, in]
    bias: Any  # f[out], or None


class Activation(NamedTuple):
    """A function of each number, by its name in jax.nn."""

    name: str


class Image(NamedTuple):
    """Rows of numbers as images, channels last."""

    height: int
    width: int
    channels: int


class ConvolvePool(NamedTuple):
    """A convolution, padded by zeros on all sides, then the largest of each 2 x 2 square."""

    weights: Any  # f[out, kernel * kernel * in], the channel being what changes first
    bias: Any  # f[out]
    kernel: int
    padding: int


class Flat(NamedTuple):
    """Images as rows of numbers, channels last."""


Layer = Affine | Activation | Image | ConvolvePool | Flat
