"""Who holds what in a federation: numbers that a run's folder keeps, a table and a picture."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedmin.core.kept import DamagedError, read_words, value_of


class Holdings(NamedTuple):
    """How much of what every client has, and nothing of the rows themselves."""

    unit: str  # what clients have a part of: rows or columns
    rows: int
    features: int
    test: int  # rows apart
    names: list[str]
    sizes: list[int]
    weights: list[float]
    counts: list[list[int]] | None  # of each label, a client
    told: bool = True  # whether sizes and weights are known here

    @classmethod
    def of(cls, federation: Any) -> "Holdings":
        """What the clients of a federation hold."""
        counts = federation.label_counts()
        rows, features = federation.pool.x.shape
        return cls(
            "rows" if federation.split == "rows" else "columns",
            rows,
            features,
            0 if federation.test is None else federation.test.count,
            list(federation.names),
            np.asarray(federation.sizes).tolist(),
            np.asarray(federation.weights).tolist(),
            None if counts is None else counts.tolist(),
        )

    @classmethod
    def load(cls, path: Path) -> "Holdings":
        """Read what a run's folder keeps of it."""
        words = read_words(path)
        words.pop("sha256", None)
        found = value_of(path, words, cls)
        clients = len(found.names)
        counts = found.counts if found.counts is not None else [[0]] * clients
        if not clients or {len(found.sizes), len(found.weights), len(counts)} != {clients}:
            raise DamagedError(path, f"it does not have one entry a client, of {clients}")
        if len({len(line) for line in counts}) != 1 or not counts[0]:
            raise DamagedError(path, "its counts of labels are not as many for every client")
        if min(found.rows, *found.sizes, *(min(line) for line in counts)) < 0:
            raise DamagedError(path, "it has a count below 0")
        if found.unit not in ("rows", "columns"):
            raise DamagedError(path, f"unit is {found.unit!r}, neither rows nor columns")
        return found

    def __str__(self) -> str:
        test = f", {self.test:,} test rows apart" if self.test else ""
        clients = len(self.names)
        if not self.told:
            return f"{self.features:,} features over {clients} clients, who do not tell sizes{test}"
        return f"{self.rows:,} rows of {self.features:,} features over {clients} clients{test}"


def table(held: Holdings, most: int = 40) -> str:
    """A text table, a line a client (at most `most`), label counts where there are labels."""
    counts = held.counts if held.counts is not None and len(held.counts[0]) <= 20 else None
    labels = [] if counts is None else [str(c) for c in range(len(counts[0]))]
    lines = [["client", held.unit, "weight", *labels]]
    for i, name in enumerate(held.names[:most] if held.told else []):
        cells = [] if counts is None else map(str, counts[i])
        lines.append([name, str(held.sizes[i]), f"{held.weights[i]:.4f}", *cells])
    widths = [max(len(line[j]) for line in lines) for j in range(len(lines[0]))]
    body = [
        "  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in lines
    ]
    more = len(held.names) - most
    rest = [f"... and {more} more clients"] if more > 0 else []
    return "\n".join([str(held), *body, *rest])


def draw(held: Holdings, ax: Any = None) -> Any:
    """Bars a client, cut by label where there are labels."""
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(min(12, 3 + 0.25 * len(held.names)), 3.6))
    place = np.arange(len(held.names))
    counts = None if held.counts is None else np.array(held.counts)
    if counts is None:
        ax.bar(place, held.sizes, width=0.85, color="#4477aa")
    else:
        colors = plt.get_cmap("tab10" if counts.shape[1] <= 10 else "viridis", counts.shape[1])
        below = np.zeros(len(held.names))
        for label in range(counts.shape[1]):
            ax.bar(
                place, counts[:, label], 0.85, bottom=below, color=colors(label), label=str(label)
            )
            below += counts[:, label]
        if counts.shape[1] <= 20:
            ax.legend(title="label", bbox_to_anchor=(1.01, 1), loc="upper left", fontsize="small")
    ax.set_xlabel("client")
    ax.set_ylabel(f"{held.unit} held")
    if len(held.names) <= 30:
        ax.set_xticks(place, held.names)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
