"""Check the claims of the Fed-HT paper.

    python -m experiments.fedht                   all, as large as in the paper: hours
    python -m experiments.fedht --only ht-sim1    some
    python -m experiments.fedht --quick           all, tiny: shows that everything runs
    python -m experiments.fedht --again           forget the runs that are stored

Runs are kept in results/runs.json as they end, and taken from there the next time.
"""

import argparse
import dataclasses
import json
from pathlib import Path

from experiments.fedht import figures
from experiments.fedht.claims import CHECKS, Claim
from experiments.fedht.runs import Book
from experiments.fedht.setting import QUICK, Setting

RESULTS = Path(__file__).parent / "results"


def check(names, setting: Setting, out: Path, again: bool = False, say=print) -> list[Claim]:
    """Check the named claims, write their numbers and figures into `out`, say a line each."""
    out.mkdir(parents=True, exist_ok=True)
    book = Book(setting.make, out / "runs.json", say=say)
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
    words = argparse.ArgumentParser("experiments.fedht", description=__doc__, formatter_class=plain)
    words.add_argument("--quick", action="store_true", help="tiny")
    words.add_argument("--only", nargs="+", choices=list(CHECKS), default=list(CHECKS))
    words.add_argument("--again", action="store_true", help="forget the stored runs")
    words.add_argument("--out", type=Path, help="where results go")
    given = words.parse_args(arguments)
    setting = QUICK if given.quick else Setting()
    out = given.out or (Path("fedmin-fedht-quick") if given.quick else RESULTS)
    if given.quick:
        print("quick: tiny sets and few rounds, to see that it runs; no verdict on the paper")
    print("id | paper | ours | verdict | reason", flush=True)
    check(given.only, setting, out, given.again, lambda words: print(words, flush=True))
    print(f"\nnumbers and figures: {out}")
