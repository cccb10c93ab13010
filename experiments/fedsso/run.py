"""Check the claims of the FedSSO paper.

    python -m experiments.fedsso                    all, as large as in the paper
    python -m experiments.fedsso --only sso-rounds  some
    python -m experiments.fedsso --quick            all, tiny: shows that everything runs
    python -m experiments.fedsso --again            forget the runs that are stored

Runs are kept in results/runs.json as they end, and taken from there the next time.
"""

import argparse
import dataclasses
import json
from pathlib import Path

from experiments.fedsso import figures
from experiments.fedsso.claims import CHECKS, Claim
from experiments.fedsso.setting import QUICK, Setting

RESULTS = Path(__file__).parent / "results"


def check(names, setting: Setting, out: Path, again: bool = False, say=print) -> list[Claim]:
    """Check the named claims, write their numbers and figures into `out`, say a line each."""
    out.mkdir(parents=True, exist_ok=True)
    book = setting.book(out / "runs.json")
    if not again:
        book.recall()
    found = []
    for name in names:
        claim = CHECKS[name](book, setting)
        said = {**claim._asdict(), "setting": dataclasses.asdict(setting)}
        (out / f"{name}.json").write_text(json.dumps(said, indent=1) + "\n", "utf-8")
        figures.draw(claim, book, setting, out)
        say(str(claim))
        found.append(claim)
    return found


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    plain = argparse.RawDescriptionHelpFormatter
    words = argparse.ArgumentParser(
        "experiments.fedsso", description=__doc__, formatter_class=plain
    )
    words.add_argument("--quick", action="store_true", help="tiny, on digits")
    words.add_argument("--only", nargs="+", choices=list(CHECKS), default=list(CHECKS))
    words.add_argument("--seeds", type=int, help="how many runs are averaged")
    words.add_argument("--again", action="store_true", help="forget the stored runs")
    words.add_argument("--out", type=Path, help="where results go")
    given = words.parse_args(arguments)
    setting = QUICK if given.quick else Setting()
    if given.seeds is not None:
        setting = dataclasses.replace(setting, seeds=tuple(range(given.seeds)))
    out = given.out or (Path("fedmin-fedsso-quick") if given.quick else RESULTS)
    if given.quick:
        print("quick: digits and few rounds, to see that it runs; no verdict on the paper")
    print("id | paper | ours | verdict | reason")
    check(given.only, setting, out, given.again)
    print(f"\nnumbers and figures: {out}")
