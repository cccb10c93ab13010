"""Curves of several runs as one picture: a row a column of the history, each against two things."""

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path

from fedmin.core.curves import COLORS, LABELS, axis_of
from fedmin.core.result import Result

LOG_FROM = 5.0  # a positive column whose largest and smallest value differ by more is drawn in logs


def figure(
    results: Mapping[str, Result],
    path: str | Path,
    *,
    title: str = "",
    columns: Sequence[str] = ("objective", "accuracy"),
    against: Sequence[str] = ("round", "megabytes"),
) -> Path:
    """Draw each column against each quantity and save the picture; returns where it is."""
    # the picture is saved, never shown: no display is needed, and pyplot keeps no hold of it
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(5.0 * len(against), 3.3 * len(columns)), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.subplots(len(columns), len(against), squeeze=False, sharey="row", sharex="col")
    for i, column in enumerate(columns):
        for j, quantity in enumerate(against):
            _curves(axes[i][j], results, column, quantity)
            if i == len(columns) - 1:
                axes[i][j].set_xlabel(LABELS.get(quantity, quantity))
        axes[i][0].set_ylabel(LABELS.get(column, column))
        if in_logs(results, column):
            _log_axis(axes[i][0])
        axes[i][0].set_ylim(bottom=lowest(results, column))
    axes[0][0].legend(frameon=False)
    if title:
        picture.suptitle(title, fontsize="large")
    path = Path(path)
    picture.savefig(path, dpi=144)
    return path


def in_logs(results: Mapping[str, Result], column: str) -> bool:
    """Whether a column is better read on a logarithmic axis; an accuracy never is."""
    values = [v for r in results.values() for v in r.history[column].tolist() if isfinite(v)]
    if "accuracy" in column or not values or min(values) <= 0:
        return False
    return max(values) > LOG_FROM * min(values)


def lowest(results: Mapping[str, Result], column: str) -> float | None:
    """Where an accuracy's axis begins; from the start's 1/classes on, runs look all alike."""
    later = [v for r in results.values() for v in r.history[column][1:].tolist() if isfinite(v)]
    if "accuracy" not in column or len(later) < 2:
        return None
    return max(0.0, min(later) - 0.05 * (max(later) - min(later)) - 0.005)


def _curves(ax, results: Mapping[str, Result], column: str, against: str) -> None:
    for k, (name, result) in enumerate(results.items()):
        x, y = axis_of(result, against), axis_of(result, column)
        color = COLORS[k % len(COLORS)]
        ax.plot(x, y, label=name, color=color, linewidth=1.8)
        ax.plot(x[-1:], y[-1:], "o", color=color, markersize=4)  # where the run ends
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.margins(x=0.02)


def _log_axis(ax) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
