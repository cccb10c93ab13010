"""What an engine writes down while it runs, and what becomes of it in the end."""

from typing import Any

import jax
import numpy as np

from fedmin.core.column_problem import OnColumns
from fedmin.core.ledger import Ledger
from fedmin.core.result import Result
from fedmin.engines.round import AGGREGATE, Run


class History:
    """Recorded rows so far; with the ledger they make the columns of the result."""

    def __init__(self, columns: tuple[str, ...], start: Any):
        self.columns = columns
        self.rounds, self.seconds, self.values = [0], [0.0], [np.asarray(start)]

    def add(self, round: int, seconds: float, values: Any) -> None:
        """Enter what was measured after so many rounds."""
        self.rounds.append(int(round))
        self.seconds.append(float(seconds))
        self.values.append(np.asarray(values))

    def drop_last(self) -> None:
        """Forget the latest row."""
        for column in (self.rounds, self.seconds, self.values):
            column.pop()

    def table(self, ledger: Ledger) -> dict[str, np.ndarray]:
        """The history as columns of equal length."""
        at = np.array(self.rounds)
        values = np.stack(self.values)
        return {
            "round": at,
            "seconds": np.array(self.seconds),
            "bytes_down": ledger.cumulative("down")[at],
            "bytes_up": ledger.cumulative("up")[at],
            **{name: values[:, j] for j, name in enumerate(self.columns)},
        }


def fault_reason(round: int, client: int, names: tuple[str, ...]) -> str:
    """Who sent what is not a number, in words."""
    if client == AGGREGATE:
        return f"round {round}: the sum of the replies or the objective is not finite"
    return f"round {round}: client {names[client]} sent a reply that is not finite"


def result_of(
    run: Run, history: History, ledger: Ledger, state: Any, population: int, **rest: Any
) -> Result:
    """The result of a run that ended in this state."""
    # devices hold equal numbers of clients, the last of them perhaps some that do not exist
    clients, memory = jax.tree.map(lambda a: a[:population], (state.clients, state.memory))
    best, met = state.best, run.problem.tolerance
    if best is not None and best.violation > met and rest["status"] in ("done", "stopped"):
        rest["status"] = "infeasible"
        rest["reason"] = (
            f"no recorded model met the constraints to {met:g}; the smallest violation was "
            f"{float(best.violation):.4g}, after round {int(best.round)}"
        )
    return Result(
        best=jax.device_get(best),
        solution=np.asarray(run.method.solution(state.server)),
        history=history.table(ledger),
        ledger=ledger,
        server=state.server,
        clients=clients,
        memory=memory,
        problem=run.problem.inner if isinstance(run.problem, OnColumns) else run.problem,
        method=run.method,
        **rest,
    )
