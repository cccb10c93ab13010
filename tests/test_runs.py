"""The commands around a file: show, run, compare, plot, report, watch, reproduce."""

import http.client
import json
import os
import shutil
import sys
import threading
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedmin
from fedmin.cli.app import app
from fedmin.core.files import write_words
from fedmin.core.kept import DamagedError, read_array, read_words
from fedmin.reports import claims as reproduce
from fedmin.reports.compare import _spread, groups, tables
from fedmin.reports.tables import recorded
from fedmin.runs import costs, watch
from fedmin.runs.config import Config
from fedmin.runs.folder import run_one
from fedmin.runs.reading import load_all

ROOT = Path(__file__).resolve().parents[1]
FILE = """\
[data]
name = "wine"
standardize = true
[partition]
name = "iid"
clients = 3
[problem]
name = "softmax"
[method]
name = "fedsgd"
step = [0.1, 0.5]
[run]
rounds = 6
seeds = [0, 1]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    (place / "file.toml").write_text(FILE, "utf-8")
    done = call("run", place / "file.toml", "--out", place / "out", "--json")
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["status"] for line in lines] == ["done"] * 4
    assert not any(line["found"] for line in lines)
    return place


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_same_run_is_found_again(place):
    done = call("run", place / "file.toml", "--out", place / "out", "--json")
    assert all(json.loads(line)["found"] for line in done.stdout.splitlines())
    forced = call("run", place / "file.toml", "--out", place / "out", "--json", "--force")
    assert not any(json.loads(line)["found"] for line in forced.stdout.splitlines())


def test_forced_nothing_of_the_sites_is_left(place):
    job = Config(FILE.replace("rounds = 6", "rounds = 5")).jobs()[0]
    folder = place / "forced" / job.folder
    (folder / "sites" / "0").mkdir(parents=True)
    (folder / "sites" / "0" / "checkpoint-000000099.bin").write_bytes(b"of another time")
    run_one(job, folder, force=True)
    assert not (folder / "sites").exists()


def test_a_disk_that_is_full_is_named_and_what_is_there_is_gone_on_from(place, monkeypatch):
    job = Config(FILE.replace("rounds = 6", "rounds = 8")).jobs()[0]
    folder = place / "full" / job.folder

    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("fedmin.runs.folder._parquet", full)  # after the rounds, before the report
        with pytest.raises(OSError, match="No space left on device; what it has is whole"):
            run_one(job, folder)
    again = run_one(job, folder)
    assert not again.found
    assert run_one(job, folder).found
    np.testing.assert_array_equal(again.result.solution, run_one(job, folder).result.solution)


def test_a_run_from_a_file_is_assembled_once(tmp_path, monkeypatch):
    """What refuses it early is what is carried out."""
    made, carried = [], []
    assemble, run = costs.assemble, fedmin.Simulator.run

    def counted(*pieces, **options):
        made.append(assemble(*pieces, **options))
        return made[-1]

    def seen(self, pieces, federation, settings):
        carried.append(pieces)
        return run(self, pieces, federation, settings)

    monkeypatch.setattr(costs, "assemble", counted)
    monkeypatch.setattr("fedmin.assembling.assemble", counted)
    monkeypatch.setattr("fedmin.minimizing.running.assemble", counted)
    monkeypatch.setattr(fedmin.Simulator, "run", seen)
    run_one(Config(FILE).jobs()[0], tmp_path / "one")
    assert len(made) == len(carried) == 1
    assert carried[0].method is made[0].method
    assert carried[0].certify


def test_a_folder_is_a_result(place):
    config = Config(FILE)
    job = config.jobs()[0]
    pieces = config.pieces(job)
    fresh = fedmin.minimize(*pieces[:3], **pieces.options)
    kept = fedmin.Result.load(place / "out" / job.folder)
    np.testing.assert_array_equal(kept.solution, fresh.solution)
    for name in fresh.history:
        if name != "seconds":
            np.testing.assert_array_equal(kept.history[name], fresh.history[name])
    kinds = kept.ledger.by_kind()
    apart = {kind for kind in kinds if "certificate" in kind}  # which `minimize` makes none of here
    assert {k: n for k, n in kinds.items() if k not in apart} == fresh.ledger.by_kind()
    assert "evaluation certificate up sums" in apart
    assert (kept.problem, kept.method) == (fresh.problem, fresh.method)
    assert kept.certificate.check(*pieces[:2]) == []
    assert "<table>" in kept._repr_html_()
    for name in ("run.toml", "environment.json", "report.html"):
        assert (place / "out" / job.folder / name).stat().st_size > 100


def test_compare_puts_seeds_together(place):
    shown = call("compare", place / "out", "--to", "0.9,0.0").stdout
    assert "fedsgd step=0.1" in shown
    assert "seed=" not in shown
    assert "±" in shown
    assert "2 of 2" in shown
    assert "never" in shown  # nobody comes to 0
    refused = call("compare", place / "out", "--column", "gap")
    assert refused.exit_code == 2
    assert "not recorded" in refused.stderr


def test_compare_counts_looking_at_the_model_when_asked(place):
    runs = load_all([place / "out"])
    (_, (first, *_)), (_, (at, *_)) = tables(runs, "objective", [0.9])
    (head, (more, *_)), (there, (later, *_)) = tables(runs, "objective", [0.9], evaluation=True)
    same = next(iter(groups(runs).values()))
    sizes = [[run.ledger.bytes(evaluation=e) / 1e6 for run in same] for e in (False, True)]
    assert [line[-3] for line in (first, more)] == [_spread(s) for s in sizes]
    looked = [run.first("objective", 0.9, "bytes_evaluation") for run in same]
    sent = [sum(run.first("objective", 0.9, f"bytes_{w}") for w in ("down", "up")) for run in same]
    assert at[-2] == _spread([s / 1e6 for s in sent])
    assert later[-2] == _spread([(s + e) / 1e6 for s, e in zip(sent, looked, strict=True)])
    assert head[-3] == there[-2] == "MB with evaluation"
    assert min(looked) > 0
    asked = call("compare", place / "out", "--to", "0.9", "--evaluation")
    assert asked.stdout.count("MB with evaluation") == 2
    assert later[-2] in asked.stdout


def test_bytes_are_not_offered_as_a_metric(place):
    runs = load_all([place / "out"])
    assert recorded(runs) == ["objective", "accuracy"]
    refused = call("compare", place / "out", "--column", "bytes_evaluation")
    assert refused.exit_code == 2


def test_show_runs_nothing(place):
    shown = call("show", place / "file.toml")
    assert shown.exit_code == 0
    assert shown.stdout.count("fedsgd step=") == 4


def test_a_picture_and_a_page(place):
    assert call("plot", place / "out", "--out", place / "p.png").exit_code == 0
    assert call("report", place / "out", "--out", place / "r.html").exit_code == 0
    assert (place / "p.png").read_bytes().startswith(b"\x89PNG")
    assert "fedsgd step=0.5 seed=1" in (place / "r.html").read_text("utf-8")
    assert call("report", place / "nowhere").exit_code == 2


def test_a_run_that_goes_on_can_be_watched(place, monkeypatch):
    monkeypatch.setattr("fedmin.runs.folder.NOTE_SECONDS", 0.0)
    job = Config(FILE.replace("rounds = 6", "rounds = 7")).jobs()[0]
    folder, seen = place / "watched" / job.folder, []

    def look(news):
        if (folder / "result.json").exists():
            seen.append(load_all([folder]))

    with watch.server([place / "watched"], 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        assert "Nothing to show yet" in urllib.request.urlopen(address).read().decode()
        run_one(job, folder, progress=look)
        page = urllib.request.urlopen(address).read().decode()
        server.shutdown()
    assert 'http-equiv="refresh"' in page
    assert "How they ended" in page
    assert {result.status for some in seen for result in some.values()} == {"running"}


DAMAGED = [
    ("result.json", "[]", "it is no object but"),
    ("result.json", "{", "Expecting property name"),
    ("result.json", "[" * 100_000, "recursion"),
    ("result.json", '{"format": 2}', "it has no 'rounds'"),
    ("result.json", '{"format": "2"}', "format is '2'"),
    ("history.csv", "round,objective\n0,1.0\n", "it has no numbers of 'seconds'"),
    ("history.csv", "round,seconds,bytes_down,bytes_up\n", "it has no numbers of 'round'"),
    ("history.csv", "round,seconds,bytes_down,bytes_up\n9999999999,0,0,0\n", "do not rise from 0"),
    ("history.csv", "round,round\n0,1\n", "a column is there twice"),
    ("history.csv", "round,seconds\n0\n", "it is no table of numbers"),
    ("ledger.csv", "round,clients\n0,3\n", "took part in each of 6 rounds"),
    ("model.npy", "", "it is no array"),
    ("certificate.json", "{}", "it is not a certificate, it has no 'objective'"),
    ("holdings.json", '{"unit": "rows"}', "it is not a holdings, it has no 'rows'"),
    ("environment.json", "7", "it is no object but 7"),
    ("run.toml", "a = " + "[" * 5000, "nested too deeply"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "words"), DAMAGED)
def test_a_file_that_is_damaged_is_named(place, tmp_path, name, text, words):
    folder = tmp_path / "run"
    shutil.copytree(place / "out" / Config(FILE).jobs()[0].folder, folder)
    kept = read_words(folder / "result.json")  # without digests of others, which would not fit
    write_words(folder / "result.json", kept | {"files": dict.fromkeys(kept["files"])})
    assert call("report", folder, "--out", tmp_path / "r.html").exit_code == 0
    (folder / name).write_text(text, "utf-8")
    refused = call("report", folder, "--out", tmp_path / "r.html")
    assert refused.exit_code == 2, refused.exception
    assert f"{folder / name} is damaged, or was not written by fedmin: " in refused.stderr
    assert words in refused.stderr
    assert "Nothing to show yet" in watch.current_page([folder])


def test_a_header_that_promises_terabytes_is_not_believed(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(7))
    whole = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(whole.replace(b"(7,), }" + b" " * 12, b"(7000000000000,), }"))
    assert len(whole) == (tmp_path / "a.npy").stat().st_size
    with pytest.raises(DamagedError, match=r"a\.npy is damaged"):
        read_array(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("127.0.0.1:{port}", 200), ("[::1]:{port}", 200), ("LOCALHOST:1", 200),
        ("evil.example", 421), ("localhost.evil.example:{port}", 421), ("127.0.0.1.nip.io", 421),
        ("evil@localhost", 421), ("", 421), ("localhost:1:2", 421),
    ],
)  # fmt: skip
def test_only_this_machines_names_are_answered(tmp_path, host, status):
    """A name of a stranger's that was pointed at this machine reads nothing (DNS rebinding)."""
    with watch.server([tmp_path], 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        asking = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        asking.request("GET", "/", headers={"Host": host.format(port=port)})
        answer = asking.getresponse()
        body = answer.read().decode()
        asking.close()
        server.shutdown()
    assert answer.status == status
    assert ("Nothing to show yet" in body) == (status == 200)
    assert str(tmp_path) not in body or status == 200
    assert "script-src 'sha256-" in answer.headers["Content-Security-Policy"]


@pytest.mark.filterwarnings("ignore")  # of libraries that are not ours
def test_a_history_goes_to_tensorboard_and_mlflow_too(place, monkeypatch):
    """As the two libraries themselves read it back."""
    mlflow = pytest.importorskip("mlflow")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (place / "mlruns").as_uri())
    logged = FILE.replace("seeds = [0, 1]", 'log = ["tensorboard", "mlflow"]')
    job = Config(logged).jobs()[0]
    assert job.id == Config(FILE.replace("seeds = [0, 1]", "")).jobs()[0].id
    folder = place / "logged" / job.folder
    history = run_one(job, folder).result.history
    board = events.EventAccumulator(str(folder / "tensorboard")).Reload().Tensors("objective")
    assert "MLFLOW_ALLOW_FILE_STORE" not in os.environ  # users do not have it
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # but to look into it here
    client = mlflow.MlflowClient()
    (flow,) = client.search_runs([client.get_experiment_by_name("fedmin").experiment_id])
    metric = client.get_metric_history(flow.info.run_id, "objective")
    for steps, values in (
        ([e.step for e in board], [e.tensor_proto.float_val[0] for e in board]),
        ([m.step for m in metric], [m.value for m in metric]),
    ):
        np.testing.assert_array_equal(steps, history["round"])
        np.testing.assert_allclose(values, history["objective"], rtol=1e-6)
    assert flow.info.status == "FINISHED"
    assert flow.data.params["method"] == "fedsgd"
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ValueError, match=r'needs pip install "fedmin\[mlflow\]"'):
        run_one(job, place / "again" / job.folder)


def test_tables_for_pandas(place):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    folder = place / "out" / Config(FILE).jobs()[0].folder
    kept = fedmin.Result.load(folder)
    table = pandas.read_parquet(folder / "history.parquet").set_index("round")
    pandas.testing.assert_frame_equal(kept.to_pandas(), table, check_dtype=False, check_exact=True)
    ledger = pandas.read_parquet(folder / "ledger.parquet")
    assert ledger["bytes_up"].sum() == kept.ledger.bytes("up")


def test_the_claims_page_is_what_was_measured():
    assert (ROOT / "docs/claims.md").read_text("utf-8") == reproduce.markdown()
    for claim in reproduce.all_claims():
        assert claim.verdict
        assert claim.reason
    listed = call("reproduce", "--list").stdout
    assert all(claim.id in listed for claim in reproduce.all_claims())
    refused = call("reproduce", "ssca-bach")
    assert refused.exit_code == 2
    assert "did you mean 'ssca-batch'" in refused.stderr
