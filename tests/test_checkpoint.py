"""Runs that stop and go on: as if they had never stopped."""

import dataclasses
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import conftest
import fedmin
import kills
from fedmin.cli.signals import Interrupt
from fedmin.engines.sessions import checkpoint as module
from kills import same

ROUNDS = 7


@pytest.fixture(scope="module")
def world():
    table = fedmin.data.load("wine").standardized()
    return fedmin.Softmax(13, 3), fedmin.data.partition(table, fedmin.data.IID(4))


def options(engine):
    return {
        "participation": fedmin.Uniform(3), "channel": fedmin.TopK(5), "engine": engine, "every": 3,
    }  # fmt: skip


METHOD = fedmin.Scaffold(0.1, local_steps=2)


@pytest.mark.parametrize("engine", [fedmin.Simulator(), fedmin.Loopback()], ids=str)
def test_goes_on_bit_for_bit(world, tmp_path, engine):
    given = options(engine)
    whole = fedmin.minimize(*world, METHOD, rounds=ROUNDS, **given)
    keep = fedmin.Checkpoint(tmp_path, rounds=2)
    fedmin.minimize(*world, METHOD, rounds=4, checkpoint=keep, **given)
    same(fedmin.minimize(*world, METHOD, rounds=ROUNDS, checkpoint=keep, **given), whole)
    # once more: nothing is left to do
    same(fedmin.minimize(*world, METHOD, rounds=ROUNDS, checkpoint=keep, **given), whole)
    assert len(list(tmp_path.glob("checkpoint-*.bin"))) == 2
    with pytest.raises(fedmin.CheckpointError, match="belongs to another run"):
        fedmin.minimize(*world, METHOD, rounds=ROUNDS, seed=1, checkpoint=keep, **given)


def damage(how: str, path: Path) -> None:
    data = path.read_bytes()
    damaged = {
        "torn": data[: len(data) // 2],
        "empty": b"",
        "flipped": data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
        "newer": data[:8] + b"\xff\x00" + data[10:],
        "foreign": b"PK" + data,
    }
    path.write_bytes(damaged[how])


@pytest.mark.parametrize("how", ["torn", "empty", "flipped", "newer", "foreign"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_used(world, tmp_path, how):
    given = options(fedmin.Simulator())
    keep = fedmin.Checkpoint(tmp_path, rounds=2)
    whole = fedmin.minimize(*world, METHOD, rounds=ROUNDS, checkpoint=keep, **given)
    damage(how, max(tmp_path.glob("checkpoint-*.bin")))
    with pytest.warns(RuntimeWarning, match="is not a whole checkpoint.*it is passed over"):
        again = fedmin.minimize(*world, METHOD, rounds=ROUNDS, checkpoint=keep, **given)
    same(again, whole)


def test_what_a_run_can_go_on_from_is_not_crowded_out(tmp_path):
    """Two later files of an abandoned future, and then rounds that are kept again."""
    files = module.Files(tmp_path, {"run": "me"})
    for done in (10, 20, 12):  # back to 10 after 20 was damaged
        files.write(done, {}, {"x": np.zeros(2)})
    assert [path.stem[-2:] for path in files.found()] == ["12", "10"]
    files.write(14, {}, {"x": np.ones(2)})
    assert [path.stem[-2:] for path in files.found()] == ["14", "12"]


def test_a_damaged_server_goes_back_with_its_sites_and_can_be_killed_again(
    world, tmp_path, monkeypatch
):
    given = options(fedmin.Loopback())
    keep = fedmin.Checkpoint(tmp_path, rounds=2)
    fedmin.minimize(*world, METHOD, rounds=6, checkpoint=keep, **given)
    damage("torn", max(tmp_path.glob("checkpoint-*.bin")))
    keep, save = fedmin.Checkpoint(tmp_path, rounds=1), module.Keeper.save

    def killed(self, stepper, book, spent):
        stepper.keep(book.done)  # the sites have kept round 5, the server not yet
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Keeper, "save", killed)
    with pytest.warns(RuntimeWarning, match="it is passed over"), pytest.raises(KeyboardInterrupt):
        fedmin.minimize(*world, METHOD, rounds=ROUNDS, checkpoint=keep, **given)
    monkeypatch.setattr(module.Keeper, "save", save)
    with pytest.warns(RuntimeWarning, match="it is passed over"):
        again = fedmin.minimize(*world, METHOD, rounds=ROUNDS, checkpoint=keep, **given)
    same(again, fedmin.minimize(*world, METHOD, rounds=ROUNDS, **given))


@pytest.mark.parametrize("engine", [fedmin.Simulator(), fedmin.Loopback()], ids=str)
def test_other_test_rows_are_another_run(world, tmp_path, engine):
    problem, federation = world
    keep = fedmin.Checkpoint(tmp_path, rounds=1)
    one, other = (
        dataclasses.replace(federation, test=fedmin.rows(np.full((2, 13), v), [0, 1]))
        for v in (0.0, 1.0)
    )
    method, given = fedmin.FedSGD(0.1), {"checkpoint": keep, "engine": engine}
    fedmin.minimize(problem, one, method, rounds=1, **given)
    fedmin.minimize(problem, one, method, rounds=2, **given)
    with pytest.raises(fedmin.CheckpointError, match="belongs to another run"):
        fedmin.minimize(problem, other, method, rounds=3, **given)


def test_a_full_disk_ends_the_run_and_nothing_is_lost(world, tmp_path, monkeypatch):
    given = options(fedmin.Simulator())
    keep = fedmin.Checkpoint(tmp_path, rounds=2)
    fedmin.minimize(*world, METHOD, rounds=2, checkpoint=keep, **given)
    before = os.fsync

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedmin.core.files.os.fsync", full)
    result = fedmin.minimize(*world, METHOD, rounds=ROUNDS, checkpoint=keep, **given)
    assert result.status == "interrupted"
    assert "No space left on device" in result.reason
    assert not list(tmp_path.glob("*.part"))
    monkeypatch.setattr("fedmin.core.files.os.fsync", before)
    again = fedmin.minimize(*world, METHOD, rounds=ROUNDS, checkpoint=keep, **given)
    same(again, fedmin.minimize(*world, METHOD, rounds=ROUNDS, **given))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_between_rounds(world, tmp_path, number):
    keep = fedmin.Checkpoint(tmp_path, seconds=1000.0)

    def send(news):
        if not sent:
            sent.append(news.done)
            os.kill(os.getpid(), number)

    sent: list[int] = []
    with Interrupt() as interrupt:
        result = fedmin.minimize(
            *world, METHOD, rounds=10**7, every=10, checkpoint=keep, progress=send,
            interrupt=interrupt,
        )  # fmt: skip
    assert result.status == "interrupted"
    assert ("SIGTERM" if number == signal.SIGTERM else "Ctrl-C") in result.reason
    assert f"checkpoint-{result.rounds:09d}.bin" in [p.name for p in tmp_path.iterdir()]


def test_killed_at_any_moment_it_ends_the_same(tmp_path):
    """`python -m tests.reliability kills` kills more."""
    found = kills.kill(tmp_path, quickly=conftest.QUICKLY)
    assert found == {"kinds": 9, "kills": 18, "differences": 0}
