"""Batches that protect single rows by choices: all rows, clipped gradients, noisy maxima."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedmin.client.batches import Batches
from fedmin.core import checks
from fedmin.core.choices import ChoiceBatch
from fedmin.core.private import watching_one
from fedmin.core.release import Private, Release, check_private


class PrivateChoices(Batches):
    """All rows at every step, of which vertices or entries are told, chosen with noise.

    For methods that send choices: FedFW, FedFWPlus and FedFWSto over an `L1Ball`, a `Simplex` or a
    `KSparsePolytope`, whose vertices are drawn by the exponential mechanism; FedIterHT and
    DistributedIHT over an `L0Ball`, whose entries are (peeling), with noise on their values. A
    row's gradient is clipped so that no entry is larger than `clip`. The noise is `multiplier`
    times what one row can change, drawn from the site's own secret; or give `epsilon` and `delta`
    for the whole run. How much noise that is, and why: `core/choices.py`.

    >>> import fedmin
    >>> method = fedmin.FedFW(0.1, batches=fedmin.PrivateChoices(clip=1.0, epsilon=3.0))
    >>> method.batches.delta
    1e-05
    """

    clip: float = 1.0  # C, the largest entry of a row's gradient
    multiplier: float | None = None  # of the noise: a choice costs what a Gaussian of it costs
    epsilon: float | None = None  # of the whole run, instead of a multiplier
    delta: float = 1e-5  # the other half of epsilon

    def __check_init__(self):
        checks.positive("clip", self.clip)
        check_private(Private(self.multiplier, self.epsilon, self.delta))

    def release(self, times: int) -> Release:
        """What so many choices a round tell of a row."""
        return Release("row", float(self.multiplier or 1.0), 1.0, times, concentrated=True)

    def draw(self, rows: Any, key: Array, k: Array) -> Array:
        return jax.random.fold_in(key, k)

    def read(self, rows: Any, drawn: Array) -> Any:
        if self.multiplier is None:
            raise ValueError(f"{self} has no multiplier yet: minimize(...) finds it from epsilon")
        clip, multiplier = (jnp.asarray(a, float) for a in (self.clip, self.multiplier))
        return ChoiceBatch(rows, drawn, clip, multiplier, watching_one())

    def per_epoch(self, size, capacity):
        raise TypeError(f"{self} goes with local_steps, not with epochs")
