"""The folder of a run: locked while somebody runs it, whole or made again, its whole life kept."""

import json
import socket

import numpy as np
import pytest
from typer.testing import CliRunner

import fedmin
from fedmin.cli.app import app
from fedmin.core.files import FolderLock
from fedmin.core.kept import read_words
from fedmin.core.result_files import result_words
from fedmin.runs.config import Config
from fedmin.runs.folder import ended, run_one
from fedmin.runs.reading import report_of
from fedmin.runs.watch import current_page
from fuzz import damage
from test_locks import held

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
[run]
rounds = 6
checkpoint_rounds = 2
"""


@pytest.fixture(scope="module")
def job():
    return Config(FILE).jobs()[0]


@pytest.fixture
def folder(job, tmp_path):
    """A run that has ended."""
    run_one(job, tmp_path / job.folder)
    return tmp_path / job.folder


def parts(folder):
    return json.loads((folder / "environment.json").read_text("utf-8"))["parts"]


def test_a_second_run_is_told_who_has_the_folder(job, tmp_path):
    file = tmp_path / "file.toml"
    file.write_text(FILE, "utf-8")

    def call(*more):
        words = ["run", str(file), "--out", str(tmp_path), "--quiet", *more]
        return CliRunner().invoke(app, words)

    folder = tmp_path / job.folder
    with held(folder) as process:
        for refused in (call(), call("--force")):
            assert refused.exit_code == 2
            words = refused.stderr.replace("\n", " ")
            assert f"in use by process {process.pid} on {socket.gethostname()} since" in words
        assert sorted(path.name for path in folder.iterdir()) == ["run.lock"]
    assert call().exit_code == 0
    with held(folder):  # what has ended can be looked at by anybody
        assert call().exit_code == 0
        assert call("--force").exit_code == 2
    with FolderLock(folder):
        pass


def test_every_part_of_a_life_is_kept(job, tmp_path, monkeypatch):
    folder = tmp_path / job.folder
    run_one(job, folder, interrupt=lambda: "enough")

    def killed(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr("fedmin.runs.folder.carry_out", killed)
        with pytest.raises(KeyboardInterrupt):
            run_one(job, folder)
        # shown as it was, but as of a run that goes on
        assert read_words(folder / "result.json")["status"] == "running"
        assert "fedsgd" in report_of([folder])
    monkeypatch.setattr("fedmin.runs.life.versions", lambda: {"fedmin": "0", "devices": "7 x cpu"})
    run_one(job, folder)
    first, second, third = parts(folder)
    assert first["status"] == "interrupted"
    assert first["rounds"] < third["rounds"] == 6
    assert first["began"] <= first["ended"] <= second["began"] <= third["began"]
    assert "ended" not in second
    assert (third["status"], third["devices"]) == ("done", "7 x cpu")
    page = (folder / "report.html").read_text("utf-8")
    assert f"{first['devices']}, 7 x cpu" in page
    run_one(job, folder, force=True)
    assert len(parts(folder)) == 1


def test_a_life_that_cannot_be_read_is_named(job, folder):
    run = folder / "environment.json"
    for text in ("", "[1]", '{"parts": [3]}', '{"parts": 3}', "[" * 10**5):
        run.write_text(text, "utf-8")
        (folder / "report.html").unlink()
        with pytest.warns(
            RuntimeWarning, match=r"environment\.json is damaged.*not known any more"
        ):
            run_one(job, folder)
        assert len(parts(folder)) == 1
    run.write_text('{"fedmin": "0.2.0", "began": "2026-11-18T07:00:00+0000"}', "utf-8")
    (folder / "report.html").unlink()
    run_one(job, folder)
    assert [part["fedmin"] for part in parts(folder)] == ["0.2.0", fedmin.__version__]


def test_every_flipped_bit_of_a_result_is_noticed(folder, rng):
    names = list(result_words(folder)["files"])
    wanted = {"history.csv", "ledger.csv", "model.npy", "model.json", "certificate.json"}
    assert set(names) == wanted
    for name in ["result.json", *names]:
        path = folder / name
        data = path.read_bytes()
        bits = rng.choice(8 * len(data), 150, replace=False).tolist()
        cuts = rng.choice(len(data), 30, replace=False).tolist()
        for changed in [*(damage.flipped(data, b) for b in bits), *(data[:n] for n in cuts)]:
            path.unlink()
            path.write_bytes(changed)
            with pytest.raises(ValueError, match=f"{name} is damaged"):
                result_words(folder)
        path.unlink()
        if name in names:
            with pytest.raises(ValueError, match=f"{name} is damaged.*it is gone"):
                fedmin.Result.load(folder)
        path.write_bytes(data)
    assert ended(folder)


def test_a_damaged_result_is_made_again_and_is_the_same(job, folder):
    whole = fedmin.Result.load(folder)
    for name in ("result.json", "history.csv", "model.npy"):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(damage.flipped(before, 801))
        with pytest.raises(ValueError, match=f"{name} is damaged"):
            fedmin.Result.load(folder)
        with pytest.warns(RuntimeWarning, match=f"{name} is damaged.*goes on from"):
            again = run_one(job, folder)
        assert not again.found
        assert name == "result.json" or (folder / name).read_bytes() == before
        np.testing.assert_array_equal(fedmin.Result.load(folder).solution, whole.solution)
        assert run_one(job, folder).found


def test_a_result_has_nothing_of_an_earlier_one(folder, tmp_path):
    """A certificate that lies there still is not the new result's."""
    import dataclasses

    kept = fedmin.Result.load(folder)
    assert kept.certificate is not None
    dataclasses.replace(kept, certificate=None).save(folder)
    assert fedmin.Result.load(folder).certificate is None


def test_a_half_written_folder_does_not_end_the_watching(folder, monkeypatch):
    """Every file cut in the middle, as if its writer were at it: a page comes all the same."""
    monkeypatch.setattr("fedmin.runs.watch.PAUSES", (0.0,))
    assert "Nothing to show yet" not in current_page([folder])
    for name in ("result.json", *result_words(folder)["files"], "environment.json"):
        whole = (folder / name).read_bytes()
        for data in (b"", whole[: len(whole) // 2]):
            (folder / name).write_bytes(data)
            page = current_page([folder])
            assert page.startswith("<!doctype html>")
            assert 'http-equiv="refresh"' in page
        (folder / name).write_bytes(whole)
    assert "Nothing to show yet" not in current_page([folder])


def test_how_often_it_is_kept_is_said_where_people_look(tmp_path):
    call = lambda *words: CliRunner().invoke(app, [*words])
    text = call("init", "fedsgd", "--file", "-").stdout
    assert "checkpoint_seconds = 5.0" in text
    file = tmp_path / "file.toml"
    for rounds, said in (("", "every 5 s"), ("checkpoint_rounds = 10", "every 10 rounds and ev")):
        file.write_text(FILE.replace("checkpoint_rounds = 2", rounds), "utf-8")
        assert f"a checkpoint is kept {said}" in call("show", str(file)).stdout
