"""Check the claims of the FedFW paper.

    python -m experiments.fedfw                    all, as in the README
    python -m experiments.fedfw --only fw-penalty  some
    python -m experiments.fedfw --tables mnist     with some of the data
    python -m experiments.fedfw --quick            tiny: shows that everything runs
    python -m experiments.fedfw --again            forget the runs that are stored

Runs are kept in results/runs.json as they end, and taken from there the next time.
"""

import argparse
import dataclasses
import json
from pathlib import Path

from experiments.fedfw.claims import CHECKS
from experiments.fedfw.runs import World
from experiments.fedfw.setting import QUICK, Setting
from experiments.ssca.claims import Claim

RESULTS = Path(__file__).parent / "results"


def check(names, setting: Setting, out: Path, again: bool = False, say=print) -> list[Claim]:
    """Check the named claims, write their numbers into `out`, say a line each."""
    out.mkdir(parents=True, exist_ok=True)
    world = World(out / "runs.json")
    if not again:
        world.recall()
    found = []
    for name in names:
        claim = CHECKS[name](world, setting)
        said = {**claim._asdict(), "setting": dataclasses.asdict(setting)}
        (out / f"{name}.json").write_text(json.dumps(said, indent=1) + "\n", "utf-8")
        say(str(claim))
        found.append(claim)
    return found


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    plain = argparse.RawDescriptionHelpFormatter
    words = argparse.ArgumentParser("experiments.fedfw", description=__doc__, formatter_class=plain)
    words.add_argument("--quick", action="store_true", help="tiny, on synthetic data")
    words.add_argument("--only", nargs="+", choices=list(CHECKS), default=list(CHECKS))
    words.add_argument("--tables", nargs="+", help="mnist, synthetic, cifar10_batch1")
    words.add_argument("--again", action="store_true", help="forget the stored runs")
    words.add_argument("--out", type=Path, help="where results go")
    given = words.parse_args(arguments)
    setting = QUICK if given.quick else Setting()
    if given.tables:
        setting = dataclasses.replace(setting, tables=tuple(given.tables))
    out = given.out or (Path("fedmin-fedfw-quick") if given.quick else RESULTS)
    if given.quick:
        print("quick: few rows and rounds, to see that it runs; no verdict on the paper")
    print("id | paper | ours | verdict | reason")
    check(given.only, setting, out, given.again)
    print(f"\nnumbers: {out}")
