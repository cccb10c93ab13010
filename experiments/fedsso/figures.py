"""Accuracy over rounds and over megabytes, a line a method."""

from pathlib import Path

import numpy as np

from experiments.fedsso import search
from experiments.fedsso.claims import Claim
from experiments.fedsso.runs import Book, Curve
from experiments.fedsso.setting import Setting
from fedmin.core.curves import COLORS


def draw(claim: Claim, book: Book, setting: Setting, out: Path) -> None:
    """The figure that belongs to a claim, if there is one; all its runs are there already."""
    worlds = {"sso-rounds": setting.convex, "sso-cnn": setting.network}
    if claim.id in worlds:
        world = worlds[claim.id]
        lines = {name: search.tuned(book, setting, world, name) for name in setting.rivals(world)}
        accuracy(lines, out / f"{claim.id}.png", f"{world}: tuned over one grid")


def accuracy(lines: dict[str, list[Curve]], path: Path, title: str) -> None:
    """The median over seeds, by rounds and by megabytes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    best = 0.0
    for i, (name, curves) in enumerate(lines.items()):
        fine = [curve for curve in curves if curve.status != "diverged"]
        if not fine:
            continue
        middle = np.median([curve.accuracy for curve in fine], axis=0)
        rounds = np.asarray(fine[0].round)
        label = f"{name} {fine[0].spec.steps}"
        left.plot(rounds[1:], middle[1:], color=COLORS[i], label=label)
        right.plot(rounds[1:] * fine[0].bytes / 1e6, middle[1:], color=COLORS[i])
        best = max(best, middle.max())
    # what is claimed is in the last quarter, and early
    left.set(xlabel="round", ylabel="test accuracy", title=title, xscale="log")
    left.set_ylim(0.75 * best, 1.01 * best)
    right.set(xlabel="megabytes, all clients", xscale="log")
    left.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=130)
