"""Homomorphic sums that the sites take in themselves: the server carries, and has no model."""

import gc
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import conftest
import fedmin
import known
import thorough
from agreement import run
from fedmin.channels.homomorphic.site import EncryptingSite
from fedmin.engines.sessions.phase import QuorumError
from fedmin.engines.sessions.server import ServerSession
from fedmin.engines.transports.memory import Memory
from fedmin.privacy.search import search
from test_protocol import dropping, tapped

BLIND = fedmin.HomomorphicSum(blind=True)
FOUR = known.apart(sizes=(4, 3, 5, 2))
TIGHT = known.World(
    fedmin.subject_to(FOUR.problem, fedmin.LossAtMost(0.5), tolerance=100.0), FOUR.clients
)
METHODS = {
    "SSCA under a constraint": (fedmin.SSCA(), TIGHT),
    "SSCA": (fedmin.SSCA(), FOUR),
    "FedAvg": (fedmin.FedAvg(0.2, local_steps=2), FOUR),
    "FedSSO": (fedmin.FedSSO(0.1, local_steps=2), FOUR),
}
EXCHANGE, SUM = 3, 4  # among the trips of a round


@pytest.mark.parametrize("name", thorough.first(METHODS))
def test_the_simulator_finds_the_same_and_counts_the_same(name, monkeypatch):
    """To what decryption is off by, 1e-12; of what is recorded, to the noise of 1.5e-11."""
    method, world = METHODS[name]
    carried = tapped(monkeypatch)
    options = {"rounds": 3, "every": 3, "channel": BLIND}
    real = run(world, method, engine=fedmin.Loopback(), **options)
    fast = run(world, method, **options)
    np.testing.assert_allclose(real.solution, fast.solution, rtol=1e-9, atol=1e-10)
    assert real.ledger.by_kind() == fast.ledger.by_kind()
    assert real.ledger.bytes(evaluation=True) == sum(map(len, carried))
    plain = run(world, method, rounds=3, every=3, certificate=False)
    np.testing.assert_allclose(real.solution, plain.solution, rtol=1e-9, atol=1e-10)
    assert real.history.keys() == plain.history.keys()
    for column in plain.history.keys() - {"seconds", "bytes_up", "bytes_down", "bytes_evaluation"}:
        np.testing.assert_allclose(real.history[column], plain.history[column], atol=1e-8)
    assert "no reply, no sum and no model" in str(real.privacy)
    assert not any(kind.startswith(("down model", "up update")) for kind in real.ledger.by_kind())


def exactly(data: bytes, rows: np.ndarray) -> bool:
    """Whether a piece of a vector is in bytes as floats, at any place."""
    return any(row[:4].astype(kind).tobytes() in data for row in rows for kind in ("<f4", "<f8"))


def arrays_of(thing, depth=6) -> list[np.ndarray]:
    """Every array of numbers that can be reached from an object."""
    found, seen, waiting = [], set(), [(thing, depth)]
    while waiting:
        each, left = waiting.pop()
        if id(each) in seen or not left or isinstance(each, type | str | bytes):
            continue
        seen.add(id(each))
        if isinstance(each, np.ndarray | jax.Array):
            if not jax.dtypes.issubdtype(each.dtype, jax.dtypes.prng_key):
                found.append(np.asarray(each))
            continue
        waiting += [(inner, left - 1) for inner in gc.get_referents(each)]
    return found


@pytest.mark.parametrize("channel", [BLIND, fedmin.HomomorphicSum()], ids=["blind", "not"])
def test_neither_reply_nor_sum_nor_model_is_at_the_server(channel, monkeypatch):
    """In all that it carries, and in all that it holds. Where it is not blind, sums and models
    are found there."""
    rng = np.random.default_rng(3)
    rows = tuple((rng.standard_normal((6, 12)), rng.standard_normal(6)) for _ in range(3))
    world = known.World(fedmin.LeastSquares(12), rows)
    replies, sums, servers = [], [], []
    hide, total, begin = EncryptingSite.hide, EncryptingSite._total, ServerSession.__init__
    monkeypatch.setattr(
        EncryptingSite, "hide",
        lambda self, w, s: replies.append(self.protocol.flat(w)) or hide(self, w, s),
    )  # fmt: skip
    monkeypatch.setattr(
        EncryptingSite, "_total", lambda self, *a: sums.append(total(self, *a)) or sums[-1]
    )
    monkeypatch.setattr(
        ServerSession,
        "__init__",
        lambda self, *a, **k: servers.append(self) or begin(self, *a, **k),
    )
    carried = tapped(monkeypatch)
    found = run(world, fedmin.FedAvg(0.05), engine=fedmin.Loopback(), channel=channel, rounds=2)
    long = {
        "reply": np.stack([r for r in replies if len(r) == 12]),
        "sum": np.stack([s for s in sums if len(s) == 12]),
        "model": found.solution[None],
    }
    small, large = ([m for m in carried if (len(m) > 50_000) == big] for big in (False, True))
    there = {each.what for each in search(small, long)}
    there |= {what for what, rows in long.items() if exactly(b"".join(large), rows)}
    held = [a for a in arrays_of(servers[0].state) if a.shape == (12,)]
    if channel.blind:
        assert not there
        assert servers[0].state.method is None
        assert not held
    else:
        assert there == {"sum", "model"}
        assert any(np.array_equal(a, found.solution) for a in held)


def test_every_site_has_the_same_model_and_keeps_it(tmp_path, monkeypatch):
    sites = []
    close = Memory.close
    monkeypatch.setattr(Memory, "close", lambda self: sites.extend(self.sites) or close(self))
    keep = fedmin.Checkpoint(tmp_path / "kept", rounds=2)
    found = run(
        FOUR, fedmin.FedAvg(0.2), engine=fedmin.Loopback(), channel=BLIND, rounds=3, checkpoint=keep
    )
    for i, site in enumerate(sites):
        np.testing.assert_array_equal(site.model, found.solution)
        np.testing.assert_array_equal(
            np.load(tmp_path / "kept" / "sites" / str(i) / "model.npy"), found.solution
        )
    assert len(sites) == 4


def test_a_run_goes_on_from_what_the_sites_kept(tmp_path):
    folder = tmp_path / "kept"
    options, method = {"engine": fedmin.Loopback(), "channel": BLIND}, fedmin.FedAvg(0.2)
    count = iter(["", "stopped", ""])
    first = run(
        FOUR, method, rounds=4, checkpoint=fedmin.Checkpoint(folder, rounds=1),
        interrupt=lambda: next(count), **options,
    )  # fmt: skip
    assert (first.status, first.rounds) == ("interrupted", 2)
    again = run(FOUR, method, rounds=4, checkpoint=fedmin.Checkpoint(folder, rounds=1), **options)
    whole = run(FOUR, method, rounds=4, **options)
    np.testing.assert_allclose(again.solution, whole.solution, rtol=1e-9, atol=1e-10)
    assert again.ledger.bytes() == whole.ledger.bytes()


@pytest.mark.filterwarnings("ignore:.*nothing:RuntimeWarning")
def test_a_site_that_lost_its_state_is_brought_back_by_doing_the_rounds_again(tmp_path):
    """Nobody sends it a model: all go back to where it can follow, here to the beginning."""
    folder, method = tmp_path / "kept", fedmin.FedAvg(0.2)
    options = {"engine": fedmin.Loopback(), "channel": BLIND, "rounds": 3, "every": 3}
    count = iter(["", "stopped", ""])
    keep = fedmin.Checkpoint(folder, rounds=1)
    run(FOUR, method, checkpoint=keep, interrupt=lambda: next(count), **options)
    shutil.rmtree(folder / "sites" / "1")
    again = run(FOUR, method, checkpoint=keep, **options)
    simulated = run(FOUR, method, rounds=3, every=3, channel=BLIND)
    np.testing.assert_allclose(again.solution, simulated.solution, rtol=1e-9, atol=1e-10)
    for i in range(4):
        np.testing.assert_array_equal(
            np.load(folder / "sites" / str(i) / "model.npy"), again.solution
        )


def test_rounds_without_a_site_are_refused_before_the_work_starts(monkeypatch):
    asked = []
    monkeypatch.setattr(Memory, "deliver", lambda *given: asked.append(given))
    with pytest.raises(ValueError, match=r"a site that misses a sum has another model.*quorum = 1"):
        run(FOUR, fedmin.FedAvg(0.2), channel=BLIND, engine=fedmin.Loopback(absent=((0, 1, 2),)))
    assert not asked


@pytest.mark.parametrize("trip", [0, EXCHANGE, SUM])
def test_whoever_is_missing_ends_the_round_in_words(trip):
    with pytest.raises(QuorumError, match=r"behind a blind channel all must, in every round\): .*"):
        dropping(BLIND, {(0, trip, 1)}, method=fedmin.FedAvg(0.2))


def test_what_needs_the_servers_model_is_refused():
    for options, words in (
        ({"participation": fedmin.Uniform(3)}, r"give participation=Everyone\(\)"),
        ({"record": [fedmin.Objective("test")]}, "test rows are the server's, which has no model"),
        ({"record": [fedmin.Support()]}, r"record Objective\(\)"),
    ):
        with pytest.raises(ValueError, match=words):
            run(FOUR, fedmin.FedSGD(0.1), channel=BLIND, **options)
    noisy = fedmin.chain(fedmin.Clip(1.0), fedmin.Noise(1.0), BLIND)
    with pytest.raises(ValueError, match="would be known to all sites"):
        run(FOUR, fedmin.FedSGD(0.1), channel=noisy)
    with pytest.raises(ValueError, match="looks must be True"):
        fedmin.HomomorphicSum(blind=True, looks=False)
    with pytest.raises(ValueError, match=r"leaves the model at the sites; give checkpoint"):
        run(FOUR, fedmin.FedSGD(0.1), channel=BLIND, engine=fedmin.Processes())


def test_processes_keep_the_model_and_the_result_says_so(tmp_path, monkeypatch):
    for name, value in conftest.QUICKLY.items():
        monkeypatch.setenv(name, value)
    three = known.apart(sizes=(4, 3, 5))
    found = run(
        three, fedmin.FedAvg(0.2), channel=BLIND, engine=fedmin.Processes(), rounds=2,
        checkpoint=fedmin.Checkpoint(tmp_path / "kept", rounds=2),
    )  # fmt: skip
    assert found.solution is None
    assert "the model is at the sites" in found.reason
    models = [np.load(tmp_path / "kept" / "sites" / str(i) / "model.npy") for i in range(3)]
    simulated = run(three, fedmin.FedAvg(0.2), channel=BLIND, rounds=2)
    for model in models:
        np.testing.assert_allclose(model, simulated.solution, rtol=1e-9, atol=1e-10)
    folder = Path(found.save(tmp_path / "result") or tmp_path / "result")
    again = fedmin.Result.load(folder)
    assert again.solution is None
    assert again.reason == found.reason
