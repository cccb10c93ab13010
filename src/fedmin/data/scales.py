"""The scales of a table's columns and rows, dense or sparse."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


def moments(x) -> tuple[np.ndarray, np.ndarray]:
    """The mean and standard deviation of each column."""
    # float64 throughout: in float32 the variance of a large column loses most of its digits
    if sp.issparse(x):
        n, d = x.shape
        values = x.data.astype(np.float64)
        mean = np.bincount(x.indices, values, d) / n
        stored = np.bincount(x.indices, minlength=d)
        apart = np.bincount(x.indices, (values - mean[x.indices]) ** 2, d)
        std = np.sqrt((apart + (n - stored) * mean**2) / n)
    else:
        mean, std = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    # what a constant float32 column shows is rounding, and dividing by it would blow it up
    return mean, np.where(std > 1e-7 * np.abs(mean), std, 0.0)


def column_max(x) -> np.ndarray:
    """The largest magnitude in each column."""
    if sp.issparse(x):
        return np.asarray(abs(x).max(axis=0).todense()).ravel()
    return np.abs(x).max(axis=0)


def unit_rows(x):
    """The same rows, each of Euclidean length 1."""
    if sp.issparse(x):
        length = np.sqrt(np.asarray(x.multiply(x).sum(axis=1), dtype=np.float64).ravel())
        return (sp.diags_array(1.0 / nonzero(length)) @ x).tocsr()
    return x / nonzero(np.linalg.norm(x, axis=1, keepdims=True))


def nonzero(scale: np.ndarray) -> np.ndarray:
    """The same scales, with 1 in place of 0."""
    return np.where(scale > 0, scale, 1.0)
