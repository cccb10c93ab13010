"""The quick number of `python -m tests.soak`: real processes, over gRPC with TLS."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import soak

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.skipif(
    "FEDMIN_SOAK" not in os.environ,
    reason="its forked server stood still while it compiled; alone: python -m tests.soak",
)
def test_no_round_is_lost_and_nobody_grows(tmp_path):
    """In a process of its own, because it forks: the bits of a loopback, every log whole."""
    path = os.pathsep.join([str(ROOT), *(p for p in sys.path if p)])
    words = ["-m", "tests.soak", "--sites", "3", "--rounds", "150", "--keep", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=900)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its children too
            raise
    assert "'sites': 3, 'rounds': 150, 'lost': 0" in said, said
    assert process.returncode == 0, said


def test_a_process_that_grows_is_seen():
    """The slope of what was read, by hand: 1,000 bytes a round at the server, none at a site."""
    one = soak.Soak.__new__(soak.Soak)
    one.rounds, one.deployed = 100, type("Deployed", (), {"names": ("a",)})
    sizes = {10: 9_000_000, 40: 5_040_000, 60: 5_060_000, 80: 5_080_000}
    one.looks = [(t, {"server": {"bytes": n}, "a": {"bytes": 7}}) for t, n in sizes.items()]
    assert one.slopes("bytes") == {"server": 1000.0, "a": 0.0}
    assert soak.held(os.getpid())["bytes"] > 2**20
    assert soak.held(2**22 + 1) == {}
