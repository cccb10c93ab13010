"""A copy of the tree in which one line at a time is changed, and tests that are run there.

A process that has imported what all tests need starts another for every change: starting anew would
take longer than most of the tests. Programs are compiled once, as long as they are the same ones.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from nearest import ROOT, Near

PARTS = ("src", "tests", "experiments", "examples", "benchmarks", "docs", "pyproject.toml",
         "README.md", "CONTRIBUTING.md", "mkdocs.yml")  # fmt: skip
MOTHER = """
import json, os, resource, sys
import equinox, jax, numpy, pytest, scipy.optimize, scipy.sparse, sklearn.datasets
print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (asked["hard"], asked["hard"] + 5))
        out = os.open(asked["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1), os.dup2(out, 2)
        sys.path.insert(0, "tests")
        from nearest import Near, Nearest
        near = Near(**asked["near"])
        os.environ["FEDMIN_EXAMPLES"] = near.examples  # tests/test_docs.py runs these alone
        plugin = Nearest(near, asked["seconds"])
        words = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "--randomly-dont-reorganize",
                 "-W", "ignore::pytest.PytestAssertRewriteWarning"]
        try:
            code = int(pytest.main([*words, *asked["tests"]], plugins=[plugin]))
        except BaseException as error:
            print(repr(error), flush=True)
            code = 3
        with open(asked["out"] + ".json", "w") as file:
            json.dump({"code": code, "failed": plugin.failed, "count": plugin.count}, file)
        sys.stdout.flush()
        os._exit(0)
    print(child, flush=True)
    sys.stdin.readline()
    print(os.waitpid(child, 0)[1], flush=True)
"""


class Change(Protocol):
    """What is changed."""

    file: str

    def applied(self, text: str) -> str: ...


class Ended(NamedTuple):
    """How some tests ended."""

    how: str  # "passed", "failed", "too long" or "broken": nothing could be run
    failed: str = ""  # the first test that failed
    count: int = 0  # tests that were run


class Copy:
    """A copy of the tree, in which one file at a time is changed.

    seconds    of processor time for the tests of a change; the one that is running then may end
    """

    def __init__(self, folder: Path, seconds: float):
        self.folder, self.seconds = folder, seconds
        ignored = shutil.ignore_patterns("__pycache__", ".*", "site")
        for part in PARTS:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, folder / part, ignore=ignored)
            else:
                shutil.copy(ROOT / part, folder / part)
        public = ROOT.parent / "shared" / "data"
        data = {"FEDMIN_DATA": str(public)} if public.is_dir() else {}
        env = {
            **data, **os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1",
            "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        }  # fmt: skip
        pipe = subprocess.PIPE
        self.mother: Any = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", MOTHER],
            cwd=folder, env=env, stdin=pipe, stdout=pipe, text=True, bufsize=1,
        )  # fmt: skip
        self.mother.stdout.readline()

    def close(self) -> None:
        """End the process that starts the others."""
        self.mother.communicate("")

    def pytest(self, near: Near, tests: Sequence[str], seconds: float) -> Ended:
        """Run tests, for so long."""
        out = self.folder / "out"
        out.with_suffix(".json").unlink(missing_ok=True)
        asked = {
            "near": near._asdict(), "tests": list(tests), "seconds": seconds, "out": str(out),
            "hard": int(4 * seconds + 60),
        }  # fmt: skip
        self.mother.stdin.write(json.dumps(asked) + "\n")
        child = int(self.mother.stdout.readline())
        timer = threading.Timer(20 * seconds + 120, _end, [child])
        timer.start()
        self.mother.stdin.write("\n")
        self.mother.stdout.readline()
        timer.cancel()
        if not out.with_suffix(".json").exists():
            return Ended("too long")
        found = json.loads(out.with_suffix(".json").read_text("utf-8"))
        if found["failed"]:
            return Ended("failed", found["failed"], found["count"])
        # 2: stopped by the limit; 5: no tests were left
        good = found["code"] in (0, 2, 5)
        return Ended("passed" if good and found["count"] else "broken", "", found["count"])

    def tried(self, change: Change, near: Near, tests: Sequence[str] = ()) -> tuple[str, str, int]:
        """Whether tests notice a change, by which test, and how many were run."""
        path = self.folder / "src" / "fedmin" / change.file
        text = path.read_text("utf-8")
        chosen = tests or list(near.files)
        path.write_text(change.applied(text), "utf-8")
        try:
            ended = self.pytest(near, chosen, self.seconds)
        finally:
            path.write_text(text, "utf-8")
        if ended.how == "passed":
            return "not noticed", "", ended.count
        # what ends so without the change, too, has not noticed it
        again = [ended.failed] if ended.failed else chosen
        without = self.pytest(near, again, self.seconds)
        by = ended.failed or f"{ended.how}: {', '.join(chosen)}"
        noticed = "noticed" if without.how == "passed" else f"unclear: {without.how} without it"
        return noticed, by, ended.count


def _end(child: int) -> None:
    """End a process and its children: one that waits for ever takes no processor time."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
