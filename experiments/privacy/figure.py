"""A figure: what is lost at which epsilon, a curve a model, mean and spread over seeds."""

from pathlib import Path
from typing import Any

import numpy as np

# [abadi2016deep] section 5: a network of 1,000 hidden units on 60 principal components, delta 1e-5
PUBLISHED = ((0.5, 0.90), (2.0, 0.95), (8.0, 0.97))
COLOURS = {
    "DP-SGD in NumPy, 1 place": "#777777", "Opacus 1.6.0, 1 place": "#111111",
    "DP-SGD: FedSGD, 1 client": "#1f4e9c",
    "FedSGD, 10 clients": "#4c9be8", "sparse: FedHT, noise on gradients": "#b8500a",
    "sparse: DistributedIHT, peeling": "#f0932b", "smallest with loss <= 0.5: SSCA": "#8e44ad",
    "l1 ball: FedFW, noisy vertices": "#2a7f3f",
}  # fmt: skip


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Accuracy on MNIST, AUC where there are two classes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    tables = list(dict.fromkeys(run["table"] for run in found))
    drawn, axes = plt.subplots(1, len(tables), figsize=(6.2 * len(tables), 4.6), squeeze=False)
    for ax, table in zip(axes[0], tables, strict=True):
        some = [run for run in found if run["table"] == table]
        what = "auc" if "auc" in some[0] else "accuracy"
        for model in dict.fromkeys(run["model"] for run in some):
            _curve(ax, [run for run in some if run["model"] == model], model, what)
        if table == "mnist":
            ax.plot(*zip(*PUBLISHED, strict=True), "kx", label="published: a network, Abadi 2016")
        ax.set_xscale("log")
        ticks = sorted({run["epsilon"] for run in some})
        ax.set_xticks(ticks, [f"{e:g}" for e in ticks])
        ax.minorticks_off()
        ax.set_xlabel("epsilon of a row, delta = 1e-5")
        ax.set_ylabel("AUC on test rows" if what == "auc" else "accuracy on test rows")
        ax.set_title(table)
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8, loc="lower right")
    drawn.tight_layout()
    drawn.savefig(path, dpi=130)
    plt.close(drawn)


def _curve(ax: Any, runs: list[dict[str, Any]], model: str, what: str) -> None:
    at = sorted({run["epsilon"] for run in runs})
    each = [[run[what] for run in runs if run["epsilon"] == e] for e in at]
    mean = [np.mean(some) for some in each]
    below = [m - min(some) for m, some in zip(mean, each, strict=True)]
    above = [max(some) - m for m, some in zip(mean, each, strict=True)]
    dashed = "--" if "1 place" in model else "-"  # not ours
    ax.errorbar(at, mean, (below, above), fmt="o" + dashed, ms=4, lw=1.6, capsize=2,
                color=COLOURS.get(model), label=model)  # fmt: skip
