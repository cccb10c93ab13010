"""Curves of runs: a recorded column against rounds, bytes or seconds."""

from collections.abc import Mapping
from typing import Any

import numpy as np

LABELS = {
    "round": "round",
    "seconds": "seconds",
    "megabytes": "megabytes sent and received",
    "objective": "objective F(x)",
    "accuracy": "test accuracy",
    "test_objective": "F(x) on test rows",
    "gradient_norm": "gradient norm |grad F(x)|",
    "violation": "violation of the constraints",
    "stationarity": "stationarity",
    "gap": "gap over the set",
}
COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#555555")


def axis_of(result: Any, name: str) -> np.ndarray:
    """A column of the history; "megabytes" is what went either way."""
    if name == "megabytes":
        return (result.history["bytes_down"] + result.history["bytes_up"]) / 1e6
    return result.history[name]


def draw(results: Mapping[str, Any], column: str, against: str = "round", ax: Any = None) -> Any:
    """One curve a run, labelled by its name."""
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    for i, (name, result) in enumerate(results.items()):
        x, y = axis_of(result, against), axis_of(result, column)
        ax.plot(x, y, label=name, color=COLORS[i % len(COLORS)], linewidth=1.8)
    ax.set_xlabel(LABELS.get(against, against))
    ax.set_ylabel(LABELS.get(column, column))
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax
