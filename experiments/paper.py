"""What the experiments share: a claim, a book of runs, and a paper whose claims can be checked."""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax

import fedmin.reports


class Claim(NamedTuple):
    """One line of the table, and the numbers behind it."""

    id: str
    paper: str
    ours: str
    tolerance: str  # what has to be so that it holds
    verdict: str  # of `judge`, or "measured" where the paper claims nothing
    reason: str
    numbers: dict[str, Any]

    def __str__(self) -> str:
        return " | ".join(self[:6])


def judge(parts: list[bool]) -> str:
    """All parts, some, or none."""
    return "holds" if all(parts) else "holds in part" if any(parts) else "does not hold"


@contextmanager
def compiled_quickly(when: bool) -> Iterator[None]:
    """Without most of the compiler's optimizations: of a tiny run compiling is nearly all."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", when or before)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def measured(command: str) -> dict[str, Any]:
    """When, by what and with what versions a result was made."""
    versions = {k: v for k, v in fedmin.reports.versions().items() if k != "platform"}
    return {"date": time.strftime("%Y-%m-%d"), "command": command, "versions": versions}


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


def whole(results: Iterable[Any]) -> list[Any]:
    """Results of runs that came to their end; half a run must not get into a book."""
    results = list(results)
    if any(result.status == "interrupted" for result in results):
        raise KeyboardInterrupt
    return results


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
            with compiled_quickly(setting is self.quick):
                claim = self.checks[name](book, setting)
            made = measured(self.command(name, setting))
            said = {**claim._asdict(), "setting": asdict(setting), "measured": made}
            (out / f"{name}.json").write_text(json.dumps(said, indent=1) + "\n", "utf-8")
            self.draw(claim, book, setting, out)
            say(str(claim))
            found.append(claim)
        return found

    def command(self, name: str, setting: Any) -> str:
        """What checks a claim in this setting."""
        words = f"python -m experiments.{self.name} --only {name}"
        if setting is self.quick:
            return f"{words} --quick"
        tables, seeds = getattr(setting, "tables", None), getattr(setting, "seeds", None)
        if tables != getattr(self.setting, "tables", None):
            words += f" --tables {' '.join(tables)}"
        if seeds != getattr(self.setting, "seeds", None):
            words += f" --seeds {len(seeds)}"
        return words

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
        print(" | ".join(Claim._fields[:6]), flush=True)
        self.check(given.only, setting, out, given.again, lambda said: print(said, flush=True))
        print(f"\nnumbers and figures: {out}")
