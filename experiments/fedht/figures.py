"""Objective against rounds and against bytes, and the clusters as t-SNE sees them."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.fedht.claims import NAMES, Claim, line_up
from experiments.fedht.runs import Book, Curve
from experiments.fedht.setting import Setting
from fedmin.core.curves import COLORS


def draw(claim: Claim, book: Book, setting: Setting, out: Path) -> None:
    """The figures of a claim; all its runs are there already."""
    kinds = {"ht-sim1": "sim1", "ht-sim2": "sim2"}
    worlds = setting.names(kinds[claim.id]) if claim.id in kinds else []
    worlds += {"ht-text": ["text"], "ht-mnist": ["digits"]}.get(claim.id, [])
    for world in worlds:
        lines(line_up(book, setting, world), world, out / f"{world}.png")
    if claim.id == "ht-text":
        made = book.world("text", setting.seeds[0])
        clusters(made.clusters, setting.text, out / "clusters.png")


def lines(curves: dict[str, Curve], title: str, path: Path) -> None:
    """A line a method: the objective against rounds, and against all bytes sent."""
    picture, axes = _picture(2)
    for color, (method, one) in zip(COLORS, curves.items(), strict=False):
        name = f"{NAMES[method]}, K={one.spec.local_steps}, step {one.spec.step:g}"
        for ax, along in zip(axes, (one.round, one.megabytes), strict=True):
            ax.plot(along, one.objective, color=color, label=name, linewidth=1.6)
    for ax, words in zip(axes, ("round", "megabytes, both ways"), strict=True):
        ax.set_yscale("log")
        ax.set_xlabel(words)
        ax.set_ylabel("objective")
        ax.grid(alpha=0.2)
    axes[0].legend(frameon=False, fontsize="small")
    picture.suptitle(title)
    picture.savefig(path, dpi=120)


def clusters(found: tuple[Any, np.ndarray], title: str, path: Path, rows: int = 1500) -> None:
    """Some rows in the plane, colored by cluster."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.manifold import TSNE

    x, labels = found
    some = np.random.default_rng(0).permutation(len(labels))[:rows]
    near = TruncatedSVD(min(30, x.shape[1] - 1), random_state=0).fit_transform(x[some])
    place = TSNE(2, random_state=0, perplexity=min(30, len(some) // 4)).fit_transform(near)
    picture, (ax,) = _picture(1)
    ax.scatter(*place.T, c=labels[some], cmap="tab10", s=4)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(f"{title}: k-means clusters by t-SNE")
    picture.savefig(path, dpi=120)


def _picture(columns: int):
    # saved, never shown: no display is needed
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(5.2 * columns, 4.0), layout="constrained")
    FigureCanvasAgg(picture)
    return picture, picture.subplots(1, columns, squeeze=False)[0]
