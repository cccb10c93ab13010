"""fedmin as a Flower app, with a real SuperLink and two real SuperNodes: `make test-flower`.

Flower does not resolve beside what the other tests need, so these have an environment of their own.
"""

from pathlib import Path

import numpy as np
import pytest
import tomli_w

pytest.importorskip("flwr", reason="make test-flower")

from superlink import superlink

import fedmin
from fedmin.runs.config import Config
from fedmin.runs.costs import fitted
from fedmin.runs.deploying import prepare
from fedmin.runs.reading import folders_of, load

APP = Path(__file__).resolve().parents[2] / "examples" / "flower"
RUN = """
[data]
name = "wine"
standardize = true
[partition]
name = "iid"
clients = 2
[problem]
name = "softmax"
l2 = 1e-2
[method]
name = "scaffold"
step = 0.2
local_steps = 2
[federation]
sites = ["north", "south"]
secrets = "seed"
[run]
rounds = 2
every = 2
"""
COLUMNS = """
[data]
name = "wine"
standardize = true
[partition]
name = "evencolumns"
clients = 2
[problem]
name = "softmax"
l2 = 1e-2
[method]
name = "splitsgd"
step = 0.2
[federation]
sites = ["north", "south"]
secrets = "seed"
[run]
rounds = 2
every = 2
"""


def placed(link, tmp_path: Path, text: str) -> tuple[Path, fedmin.Result]:
    """The server's run.toml, with every site's files where its node looks; and what to expect."""
    config = Config(text)
    deployed = prepare(config, tmp_path / "federation")
    for name in deployed.names:
        # whom a site calls and its keys come with Flower's message: these are never used
        words = {"name": name, "server": "nowhere.invalid:1", "keys": "none"}
        own = {"data": {"file": "rows.npz"}, "policy": {"seeded": True}}
        text = tomli_w.dumps({**words, **own})
        (link.folders[name] / "site.toml").write_text(text)
        rows = deployed.site_file(name).parent / "rows.npz"
        (link.folders[name] / "rows.npz").write_bytes(rows.read_bytes())
    return deployed.run_file, loopback(config)


def loopback(config: Config) -> fedmin.Result:
    pieces, _ = fitted(config.jobs()[0])
    chosen = {k: v for k, v in pieces.options.items() if k != "engine"}
    return fedmin.minimize(
        pieces.problem, pieces.federation, pieces.method, engine=fedmin.Loopback(), **chosen
    )


@pytest.fixture(scope="module")
def link(tmp_path_factory):
    """Two nodes, each with a folder whose site.toml a test puts there."""
    home = tmp_path_factory.mktemp("flower")
    with superlink(home / "link") as found:
        for name in ("north", "south"):
            (home / name).mkdir()
            found.node(name, home / name / "site.toml")
        found.folders = {name: home / name for name in ("north", "south")}
        yield found


def go(link, tmp_path: Path, text: str, **settings: str) -> tuple[fedmin.Result, fedmin.Result]:
    run, wanted = placed(link, tmp_path, text)
    out = tmp_path / "runs"
    said = link.run(APP, run=str(run), out=str(out), **settings)
    assert "folder:" in said, said + link.log("node-north.log")[-3000:]
    (folder,) = folders_of([out]).values()
    return load(folder), wanted


def assert_same(found: fedmin.Result, wanted: fedmin.Result) -> None:
    np.testing.assert_array_equal(found.solution, wanted.solution)
    np.testing.assert_array_equal(found.history["objective"], wanted.history["objective"])
    # of training: a run from a file also takes a certificate, which is counted as evaluation
    assert found.ledger.bytes() == wanted.ledger.bytes()


def test_through_the_grid_bit_for_bit(link, tmp_path):
    """A method with client memory, every message answered by a new process from its diary."""
    assert_same(*go(link, tmp_path, RUN, mode="messages"))


def test_one_message_opens_a_stream_bit_for_bit(link, tmp_path):
    """Also where clients seal messages for each other; and no private key went through Flower."""
    settings = {"mode": "stream", "listen": "127.0.0.1:0", "host": "127.0.0.1"}
    assert_same(*go(link, tmp_path, COLUMNS, **settings))
    keys = [key for folder in link.folders.values() for key in folder.glob("state/*/key.pem")]
    assert len(keys) >= 2
    secrets = [key.read_bytes().splitlines()[1] for key in keys]
    kept = [path for path in link.home.rglob("*") if path.is_file()]
    assert any(b"BEGIN CERTIFICATE REQUEST" in path.read_bytes() for path in kept)
    for path in kept:
        assert not any(secret in path.read_bytes() for secret in secrets), path


def test_what_a_new_process_would_forget_is_refused(link, tmp_path):
    run, _ = placed(link, tmp_path, COLUMNS)
    said = link.run(APP, run=str(run), out=str(tmp_path / "runs"), mode="messages")
    assert 'keys that no file has; give mode = "stream"' in said
