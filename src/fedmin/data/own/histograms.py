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


def histograms(
    talk: Any, bins: int, names: list[str], mean: np.ndarray, deviation: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Edges and counts, wide enough that nobody is outside; no site says its extremes."""
    half = WIDTH * np.where(deviation > 0, deviation, 1.0)
    while True:
        edges = [np.linspace(m - h, m + h, bins + 1) for m, h in zip(mean, half, strict=True)]

        def count(site: Any, edges: Any = edges) -> list[np.ndarray]:
            found = []
            for name, each in zip(names, edges, strict=True):
                x = site.columns[name]
                x = x[~np.isnan(x)]
                inside = np.histogram(x, each)[0]
                outside = np.array([(x < each[0]).sum(), (x > each[-1]).sum()])
                found.append(np.concatenate([inside, outside]).astype(float))
            return [np.stack(found)]

        (counts,) = talk.sums("histograms", np.stack([mean, half]), count)
        outside = counts[:, -2:].sum(axis=1)
        if not outside.any():
            return edges, list(counts[:, :-2])
        half = np.where(outside > 0, 4 * half, half)
