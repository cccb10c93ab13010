"""Folders of runs: read by what `report`, `compare` and `watch` read them with.

Whole ones are written as by `fedmin run`: a plain run, and one with constraints.
"""

import functools
import hashlib
import json
import tempfile
import tomllib
import warnings
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

from fedmin.core.files import text_of
from fedmin.core.kept import DamagedError
from fedmin.reports.compare import tables
from fedmin.reports.tables import recorded
from fedmin.runs.config import Config
from fedmin.runs.folder import run_one
from fedmin.runs.reading import folders_of, load_all, page_of

from .campaign import DifferentError, Target
from .mutation import change_bytes, change_text, change_tree
from .reducing import reduced_files

Files = dict[str, bytes]
READ = ("result.json", "history.csv", "ledger.csv", "model.npy", "model.json", "best.npy",
        "certificate.json", "holdings.json", "environment.json", "run.toml")  # fmt: skip
PLAIN = """
[data]
name = "wine"
standardize = true
[partition]
name = "iid"
clients = 3
[problem]
name = "softmax"
[method]
name = "{method}"
{rest}
[run]
rounds = 4
"""
LIMITED = '[[constraint]]\nname = "normatmost"\nradius = 0.5'


@functools.cache
def whole() -> list[Files]:
    """The files of folders that runs have left."""
    found = []
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that four rounds are few
        for method, rest in (("fedsgd", "step = 0.1"), ("ssca", LIMITED)):
            folder = Path(place) / method
            run_one(Config(PLAIN.format(method=method, rest=rest)).jobs()[0], folder)
            found.append({n: (folder / n).read_bytes() for n in READ if (folder / n).exists()})
    return found


def case(rng: Random) -> Files:
    """A folder with one to three files changed, exchanged or gone."""
    own, other = rng.sample(whole(), 2)
    files = dict(own)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(sorted(files) or ["result.json"])
        kind = rng.randrange(12)
        if kind == 0:
            files.pop(name, None)
        elif kind == 1 and name in other:
            files[name] = other[name]
        elif kind == 2:
            files[name] = b""
        elif kind < 8:
            files[name] = _changed(rng, name, files.get(name, b"{}"))
        else:
            files[name] = change_bytes(rng, files.get(name, b"{}"))
    # most with digests that fit what was changed, else nothing behind them would be tried
    return _fitting(files) if rng.random() < 0.8 else files


def _fitting(files: Files) -> Files:
    """The same files, their SHA-256 written anew wherever one is named."""
    found = dict(files)
    for name in sorted(files, key=lambda name: name == "result.json"):  # it names the others
        try:
            words = json.loads(files[name])
            if name == "result.json":
                words["files"] = {
                    each: digest and hashlib.sha256(found[each]).hexdigest()
                    for each, digest in words["files"].items()
                }
            if "sha256" in words:
                found[name] = text_of(words).encode()
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            continue
    return found


def _changed(rng: Random, name: str, content: bytes) -> bytes:
    """A file with a change of what it says, still in its form."""
    kind = name.rpartition(".")[2]
    try:
        if kind == "json":
            return json.dumps(change_tree(rng, json.loads(content), [json.loads(content)])).encode()
        if kind == "toml":
            tree = change_tree(rng, tomllib.loads(content.decode()), dates=True)
            return tomli_w.dumps(tree).encode()
        if kind == "csv":
            return _changed_cell(rng, content)
    except (ValueError, TypeError, AttributeError, RecursionError):  # no file of its form any more
        pass
    return change_bytes(rng, content)


def _changed_cell(rng: Random, content: bytes) -> bytes:
    lines = [line.split(",") for line in content.decode().splitlines()]
    if rng.random() < 0.3 or not lines or not lines[0]:
        return change_text(rng, content.decode()).encode()
    line = rng.choice(lines)
    words = ("", "x", "-1", "nan", "inf", "1e400", "9" * 30, "1.5", "0", "²", '"', "<script>", " 7")
    line[rng.randrange(len(line))] = rng.choice(words)
    return "\n".join(map(",".join, lines)).encode()


def attempt(files: Files) -> str:
    """Refused by an error that names the folder, or read into a page and a table."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        try:
            found = load_all([folder])
            page = page_of(folders_of([folder]), found)
            known = recorded(found)
            for column in known[:1]:
                tables(found, column)
            for each in found.values():
                repr(each)
        except (DamagedError, OSError, ValueError) as error:
            if str(folder) not in str(error) or len(str(error)) > 1000:
                raise
            return "refused"
    if "<script>alert" in page or "<img" in page:
        raise DifferentError("a page with a stranger's script in it")
    return "accepted"


def reduce(files: Files, fails: Any) -> Files:
    """The files that have to be changed."""
    for original in whole():
        if len(set(files.items()) & set(original.items())) > 2:
            return reduced_files(files, original, fails)
    return files


def show(files: Files) -> str:
    """What differs from a folder that is whole."""
    plain = {content for each in whole() for content in each.values()}
    changed = [f"{n}: {c[:1500]!r}" for n, c in sorted(files.items()) if c not in plain]
    return "\n".join([f"files: {sorted(files)}", *changed])


TARGET = Target(case, attempt, reduce, show)
