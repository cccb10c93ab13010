"""What the experiments share: a claim, a book of runs, and a paper whose claims can be checked."""

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple


class Claim(NamedTuple):
    """One line of the table, and the numbers behind it."""

    id: str
    paper: str
    ours: str
    verdict: str  # holds | partly | does not hold | measured (where the paper claims nothing)
    reason: str
    numbers: dict[str, Any]

    def __str__(self) -> str:
        return " | ".join((self.id, self.paper, self.ours, self.verdict, self.reason))


def recalled(path: Path | None, spec: Callable, curve: Callable) -> dict[Any, Any]:
    """The runs that a book has, by their specs."""
    if path is None or not path.exists():
        return {}
    found = {}
    for line in json.loads(path.read_text("utf-8")):
        words = line.pop("spec")
        one = spec(**{k: tuple(v) if isinstance(v, list) else v for k, v in words.items()})
        found[one] = curve(one, **line)
    return found


def kept(path: Path | None, curves: Iterable[Any]) -> None:
    """Write the book, a line a run."""
    if path is not None:
        lines = (json.dumps(asdict(one) | {"spec": one.spec._asdict()}) for one in curves)
        path.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")


@dataclass(frozen=True)
class Paper:
    """A paper's claims, how large they are checked, and where runs are kept."""

    name: str
    words: str  # what the command line says of it
    checks: dict[str, Callable[[Any, Any], Claim]]
    setting: Any
    quick: Any
    book: Callable[[Any, Path, Callable[[str], None]], Any]  # of a setting, in a file
    draw: Callable[[Claim, Any, Any, Path], None] = lambda claim, book, setting, out: None

    @property
    def results(self) -> Path:
        """Where the full results are."""
        return Path(__file__).parent / self.name / "results"

    def check(self, names, setting, out: Path, again: bool = False, say=print) -> list[Claim]:
        """Check the named claims, write numbers and figures into `out`, say a line each."""
        out.mkdir(parents=True, exist_ok=True)
        book = self.book(setting, out / "runs.json", say)
        if not again:
            book.recall()
        found = []
        for name in names:
            claim = self.checks[name](book, setting)
            said = {**claim._asdict(), "setting": asdict(setting)}
            (out / f"{name}.json").write_text(json.dumps(said, indent=1) + "\n", "utf-8")
            self.draw(claim, book, setting, out)
            say(str(claim))
            found.append(claim)
        return found

    def main(self, arguments: list[str] | None = None) -> None:
        """The command line; a setting's tuples of numbers or names can be given as options."""
        words = argparse.ArgumentParser(
            f"experiments.{self.name}", description=self.words,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        words.add_argument("--quick", action="store_true", help="tiny: to see that it runs")
        words.add_argument(
            "--only", nargs="+", choices=list(self.checks), default=list(self.checks)
        )
        words.add_argument("--again", action="store_true", help="forget the stored runs")
        words.add_argument("--out", type=Path, help="where results go")
        fields = {field.name for field in dataclasses.fields(self.setting)}
        if "seeds" in fields:
            words.add_argument("--seeds", type=int, help="how many runs are averaged")
        if "tables" in fields:
            words.add_argument("--tables", nargs="+", help="with some of the data only")
        given = words.parse_args(arguments)
        setting = self.quick if given.quick else self.setting
        if getattr(given, "seeds", None) is not None:
            setting = dataclasses.replace(setting, seeds=tuple(range(given.seeds)))
        if getattr(given, "tables", None):
            setting = dataclasses.replace(setting, tables=tuple(given.tables))
        out = given.out or (Path(f"fedmin-{self.name}-quick") if given.quick else self.results)
        if given.quick:
            print("quick: little data and few rounds, to see that it runs; no verdict on the paper")
        print("id | paper | ours | verdict | reason", flush=True)
        self.check(given.only, setting, out, given.again, lambda said: print(said, flush=True))
        print(f"\nnumbers and figures: {out}")
