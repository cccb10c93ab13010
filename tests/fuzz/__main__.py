"""python -m tests.fuzz [NAME] [--count N] [--seed S] [--processes P] [--seconds T] [--case K]"""

import argparse
import math
import sys
from collections import Counter
from pathlib import Path

from ..reliability import keep
from .campaign import QUICK, TARGETS, Failure, Outcome, case_of, many, smallest, target, tried

SHOWN = 20  # kinds of failures that are printed


def main() -> int:
    """Fuzz, and print what failed; 1 if anything did."""
    asked = _arguments()
    if asked.case is not None:
        (name,) = asked.names
        chosen = target(name)
        case = case_of(chosen, name, asked.seed, asked.case)
        print(chosen.show(case), *tried(chosen, case), sep="\n")
        return 0
    failed = False
    for name in asked.names or TARGETS:
        count = asked.count or QUICK[name]
        found = many(name, count, asked.seed, asked.processes, _say, asked.seconds)
        print(found, flush=True)
        failed |= bool(found.failures)
        _print_failures(found)
        if asked.json:
            _keep(asked.json, found)
    return int(failed)


def _say(words: str) -> None:
    print(words, flush=True)


def _arguments() -> argparse.Namespace:
    words = "; ".join(f"{name}: {what}" for name, what in TARGETS.items())
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=words)
    parser.add_argument("names", nargs="*", choices=[*TARGETS, []], help="all, if left out")
    parser.add_argument("--count", type=int, help="cases of each; a quick number if left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no more after these")
    parser.add_argument("--case", type=int, help="show and try one case again")
    parser.add_argument("--json", type=Path, help="a file to keep the figures in")
    return parser.parse_args()


def _print_failures(found: Outcome) -> None:
    kinds = Counter(failure.kind for failure in found.failures)
    first: dict[str, Failure] = {}
    for failure in found.failures:
        first.setdefault(failure.kind, failure)
    for kind, count in kinds.most_common(SHOWN):
        one = first[kind]
        print(f"\n== {count} x {kind}, such as case {one.number}\n{one.words[-2500:]}")
        if kind != "dead":
            print(f"-- reduced:\n{smallest(found.name, found.seed, one)[:2000]}", flush=True)
    if len(kinds) > SHOWN:
        print(f"\nand {len(kinds) - SHOWN} other kinds")


def _keep(path: Path, found: Outcome) -> None:
    """The figures of the last full run, by target: what docs/reliability.md is made from."""
    figures = {
        "cases": found.count, "seed": found.seed, "seconds": round(found.seconds),
        **dict(sorted(found.ended.items())), "failed": len(found.failures),
    }  # fmt: skip
    keep(found.name, figures, path)


if __name__ == "__main__":
    sys.exit(main())
