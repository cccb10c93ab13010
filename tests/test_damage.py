"""Damage: whatever happens to a file, it is noticed and named, and the run ends the same.

By chance and many times: tests/fuzz/checkpoints.py. Every bit: `python -m tests.reliability flips`.
"""

import dataclasses
import os
import re

import numpy as np
import pytest

import fedmin
from fedmin.engines.sessions import files as module
from fedmin.engines.sessions.checkpoint import Keeper
from fuzz import damage

QUICK = 1500  # flipped bits, of a file of some ten thousand; all of them in tests/reliability.py


def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path, rng):
    (name, *_) = damage.kept().newest
    data, path = damage.kept().files[name], tmp_path / name
    edges = [*range(8 * module.FRONT.size), *range(8 * (len(data) - module.DIGEST), 8 * len(data))]
    for bit in {*edges, *rng.integers(0, 8 * len(data), QUICK).tolist()}:
        damage.read(path, damage.flipped(data, bit))
    for length in range(len(data)):
        damage.read(path, data[:length])
    # as it is, nothing is wrong with it
    path.write_bytes(data)
    with pytest.raises(fedmin.CheckpointError, match="belongs to another run"):
        damage.read(path, data)


def test_one_site_cannot_go_back_and_all_go_further():
    run = damage.kept(damage.LOOPBACK)
    _, first, second = run.newest
    damage.end(run, {first: damage.flipped(run.files[first], 99), second: None})
    # and to the beginning where nothing is left
    damage.end(run, {file: b"" for file in run.files if "sites/1" in file})


def test_what_nobody_wrote_is_not_allocated_for(tmp_path):
    """A file that says that it is huge, and one that is."""
    (name, *_) = damage.kept().newest
    data = damage.kept().files[name]
    magic, version, words, _ = module.FRONT.unpack_from(data)
    huge = module.FRONT.pack(magic, version, words, 2**62) + data[module.FRONT.size :]
    damage.read(tmp_path / name, huge)
    path = tmp_path / name
    with path.open("wb") as file:
        file.write(module.FRONT.pack(magic, version, words, 2**40 - words))
        os.truncate(path, 2**40)  # a terabyte of nothing takes no room
    with pytest.raises(module.DamagedCheckpointError, match="and says"):
        module.Files(tmp_path, {}).read(path, lambda words: {})


def test_the_newest_whole_ones_are_kept(tmp_path):
    """A damaged file does not count: what it would go on from is not deleted for its sake."""
    files = module.Files(tmp_path, {"run": "me"})
    for done in (10, 20):
        files.write(done, {}, {"x": np.zeros(2)})
    damaged = files.path(20)
    damaged.write_bytes(damage.flipped(damaged.read_bytes(), 300))
    files.write(30, {}, {"x": np.zeros(2)})
    assert [module.round_of(path) for path in files.found()] == [30, 10]
    files.write(10**9, {}, {"x": np.zeros(2)})  # ten digits are more than nine
    assert [module.round_of(path) for path in files.found()] == [10**9, 30]


def test_what_takes_long_is_done_less_often(tmp_path, monkeypatch):
    """Every 5 seconds; where one takes half a second, every 25. Rounds are kept to."""
    now = [0.0]
    monkeypatch.setattr("fedmin.engines.sessions.checkpoint.time.monotonic", lambda: now[0])
    keeper = Keeper(fedmin.Checkpoint(tmp_path), {}, 1)
    for took, wait in ((0.0, 5.0), (0.05, 5.0), (0.5, 25.0), (20.0, 1000.0)):
        keeper.took = took
        for now[0], due in ((0.99 * wait, False), (wait, True)):
            assert keeper.due(1) is due
    keeper = Keeper(fedmin.Checkpoint(tmp_path, rounds=3), {}, 1)
    keeper.took, keeper.last_round = 20.0, 3
    assert [done for done in (3, 4, 5, 6, 7) if keeper.due(done)] == [6, 7]


# ---------------------------------------------------------------- what a checkpoint belongs to


@pytest.fixture(scope="module")
def other():
    """A run with a checkpoint, and a function that goes on with some of it changed."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((6, 2)), rng.standard_normal(6)
    rows = fedmin.rows(x[:2], y[:2])
    federation = dataclasses.replace(
        fedmin.Federation.from_parts(x, y, [range(3), range(3, 6)]), test=rows, server_rows=rows
    )

    def run(folder, rounds=2, method=fedmin.FedSGD(0.1), problem=fedmin.LeastSquares(2), **changed):
        options = {
            "engine": fedmin.Simulator(devices=1), "seed": 0, "every": 2, "progress": False,
            "checkpoint": fedmin.Checkpoint(folder, rounds=1, seconds=1e4),
        }  # fmt: skip
        held = {key: changed.pop(key) for key in list(changed) if hasattr(federation, key)}
        return fedmin.minimize(
            problem, dataclasses.replace(federation, **held), method, rounds=rounds,
            **(options | changed),
        )  # fmt: skip

    return run


NUMBERS = fedmin.rows(np.ones((2, 2)), np.ones(2))
OTHERS = {
    "seed is 0, here 1": {"seed": 1},
    "every is 2, here 1": {"every": 1},
    "test rows differ": {"test": NUMBERS},
    "server rows differ": {"server_rows": NUMBERS},
    "weights differ": {"weights": np.array([0.25, 0.75])},
    "clients differ": {"names": ("north", "south")},
    "method differs": {"method": fedmin.FedSGD(0.2)},
    "problem differs": {"problem": fedmin.LeastSquares(2, l2=0.1)},
    "start differs": {"start": np.ones(2)},
    "stop differs": {"stop": fedmin.Stop("objective", below=1e-9)},
    "chunk is 1, here 2": {"engine": fedmin.Simulator(devices=1, chunk=2)},
    "engine is simulator, here halves": {"engine": fedmin.Loopback()},
    r"devices is 1 x cpu, here 2 x cpu \(FEDMIN_DEVICES": {"engine": fedmin.Simulator(devices=2)},
}


def test_what_differs_is_another_run_and_is_named(other, tmp_path, monkeypatch):
    other(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.bin")}
    for words, changed in OTHERS.items():
        with pytest.raises(fedmin.CheckpointError, match=f"belongs to another run: .*its {words}"):
            other(tmp_path, **changed)
    monkeypatch.setattr("fedmin.engines.sessions.checkpoint.__version__", "9.9")
    with pytest.raises(fedmin.CheckpointError, match=r"its fedmin is .*, here 9\.9"):
        other(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.bin")} == before


def test_fewer_rounds_than_there_are_are_refused(other, tmp_path):
    other(tmp_path, rounds=4)
    with pytest.raises(fedmin.CheckpointError, match=r"than the 2 that are asked for; ask for 4"):
        other(tmp_path, rounds=2)


def test_the_row_of_an_end_is_not_in_a_longer_run(other, tmp_path):
    """Every second round is measured, and the last one: three rounds, then four, then three."""
    wholes = {rounds: other(tmp_path / f"{rounds}", rounds=rounds) for rounds in (3, 4)}
    assert wholes[3].history["round"].tolist() == [0, 2, 3]
    for path in (tmp_path / "3", tmp_path / "4"):
        again = other(path, rounds=4)
        np.testing.assert_array_equal(again.solution, wholes[4].solution)
        assert again.history["round"].tolist() == [0, 2, 4]
    # killed after round 3 of 4, and three are enough: round 3 is measured, as it would have been
    (tmp_path / "4" / "checkpoint-000000004.bin").unlink()
    again = other(tmp_path / "4", rounds=3)
    np.testing.assert_array_equal(again.history["objective"], wholes[3].history["objective"])


def test_files_of_an_earlier_fedmin_are_refused(other, tmp_path):
    path = tmp_path / "checkpoint-000000001.bin"
    path.write_bytes(module.EARLIER + b"\x02\x00" + bytes(99))
    with pytest.raises(fedmin.CheckpointError, match=re.escape("earlier fedmin (version 2)")):
        other(tmp_path)
    assert path.exists()
