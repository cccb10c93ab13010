"""A folder is one process's at a time, and free again however that process ends."""

import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import fedmin
from fedmin.core import files
from fedmin.core.files import FolderLock, InUseError

# it needs nothing but Python's own library, so that it starts at once
HOLDER = f"""
import runpy, sys
lock = runpy.run_path({str(files.__file__)!r})["FolderLock"](*sys.argv[1:])
lock.take()
print("taken", flush=True)
sys.stdin.readline()
"""


@contextmanager
def held(folder: Path, name: str = "run.lock"):
    """A folder that another process has."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder, name], stdin=pipe, stdout=pipe, text=True
    )
    try:
        assert process.stdout.readline() == "taken\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_who_has_a_folder_is_named_and_a_killed_process_frees_it(tmp_path):
    with held(tmp_path) as process:
        said = json.loads((tmp_path / "run.lock").read_text("utf-8"))
        assert said["process"] == process.pid
        who = f"process {process.pid} on {socket.gethostname()} since {said['since']}"
        with pytest.raises(InUseError, match=f"is in use by {who}".replace("+", r"\+")):
            FolderLock(tmp_path).take()
        process.kill()  # it frees nothing itself
        process.wait()
        assert json.loads((tmp_path / "run.lock").read_text("utf-8")) == said
        with FolderLock(tmp_path):
            said = json.loads((tmp_path / "run.lock").read_text("utf-8"))
            assert said["process"] == os.getpid()
    assert (tmp_path / "run.lock").read_text("utf-8") == ""


def test_what_cannot_be_read_of_a_holder_is_not_guessed(tmp_path):
    with FolderLock(tmp_path):
        for text in ("", "{", "[]", '{"process": 3}'):
            (tmp_path / "run.lock").write_text(text, "utf-8")
            with pytest.raises(InUseError, match="is in use by another process;"):
                FolderLock(tmp_path).take()


def test_where_nothing_can_be_locked_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    words = r"cannot be locked \(this system has no flock\)"
    with pytest.warns(RuntimeWarning, match=words), FolderLock(tmp_path):
        pass


def test_the_folder_of_a_checkpoint_has_one_run_at_a_time(apart, tmp_path):
    keep = fedmin.Checkpoint(tmp_path, rounds=1, seconds=1e4)
    method = fedmin.FedSGD(0.1)

    def run(rounds, **options):
        return fedmin.minimize(
            apart.problem, apart.federation, method, rounds=rounds, checkpoint=keep, **options
        )

    def again(news):
        with pytest.raises(InUseError, match=f"in use by process {os.getpid()}"):
            run(2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(2, progress=again)
    whole = run(2)  # what ended by an error has let go of it
    np.testing.assert_array_equal(whole.solution, run(2).solution)
