"""Frank-Wolfe over an l1 ball: what a client sends is one index and one number.   [FedFW]

The rival is FedAvg whose steps are projected onto the same ball, which sends the whole model. Both
get a choice of settings, and each is shown with the one that comes to the level with fewest bytes.
"""

from collections.abc import Mapping

import numpy as np

from fedmin import data
from fedmin.cli.demo.card import BLUE, GRAY, Card, Setting, plain
from fedmin.core.metrics import Objective
from fedmin.core.result import Result
from fedmin.domains import L1Ball
from fedmin.methods import FedFW, FedMid
from fedmin.minimizing import sweep
from fedmin.problems import Softmax, over

CLIENTS, RADIUS = 10, 10.0
PENALTIES, STEPS = (0.003, 0.01, 0.03), (0.03, 0.1, 0.3, 1.0, 3.0)
CODE = """\
federation = data.partition(data.load("digits"), data.LabelsPerClient(clients=10, k=3))
problem = fedmin.over(fedmin.Softmax(64, 10), fedmin.L1Ball(10.0))
result = fedmin.minimize(problem, federation, fedmin.FedFW(penalty=0.003), rounds=400)
print(result.ledger)"""


def card(setting: Setting) -> Card:
    """The objective against the bytes that a client has sent."""
    federation = data.partition(data.load("digits"), data.LabelsPerClient(CLIENTS, k=3))
    problem = over(Softmax(64, 10), L1Ball(RADIUS))

    def runs(method, rounds: int, every: int, over):
        return sweep(
            problem, federation, method,
            rounds=rounds, every=every, record=[Objective()], over=over,
        )  # fmt: skip

    ours = runs(FedFW(), setting.rounds(400), 4, {"penalty": PENALTIES})
    theirs = runs(FedMid(local_steps=5), setting.rounds(150), 1, {"step": STEPS})
    level = max(min(best_of(some) for some in ours), min(best_of(some) for some in theirs))
    fewest = {
        name: min(some, key=lambda run: up_to(run, level))
        for name, some in (("FedFW", ours), ("projected FedAvg", theirs))
    }
    a, b = (up_to(run, level) for run in fewest.values())
    each = ours[0].ledger.bytes("up") / ours[0].rounds / CLIENTS
    sentence = (
        f"Over an l1 ball a client of FedFW sends {each:.0f} bytes a round, header included. To "
        f"come to the objective {level:.3f} it sends {a / 1e3:.2g} kB in all; projected FedAvg, "
        f"with the best of {len(STEPS)} steps, {b / 1e3:.3g} kB: {b / a:.0f} times as much. "
        + _further(fewest)
    )

    def draw(ax) -> None:
        for (name, run), color in zip(fewest.items(), (BLUE, GRAY), strict=True):
            x, y = run.history["bytes_up"][1:] / CLIENTS / 1e3, run.history["objective"][1:]
            y = np.minimum.accumulate(y)
            ax.plot(x, y, color=color, linewidth=1.8, label=name)
            ax.plot([up_to(run, level) / 1e3], [level], "o", color=color, markersize=5)
        ax.axhline(level, color="0.6", linewidth=0.8, linestyle="--")
        ax.set_xscale("log")
        ax.set_xlabel("kilobytes that one client has sent")
        ax.set_ylabel("lowest objective so far")
        plain(ax)
        ax.legend(frameon=False, loc="upper right")

    found = {"level": level, "ours": a, "theirs": b, "each": each}
    return Card("Frank-Wolfe: a few bytes a round", sentence, draw, CODE, fewest, found)


def _further(fewest: Mapping[str, Result]) -> str:
    """Whose lowest objective is lower in the end, where that differs."""
    ends = {name: best_of(run) for name, run in fewest.items()}
    better = min(ends, key=ends.__getitem__)
    return f"In the end {better} goes furthest, to {ends[better]:.3f}."


def best_of(run: Result) -> float:
    """The lowest objective of a run."""
    return float(np.min(run.history["objective"]))


def up_to(run: Result, level: float) -> float:
    """Bytes that one client had sent when the run first came to a level."""
    sent = run.first("objective", level, of="bytes_up")
    return float("inf") if sent is None else sent / CLIENTS
