"""Damaged checkpoints: every one is noticed, named and passed over, and the run ends the same.

A tiny run is carried out once and its files are kept. `read` looks at a damaged file alone,
`end` goes on from a folder with damaged files in it and compares everything with the run that was
never touched; both raise if a promise is broken. `case(rng)` is a damage by chance, for fuzzing.
"""

import functools
import hashlib
import json
import re
import tempfile
import warnings
from pathlib import Path
from random import Random
from typing import NamedTuple

import jax
import numpy as np
import pytest

import fedmin
from fedmin.engines.drive import Engine
from fedmin.engines.sessions.files import DIGEST, FRONT, DamagedCheckpointError, Files

ROUNDS = 3
SIMULATOR, LOOPBACK = fedmin.Simulator(devices=1), fedmin.Loopback()
Damage = dict[str, bytes | None]  # files of a folder by their names; None is one that is gone


class Kept(NamedTuple):
    """A run that was carried out, and the files that it left."""

    engine: Engine
    result: fedmin.Result
    files: dict[str, bytes]

    @property
    def newest(self) -> list[str]:
        """The files of the last round: the server's, and the sites'."""
        return [name for name in self.files if name.endswith(f"{ROUNDS:09d}.bin")]


@functools.cache
def kept(engine: Engine = SIMULATOR) -> Kept:
    """A run of a few rounds, with memory at the clients and in the channel, and its files."""
    with tempfile.TemporaryDirectory() as folder:
        result = _run(engine, Path(folder))
        paths = sorted(Path(folder).rglob("checkpoint-*.bin"))
        files = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    return Kept(engine, result, files)


def _run(engine: Engine, folder: Path) -> fedmin.Result:
    rng = np.random.default_rng(0)
    federation = fedmin.Federation.from_clients(
        [(rng.standard_normal((3, 2)), rng.standard_normal(3)) for _ in range(2)]
    )
    return fedmin.minimize(
        fedmin.LeastSquares(2), federation, fedmin.Scaffold(0.1), rounds=ROUNDS,
        channel=fedmin.TopK(1), engine=engine, progress=False,
        checkpoint=fedmin.Checkpoint(folder, rounds=1, seconds=1e4),
    )  # fmt: skip


def flipped(data: bytes, bit: int) -> bytes:
    """The same with one bit changed."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def read(path: Path, data: bytes) -> None:
    """Read a damaged file alone: it must be named as not whole, whatever it is."""
    path.unlink(missing_ok=True)  # some file systems wait for the disk where a file is overwritten
    path.write_bytes(data)
    with pytest.raises(DamagedCheckpointError, match=re.escape(str(path))):
        Files(path.parent, {}).read(path, lambda words: {})


def end(kept: Kept, damage: Damage) -> bool:
    """Go on from the files with some of them changed: each is named, and the end is the same.

    Gives whether anything was named: older files are looked at only if the newest are damaged.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, data in (kept.files | damage).items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            if data is not None:
                (folder / file).write_bytes(data)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            again = _run(kept.engine, folder)
        words = " ".join(str(each.message) for each in said)
        server, *sites = kept.newest
        looked = [server] if server in damage else sites  # sites go where the server can
        for file in looked:
            assert damage.get(file) is None or str(folder / file) in words, (file, words)
        _same(again, kept.result)
        for file in kept.newest:  # what is left is whole: it could go on once more
            data = (folder / file).read_bytes()
            assert hashlib.sha256(data[:-DIGEST]).digest() == data[-DIGEST:]
        assert len(list(folder.rglob("checkpoint-*.bin"))) <= 2 * len(kept.newest)
        return bool(said)


def _same(one: fedmin.Result, other: fedmin.Result) -> None:
    assert (one.status, one.reason) == (other.status, other.reason)
    states = (jax.tree.leaves((each.server, each.clients, each.memory)) for each in (one, other))
    for mine, others in zip(*states, strict=True):
        np.testing.assert_array_equal(mine, others)
    np.testing.assert_array_equal(one.solution, other.solution)
    for name, column in other.history.items():
        if name != "seconds":
            np.testing.assert_array_equal(one.history[name], column)
    assert one.ledger.counts == other.ledger.counts


# ---------------------------------------------------------------- by chance


def case(rng: Random, engine: Engine = SIMULATOR) -> Damage:
    """Some files of a folder, changed by chance; the same generator gives the same ones."""
    files = kept(engine).files
    found: Damage = {}
    for name in rng.sample(sorted(files), rng.randint(1, len(files))):
        beside = [data for each, data in files.items() if Path(each).parent == Path(name).parent]
        found[name] = _changed(rng, files[name], rng.choice(beside))
    return found


def _changed(rng: Random, data: bytes, other: bytes) -> bytes | None:
    """Another file: never the same one, nor one that is whole."""
    at, to = sorted(rng.sample(range(len(data) + 1), 2))
    ways = {
        "flips": lambda: functools.reduce(
            flipped, rng.sample(range(8 * len(data)), rng.choice((1, 1, 2, 3, 64))), data
        ),
        "cut": lambda: data[:at],
        "lost": lambda: data[:at] + data[to:],
        "zeros": lambda: data[:at] + bytes(to - at) + data[to:],
        "twice": lambda: data[:to] + data[at:],
        "more": lambda: data + rng.randbytes(rng.randint(1, 99)),
        "noise": lambda: data[:at] + rng.randbytes(to - at) + data[to:],
        "spliced": lambda: data[:at] + other[at:],
        "random": lambda: rng.randbytes(rng.randint(0, 3000)),
        "another": lambda: other,  # under a name that is not its own
        "forged": lambda: _forged(rng, data),
        "gone": lambda: None,
    }
    found = ways[rng.choice(list(ways))]()
    return b"" if found == data else found


def _forged(rng: Random, data: bytes) -> bytes:
    """Words that no run has written, with lengths and a digest that fit."""
    magic, version, length, arrays = FRONT.unpack_from(data)
    words = json.loads(data[FRONT.size : FRONT.size + length])
    odd = (-1, -(2**62), float("nan"), "dofe", None, [], {}, "", [[[]]])
    # a site has words of its own: what is in none of its files means nothing there
    keys = [key for key in ("recorded", "spent", "status", "done") if key in words]
    words[rng.choice(keys)] = rng.choice(odd)
    said = json.dumps(words).encode()
    body = data[FRONT.size + length : -DIGEST]
    front = FRONT.pack(magic, version, len(said), arrays)
    return front + said + body + hashlib.sha256(front + said + body).digest()
