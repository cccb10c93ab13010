"""A whole federation in real processes, with `kill -9`: the same bits as a quiet run in loopback.

Kills by the hundred, without processes: FEDMIN_KILLS=30 make test ARGS="tests/test_presence.py"
"""

import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import conftest
import fedmin
from fedmin.privacy.authority import make_authority, sign
from fedmin.privacy.certificates import KeysError
from fedmin.privacy.departures import verify
from fedmin.privacy.endorsed import endorsement
from fedmin.privacy.identity import Identity, make_request
from fedmin.runs import presence
from fedmin.runs.config import Config
from fedmin.runs.deploying import Parties, prepare
from fedmin.runs.joining import own_signer
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
secrets = "seed"
"""


def in_loopback(folder, environment, text=RUN) -> fedmin.Result:
    """The same file in one process, which compiles as the others do."""
    (folder / "quiet.toml").write_text(text.replace("[run]", '[run]\nengine = "loopback"'))
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


def stop_while_it_waits(parties, name):
    """A server that waits for a site ends with a sentence at SIGTERM, and not as a bug."""
    (path,) = parties.deployed.runs.glob("*/presence.json")
    me = parties.deployed.names.index(name)
    until(lambda: not presence.load(path.parent)[me].here)
    parties.server.send_signal(signal.SIGTERM)
    assert parties.server.wait(60) == 1
    said = (parties.deployed.run_file.parent / "server.log").read_text()
    wanted = rf"stopped: SIGTERM while waiting for .*{name} \(away\).*: started again it goes on"
    assert re.search(wanted, said), said


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
        stop_while_it_waits(parties, "b")
        parties.start_server()
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


@pytest.mark.thorough  # processes to start
def test_secure_sums_between_machines(tmp_path):
    """Keys that certificates endorse, over mutual TLS: the bits and the bytes of a loopback."""
    text = RUN.replace("rounds = 60\nevery = 20\ncheckpoint_rounds = 15", "rounds = 3\nevery = 3")
    text += '[channel]\nname = "secure_sum"\n'
    environment = {**conftest.QUICKLY, "JAX_ENABLE_X64": "0"}
    deployed = prepare(Config(text), tmp_path / "parties", 3)
    parties = Parties(deployed, environment)
    try:
        parties.start_server()
        for name in deployed.names:
            parties.start_site(name)
        assert parties.wait(240) == 0
    finally:
        parties.stop()
    (folder,) = folders_of([deployed.runs]).values()
    found, quiet = load(folder), in_loopback(tmp_path, environment, text)
    np.testing.assert_array_equal(found.solution, quiet.solution)
    np.testing.assert_array_equal(found.history["objective"], quiet.history["objective"])
    assert found.ledger.by_kind() == quiet.ledger.by_kind()
    assert found.ledger.by_kind()["channel up sealed"] == 3 * 3 * 3 * 80


@pytest.mark.thorough
def test_homomorphic_sums_between_machines(tmp_path):
    """The same with ciphertexts; what is opened has noise of 1.5e-11, so not bit for bit."""
    text = RUN.replace("rounds = 60\nevery = 20\ncheckpoint_rounds = 15", "rounds = 3\nevery = 3")
    text += '[channel]\nname = "homomorphicsum"\n'
    environment = {**conftest.QUICKLY, "JAX_ENABLE_X64": "0"}
    deployed = prepare(Config(text), tmp_path / "parties", 3)
    parties = Parties(deployed, environment)
    try:
        parties.start_server()
        for name in deployed.names:
            parties.start_site(name)
        assert parties.wait(240) == 0
    finally:
        parties.stop()
    (folder,) = folders_of([deployed.runs]).values()
    found, quiet = load(folder), in_loopback(tmp_path, environment, text)
    np.testing.assert_allclose(found.solution, quiet.solution, rtol=1e-5, atol=1e-6)
    assert found.ledger.by_kind() == quiet.ledger.by_kind()
    assert found.ledger.by_kind()["up cipher"] == 3 * 3 * 262_656


@pytest.mark.thorough
def test_a_server_without_a_model_between_machines(tmp_path):
    """Blind: every site ends with the model in a file of its own, the server's result has none."""
    text = RUN.replace("rounds = 60\nevery = 20\ncheckpoint_rounds = 15", "rounds = 3\nevery = 3")
    text += '[channel]\nname = "homomorphicsum"\nblind = true\n'
    environment = {**conftest.QUICKLY, "JAX_ENABLE_X64": "0"}
    deployed = prepare(Config(text), tmp_path / "parties", 3)
    parties = Parties(deployed, environment)
    try:
        parties.start_server()
        for name in deployed.names:
            parties.start_site(name)
        assert parties.wait(240) == 0
    finally:
        parties.stop()
    (folder,) = folders_of([deployed.runs]).values()
    found, quiet = load(folder), in_loopback(tmp_path, environment, text)
    assert found.solution is None
    assert "the model is at the sites" in found.reason
    models = sorted((tmp_path / "parties").rglob("model.npy"))
    assert len(models) == 3
    for path in models:
        np.testing.assert_allclose(np.load(path), quiet.solution, rtol=1e-5, atol=1e-6)
    assert found.ledger.by_kind() == quiet.ledger.by_kind()


def test_a_site_signs_with_those_whom_its_own_authority_knows(tmp_path):
    """A server's roster with a key that no certificate endorses is refused by the site."""
    roster = SimpleNamespace(clients=3, names=("a", "b", "c"), identities=())
    people = {}
    for home, names in (("ours", "abc"), ("theirs", "c")):
        make_authority(tmp_path / home)
        for name in names:
            place = tmp_path / home / name
            sign(tmp_path / home, make_request(place, name), out=place)
            people[home, name] = Identity.load(place)
    me = people["ours", "a"]
    said = [endorsement(people["ours", name]) for name in "abc"]

    def signer(words, keys=None, identity=me):
        roster.identities = tuple(keys or (one["key"] for one in words))
        return own_signer(identity, roster, words, 0)

    assert len(signer(said)) == 32
    swapped = endorsement(people["theirs", "c"])
    with pytest.raises(KeysError, match="not signed by the authority"):
        signer([*said[:2], swapped])
    with pytest.raises(KeysError, match="is not endorsed by it"):
        signer([*said[:2], {**said[2], "key": swapped["key"]}])
    with pytest.raises(KeysError, match="comes with the certificate of b"):
        signer([*said[:2], said[1]])
    with pytest.raises(ValueError, match="another signing key for c than c endorsed"):
        signer(said, [said[0]["key"], said[1]["key"], swapped["key"]])
    with pytest.raises(ValueError, match="needs a signing key of every site"):
        signer(said[:2])
    with pytest.raises(ValueError, match="an authority that is not the server's"):
        signer(said, identity=None)
