"""Methods for constrained federated learning, each with the same budget.

    python -m experiments.constrained              all, as in the README
    python -m experiments.constrained --quick      tiny: shows that everything runs
    python -m experiments.constrained --only mnist a9a

FEDMIN_DATA names the folder with the data. Runs are kept in results/runs.json as they end, and what
is there is not run again; results/table.json is made from them.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fedmin
from experiments.constrained.worlds import TINY, WORLDS, World, optimum
from experiments.paper import measured

HERE = Path(__file__).parent / "results"
SEEDS = (0, 1, 2)
EVERY = 20  # rounds between two looks at all rows
BATCH = 100  # rows a client and round, for every method
SETTLED = 200  # the round from which on limits are to be met
RIVALS = 0.3  # eta of the rivals, the same for all problems
ROWS = fedmin.WithoutReplacement(BATCH)
METHODS: dict[str, Callable[[], fedmin.Method]] = {
    "SSCA()": lambda: fedmin.SSCA(),
    "SSCA.printed(100)": lambda: fedmin.SSCA.printed(BATCH),
    "FedSGM": lambda: fedmin.FedSGM(RIVALS, batches=ROWS),
    "PrimalDualAvg": lambda: fedmin.PrimalDualAvg(RIVALS, batches=ROWS),
}


def one(name: str, world: World, method: str, seed: int, best: float | None) -> dict[str, Any]:
    """One run: when its limits are met on all rows, and how far its objective is from the least."""
    federation = world.federation()
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # infeasible: the numbers say so
        result = fedmin.minimize(
            world.problem(federation), federation, METHODS[method](), rounds=world.rounds,
            every=EVERY, seed=seed, progress=False, certificate=False,
        )  # fmt: skip
    history = result.history
    if result.status == "interrupted":
        raise KeyboardInterrupt
    rounds = np.asarray(history["round"])
    above = np.asarray(history["constraint"]).reshape(len(rounds), -1).max(axis=1)
    objective = np.asarray(history["objective"], float)
    met = above <= 1e-3
    late = rounds >= min(SETTLED, world.rounds)
    # the first look from which on two in a row are met
    first = [int(r) for r, a, b in zip(rounds, met, [*met[1:], met[-1]], strict=True) if a and b]
    return {
        "world": name, "method": method, "seed": seed, "rounds": world.rounds,
        "first_met": first[0] if first else None,
        "met_at_settled": bool(met[late][0]) if late.any() else None,
        "share_met": round(float(met[late].mean()), 3) if late.any() else None,
        "objective": float(f"{objective[-1]:.6g}"),
        "gap": None if best is None else float(f"{objective[-1] - best:.3g}"),
        "above": float(f"{above[-1]:.3g}"),
        "status": result.status, "megabytes": round(result.ledger.bytes() / 1e6, 2),
        "cpu_seconds": round(time.process_time() - begun, 1),
        "curve": {"round": rounds.tolist(), "above": [float(f"{a:.4g}") for a in above],
                  "objective": [float(f"{o:.5g}") for o in objective]},
    }  # fmt: skip


def everything(worlds: dict[str, World], methods: list[str], seeds, out: Path) -> list[dict]:
    """All runs, those that are kept included."""
    path = out / "runs.json"
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {"optima": {}, "runs": []}
    found, optima = kept["runs"], kept["optima"]
    done = {(r["world"], r["method"], r["seed"]) for r in found}
    for name, world in worlds.items():
        if name not in optima:
            optima[name] = optimum(world, world.federation())
        for seed in seeds:
            for method in methods:
                if (name, method, seed) in done:
                    continue
                found.append(one(name, world, method, seed, optima[name]))
                print({k: v for k, v in found[-1].items() if k != "curve"}, flush=True)
                said = {"measured": measured("python -m experiments.constrained")}
                text = json.dumps(said | {"optima": optima, "runs": found})
                path.write_text(text.replace('{"world"', '\n{"world"') + "\n", "utf-8")
    return found


def table(runs: list[dict], worlds: dict[str, World]) -> list[dict]:
    """A line a problem and method, over the seeds: the worst of each."""
    lines = []
    for name, world in worlds.items():
        for method in METHODS:
            own = [r for r in runs if (r["world"], r["method"]) == (name, method)]
            if own:
                firsts, gaps = [r["first_met"] for r in own], [r["gap"] for r in own]
                never = any(first is None for first in firsts)
                lines.append({
                    "world": name, "title": world.title, "chosen_on": world.chosen_on,
                    "method": method, "seeds": len(own), "rounds": world.rounds,
                    "first_met": None if never else max(firsts),
                    "share_met": min(r["share_met"] for r in own),
                    "objective": float(f"{np.median([r['objective'] for r in own]):.5g}"),
                    "gap": None if gaps[0] is None else max(gaps, key=abs),
                    "above": max(r["above"] for r in own), "megabytes": own[0]["megabytes"],
                })  # fmt: skip
    return lines


def main() -> None:
    """Run all of it, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny: shows that everything runs")
    parser.add_argument("--only", nargs="+", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--out", type=Path, default=None, help="a folder for results")
    given = parser.parse_args()
    out = given.out or (Path("runs/constrained") if given.quick else HERE)
    out.mkdir(parents=True, exist_ok=True)
    worlds = {"tiny": TINY} if given.quick else {name: WORLDS[name] for name in given.only}
    seeds = (0,) if given.quick else tuple(range(given.seeds))
    runs = everything(worlds, given.methods, seeds, out)
    lines = table(runs, {"tiny": TINY} if given.quick else WORLDS)
    text = json.dumps({"measured": measured("python -m experiments.constrained"), "lines": lines})
    (out / "table.json").write_text(text.replace('{"world"', '\n{"world"') + "\n", "utf-8")
    print(f"results: {out}")
