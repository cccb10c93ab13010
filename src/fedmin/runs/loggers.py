"""Loggers: what else a run's history is written to, beside its CSV: TensorBoard and MLflow.

    [run]
    log = ["tensorboard", "mlflow"]

TensorBoard's files go into the run's folder; MLflow goes wherever it is told to by its own settings
(MLFLOW_TRACKING_URI: a database, a server, a folder; mlflow.db here if nothing is said). Each is an
extra: pip install "fedmin[tensorboard]", "fedmin[mlflow]". A logger that fails while a run goes on
is left out from there with a warning: the folder of the run has the whole history.
"""

import importlib
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedmin.engines.progress import News

LONGEST = 500  # letters of a parameter that every version of MLflow takes


def library(name: str, extra: str) -> Any:
    """An optional library, or an error that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ValueError(f'log = "{extra}" needs pip install "fedmin[{extra}]"') from None


class Logger(ABC):
    """Writes the rows of a run's history somewhere as they are recorded."""

    name = ""

    def __init__(self) -> None:
        self.seen = -1  # the last round that was written
        self.broken = False

    @abstractmethod
    def write(self, round: int, values: dict[str, float]) -> None:
        """Write one row."""

    @abstractmethod
    def end(self) -> None:
        """No more rows will come."""

    def close(self) -> None:
        """End it, unless it has failed before."""
        if not self.broken:
            with self._left_out():
                self.end()

    def hear(self, news: News) -> None:
        """Write what is new."""
        self.take(news.book.table())

    def take(self, table: dict[str, Any]) -> None:
        """Write the rows of a history that are new."""
        rounds = table["round"]
        for i in range(int(np.searchsorted(rounds, self.seen, side="right")), len(rounds)):
            if self.broken:
                return
            self.seen = int(rounds[i])
            with self._left_out():
                self.write(self.seen, {k: float(v[i]) for k, v in table.items() if k != "round"})

    @contextmanager
    def _left_out(self) -> Iterator[None]:
        """A run does not end because somebody who is told of it has gone."""
        try:
            yield
        except Exception as error:  # of somebody else's library, of any kind
            self.broken = True
            words = f"{self.name} is told no more after round {self.seen}: {_first_line(error)}"
            warnings.warn(f"{words}; history.csv has it all", RuntimeWarning, stacklevel=4)


def _first_line(error: Exception) -> str:
    return f"{error}".strip().partition("\n")[0][:200] or type(error).__name__


class TensorBoard(Logger):
    """One TensorBoard scalar for each column of the history, in the run's folder `tensorboard`."""

    name = "TensorBoard"

    def __init__(self, folder: Path, name: str, parameters: dict[str, Any]):
        super().__init__()
        self.writer = library("tensorboard.summary", "tensorboard").Writer(
            str(folder / "tensorboard")
        )

    def write(self, round, values):
        for name, value in values.items():
            self.writer.add_scalar(name, value, round)

    def end(self):
        self.writer.close()


class MLflow(Logger):
    """A run of MLflow's experiment "fedmin", with the method's fields as its parameters."""

    name = "MLflow"

    def __init__(self, folder: Path, name: str, parameters: dict[str, Any]):
        super().__init__()
        self.mlflow = library("mlflow", "mlflow")
        try:
            with _first_contact():
                self._begin(name, parameters)
        except Exception as error:  # of somebody else's library, of any kind
            raise ValueError(
                f'log = ["mlflow"]: {self.mlflow.get_tracking_uri()} cannot be used '
                f"({_why(error)}); MLFLOW_TRACKING_URI names another place, such as "
                f"sqlite:///mlflow.db"
            ) from None

    def _begin(self, name: str, parameters: dict[str, Any]) -> None:
        self.client = self.mlflow.MlflowClient()
        found = self.client.get_experiment_by_name("fedmin")
        experiment = found.experiment_id if found else self.client.create_experiment("fedmin")
        run = self.client.create_run(experiment, run_name=name)
        self.id = run.info.run_id
        param = self.mlflow.entities.Param
        said = [param(key, str(value)[:LONGEST]) for key, value in parameters.items()]
        self.client.log_batch(self.id, params=said)

    def write(self, round, values):
        metric, now = self.mlflow.entities.Metric, int(1000 * time.time())
        row = [metric(name, value, now, round) for name, value in values.items()]
        self.client.log_batch(self.id, metrics=row)  # one message a row, if it is a server

    def end(self):
        self.client.set_terminated(self.id)


# A folder that the user named is the user's choice, and MLflow 3 wants it said once more. Of a
# server that does not answer at first it would say so after minutes only.
FIRST = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}


@contextmanager
def _first_contact() -> Iterator[None]:
    """MLflow's settings while it is begun, where the user has not set them."""
    own = {key: value for key, value in FIRST.items() if key not in os.environ}
    os.environ.update(own)
    try:
        yield
    finally:
        for key in own:
            os.environ.pop(key, None)


def _why(error: Exception) -> str:
    """The reason without the story of every attempt that an HTTP library tells."""
    story = str(error)
    if any(word in story for word in ("Max retries", "Connection refused", "HTTPConnection")):
        return "nobody answers there"
    return _first_line(error)


LOGGERS: dict[str, Callable[[Path, str, dict[str, Any]], Logger]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
}
