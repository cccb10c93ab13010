"""Would the tests notice? Small random changes of the library, each against the tests of its file.

    make mutants                                  a few dozen, with the seed in the result
    python tests/mutants.py --count 40 --seed 7   others
    python tests/mutants.py --near                survivors not against all tests
    python tests/mutants.py --near --go-on        go on where it was stopped

A change is one operator, comparison, sign, `not` or constant in one line of a file. Defaults,
assertions and what is only printed are left alone, and so is Flower's app, whose tests have an
environment of their own (make test-flower). The changed file is in a copy of the tree, and a test
that fails there must pass in the same copy without the change. What no test notices is judged by
hand: `judged` in docs/mutants.json says why a change makes no difference that could be seen.
"""

import argparse
import ast
import itertools
import json
import random
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from nearest import ROOT, near
from reliability import commit
from trying import Copy

RESULT = ROOT / "docs" / "mutants.json"
ROOMS = ("methods", "domains", "server", "engines", "channels", "privacy")
OPERATORS = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"), ast.Pow: ("**", "*"), ast.MatMult: ("@", "*"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip


class Change(NamedTuple):
    """These characters of a file, replaced."""

    file: str  # below src/fedmin
    line: int
    begin: int  # in characters from the beginning of the file
    end: int
    old: str
    new: str

    def applied(self, text: str) -> str:
        assert text[self.begin : self.end] == self.old
        return text[: self.begin] + self.new + text[self.end :]


# ---------------------------------------------------------------- what can be changed


def changes(file: str, text: str) -> list[Change]:
    """Every change that this file allows."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines()

    def place(line: int, column: int) -> int:
        """AST columns count bytes."""
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found = []
    for node in _of_interest(ast.parse(text)):
        for at, old, new in _spans(node, text, place):
            line = text.count("\n", 0, at) + 1
            found.append(Change(file, line, at, at + len(old), old, new))
    return found


def _of_interest(node: ast.AST) -> Iterator[ast.AST]:
    """All below but types, defaults, and what is said or asserted: a message, `strict=True`."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
        return
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "defaults", "kw_defaults", "bases"):
            continue
        if isinstance(node, ast.AnnAssign) and name == "value":
            continue  # a field's default
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _of_interest(child)


def _spans(node: ast.AST, text: str, place) -> Iterator[tuple[int, str, str]]:
    """(where it begins, what is there, what it becomes)."""
    begin = place(node.lineno, node.col_offset) if hasattr(node, "lineno") else 0

    def between(left, right, op):
        old, new = OPERATORS.get(type(op), ("", ""))
        a = place(left.end_lineno, left.end_col_offset)
        gap = text[a : place(right.lineno, right.col_offset)]
        if old and (at := re.search(rf"(?<!\w){re.escape(old)}(?!\w)", gap)) and "#" not in gap:
            yield a + at.start(), old, new

    if isinstance(node, ast.BinOp):
        yield from between(node.left, node.right, node.op)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from between(node.left, node.comparators[0], node.ops[0])
    elif isinstance(node, ast.BoolOp):
        yield from between(node.values[0], node.values[1], node.op)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield begin, "-", "+"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield begin, "not ", ""
    elif isinstance(node, ast.Constant) and not isinstance(node.value, str | bytes):
        old = text[begin : place(node.end_lineno, node.end_col_offset)]
        for new in _constants(node.value):
            yield begin, old, new


def _constants(value: object) -> list[str]:
    """What a number or a flag becomes."""
    if isinstance(value, bool):
        return [str(not value)]
    if isinstance(value, int):
        return [str(value + 1)]
    return [repr(10 * value if value else 1.0)] if isinstance(value, float) else []


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


# ---------------------------------------------------------------- some of them


def sample(count: int, seed: int, only: str = "") -> list[Change]:
    """Changes drawn at random, each file's in proportion to how many it allows."""
    base, found = ROOT / "src" / "fedmin", []
    for room in ROOMS:
        for path in sorted((base / room).rglob("*.py")):
            if re.search(only, file := str(path.relative_to(base))) and "flower" not in file:
                found += changes(file, path.read_text("utf-8"))
    random.Random(seed).shuffle(found)
    whole = (one for one in found if _parses(one.applied((base / one.file).read_text("utf-8"))))
    return list(itertools.islice(whole, count))


def shown(change: Change) -> dict[str, str | int]:
    """A change in words."""
    path = ROOT / "src" / "fedmin" / change.file
    text = path.read_text("utf-8")
    after = change.applied(text).splitlines()[change.line - 1].strip()
    before = text.splitlines()[change.line - 1].strip()
    return {"file": change.file, "line": change.line, "before": before, "after": after}


def found_again(line: dict[str, Any]) -> Change | None:
    """The change that a line of an earlier result tells of, if the library still has its place."""
    path = ROOT / "src" / "fedmin" / line["file"]
    if not path.exists():
        return None
    same = lambda one: all(shown(one)[key] == line[key] for key in ("before", "after"))
    found = filter(same, changes(line["file"], path.read_text("utf-8")))
    return min(found, key=lambda one: abs(one.line - line["line"]), default=None)


def main() -> None:
    words = argparse.ArgumentParser("tests/mutants.py", description=__doc__.splitlines()[0])
    words.add_argument("--count", type=int, default=36)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--seconds", type=float, default=120, help="of processor time for a change")
    words.add_argument("--only", default="", help="files whose path has this pattern")
    words.add_argument("--near", action="store_true", help="survivors not against all tests")
    words.add_argument("--again", action="store_true", help="those of --out that were not noticed")
    words.add_argument("--go-on", action="store_true", help="with those that --out has not yet")
    words.add_argument("--also", nargs="*", default=[], help="with --again: files of tests")
    words.add_argument("--out", type=Path, default=RESULT)
    asked = words.parse_args()
    before = json.loads(asked.out.read_text("utf-8")) if asked.out.exists() else {}
    where = asked.only.replace("|", ", ") or ", ".join(ROOMS)  # a bar would end a table's cell
    against = f"the nearest tests, {asked.seconds:g} s each" if asked.near else "all tests"
    head = {"where": where, "against": against}
    lines, chosen = [], sample(asked.count, asked.seed, asked.only)
    if asked.again or asked.go_on:
        lines = before.get("changes", [])
    if asked.again:
        # the first figure is of tests that had not seen these changes; the later one is not
        head = {key: before[key] for key in ("where", "against")}
        head["at first"] = before.get("at first", f"{before['noticed']} of {before['that count']}")
        asked.seed = before["seed"]
        left = [x for x in lines if x["outcome"] != "noticed" and re.search(asked.only, x["file"])]
        again = [(x, found_again(x)) for x in left if judged_as(x) not in before.get("judged", {})]
        for x in (x for x, change in again if change is None):
            print(f"no longer there: {judged_as(x)}")
        for x, change in again:
            x["line"] = change.line if change else x["line"]
        chosen = [change for _, change in again if change is not None]
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder), asked.seconds)
        # all of it is read now: the checkout may move on while its copy is tried
        read = [(each, shown(each), near(each.file, each.line)) for each in chosen]
        for change, words_of, close in read:
            same = [x for x in lines if words_of.items() <= x.items()]
            if same and (asked.go_on or same[0]["outcome"] == "noticed"):
                continue
            outcome, by, count = copy.tried(change, close, asked.also)
            if outcome == "not noticed" and not asked.near and not asked.again:
                copy.seconds, few = 40 * asked.seconds, copy.seconds
                outcome, by, count = copy.tried(change, close, ["tests"])
                copy.seconds = few
            line = {**words_of, "outcome": outcome, "by": by, "tests": count}
            lines = [line if x in same else x for x in lines] if same else [*lines, line]
            print(json.dumps(line), flush=True)
            kept = {**head, **summary(lines, before.get("judged", {}), asked.seed)}
            asked.out.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
        copy.close()
    found = summary(lines, before.get("judged", {}), asked.seed)
    print(f"{found['noticed']} of {found['that count']} noticed", end="; ")
    print("next: python -m tests.reliability page")


def judged_as(line: dict[str, Any]) -> str:
    """What a change is called where its judgement is written down."""
    return f"{line['file']}: {line['after']}"


def summary(lines: list[dict], judged: dict[str, str], seed: int) -> dict:
    """What is written down: equivalent changes do not count, with the reason given by hand."""
    counted = [x for x in lines if judged_as(x) not in judged]
    return {
        "date": time.strftime("%Y-%m-%d"), "commit": commit(), "seed": seed, "tried": len(lines),
        "that count": len(counted), "noticed": sum(x["outcome"] == "noticed" for x in counted),
        "unclear": sum(x["outcome"].startswith("unclear") for x in counted),
        "judged": judged, "changes": lines,
    }  # fmt: skip


if __name__ == "__main__":
    main()
