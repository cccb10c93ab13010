"""What a path found: a model for each value, how good each is on other rows, which one to take."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path as Place
from typing import Any

import numpy as np

from fedmin.core.curves import COLORS
from fedmin.core.files import write_text, write_words
from fedmin.core.ledger import Ledger
from fedmin.core.model import Model
from fedmin.core.result import Result

SCORES = {
    "folds": "mean loss on held-out folds", "holdout": "mean loss on held-out rows",
    "bic": "BIC",
}  # fmt: skip
MOST_CURVES = 40  # coefficients drawn, the largest at the end


@dataclass(frozen=True, eq=False)
class Point:
    """The model at one value of a path."""

    value: Any  # the size, radius or limit
    result: Result  # fitted on all rows
    nonzeros: int
    loss: float  # mean over all rows, without regularizer
    score: float  # on rows that it was not fitted on; or BIC
    error: float  # the standard error of the score; NaN of a BIC

    @property
    def met(self) -> bool:
        """Whether the model meets its constraints, if it has any."""
        return self.result.status != "infeasible"


@dataclass(frozen=True, eq=False)
class PathLedger:
    """Exact bytes of all runs of a path: of its models, of the fits that only choose among them,
    and of the looks at models that say how good they are.

    >>> from fedmin.core.ledger import Ledger, Line
    >>> from fedmin.minimizing import PathLedger
    >>> one = Ledger([Line(0, "up", {"gradient": 80})], [3])
    >>> PathLedger((one,), (one, one), ()).by_kind()
    {'models up gradient': 240, 'choice up gradient': 480}
    """

    models: tuple[Ledger, ...]
    choice: tuple[Ledger, ...]
    looks: tuple[Ledger, ...]

    def bytes(self, direction: str | None = None, evaluation: bool = False) -> int:
        """All bytes, "down", "up" or both; on request also of what was recorded of the fits. The
        looks count in any case: the choice is made of them."""
        fits = [*self.models, *self.choice]
        found = sum(each.bytes(direction, evaluation=evaluation) for each in fits)
        return found + sum(each.bytes(direction, evaluation=True) for each in self.looks)

    def by_kind(self) -> dict[str, int]:
        """All bytes, by what they are for, direction and kind."""
        found: dict[str, int] = {}
        groups = {"models": self.models, "choice": self.choice, "looks": self.looks}
        for name, ledgers in groups.items():
            for ledger in ledgers:
                for kind, size in ledger.by_kind().items():
                    if size:
                        found[f"{name} {kind}"] = found.get(f"{name} {kind}", 0) + size
        return found

    def __str__(self) -> str:
        kinds = self.by_kind()
        kinds["all"] = sum(kinds.values())
        width = max(map(len, kinds))
        return "\n".join(f"{kind.ljust(width)}  {size:>16,} B" for kind, size in kinds.items())


@dataclass(frozen=True, eq=False)
class Path:
    """The models of a path, from the most restricted one on; made by `fedmin.path`.

    best       the number of the point with the best score
    chosen     the same, or by the one-standard-error rule: the first point whose score is within
               one standard error of the best

    >>> import fedmin
    >>> sample = fedmin.data.sparse_regression(200, 30, support=3, clients=4)
    >>> federation = fedmin.data.partition(sample)
    >>> found = fedmin.path(fedmin.LeastSquares(30), federation, sizes=[2, 3], choose="bic")
    >>> found.table()["choice"]
    ['', 'best, chosen']
    """

    kind: str  # "sizes", "radii" or "limits"
    label: str  # what the values are
    rule: str  # "folds", "holdout" or "bic"
    points: tuple[Point, ...]
    best: int
    chosen: int
    ledger: PathLedger

    @property
    def values(self) -> list[Any]:
        """The sizes, radii or limits."""
        return [point.value for point in self.points]

    @property
    def value(self) -> Any:
        """The one that was chosen."""
        return self.points[self.chosen].value

    @property
    def result(self) -> Result:
        """The run that ended with the chosen model, on all rows."""
        return self.points[self.chosen].result

    @property
    def model(self) -> Model:
        """The chosen model, as others can use it."""
        return self.result.model

    def table(self) -> dict[str, list[Any]]:
        """A column a quantity, an entry a value of the path."""
        points, name = self.points, {"sizes": "size", "radii": "radius", "limits": "limit"}
        said = [self._said(k) for k in range(len(points))]
        return {
            name[self.kind]: self.values,
            "nonzeros": [p.nonzeros for p in points],
            "objective": [p.result.final("objective") for p in points],
            "loss": [p.loss for p in points],
            "score": [p.score for p in points],
            "error": [p.error for p in points],
            "status": [p.result.status for p in points],
            "choice": said,
        }

    def _said(self, k: int) -> str:
        words = ["best"] * (k == self.best) + ["chosen"] * (k == self.chosen)
        return ", ".join(words)

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame; needs pandas."""
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            raise ImportError("to_pandas needs pandas: pip install pandas") from None
        return pandas.DataFrame(self.table())

    def plot(self, axes: Sequence[Any] | None = None) -> Any:
        """Draw the scores and the coefficients along the path; returns the two axes."""
        if axes is None:
            import matplotlib.pyplot as plt

            _, axes = plt.subplots(1, 2, figsize=(10.4, 3.8), layout="constrained")
        left, right = axes
        self._draw_scores(left)
        self._draw_coefficients(right)
        for ax in (left, right):
            ax.set_xlabel(self.label)
            ax.grid(alpha=0.25)
            ax.spines[["top", "right"]].set_visible(False)
        return axes

    def _draw_scores(self, ax: Any) -> None:
        x, score, error = self._columns("score", "error")
        ax.plot(x, score, "o-", color=COLORS[0], markersize=4, label=SCORES[self.rule])
        if np.isfinite(error).all():
            ax.fill_between(
                x, score - error, score + error, color=COLORS[0], alpha=0.15, linewidth=0,
                label="one standard error",
            )  # fmt: skip
        if self.rule != "bic":
            loss = self._columns("loss")[1]
            ax.plot(x, loss, "--", color=COLORS[6], linewidth=1.2, label="mean loss on all rows")
        ax.axvline(x[self.best], color=COLORS[2], linestyle=":", label=f"best: {x[self.best]:g}")
        chosen = x[self.chosen]
        ax.axvline(chosen, color=COLORS[1], linewidth=1.2, label=f"chosen: {chosen:g}")
        missed = [k for k, point in enumerate(self.points) if not point.met]
        if missed:
            ax.plot(x[missed], score[missed], "x", color="black", label="limit not met")
        ax.set_ylabel(SCORES[self.rule])
        ax.legend(edgecolor="none", framealpha=0.9, fontsize="small")

    def _columns(self, *names: str) -> list[np.ndarray]:
        table = self.table()
        return [np.asarray(self.values, float), *(np.asarray(table[n], float) for n in names)]

    def _draw_coefficients(self, ax: Any) -> None:
        names, weights = self._weights()
        *_, (last, shape) = self.result.problem.parts.items()
        free = math.prod(shape) if last == "bias" else 0
        weights = weights[:, : weights.shape[1] - free]  # beside an intercept they would be flat
        order = np.argsort(-np.abs(weights).max(axis=0), kind="stable")
        shown = [j for j in order[:MOST_CURVES] if np.abs(weights[:, j]).max() > 0]
        for k, j in enumerate(shown):
            named = {"label": names[j]} if k < len(COLORS) else {}
            color = COLORS[k] if named else "#bbbbbb"
            ax.plot(self.values, weights[:, j], color=color, linewidth=1.4, **named)
        ax.axvline(self.value, color=COLORS[1], linewidth=1.2, alpha=0.6)
        ax.set_ylabel("weights, on the scale that was fitted")
        if shown:
            beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
            ax.legend(frameon=False, fontsize="small", title="largest", **beside)

    def _weights(self) -> tuple[list[str], np.ndarray]:
        """The names of the model's entries, and their values, [points, entries]."""
        found = np.stack([np.asarray(p.result.solution) for p in self.points])
        about = self.result.about
        names = [*about.names, "intercept"] if about is not None else []
        if found.shape[1] in (len(names) - 1, len(names)):  # else a network, or several classes
            return names[: found.shape[1]], found
        return [f"weight {j + 1}" for j in range(found.shape[1])], found

    def picture(self) -> Any:
        """The plot as a figure that no window shows."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10.4, 3.8), layout="constrained")
        FigureCanvasAgg(figure)
        self.plot(figure.subplots(1, 2))
        return figure

    def words(self) -> dict[str, Any]:
        """The table, the choice and the bytes, in JSON's own kinds of values."""
        plain = {
            name: [None if isinstance(v, float) and not np.isfinite(v) else v for v in column]
            for name, column in self.table().items()
        }
        return {
            "along": self.kind, "label": self.label, "rule": self.rule, "value": self.value,
            "best": self.values[self.best], "table": plain, "bytes": self.ledger.by_kind(),
        }  # fmt: skip

    def save(self, folder: str | os.PathLike) -> Place:
        """Write path.json, path.csv, path.png and path.npy (a row a model) into a folder, and the
        chosen run as `Result.save` does."""
        folder = self.result.save(folder)
        self.write(folder)
        return folder

    def write(self, folder: Place) -> None:
        """The path's own files."""
        table = self.table()
        rows = zip(*table.values(), strict=True)
        lines = [",".join(table), *(",".join(map(_cell, row)) for row in rows)]
        write_text(folder / "path.csv", "\n".join(lines) + "\n")
        picture = BytesIO()
        self.picture().savefig(picture, dpi=144)
        (folder / "path.png").write_bytes(picture.getvalue())
        np.save(folder / "path.npy", self._weights()[1])
        write_words(folder / "path.json", self.words())

    def __str__(self) -> str:
        table: Mapping[str, list[Any]] = self.table()
        cells = {name: [_shown(v) for v in column] for name, column in table.items()}
        widths = {n: max(len(n), *map(len, column)) for n, column in cells.items()}
        lines = ["  ".join(n.rjust(w) for n, w in widths.items()).rstrip()]
        for row in zip(*cells.values(), strict=True):
            line = zip(row, widths.values(), strict=True)
            lines.append("  ".join(cell.rjust(w) for cell, w in line).rstrip())
        return "\n".join([f"along {self.kind}, by {SCORES[self.rule]}", *lines])

    def __repr__(self) -> str:
        return f"Path({self.kind} {self.values}, chosen {self.value} by {self.rule})"


def _cell(value: Any) -> str:
    """A value as CSV has it."""
    return f'"{value}"' if "," in str(value) else str(value)


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
