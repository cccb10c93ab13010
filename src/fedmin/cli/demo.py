"""The demo: FedAvg against SCAFFOLD on handwritten digits, two labels a client.

Clients that hold different labels pull the model apart when they take many steps of their own
(client drift). SCAFFOLD corrects that and sends twice the bytes for it. Both methods get the same
step sizes to choose from, and the step with the smallest objective after the last round wins.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedmin import data
from fedmin.client import Blocks
from fedmin.core.federation import Federation
from fedmin.core.holdings import Holdings
from fedmin.core.method import Method
from fedmin.core.metrics import GradientNorm, Objective, Scores
from fedmin.core.result import Result
from fedmin.engines.simulator.sweep import Sweep
from fedmin.methods import FedAvg, Scaffold
from fedmin.minimizing import sweep
from fedmin.problems import Softmax
from fedmin.reports.figures import figure
from fedmin.reports.page import page
from fedmin.reports.tables import levels, number, table

TITLE = "FedAvg against SCAFFOLD on digits, two labels a client"


@dataclass(frozen=True)
class Setting:
    """The size of the demo; tests use a tiny one."""

    clients: int = 10
    labels: int = 2  # a client
    rounds: int = 100
    epochs: int = 5
    batch: int = 32
    steps: Sequence[float] = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)

    def methods(self) -> dict[str, Method]:
        """The two methods, alike in all but their rule."""
        batches = Blocks(self.batch)
        return {
            "FedAvg": FedAvg(epochs=self.epochs, batches=batches),
            "SCAFFOLD": Scaffold(epochs=self.epochs, batches=batches),
        }


class Demo(NamedTuple):
    """What the demo found, and where its pictures are."""

    results: dict[str, Result]  # the best step of each method
    sweeps: dict[str, Sweep]
    federation: Federation
    picture: Path
    page: Path


def run(
    out: str | Path = "fedmin-demo",
    setting: Setting = Setting(),
    say: Callable[[str], None] = lambda words: None,
) -> Demo:
    """Run the demo and write demo.png and demo.html into `out`; `say` is told what goes on."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)  # before the work: a bad path should fail at once
    digits = data.load("digits")
    federation = data.partition(digits, data.LabelsPerClient(setting.clients, setting.labels))
    problem = Softmax(64, 10, l2=1e-3, bias=True)
    record = (Objective(), Scores("test"), GradientNorm())
    sweeps = {}
    for name, method in setting.methods().items():
        say(f"{name}: {len(setting.steps)} step sizes x {setting.rounds} rounds, one compiled call")
        sweeps[name] = sweep(
            problem, federation, method,
            rounds=setting.rounds, over={"step": setting.steps}, record=record,
        )  # fmt: skip
    results = {name: runs.best("objective") for name, runs in sweeps.items()}
    say("drawing")
    picture = figure(results, out / "demo.png", title=TITLE)
    html = page(
        TITLE,
        results,
        lead=_lead(setting),
        held=dict.fromkeys(results, Holdings.of(federation)),
        sections=(
            ("What it takes to get there", _reached(results)),
            ("Both tuned alike", _tuning(sweeps)),
        ),
        against=("round", "megabytes"),  # the runs of a sweep share one clock
    )
    (out / "demo.html").write_text(html, "utf-8")
    return Demo(results, sweeps, federation, picture, out / "demo.html")


def step_of(run: Result) -> float:
    """The step size a run was made with."""
    return float(run.method.step)  # type: ignore[attr-defined]


def _lead(setting: Setting) -> str:
    return (
        f"{setting.clients} clients hold {setting.labels} of the ten digits each and train one "
        f"softmax regression, {setting.epochs} passes over their own rows a round. FedAvg averages "
        "what they arrive at, which is not where the common objective is smallest. SCAFFOLD "
        "corrects each step by what the other clients would have said, for twice the bytes."
    )


def _reached(results: dict[str, Result]) -> str:
    """Rounds and megabytes to where the worse of the two ends, and on the way there."""
    worst = max(run.final("objective") for run in results.values())
    start = min(run.history["objective"][0] for run in results.values())
    wanted = [level for level in (1.0, 0.5, worst) if level < start]
    words = "<p>First time at or below; the last level is where the worse of the two ends.</p>"
    return words + levels(results, "objective", wanted)


def _tuning(sweeps: dict[str, Sweep]) -> str:
    best = {name: step_of(runs.best("objective")) for name, runs in sweeps.items()}
    lines = []
    for same in zip(*sweeps.values(), strict=True):
        step = step_of(same[0])
        cells = [
            "diverged"
            if run.status == "diverged"
            else number(run.final("objective")) + (" (best)" if step == best[name] else "")
            for name, run in zip(sweeps, same, strict=True)
        ]
        lines.append([number(step), *cells])
    words = (
        "<p>Objective after the last round for every step size that was tried. Both methods had "
        "the same choice; the curves are those of the best. Test rows played no part in it.</p>"
    )
    return words + table(["step", *sweeps], lines)
