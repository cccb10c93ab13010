"""Quasi-Newton steps at the server, from FedAvg's own messages.   [FedSSO]

All three methods take the same local steps and send the same bytes a round. Each gets nine settings
of its own, and is shown with the one that comes to the level in the fewest rounds.
"""

from typing import Any

from fedmin import data
from fedmin.cli.demo.card import BLUE, GRAY, GREEN, Card, Setting, plain
from fedmin.core.metrics import Objective, Scores
from fedmin.core.result import Result
from fedmin.methods import FedAvg, FedOpt, FedSSO
from fedmin.minimizing import sweep
from fedmin.problems import Softmax

LEVEL = 0.93  # of the test rows
CODE = """\
federation = data.partition(data.load("digits"), data.LabelsPerClient(clients=10, k=3))
method = fedmin.FedSSO(step=0.3, local_steps=10)
result = fedmin.minimize(fedmin.Softmax(64, 10), federation, method, rounds=60)
print(result.first("accuracy", 0.93), result.ledger)"""
NINE = (0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0)
SERVER = (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0)


def card(setting: Setting) -> Card:
    """Test accuracy against rounds, and what the level takes each of them."""
    federation = data.partition(data.load("digits"), data.LabelsPerClient(10, k=3))
    problem, rounds = Softmax(64, 10), setting.rounds(60)
    tried: dict[str, tuple[Any, dict[str, Any]]] = {
        "FedSSO": (FedSSO(local_steps=10), {"step": NINE}),
        "FedOpt": (FedOpt(step=0.2, local_steps=10), {"server_step": SERVER}),
        "FedAvg": (FedAvg(local_steps=10), {"step": NINE}),
    }
    best, record = {}, [Objective(), Scores("test")]
    for name, (method, over) in tried.items():
        runs = sweep(problem, federation, method, rounds=rounds, over=over, record=record)
        best[name] = min(runs, key=lambda run: (to_level(run), -run.final("accuracy")))
    needed = {name: to_level(run) for name, run in best.items()}
    sentence = (
        f"To {LEVEL:.0%} of the test rows right, ten sites with three digits each: "
        + ", ".join(f"{name} {words(run)}" for name, run in best.items())
        + ". Each with the best of nine settings; they send the same bytes a round."
    )

    def draw(ax) -> None:
        for (name, run), color in zip(best.items(), (BLUE, GREEN, GRAY), strict=True):
            ax.plot(
                run.history["round"],
                run.history["accuracy"],
                color=color,
                linewidth=1.8,
                label=name,
            )
            if needed[name] <= rounds:
                ax.plot([needed[name]], [LEVEL], "o", color=color, markersize=5)
        ax.axhline(LEVEL, color="0.6", linewidth=0.8, linestyle="--")
        ax.set_ylim(0.75, 0.97)
        ax.set_xlabel("round")
        ax.set_ylabel("test accuracy")
        plain(ax)
        ax.legend(frameon=False, loc="lower right")

    return Card("Quasi-Newton steps at the server", sentence, draw, CODE, best, needed)


def to_level(run: Result) -> float:
    """The first round at the level; infinite if there is none."""
    first = run.first("accuracy", LEVEL)
    return float("inf") if first is None else float(first)


def words(run: Result) -> str:
    """What the level took: rounds, and megabytes both ways."""
    if (rounds := to_level(run)) == float("inf"):
        return f"not in {run.rounds} rounds"
    sent = sum(run.first("accuracy", LEVEL, of=way) or 0.0 for way in ("bytes_down", "bytes_up"))
    return f"{rounds:.0f} rounds ({sent / 1e6:.2f} MB)"
