"""Loggers: what else a run's history is written to, beside its CSV: TensorBoard and MLflow.

    [run]
    log = ["tensorboard", "mlflow"]

TensorBoard's files go into the run's folder; MLflow goes wherever it is told to by its own settings
(MLFLOW_TRACKING_URI). Each is an extra: pip install "fedmin[tensorboard]", "fedmin[mlflow]".
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedmin.engines.progress import News


def library(name: str, extra: str) -> Any:
    """An optional library, or an error that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ValueError(f'log = "{extra}" needs pip install "fedmin[{extra}]"') from None


class Logger(ABC):
    """Writes the rows of a run's history somewhere as they are recorded."""

    def __init__(self) -> None:
        self.seen = -1  # the last round that was written

    @abstractmethod
    def write(self, round: int, values: dict[str, float]) -> None:
        """Write one row."""

    @abstractmethod
    def close(self) -> None:
        """No more rows will come."""

    def hear(self, news: News) -> None:
        """Write what is new."""
        self.take(news.book.table())

    def take(self, table: dict[str, Any]) -> None:
        """Write the rows of a history that are new."""
        rounds = table["round"]
        for i in range(int(np.searchsorted(rounds, self.seen, side="right")), len(rounds)):
            self.seen = int(rounds[i])
            self.write(self.seen, {k: float(v[i]) for k, v in table.items() if k != "round"})


class TensorBoard(Logger):
    """One TensorBoard scalar for each column of the history, in the run's folder `tensorboard`."""

    def __init__(self, folder: Path, name: str, parameters: dict[str, Any]):
        super().__init__()
        self.writer = library("tensorboard.summary", "tensorboard").Writer(
            str(folder / "tensorboard")
        )

    def write(self, round, values):
        for name, value in values.items():
            self.writer.add_scalar(name, value, round)

    def close(self):
        self.writer.close()


class MLflow(Logger):
    """A run of MLflow's experiment "fedmin", with the method's fields as its parameters."""

    def __init__(self, folder: Path, name: str, parameters: dict[str, Any]):
        super().__init__()
        mlflow = library("mlflow", "mlflow")
        self.client = mlflow.MlflowClient()
        found = self.client.get_experiment_by_name("fedmin")
        experiment = found.experiment_id if found else self.client.create_experiment("fedmin")
        run = self.client.create_run(experiment, run_name=name)
        self.id = run.info.run_id
        for key, value in parameters.items():
            self.client.log_param(self.id, key, value)

    def write(self, round, values):
        for name, value in values.items():
            self.client.log_metric(self.id, name, value, step=round)

    def close(self):
        self.client.set_terminated(self.id)


LOGGERS: dict[str, Callable[[Path, str, dict[str, Any]], Logger]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
}
