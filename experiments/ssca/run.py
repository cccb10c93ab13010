"""Check the claims of the SSCA papers.

    python -m experiments.ssca                    all, as large as in the papers: an hour
    python -m experiments.ssca --only ssca-batch  some
    python -m experiments.ssca --quick            all, tiny: shows that everything runs
    python -m experiments.ssca --again            forget the runs that are stored

Runs are kept in results/runs.json as they end, and taken from there the next time.
"""

import argparse
import dataclasses
import json
from pathlib import Path

from experiments.ssca import figures
from experiments.ssca.claims import CHECKS, Claim
from experiments.ssca.setting import QUICK, Setting

RESULTS = Path(__file__).parent / "results"


def check(names, setting: Setting, out: Path, again: bool = False, say=print) -> list[Claim]:
    """Check the named claims, write their numbers and figures into `out`, say a line each."""
    out.mkdir(parents=True, exist_ok=True)
    world = setting.world(out / "runs.json")
    if not again:
        world.recall()
    found = []
    for name in names:
        claim = CHECKS[name](world, setting)
        said = {**claim._asdict(), "setting": dataclasses.asdict(setting)}
        (out / f"{name}.json").write_text(json.dumps(said, indent=1) + "\n", "utf-8")
        figures.draw(claim, world, setting, out)
        say(str(claim))
        found.append(claim)
    return found


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    plain = argparse.RawDescriptionHelpFormatter
    words = argparse.ArgumentParser("experiments.ssca", description=__doc__, formatter_class=plain)
    words.add_argument("--quick", action="store_true", help="tiny, on digits")
    words.add_argument("--only", nargs="+", choices=list(CHECKS), default=list(CHECKS))
    words.add_argument("--seeds", type=int, help="how many runs are averaged")
    words.add_argument("--again", action="store_true", help="forget the stored runs")
    words.add_argument("--out", type=Path, help="where results go")
    given = words.parse_args(arguments)
    setting = QUICK if given.quick else Setting()
    if given.seeds is not None:
        setting = dataclasses.replace(setting, seeds=tuple(range(given.seeds)))
    out = given.out or (Path("fedmin-ssca-quick") if given.quick else RESULTS)
    if given.quick:
        print("quick: digits and few rounds, to see that it runs; no verdict on the papers")
    print("id | paper | ours | verdict | reason")
    check(given.only, setting, out, given.again)
    print(f"\nnumbers and figures: {out}")
