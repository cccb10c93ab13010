"""Loggers: MLflow with nothing said, a database, a folder, a server; and what becomes of failures.

The server here is a stand-in that knows those messages of MLflow's REST that a logger sends: the
real one needs all of mlflow, which is not among our dependencies.
"""

import json
import threading
import warnings
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from fedmin.runs.loggers import MLflow, TensorBoard

pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries that are not ours
mlflow = pytest.importorskip("mlflow")
TABLE = {"round": np.array([0, 2, 4]), "objective": np.array([1.0, 0.5, np.nan])}


@pytest.fixture(autouse=True)
def settings(monkeypatch, tmp_path):
    """A user's own: none of the variables is set, and the folder is an empty one."""
    for name in (
        "MLFLOW_ALLOW_FILE_STORE",
        "MLFLOW_TRACKING_URI",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("place", ["", "sqlite:///own.db", "file:./folder", "./plain"])
def test_mlflow_as_a_user_has_it(place, monkeypatch, tmp_path):
    if "sqlite" in place or not place:
        pytest.importorskip("sqlalchemy")
    if place:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
    logger = MLflow(tmp_path, "a run", {"method": "fedavg", "long": "x" * 10_000})
    logger.take({name: column[:2] for name, column in TABLE.items()})
    logger.take(TABLE)
    logger.close()
    assert not logger.broken
    found = logger.client.get_run(logger.id)
    assert found.info.status == "FINISHED"
    assert found.data.params["method"] == "fedavg"
    history = logger.client.get_metric_history(logger.id, "objective")
    assert [one.step for one in history] == [0, 2, 4]
    np.testing.assert_array_equal([one.value for one in history], TABLE["objective"])
    made = {"": "mlflow.db", "sqlite:///own.db": "own.db"}.get(place, place.split("/")[-1])
    assert (tmp_path / made).exists()


RUN = {"run_id": "7", "run_uuid": "7", "experiment_id": "1", "status": "RUNNING"}


class Rest(BaseHTTPRequestHandler):
    """As much of MLflow's REST as a logger needs."""

    def log_message(self, format, *args):
        pass

    def do_GET(self):
        if "/runs/get" in self.path:
            self.answer({"run": {"info": RUN, "data": {}}})
        else:
            self.answer({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "none"}, 404)

    def do_POST(self):
        words = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind = self.path.rpartition("/mlflow/")[2]
        self.server.heard.append((kind, words))
        self.answer({
            "experiments/create": {"experiment_id": "1"},
            "runs/create": {"run": {"info": RUN, "data": {}}},
            "runs/update": {"run_info": {**RUN, "status": "FINISHED"}},
        }.get(kind, {}))  # fmt: skip

    def answer(self, words, status=200):
        body = json.dumps(words).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_mlflow_on_a_server(monkeypatch, tmp_path):
    with HTTPServer(("127.0.0.1", 0), Rest) as server:
        server.heard = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        logger = MLflow(tmp_path, "a run", {"method": "fedavg"})
        logger.take(TABLE)
        logger.close()
        server.shutdown()
    kinds = [kind for kind, _ in server.heard]
    assert kinds == ["experiments/create", "runs/create", *["runs/log-batch"] * 4, "runs/update"]
    assert server.heard[2][1]["params"] == [{"key": "method", "value": "fedavg"}]
    rows = [words["metrics"][0] for kind, words in server.heard if words.get("metrics")]
    assert [int(row["step"]) for row in rows] == [0, 2, 4]
    assert [row["value"] for row in rows[:2]] == [1.0, 0.5]
    assert server.heard[-1][1]["status"] == "FINISHED"


def test_a_server_that_is_not_there_is_named_in_plain_words(monkeypatch, tmp_path):
    with HTTPServer(("127.0.0.1", 0), Rest) as server:
        address = f"http://127.0.0.1:{server.server_address[1]}"  # free as soon as it is closed
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    with pytest.raises(ValueError, match=r"cannot be used \(nobody answers there\)") as refused:
        MLflow(tmp_path, "a run", {})
    assert address in str(refused.value)
    assert "urllib3" not in str(refused.value)


def test_a_logger_that_fails_is_left_out_and_the_run_goes_on(tmp_path):
    pytest.importorskip("tensorboard")
    logger, said = TensorBoard(tmp_path, "a run", {}), []
    write = logger.write

    def fail(round, values):
        said.append(round)
        if round == 2:
            raise OSError("No space left on device\nand so on")
        write(round, values)

    logger.write = fail
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        logger.take(TABLE)
        logger.close()
    words = "TensorBoard is told no more after round 2: No space left on device; history.csv has"
    assert any(words in str(one.message) for one in heard)
    assert said == [0, 2]
