"""This checkout against another one, the commit before for example: who runs more rounds a second?

    git worktree add ../before HEAD~1
    python -m benchmarks.against ../before               all five workloads
    python -m benchmarks.against ../before --only W1     some of them

Each side is a process of its own that has compiled and warmed up; they take turns, so that what
else the machine does hurts both alike. The ratio is the median over pairs of neighbouring turns.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks.run import TURNS
from benchmarks.workloads import WORKLOADS

HERE = Path(__file__).resolve().parents[1]


def child(name: str, rounds: int) -> None:
    """Runs a turn whenever it is told to, and says how many seconds it took."""
    from benchmarks import ours

    advance, _ = ours.prepare(name)
    advance(rounds)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(advance(rounds).run_seconds, flush=True)


def start(checkout: Path, name: str) -> subprocess.Popen:
    """One side, which uses the sources of this checkout and the packages of this environment."""
    paths = os.pathsep.join([str(checkout / "src"), str(checkout)])
    # the harness itself is this one's; what it measures is the other's
    code = f"import runpy, sys; sys.argv = ['against', '--child', {name!r}]; " \
           f"runpy.run_path({str(Path(__file__))!r}, run_name='__main__')"  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=checkout, env={**os.environ, "PYTHONPATH": paths},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def turn(side: subprocess.Popen) -> float:
    """The seconds of one turn."""
    assert side.stdin is not None
    assert side.stdout is not None
    side.stdin.write("go\n")
    side.stdin.flush()
    return float(side.stdout.readline())


def compare(other: Path, name: str, turns: int) -> tuple[float, float, float]:
    """Rounds a second of both, and the ratio of ours to theirs."""
    sides = [start(HERE, name), start(other, name)]
    try:
        for side in sides:
            assert side.stdout is not None
            assert side.stdout.readline() == "ready\n"
        pairs = [(turn(sides[0]), turn(sides[1])) for _ in range(turns)]
    finally:
        for side in sides:
            side.kill()
            side.wait()
    rounds = TURNS[name]
    ours, theirs = (rounds / median(pair[i] for pair in pairs) for i in (0, 1))
    return ours, theirs, median(b / a for a, b in pairs)


def main() -> None:
    """Print a line for each workload."""
    parser = argparse.ArgumentParser()
    parser.add_argument("other", nargs="?", type=Path)
    parser.add_argument("--only", nargs="*", choices=list(WORKLOADS))
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--child")
    asked = parser.parse_args()
    if asked.child:
        child(asked.child, TURNS[asked.child])
        return
    print("rounds a second    this     other     ratio")
    for name in asked.only or WORKLOADS:
        ours, theirs, ratio = compare(asked.other.resolve(), name, asked.turns)
        print(f"{name:<12} {ours:>10.1f} {theirs:>9.1f} {ratio:>9.3f}", flush=True)


if __name__ == "__main__":
    main()
