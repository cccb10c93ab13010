"""Runs in real processes that are killed, again and again: they end as if nothing had happened."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedmin.core.kept import read_csv
from fedmin.runs.reading import load

# what a run may have to remember: client memory, channel memory, constraints, columns, adaptive
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
KILLS = 2  # of each, in a quick test


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
    """A process with children; `quickly` are settings for compiling that the tests have."""

    def __init__(self, cache: Path, quickly: dict[str, str]):
        # programs are compiled once: what is tested is the rest
        settings = {
            "JAX_COMPILATION_CACHE_DIR": str(cache), "FEDMIN_DEVICES": "1",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0", **quickly,
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


def same(one: Any, other: Any) -> None:
    """Refuse two results that differ in a bit, but for their seconds."""
    np.testing.assert_array_equal(one.solution, other.solution)
    for name, column in one.history.items():
        if name != "seconds":
            np.testing.assert_array_equal(column, other.history[name])
    assert one.ledger.counts == other.ledger.counts


def kill(
    place: Path, each: int = KILLS, seed: int = 0, quickly: dict[str, str] | None = None
) -> dict[str, int]:
    """Kill every kind of run so many times; how many runs ended otherwise then."""
    files = []
    for name in FILES:
        path = place / f"{name}.toml"
        path.write_text(file_of(name), "utf-8")
        files.append(path)
    mother = Mother(place / "cache", quickly or {})
    mother.start(place / "whole", *files)
    assert mother.wait() == 0
    rng = np.random.default_rng(seed)
    out = place / "killed"

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
        for _ in range(each):
            while not killed(file):
                for folder in set(out.iterdir()) - others:  # from the beginning, then
                    shutil.rmtree(folder)
    mother.start(out, *files)
    assert mother.wait() == 0
    mother.process.communicate("")
    found = _differences(place / "whole", out)
    print("\n".join(found), flush=True)
    return {"kinds": len(FILES), "kills": len(FILES) * each, "differences": len(found)}


def _differences(whole: Path, killed: Path) -> list[str]:
    """The runs that did not end as those that were left alone, and where they differ."""
    found = []
    for folder in sorted(whole.iterdir()):
        both = [load(base / folder.name) for base in (whole, killed)]
        ledgers = (read_csv(base / folder.name / "ledger.csv") for base in (whole, killed))
        try:
            same(*both)
            for one, other in zip(*(each.values() for each in ledgers), strict=True):
                np.testing.assert_array_equal(one, other)
        except AssertionError as error:
            found.append(f"{folder.name}: {error}")
    return found
