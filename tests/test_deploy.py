"""A whole federation in real processes, with `kill -9`: the same bits as a quiet run in loopback.

Kills by the hundred, without processes: FEDMIN_KILLS=30 make test ARGS="tests/test_presence.py"
"""

import os
import subprocess
import sys
import time

import numpy as np

import conftest
import fedmin
from fedmin.privacy.departures import verify
from fedmin.runs.config import Config
from fedmin.runs.deploying import Parties, prepare
from fedmin.runs.reading import folders_of, load

RUN = """
[data]
name = "wine"
standardize = true
[partition]
name = "iid"
clients = 3
[problem]
name = "softmax"
l2 = 0.01
[method]
name = "scaffold"
step = 0.1
local_steps = 2
[run]
rounds = 60
every = 20
checkpoint_rounds = 15
[federation]
sites = ["a", "b", "c"]
deadline = 120.0
"""


def in_loopback(folder, environment) -> fedmin.Result:
    """The same file in one process, which compiles as the others do."""
    (folder / "quiet.toml").write_text(RUN.replace("[run]", '[run]\nengine = "loopback"'))
    path = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-m", "fedmin.cli", "run", "quiet.toml", "--out", "quiet", "--quiet"]
    env = {**os.environ, "FEDMIN_DEVICES": "1", "PYTHONPATH": path, **environment}
    subprocess.run(command, cwd=folder, env=env, check=True, timeout=300)
    (found,) = folders_of([folder / "quiet"]).values()
    return load(found)


def answered(deployed, name) -> int:
    log = deployed.site_file(name).parent / f"{name}.log"
    return len(log.read_bytes().splitlines()) if log.exists() else 0


def until(condition, seconds=300.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_killed_sites_and_a_killed_server_change_nothing(tmp_path):
    deployed = prepare(Config(RUN), tmp_path / "parties", 3)
    environment = {**conftest.QUICKLY, "JAX_ENABLE_X64": "0"}
    parties = Parties(deployed, environment)
    try:
        parties.start_server()
        for name in deployed.names:
            parties.start_site(name)
        until(lambda: answered(deployed, "b") > 5)
        parties.sites["b"].kill()
        parties.sites["b"].wait()
        parties.start_site("b")
        until(lambda: answered(deployed, "b") > 20)
        parties.server.kill()
        parties.server.wait()
        parties.start_server()
        assert parties.wait(240) == 0
    finally:
        parties.stop()
    (folder,) = folders_of([deployed.runs]).values()
    found = load(folder)
    assert (found.status, found.rounds, found.absent) == ("done", 60, ())
    quiet = in_loopback(tmp_path, environment)
    np.testing.assert_array_equal(found.solution, quiet.solution)
    for name in ("round", "objective", "accuracy"):
        np.testing.assert_array_equal(found.history[name], quiet.history[name])
    assert found.ledger.by_kind() == quiet.ledger.by_kind()
    for name in deployed.names:
        assert verify(deployed.site_file(name).parent / f"{name}.log").wrong == ""
