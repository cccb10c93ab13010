"""Two parties, one model: each holds some columns of the same people, one of them the labels.

    python examples/vertical.py [--data default_credit] [--rounds 400] [--out fedmin-vertical]

Compared on held-out rows: each party alone with its own columns, both together without moving a
column (SplitSGD, and SSCA under a limit on the loss of the rare label), and all columns in one
place (scikit-learn). What crosses between the parties is counted, and sealed from the server.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import fedmin
from fedmin import data

L2 = 1e-3


class Line(NamedTuple):
    """One way to fit, and how it does on held-out rows."""

    who: str
    loss: float  # on training rows, nats a row
    accuracy: float
    area: float  # under the ROC curve
    found: float  # of the rare label
    megabytes: float


def central(table: data.Table, columns: np.ndarray) -> np.ndarray:
    """Weights of all columns, fitted on these only; scikit-learn has all rows in one place."""
    x, y = np.asarray(table.x)[:, columns], np.asarray(table.y)
    model = LogisticRegression(C=1 / (L2 * len(y)), max_iter=5000).fit(x, y)
    w = np.zeros(table.features + 1)
    w[columns], w[-1] = model.coef_[0], model.intercept_[0]
    return w


def score(who: str, table: data.Table, w: np.ndarray, sent: float) -> Line:
    """A model of all columns and a bias, in the table's own order of columns."""
    x, y = np.asarray(table.x), np.asarray(table.y)
    z = x @ w[:-1] + w[-1]
    test, labels = np.asarray(table.test.x) @ w[:-1] + w[-1], np.asarray(table.test.y)
    return Line(
        who,
        float(np.mean(np.logaddexp(0, z) - y * z)),
        float(np.mean((test > 0) == labels)),
        float(roc_auc_score(labels, test)),
        float(np.mean(test[labels == 1] > 0)),
        sent / 1e6,
    )


def together(table: data.Table, method, problem, rounds: int) -> fedmin.Result:
    """A run over both parties; the labels stay with the one that has them."""
    holder = next(iter(table.columns))
    federation = data.partition(table, data.Parties(), labels=holder, seed=0)
    return fedmin.minimize(problem, federation, method, rounds=rounds, every=max(1, rounds // 20))


def in_order(table: data.Table, x: np.ndarray) -> np.ndarray:
    """A solution, whose columns lie party after party, in the table's order."""
    order = np.concatenate(list(table.columns.values()))
    w = np.zeros(table.features + 1)
    w[order], w[-1] = x[:-1], x[-1]
    return w


def study(table: data.Table, rounds: int, limit: float) -> tuple[list[Line], fedmin.Result]:
    """All ways to fit, and the bounded run."""
    lines = [
        score(f"{name} alone", table, central(table, columns), 0)
        for name, columns in table.columns.items()
    ]
    problem = fedmin.Logistic(table.features, l2=L2, bias=True)
    plain = together(table, fedmin.SplitSGD(0.5, batches=fedmin.Blocks(512)), problem, rounds)
    bounded = fedmin.subject_to(problem, fedmin.GroupLossAtMost({"1": limit}))
    ssca = fedmin.SSCA(
        fedmin.Power(0.9, 0.3), fedmin.Power(0.9, 0.35), 0.5, fedmin.Blocks(512), penalty=100.0
    )
    limited = together(table, ssca, bounded, rounds)
    for who, result in (
        ("both, SplitSGD", plain),
        (f"both, SSCA, rare <= {limit:g}", limited),
    ):
        lines.append(score(who, table, in_order(table, result.solution), result.ledger.bytes()))
    everything = np.arange(table.features)
    lines.append(score("all in one place", table, central(table, everything), 0))
    return lines, limited


HEAD = f"{'':<26}{'loss':>8}{'accuracy':>10}{'ROC area':>10}{'rare found':>12}{'MB both ways':>14}"


def show(lines: list[Line]) -> str:
    """The table."""
    rows = [
        f"{line.who:<26}{line.loss:>8.4f}{100 * line.accuracy:>8.1f} %{line.area:>10.4f}"
        f"{100 * line.found:>10.1f} %{line.megabytes:>14.1f}"
        for line in lines
    ]
    return "\n".join([HEAD, *rows])


def draw(lines: list[Line], path: Path) -> None:
    """Bars: how well each way ranks held-out rows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(7.5, 3.4), layout="constrained")
    FigureCanvasAgg(picture)
    ax = picture.subplots()
    at = range(len(lines))[::-1]
    colors = ["#4477aa" if line.who.startswith("both") else "#bbbbbb" for line in lines]
    bars = ax.barh(at, [line.area for line in lines], color=colors)
    ax.bar_label(bars, fmt="%.3f", padding=3)
    ax.set_yticks(at, [line.who for line in lines])
    ax.set_xlim(0.5, 1.04)
    ax.set_xlabel("area under the ROC curve on held-out rows (0.5: guessing)")
    ax.spines[["top", "right"]].set_visible(False)
    picture.savefig(path, dpi=130)


def main() -> None:
    """The command line."""
    words = argparse.ArgumentParser(description="Columns at two parties.")
    words.add_argument("--data", choices=["default_credit", "breast_hetero"])
    words.add_argument("--rounds", type=int, default=400)
    words.add_argument("--limit", type=float, default=0.75, help="on the rare label's mean loss")
    words.add_argument("--out", type=Path, default=Path("fedmin-vertical"))
    given = words.parse_args()
    name = given.data or "default_credit"
    given.out.mkdir(parents=True, exist_ok=True)
    table = data.load(name, test_fraction=0.2).standardized()
    parties = ", ".join(f"{party} {len(c)}" for party, c in table.columns.items())
    rare = float(np.mean(np.asarray(table.y) == 1))
    print(f"{name}: {len(table.y)} rows, columns: {parties}; label 1 on {100 * rare:.1f} %\n")
    lines, limited = study(table, given.rounds, given.limit)
    print(show(lines))
    print(f"\nSSCA under the limit, {limited.status}:\n{limited.certificate}")
    print(f"\nwhat travelled in that run:\n{limited.ledger}")
    draw(lines, given.out / "vertical.png")
    print(f"\nfigure: {given.out / 'vertical.png'}")


if __name__ == "__main__":
    main()
