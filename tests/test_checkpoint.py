"""Runs that stop and go on: as if they had never stopped."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import conftest
import fedmin
from fedmin.cli.signals import Interrupt
from fedmin.core.result import read_csv
from fedmin.engines.sessions import checkpoint as module
from fedmin.runs.reading import load_all

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


def same(one, other) -> None:
    np.testing.assert_array_equal(one.solution, other.solution)
    for name, column in one.history.items():
        if name != "seconds":
            np.testing.assert_array_equal(column, other.history[name])
    assert one.ledger.counts == other.ledger.counts


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


# a real process that is killed: client memory, channel memory, constraints, columns, adaptive
# steps, a server's matrix, pairs and remembered gradients, copies of clients' models, sparse models

FILES = {
    "scaffold": '[method]\nname = "scaffold"\nlocal_steps = 2\n'
    '[participation]\nname = "uniform"\ncount = 3\n',
    "topk": '[method]\nname = "fedopt"\n[channel]\nname = "topk"\nk = 5\n',
    "limits": '[method]\nname = "ssca"\nbatches = {name = "full"}\n'
    '[[constraint]]\nname = "normatmost"\nradius = 2.0\n',
    "columns": '[method]\nname = "splitsgd"\n',
    "matrix": '[method]\nname = "fedsso"\nlocal_steps = 2\nreset = 11\n',
    "pairs": '[method]\nname = "fedsso"\ncurvature = {name = "lbfgs", memory = 3}\n'
    'pairs = "both points"\nremember = true\n[participation]\nname = "uniform"\ncount = 2\n',
    "hessians": '[method]\nname = "fednl"\n',
    "atoms": '[method]\nname = "fedfwplus"\n[domain]\nname = "l1ball"\nradius = 5.0\n'
    '[participation]\nname = "bernoulli"\nprobability = 0.6\n',
    "sparse": '[method]\nname = "fediterht"\n[domain]\nname = "l0ball"\ntau = 9\n',
}
KILLS = 3  # of each: 27 in all


def file_of(name: str) -> str:
    split = (
        'name = "evencolumns"\nclients = 3' if name == "columns" else 'name = "iid"\nclients = 4'
    )
    return (
        f'[data]\nname = "wine"\nstandardize = true\n[partition]\n{split}\n'
        f'[problem]\nname = "softmax"\n{FILES[name]}'
        "[run]\nrounds = 200\nevery = 17\ncheckpoint_rounds = 1\n"
    )


# a process that has imported everything and starts others, each of which runs some files. It asks
# how one ended only when told to: until then its number cannot become another process's
MOTHER = """
import os, sys
import scipy.optimize, sklearn.datasets  # what a run imports of its own, half of its time
from fedmin.runs import folder as runs
from fedmin.runs.config import Config
print("ready", flush=True)
for line in sys.stdin:
    out, *files = line.split()
    child = os.fork()
    if not child:
        for file in files:
            list(runs.run(Config.read(file), out, watch=lambda job: False))
        os._exit(0)
    print(child, flush=True)
    sys.stdin.readline()
    print(os.waitpid(child, 0)[1], flush=True)
"""


class Mother:
    def __init__(self, cache):
        # programs are compiled once: what is tested is the rest
        settings = {
            "JAX_COMPILATION_CACHE_DIR": str(cache), "FEDMIN_DEVICES": "1",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0", **conftest.QUICKLY,
        }  # fmt: skip
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", MOTHER],
            env={**os.environ, **settings}, stdin=pipe, stdout=pipe, text=True, bufsize=1,
        )  # fmt: skip
        self.process.stdout.readline()

    def start(self, out, *files) -> int:
        """The number of a new process."""
        self.process.stdin.write(" ".join(map(str, (out, *files))) + "\n")
        return int(self.process.stdout.readline())

    def wait(self) -> int:
        """How it ended: 0, or the number of the signal."""
        self.process.stdin.write("\n")
        return int(self.process.stdout.readline())


def test_killed_at_any_moment_it_ends_the_same(tmp_path):
    files = []
    for name in FILES:
        path = tmp_path / f"{name}.toml"
        path.write_text(file_of(name), "utf-8")
        files.append(path)
    mother = Mother(tmp_path / "cache")
    mother.start(tmp_path / "whole", *files)
    assert mother.wait() == 0
    rng = np.random.default_rng(0)
    out = tmp_path / "killed"

    def written() -> list[Path]:
        return sorted(out.glob("*/checkpoint-*.bin"))

    def killed(file: Path) -> bool:
        """Whether a process at this file was killed; on a busy machine it may have ended before."""
        before, begin = written(), time.monotonic()
        child = mother.start(out, file)
        for _ in range(int(rng.integers(0, 5))):  # until some checkpoints were written
            while written() == before and time.monotonic() - begin < 60:
                time.sleep(0.001)
            before = written()
        time.sleep(float(rng.uniform(0, 0.01)))
        os.kill(child, signal.SIGKILL)
        ended = mother.wait()
        assert ended in (0, signal.SIGKILL)
        return ended == signal.SIGKILL

    out.mkdir()
    for file in files:
        others = set(out.iterdir())
        for _ in range(KILLS):
            while not killed(file):
                for folder in set(out.iterdir()) - others:  # from the beginning, then
                    shutil.rmtree(folder)
    mother.start(out, *files)
    assert mother.wait() == 0
    mother.process.communicate("")
    whole, again = (load_all([tmp_path / name]) for name in ("whole", "killed"))
    assert list(whole) == list(again)
    for name in whole:
        same(again[name], whole[name])
    for folder in (tmp_path / "whole").iterdir():
        ledgers = (read_csv(base / folder.name / "ledger.csv") for base in (folder.parent, out))
        for one, other in zip(*(each.values() for each in ledgers), strict=True):
            np.testing.assert_array_equal(one, other)
