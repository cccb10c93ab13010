"""Quantiles and ranges from counts in bins, which are sums; no site says its extremes."""

from __future__ import annotations

from typing import Any

import numpy as np

WIDTH = 4.0  # standard deviations on either side that a first histogram reaches


def quantile(edges: np.ndarray, counts: np.ndarray, q: float) -> float:
    """A quantile of what a histogram counts, to within the bin that it lies in.

    >>> import numpy as np
    >>> from fedmin.data.own.histograms import quantile
    >>> quantile(np.arange(5.0), np.array([1, 1, 1, 1]), 0.5)
    2.0
    """
    below = np.concatenate([[0], np.cumsum(counts)])
    k = min(int(np.searchsorted(below, q * below[-1], side="left")), len(counts))
    k = max(k, 1)
    inside = (q * below[-1] - below[k - 1]) / max(counts[k - 1], 1)
    return float(edges[k - 1] + inside * (edges[k] - edges[k - 1]))


def fullest(edges: np.ndarray, counts: np.ndarray) -> float:
    """The middle of the bin with the most rows: the most frequent value, to half of a bin.

    >>> import numpy as np
    >>> from fedmin.data.own.histograms import fullest
    >>> fullest(np.arange(5.0), np.array([1, 1, 7, 1]))
    2.5
    """
    k = int(np.argmax(counts))
    return float((edges[k] + edges[k + 1]) / 2)


def histograms(
    talk: Any, told: dict[str, Any], bins: int, mean: np.ndarray, deviation: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Edges and counts, wide enough that nobody is outside; no site says its extremes."""
    half = WIDTH * np.where(deviation > 0, deviation, 1.0)
    while True:
        edges = np.linspace(mean - half, mean + half, bins + 1)
        (counts,) = talk.sums(
            "histograms", {**told, "bins": bins}, {"mean": mean, "half": half},
            {"counts": (len(mean), bins + 2)},
        )  # fmt: skip
        outside = counts[:, -2:].sum(axis=1)
        if not outside.any():
            return list(edges.T), list(counts[:, :-2])
        half = np.where(outside > 0, 4 * half, half)
