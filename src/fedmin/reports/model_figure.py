"""A model's coefficients as a picture: how much each feature counts, by its own scale."""

from pathlib import Path
from typing import Any

import numpy as np

from fedmin.core.curves import COLORS

MOST = 40  # features that are drawn: those that count most


def model_figure(model: Any, path: str | Path) -> Path:
    """Draw the change of the prediction for one scale (a standard deviation, unless prepared
    otherwise) of each number and for each level; returns where the picture is."""
    # the picture is saved, never shown: no display is needed, and pyplot keeps no hold of it
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    scale = model.scales[1]
    effects = model.coefficients * scale
    order = np.argsort(np.abs(effects).max(axis=0), kind="stable")[-MOST:]
    shown = [name if s == 1 else f"{name} (per {s:.3g})" for name, s in
             zip(model.features, scale, strict=True)]  # fmt: skip
    picture = Figure(figsize=(6.4, 1.3 + 0.32 * len(order)), layout="constrained")
    FigureCanvasAgg(picture)
    ax = picture.subplots()
    several = len(effects) > 1
    for k, row in enumerate(effects):
        label = str(model.classes[k]) if several else None
        color = COLORS[k % len(COLORS)]
        shift = 0.6 * ((k + 0.5) / len(effects) - 0.5)
        at = np.arange(len(order)) - shift
        ax.plot(row[order], at, "o", color=color, label=label, markersize=5)
        if model.statistics is not None:
            ax.hlines(at, *_intervals(model)[order].T, color=color, linewidth=1.5)
        elif not several:
            ax.hlines(at, 0, row[order], color=color, linewidth=1.5, alpha=0.5)
    ax.axvline(0, color="#555555", linewidth=0.8)
    ax.set_yticks(range(len(order)), [shown[j] for j in order])
    ax.set_ylim(-0.7, len(order) - 0.3)
    what = {"logit": "log-odds", "log": "log of the mean", "softmax": "logits"}
    sure = ", with 95 % intervals" if model.statistics is not None else ""
    ax.set_xlabel(f"change of the {what.get(model.link, model.about.outcome)}{sure}")
    if model.link in ("logit", "log"):
        _ratios(ax, "odds ratio" if model.link == "logit" else "rate ratio")
    if several:
        ax.legend(frameon=False, title=model.about.outcome)
    ax.grid(axis="x", alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    picture.suptitle(_title(model), fontsize="medium")
    path = Path(path)
    picture.savefig(path, dpi=144)
    return path


def _intervals(model: Any) -> np.ndarray:
    """f64[features, 2]: 95 % intervals by the scale of each feature; 0 of those that do not count.

    Intervals are around the maximum of the likelihood, which the run's model is close to.
    """
    found = np.zeros((len(model.features), 2))
    for name, interval in zip(model.statistics.names, model.statistics.intervals(), strict=True):
        if name in model.features:
            j = model.features.index(name)
            found[j] = interval * model.scales[1][j]
    return found


def _ratios(ax: Any, name: str) -> None:
    """A second axis on top, on which 1 is no effect."""
    top, (low, high) = ax.twiny(), ax.get_xlim()
    top.set_xlim(low, high)
    top.spines[["top", "right"]].set_visible(False)
    ticks = [t for t in (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 1, 1.25, 1.5, 2, 3, 5, 10, 20)
             if low <= np.log(t) <= high]  # fmt: skip
    top.set_xticks(np.log(ticks), [f"{t:g}" for t in ticks])
    top.set_xlabel(name)


def _title(model: Any) -> str:
    if model.link == "logit":
        return f"{model.about.outcome} = {model.classes[1]} (not {model.classes[0]})"
    return str(model.about.outcome)
