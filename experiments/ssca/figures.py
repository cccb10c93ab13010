"""Figures like those of the papers: costs and accuracies over rounds, and the trade-off."""

from pathlib import Path

import numpy as np

from experiments.ssca import search
from experiments.ssca.claims import Claim, mean, ours
from experiments.ssca.runs import Curve, World
from experiments.ssca.setting import Setting
from fedmin.core.curves import COLORS


def draw(claim: Claim, world: World, setting: Setting, out: Path) -> None:
    """The figure that belongs to a claim, if there is one; all its runs are there already."""
    if claim.id == "ssca-vs-sgd":
        rounds(_against_sgd(world, setting), out / "algorithm-1.png",
               f"Algorithm 1 against tuned SGD, {setting.table}, {setting.clients} clients, "
               rf"$\lambda$ = {setting.weight:g}")  # fmt: skip
    if claim.id == "ssca-feasible":
        lines = [(f"Alg. 2, B={size}", ours(world, setting, "alg2", size), COLORS[i], "-")
                 for i, size in enumerate(setting.sizes)]  # fmt: skip
        rounds(lines, out / "algorithm-2.png",
               f"Algorithm 2, {setting.table}, {setting.clients} clients, U = {setting.limit:g}",
               limit=setting.limit)  # fmt: skip
    if claim.id == "ssca-rows-columns":
        for number, (by_rows, by_columns) in enumerate((("alg1", "alg3"), ("alg2", "alg4")), 1):
            lines = _side_by_side(world, setting, by_rows, by_columns)
            limit = setting.limit if number == 2 else None
            rounds(lines, out / f"rows-columns-{number}.png",
                   f"Rows (full) and columns (dashed), {setting.table}", limit=limit)  # fmt: skip
    if claim.id == "ssca-tradeoff":
        plane(claim, setting, out / "tradeoff.png")


def _side_by_side(world: World, setting: Setting, by_rows: str, by_columns: str) -> list[tuple]:
    """A color a number of rows a round, full lines for rows."""
    lines = []
    for i, size in enumerate(setting.sizes):
        for name, batch, dash in ((by_rows, size, "-"), (by_columns, size * setting.clients, "--")):
            label = f"Alg. {name[-1]}, B={batch}"
            lines.append((label, ours(world, setting, name, batch), COLORS[i], dash))
    return lines


def _against_sgd(world: World, setting: Setting) -> list[tuple]:
    """(name, curves, color, dashes): a color a batch size, full lines for Algorithm 1."""
    lines = []
    for i, size in enumerate(setting.sizes):
        lines.append((f"Alg. 1, B={size}", ours(world, setting, "alg1", size), COLORS[i], "-"))
        for (rival, steps), dash in zip(search.rivals(size), ("--", ":"), strict=False):
            curves = search.tuned(world, setting, rival, steps)
            lines.append((f"SGD, B={rival}, E={steps}", curves, COLORS[i], dash))
    return lines


def _picture(columns: int, width: float = 5.2, height: float = 4.0):
    # saved, never shown: no display is needed
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(width * columns, height), layout="constrained")
    FigureCanvasAgg(picture)
    return picture, picture.subplots(1, columns, squeeze=False)[0]


def _plain(ax, x: str, y: str) -> None:
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)


def rounds(lines: list[tuple], path: Path, title: str, limit: float | None = None) -> None:
    """Training cost and test accuracy over rounds; the band is from the lowest to the highest."""
    picture, (left, right) = _picture(2)
    for name, curves, color, dash in lines:
        curves = [c for c in curves if c.status != "diverged"]
        if curves:
            _band(left, name, curves, "cost", color, dash)
            _band(right, name, curves, "accuracy", color, dash, 100)
    if limit is not None:
        left.axhline(limit, color="black", linewidth=1)
        left.annotate(f"U = {limit:g}", (0, limit), textcoords="offset points", xytext=(0, 3))
    left.set_yscale("log")
    left.yaxis.set_major_formatter("{x:g}")
    left.set_yticks([t for t in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2) if _inside(left, t)])
    left.minorticks_off()
    right.set_ylim(60, 100)  # the papers' axis
    _plain(left, "round", "training cost F (nats a row, log scale)")
    _plain(right, "round", "test accuracy (%)")
    right.legend(frameon=False, fontsize="small", loc="lower right")
    seeds = len(lines[0][1])
    picture.suptitle(f"{title}: mean of {seeds} seed{'s'[: seeds > 1]}, bands lowest to highest")
    picture.savefig(path, dpi=130)


def _inside(ax, tick: float) -> bool:
    low, high = ax.get_ylim()
    return low <= tick <= high


def _band(ax, name, curves: list[Curve], column, color, dash, scale=1.0) -> None:
    values = scale * np.array([getattr(curve, column) for curve in curves])
    t = curves[0].round[1:]  # the start is the same for all, and far off
    ax.fill_between(t, values.min(0)[1:], values.max(0)[1:], color=color, alpha=0.12, linewidth=0)
    ax.plot(t, scale * mean(curves, column)[1:], dash, color=color, label=name, linewidth=1.6)


def plane(claim: Claim, setting: Setting, path: Path) -> None:
    """|w|^2 against cost, a line a seed, and how the cost follows U."""
    picture, (left, right) = _picture(2)
    over = r"Alg. 1 over $\lambda$"
    styles = {
        "alg1": (f"{over}, {setting.rounds} rounds", "weight", "o-", COLORS[0]),
        "alg1 longer": (f"{over}, {setting.long_rounds} rounds", "weight", "o:", COLORS[2]),
        "alg2": (f"Alg. 2 over U, {setting.rounds} rounds", "limit", "s-", COLORS[1]),
    }
    for key, (name, knob, style, color) in styles.items():
        for i, points in enumerate(claim.numbers[key]):
            x, y = ([point[what] for point in points] for what in ("cost", "square"))
            label = name if i == 0 else None
            left.plot(x, y, style, color=color, label=label, markersize=4, linewidth=1.2)
        _values(left, claim.numbers[key][0], knob, color)
    left.set_xscale("log")
    left.set_yscale("log")
    for axis in (left.xaxis, left.yaxis):
        _round_ticks(axis)
    _plain(left, "training cost F (nats a row)", r"size of the model $|w|^2$")
    left.legend(frameon=False, fontsize="small")
    limits = setting.limits
    right.plot(limits, limits, color="black", linewidth=1, label="F = U")
    for i, points in enumerate(claim.numbers["alg2"]):
        costs = [point["cost"] for point in points]
        label = "Alg. 2, a line a seed" if i == 0 else None
        right.plot(limits, costs, "s-", color=COLORS[1], markersize=4, linewidth=1.2, label=label)
    _plain(right, "limit U (nats a row)", "training cost F at the end (nats a row)")
    right.legend(frameon=False, fontsize="small")
    seeds = len(claim.numbers["alg2"])
    picture.suptitle(
        f"Size against cost, {setting.table}, B = {setting.tradeoff_batch}, {seeds} seed"
        + "s"[: seeds > 1]
    )
    picture.savefig(path, dpi=130)


def _values(ax, points, knob: str, color: str) -> None:
    """lambda or U beside the first seed's points; the first two lie close together."""
    for i, point in enumerate(points):
        beside = (5, 5) if knob == "limit" else (7, -3) if i < 3 else (-30, -10)
        ax.annotate(
            f"{point[knob]:g}", (point["cost"], point["square"]), textcoords="offset points",
            xytext=(-14, 6) if i == 0 else beside, fontsize="x-small", color=color,
        )  # fmt: skip


def _round_ticks(axis) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())
