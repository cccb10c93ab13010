"""Who holds what in a federation, as a table and as a picture."""

from typing import Any

import numpy as np


def table(federation: Any, most: int = 40) -> str:
    """A text table, a line a client (at most `most`), label counts where there are labels."""
    count, features = federation.pool.x.shape
    clients = federation.num_clients
    unit = "rows" if federation.split == "rows" else "columns"
    counts = federation.label_counts()
    if counts is not None and counts.shape[1] > 20:
        counts = None
    labels = [] if counts is None else [str(c) for c in range(counts.shape[1])]
    lines = [["client", unit, "weight", *labels]]
    for i in range(min(clients, most)):
        cells = [] if counts is None else [str(c) for c in counts[i]]
        lines.append(
            [federation.names[i], str(federation.sizes[i]), f"{federation.weights[i]:.4f}", *cells]
        )
    widths = [max(len(line[j]) for line in lines) for j in range(len(lines[0]))]
    body = [
        "  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in lines
    ]
    head = f"{count} rows x {features} features over {clients} clients"
    rest = [f"... and {clients - most} more clients"] if clients > most else []
    return "\n".join([head, *body, *rest])


def draw(federation: Any, ax: Any = None) -> Any:
    """Bars a client, cut by label where there are labels."""
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(min(12, 3 + 0.25 * federation.num_clients), 3.6))
    place = np.arange(federation.num_clients)
    counts = federation.label_counts()
    if counts is None:
        ax.bar(place, federation.sizes, width=0.85, color="#4477aa")
    else:
        colors = plt.get_cmap("tab10" if counts.shape[1] <= 10 else "viridis", counts.shape[1])
        below = np.zeros(federation.num_clients)
        for label in range(counts.shape[1]):
            ax.bar(
                place, counts[:, label], 0.85, bottom=below, color=colors(label), label=str(label)
            )
            below += counts[:, label]
        if counts.shape[1] <= 20:
            ax.legend(title="label", bbox_to_anchor=(1.01, 1), loc="upper left", fontsize="small")
    ax.set_xlabel("client")
    ax.set_ylabel("rows held" if federation.split == "rows" else "columns held")
    if federation.num_clients <= 30:
        ax.set_xticks(place, federation.names)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
