"""Batches that protect single rows: Poisson draws, clipped gradients, noise.   [abadi2016deep]"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedmin.client.batches import Batches
from fedmin.core import checks
from fedmin.core.private import PrivateBatch, watching_one
from fedmin.core.release import Private, Release, check_private


class PrivateRows(Batches):
    """Each row with chance `rate` at every step; gradients clipped a row to `clip`, with noise.

    The noise is `multiplier` times `clip`, drawn from the site's own secret before anything leaves
    it; or give `epsilon` and `delta` for the whole run, from which its multiplier follows. For
    methods whose clients take gradients on batches and nothing else: others are refused.

    >>> import fedmin
    >>> method = fedmin.FedAvg(0.5, batches=fedmin.PrivateRows(0.05, clip=1.0, epsilon=3.0))
    >>> method.batches.delta
    1e-05
    """

    rate: float  # q, the chance of a row to be in a batch
    clip: float = 1.0  # C, the longest gradient of a row
    multiplier: float | None = None  # of the noise, relative to clip
    epsilon: float | None = None  # of the whole run, instead of a multiplier
    delta: float = 1e-5  # the other half of epsilon

    def __check_init__(self):
        checks.between("rate", self.rate, 0.0, 1.0, open_low=True)
        checks.positive("clip", self.clip)
        check_private(Private(self.multiplier, self.epsilon, self.delta))

    def release(self, times: int) -> Release:
        """What so many gradients a round tell of a row."""
        return Release("row", float(self.multiplier or 1.0), float(self.rate), times)

    def draw(self, rows: Any, key: Array, k: Array) -> Array:
        return jax.random.fold_in(key, k)

    def read(self, rows: Any, drawn: Array) -> Any:
        if self.multiplier is None:
            raise ValueError(f"{self} has no multiplier yet: minimize(...) finds it from epsilon")
        rate, clip, multiplier = (
            jnp.asarray(a, float) for a in (self.rate, self.clip, self.multiplier)
        )
        return PrivateBatch(rows, drawn, rate, clip, multiplier, watching_one())

    def per_epoch(self, size, capacity):
        raise TypeError(f"{self} goes with local_steps, not with epochs")
