"""Speed and memory of fedmin, side by side with hand-written JAX and a plain BLAS loop.

    python -m benchmarks                 all five workloads
    python -m benchmarks --only W1 W3    some of them
    python -m benchmarks --quick         tiny, to see that everything runs

fedmin and the floor take turns in one process, up to a second each. Rates are those of the median
turn; the ratio is the median over pairs of neighbouring turns, so that what else the machine does
hurts both alike. Memory and compile time come from processes of their own.
"""

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.workloads import WORKLOADS

RESULTS = Path(__file__).parent / "results"
TURNS = {"W1": 100, "W2": 200, "W3": 100, "W4": 3, "W5": 20}  # rounds a turn
BLAS_ROUNDS = {"W1": 10, "W2": 10, "W3": 5, "W4": 1, "W5": 2}
PEERS = {  # rounds a second on a machine like the one of docs/performance.md, from its text
    "W1": "fedjax 13.6, FedML 14.6, pfl 13, Flower 4.1, eager PyTorch 15, plain JAX 46-54",
    "W2": "fedjax 45, pfl 45, Flower 4.9, plain JAX 86 (vmap) and 184 (lax.map)",
    "W3": "fedjax 4.7, pfl 3.2, Flower 0.93, plain JAX 35",
    "W4": "pfl 1.0, Flower 1.5, eager PyTorch 1.4-2.0, plain JAX 0.15 (XLA's convolution), 2.9",
    "W5": "",
}


# ---------------------------------------------------------------- in a process of its own


def _peak() -> int:
    """The most memory this process has held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _floor(name: str):
    return importlib.import_module(f"benchmarks.floors.{name.lower()}")


def child_baseline(name: str, scale: float, repeats: int) -> dict:
    """What an idle process holds: fedmin imported, JAX started."""
    import jax

    import fedmin

    jax.block_until_ready(fedmin.matrix([[1.0]]) @ jax.numpy.ones(1))
    return {"peak_bytes": _peak()}


def child_ours(name: str, scale: float, repeats: int) -> dict:
    """fedmin alone: compile time and memory."""
    from benchmarks import ours

    return ours.run(name, TURNS[name], scale=scale, repeats=1) | {"peak_bytes": _peak()}


def child_floor(name: str, scale: float, repeats: int) -> dict:
    """The floor alone: compile time and memory."""
    found = _floor(name).run(TURNS[name], scale=scale)
    return found | {"peak_bytes": _peak()}


def child_blas(name: str, scale: float, repeats: int) -> dict:
    """The BLAS loop."""
    from benchmarks.floors import blas

    return blas.run(name, BLAS_ROUNDS[name], scale=scale, repeats=repeats)


def child_duel(name: str, scale: float, repeats: int) -> dict:
    """fedmin and the floor in turns."""
    from benchmarks import ours

    mine, _ = ours.prepare(name, scale)  # first: importing fedmin sets the devices
    from benchmarks.floors import spread

    theirs, _ = spread.compile_rounds(*_floor(name).prepare(scale))
    rounds = TURNS[name]
    mine(rounds), theirs(rounds)
    ours_turns, floor_turns = [], []
    for _ in range(repeats):
        ours_turns.append(mine(rounds).run_seconds)
        clock = time.perf_counter()
        theirs(rounds)
        floor_turns.append(time.perf_counter() - clock)
    return {
        "ours": rounds / median(ours_turns),
        "floor": rounds / median(floor_turns),
        "ratio": median(b / a for a, b in zip(ours_turns, floor_turns, strict=True)),
        "turns": {"ours": ours_turns, "floor": floor_turns},
    }


CHILDREN = {
    "baseline": child_baseline,
    "ours": child_ours,
    "floor": child_floor,
    "blas": child_blas,
    "duel": child_duel,
}


# ---------------------------------------------------------------- the whole


def spawn(what: str, name: str, scale: float, repeats: int) -> dict:
    """Run one child and read its answer."""
    command = [sys.executable, "-m", "benchmarks.run", "--child", what, name]
    command += ["--scale", str(scale), "--repeats", str(repeats)]
    root = Path(__file__).parent.parent
    paths = [str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, env=environment, cwd=root, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{name}: the {what} process failed")
    return json.loads(done.stdout.splitlines()[-1])


def bench(name: str, scale: float, repeats: int) -> dict:
    """Everything about one workload."""
    found = {what: spawn(what, name, scale, repeats) for what in ("duel", "ours", "floor", "blas")}
    idle = spawn("baseline", name, scale, repeats)["peak_bytes"]
    held = found["ours"]["data_bytes"]
    return {
        "ours": found["duel"]["ours"],
        "floor": found["duel"]["floor"],
        "ratio": found["duel"]["ratio"],
        "blas": found["blas"]["rounds_per_second"],
        "compile": found["ours"]["compile_seconds"],
        "floor_compile": found["floor"]["compile_seconds"],
        "data_megabytes": held / 2**20,
        "peak_over_data": (found["ours"]["peak_bytes"] - idle) / held,
        "floor_peak_over_data": (found["floor"]["peak_bytes"] - idle) / held,
        "duel": found["duel"],
    }


HEADER = (
    f"{'':4}{'fedmin':>9}{'by hand':>9}{'ratio':>7}{'BLAS':>8}   "
    f"{'compile':>8}{'by hand':>9}   {'data MB':>8}{'peak/data':>10}{'by hand':>9}"
)


def line(name: str, r: dict) -> str:
    """One workload's line of the table."""
    return (
        f"{name:4}{r['ours']:9.1f}{r['floor']:9.1f}{r['ratio']:7.2f}{r['blas']:8.1f}   "
        f"{r['compile']:7.1f}s{r['floor_compile']:8.1f}s   "
        f"{r['data_megabytes']:8.0f}{r['peak_over_data']:10.2f}{r['floor_peak_over_data']:9.2f}"
    )


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--only", nargs="+", choices=sorted(WORKLOADS), default=sorted(WORKLOADS))
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument("--repeats", type=int, default=15, help="turns of each contender")
    parser.add_argument("--scale", type=float, default=1.0, help="share of each client's rows")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        what, name = options.child
        print(json.dumps(CHILDREN[what](name, options.scale, options.repeats)))
        return
    scale, repeats = (0.02, 1) if options.quick else (options.scale, options.repeats)
    print("rounds a second, fedmin / by hand, seconds to compile, peak memory over the data's size")
    print(HEADER)
    results = {}
    for name in options.only:
        results[name] = bench(name, scale, repeats)
        print(line(name, results[name]), flush=True)
    print("\nothers, for orientation (rounds a second; not measured here):")
    for name in options.only:
        print(f"{name:4}{WORKLOADS[name].title}: {PEERS[name] or 'none'}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latest.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
