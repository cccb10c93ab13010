"""Losses that are bounded group by group: who earns more than 50,000, on census data (a9a).

    python examples/fairness.py [--rounds 2000] [--out fedmin-fairness]

Ten parties fit one logistic regression. Fitted freely, it serves some people worse than others.
Here each group's mean loss gets a limit, and SSCA minimizes the total loss under these limits; a
free fit by the same method is the comparison. Three choices of groups:

sex        women and men. There is little to gain: a linear model that cares for one group alone is
           hardly better for it (printed as 'lowest').
label      those who earn more and those who do not: the rare label has four times the loss.
both       women who earn more, 4 % of all rows; the other three groups have no limit.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

import fedmin
from fedmin import data

# a9a's columns are the adult attributes one after the other, one column a value (numbers in up to
# five bins): 71 of them before sex, then female, male. Checked by counts: 33.1 % and 66.9 %.
MALE = 72


class Case(NamedTuple):
    """Groups of rows, and the limits on the losses of some of them."""

    title: str
    names: tuple[str, ...]
    number: Callable[[np.ndarray, np.ndarray], np.ndarray]  # (male, y) -> which of them a row is in
    limits: dict[str, float]

    def groups_of(self, rows: data.Table) -> np.ndarray:
        """The name of each row's group."""
        male, y = np.asarray(rows.x)[:, MALE].astype(int), np.asarray(rows.y)
        return np.asarray(self.names)[self.number(male, y)]

    def grouped(self, table: data.Table) -> data.Table:
        """The same rows, in these groups."""
        test = None if table.test is None else self.groups_of(table.test)
        return table.grouped(self.groups_of(table), test=test, names=self.names)


CASES = {
    "sex": Case(
        "limits by sex", ("women", "men"), lambda male, y: male, {"women": 0.1895, "men": 0.4}
    ),
    "label": Case(
        "limits by label",
        ("earn less", "earn more"),
        lambda male, y: y,
        {"earn less": 0.4, "earn more": 0.45},
    ),
    "both": Case(
        "a limit for women who earn more",
        ("women who earn more", "men who earn more", "women who earn less", "men who earn less"),
        lambda male, y: 2 * (1 - y) + male,
        {"women who earn more": 0.7},
    ),
}


class Line(NamedTuple):
    """One group before (the free fit) and after (the bounded one)."""

    group: str
    share: float  # of the training rows
    limit: float | None
    losses: tuple[float, float]  # on training rows, which the limits are about
    accuracies: tuple[float, float]  # on test rows
    lowest: float | None  # the loss of a model fitted to this group alone, where it is not 0


# ---------------------------------------------------------------- running


def fit(problem: fedmin.Problem, federation: fedmin.Federation, rounds: int) -> fedmin.Result:
    """SSCA on all rows each round: no noise, so that the certificate shows the method's limits."""
    method = fedmin.SSCA(1.0, 0.5, tau=0.3, batches=fedmin.Full(), penalty=100.0)
    return fedmin.minimize(problem, federation, method, rounds=rounds, every=max(1, rounds // 20))


def study(table: data.Table, names, rounds: int) -> dict[str, tuple[fedmin.Result, list[Line]]]:
    """The free fit under "free", then each case with what became of its groups."""
    problem = fedmin.Logistic(table.features, l2=1e-4)
    free = fit(problem, data.partition(table, data.IID(10), seed=0), rounds)
    found: dict[str, tuple[fedmin.Result, list[Line]]] = {"free": (free, [])}
    for name in names:
        case = CASES[name]
        federation = data.partition(case.grouped(table), data.IID(10), seed=0)
        limits = fedmin.GroupLossAtMost(case.limits, by="groups")
        result = fit(fedmin.subject_to(problem, limits, tolerance=1e-4), federation, rounds)
        found[name] = result, lines_of(table, case, free, result)
    return found


def lines_of(table, case: Case, *results: fedmin.Result) -> list[Line]:
    """Each group's loss and accuracy under the results."""
    losses, right = (
        [measure(rows, result.solution)[i] for result in results]
        for i, rows in enumerate((table, table.test))
    )
    lines = []
    for group in case.names:
        train, test = (case.groups_of(t) == group for t in (table, table.test))
        before, after = (float(values[train].mean()) for values in losses)
        accuracies = tuple(float(values[test].mean()) for values in right)
        lines.append(
            Line(group, float(train.mean()), case.limits.get(group), (before, after), accuracies,
                 lowest_loss(table, train))
        )  # fmt: skip
    return lines


def measure(rows, w: Any) -> tuple[np.ndarray, np.ndarray]:
    """The loss on each row, and whether its label is guessed right."""
    z, y = np.asarray(rows.x) @ np.asarray(w), np.asarray(rows.y)
    return np.logaddexp(0, z) - y * z, (z > 0) == y


def lowest_loss(table, where: np.ndarray) -> float | None:
    """What a model for these rows alone would lose on them; None if one label needs no model."""
    x, y = np.asarray(table.x)[where], np.asarray(table.y)[where]
    if len(np.unique(y)) < 2:
        return None
    model = LogisticRegression(C=100.0, max_iter=2000, fit_intercept=False).fit(x, y)
    z = x @ model.coef_[0]
    return float(np.mean(np.logaddexp(0, z) - y * z))


# ---------------------------------------------------------------- showing


def show(found: dict[str, tuple[fedmin.Result, list[Line]]]) -> str:
    """All cases as text."""
    free = found["free"][0]
    parts = [f"free fit: {_total(free)}"]
    for name, (result, lines) in found.items():
        if not lines:
            continue
        parts += ["", f"{CASES[name].title}: {_total(result)}", HEAD]
        parts += [_row(line) for line in lines]
        certificate = result.certificate
        if certificate is not None:
            nu = ", ".join(f"{v:.3g}" for v in certificate.multipliers or ())
            parts.append(
                f"  certificate: violation {certificate.violation:.1e} (met up to "
                f"{certificate.tolerance:g}), stationarity {certificate.stationarity:.1e} "
                f"(|grad F_0| {certificate.gradient:.1e}), multipliers {nu}"
            )
    return "\n".join(parts)


HEAD = (
    f"  {'group':<21}{'rows':>7}{'limit':>8}{'lowest':>8}{'loss: free':>12}{'bounded':>9}"
    f"{'over: free':>12}{'bounded':>9}{'right: free':>13}{'bounded':>9}"
)


def _row(line: Line) -> str:
    def number(value):
        return "-" if value is None else f"{value:.4f}"

    over = [None if line.limit is None else max(0.0, v - line.limit) for v in line.losses]
    before, after = (f"{100 * v:.1f} %" for v in line.accuracies)
    return (
        f"  {line.group:<21}{100 * line.share:>5.1f} %{number(line.limit):>8}"
        f"{number(line.lowest):>8}{line.losses[0]:>12.4f}{line.losses[1]:>9.4f}"
        f"{number(over[0]):>12}{number(over[1]):>9}{before:>13}{after:>9}"
    )


def _total(result: fedmin.Result) -> str:
    down, up = (result.ledger.bytes(way) / 1e6 for way in ("down", "up"))
    return (
        f"{result.status}, objective {result.final('objective'):.4f}, test accuracy "
        f"{100 * result.final('accuracy'):.2f} %, {down:.1f} MB down, {up:.1f} MB up, "
        f"{result.run_seconds:.0f} s"
    )


def draw(found: dict[str, tuple[fedmin.Result, list[Line]]], path: Path) -> None:
    """A row a group: its loss before, after, and its limit."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cases = {name: lines for name, (_, lines) in found.items() if lines}
    heights = [len(lines) + 0.6 for lines in cases.values()]
    picture = Figure(figsize=(8, 1.6 + 0.5 * sum(heights)), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.subplots(len(cases), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for ax, (name, lines) in zip(axes, cases.items(), strict=True):
        _dumbbells(ax, CASES[name].title, lines)
    axes[-1].set_xlabel("mean loss of the group on its training rows (nats a row)")
    handles, labels = axes[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    picture.savefig(path, dpi=130)


def _dumbbells(ax, title: str, lines: list[Line]) -> None:
    at = range(len(lines))[::-1]
    before, after = zip(*(line.losses for line in lines), strict=True)
    ax.hlines(at, before, after, color="#bbbbbb", linewidth=3, zorder=1)
    ax.scatter(before, at, s=60, facecolor="white", edgecolor="#ee6677", label="free fit", zorder=2)
    ax.scatter(after, at, s=45, color="#4477aa", label="bounded", zorder=3)
    limited = [(line.limit, y) for line, y in zip(lines, at, strict=True) if line.limit is not None]
    ax.scatter(*zip(*limited, strict=True), s=320, marker="|", color="black", label="limit",
               zorder=4)  # fmt: skip
    ax.set_yticks(at, [f"{line.group} ({100 * line.share:.0f} %)" for line in lines])
    ax.set_ylim(-0.6, len(lines) - 0.4)
    ax.set_title(title, loc="left", fontsize="medium")
    ax.grid(alpha=0.25, axis="x")
    ax.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """The command line."""
    words = argparse.ArgumentParser(description="Bounded losses by group on a9a.")
    words.add_argument("--rounds", type=int, default=2000)
    words.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    words.add_argument("--out", type=Path, default=Path("fedmin-fairness"))
    given = words.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = study(data.load("a9a", dense=True), given.only, given.rounds)
    print(show(found))
    draw(found, given.out / "fairness.png")
    print(f"\nfigure: {given.out / 'fairness.png'}")


if __name__ == "__main__":
    main()
