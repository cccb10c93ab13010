"""Which tests look at a changed line? They come first, and within a limit of time no others.

Tests are found by words: those that name the function around the change, its class, what else is in
its file, or a method that uses it. Rare words count more than common ones. Tests of every method
(`test_common.py`) name none: they are taken by the names of their cases. First of all come the
examples in the docstrings of the file.
"""

import ast
import functools
import math
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "fedmin"
LONG = (  # of a minute or more, with processes of their own: after all others
    "test_killed_at_any_moment_it_ends_the_same", "test_claims_of_a_paper",
    "test_scikit_learns_own_checks",
)  # fmt: skip
FILES = 5  # files of tests that are looked through
OF_CASES = ("test_common.py", "test_oracles.py", "test_sessions.py")
ENGINES = {"scaffold", "fedavg"}  # cases that stand for all where an engine was changed
AROUND = 3.0  # how much more the function around a change counts than others of its file
OWN = 20.0  # for the file of tests that has the file's name
ROOM = 8.0  # for those of its room
OF_ROOMS = {  # tests that go through a room without naming what is in it
    "engines": ("engines", "runs"),
    "engines/simulator": ("engines", "participation", "checkpoint"),
    "engines/sessions": ("sessions", "presence", "protocol", "checkpoint", "damage"),
    "engines/transports": ("processes", "engines"),
    "engines/transports/grpc": ("grpc", "deploy"),
    "domains": ("domains", "domains_sparse", "fedfw"),
    "server": ("fedsso", "ssca"),
    "channels": ("channels", "protocol", "pairs"),
    "channels/secure": ("secure_sum",),
    "channels/homomorphic": ("homomorphic",),
    "methods": ("rivals", "bad_input", "bounds"),
}
EXAMPLES = "tests/test_docs.py::test_docstring_examples_run"


class Near(NamedTuple):
    """What the tests of a change are chosen by; plain data."""

    files: dict[str, float]  # of tests, and how near each is
    words: dict[str, float]  # names, and how much each counts
    cases: list[str]  # beginnings of the names of cases
    examples: str = ""  # the module, if its docstrings have any


def near(file: str, line: int) -> Near:
    """Where to look for tests of this line of a file below src/fedmin."""
    words, cases = _words(file, line), sorted(_methods(file))
    scores = {
        name: max(map(functools.partial(_score, words), _pieces(text)), default=0.0)
        for name, text in _tests().items()
    }
    *rooms, last = Path(file).with_suffix("").parts
    for part, weight in (*((room, 1.0) for room in rooms), (last, OWN)):
        if f"tests/test_{part}.py" in scores:
            scores[f"tests/test_{part}.py"] += weight
    room = "/".join(rooms)
    beside = [f"tests/test_{name}.py" for name in OF_ROOMS.get(room, ())]
    for name in beside:
        scores[name] += ROOM
    files = [name for name in sorted(scores, key=scores.__getitem__, reverse=True) if scores[name]]
    weight = OWN / 2 if rooms[0] == "methods" else 0.0
    common = {f"tests/{name}": weight for name in OF_CASES} if cases else {}
    chosen = {**common, **{name: scores[name] for name in dict.fromkeys(files[:FILES] + beside)}}
    examples = ""
    if ">>>" in (SOURCE / file).read_text("utf-8"):
        examples = ".".join(["fedmin", *rooms, last]).removesuffix(".__init__")
        chosen = {EXAMPLES: math.inf, **chosen}
    return Near(chosen, words, cases, examples)


@functools.cache
def _tests() -> dict[str, str]:
    paths = sorted((ROOT / "tests").glob("test_*.py"))
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in paths}


def _pieces(text: str) -> Iterator[str]:
    """The text of each test, with its name and parameters."""
    return (piece for piece in re.split(r"\n(?=@pytest|def test_)", text) if "def test_" in piece)


def _score(words: dict[str, float], text: str) -> float:
    found = set(re.findall(r"\w+", text))
    return sum(weight for word, weight in words.items() if word in found)


def _words(file: str, line: int) -> dict[str, float]:
    """Names around the line and in its file, by how much they tell."""
    tree = ast.parse((SOURCE / file).read_text("utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef)
    top = [node for node in tree.body if isinstance(node, kinds)]
    around = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, kinds) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    named = {Path(file).stem: 1.0, **{node.name: 1.0 for node in top}}
    named |= dict.fromkeys(around, AROUND)
    counted = Counter(w for text in _tests().values() for w in set(re.findall(r"\w+", text)))
    rare = {word: math.log((len(_tests()) + 1) / (1 + counted[word])) for word in named}
    return {w: weight * rare[w] for w, weight in named.items() if counted[w] and rare[w] > 0.1}


def _methods(file: str) -> set[str]:
    """The methods that a file is, or is used by: its cases are theirs."""
    room, stem = Path(file).parts[0], Path(file).stem
    if room == "privacy":
        return set()
    if room == "methods":
        return {stem}
    if room == "engines":
        return ENGINES
    tree = ast.parse((SOURCE / file).read_text("utf-8"))
    names = {n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)} | {stem}
    word = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    methods = sorted((SOURCE / "methods").glob("[a-z]*.py"))
    return {path.stem for path in methods if word.search(path.read_text("utf-8"))}


class Nearest:
    """A plugin of pytest: the nearest tests first, and none after a limit of processor time."""

    def __init__(self, chosen: Near, seconds: float):
        self.chosen, self.seconds = chosen, seconds
        self.begin, self.count, self.failed = time.process_time(), 0, ""

    def score(self, item: Any) -> float:
        """How near a test is; less than 0 is not at all."""
        inside = re.search(r"\[(.*)\]", item.name)
        case = inside[1].lower() if inside else ""
        name = Path(str(item.path)).name
        if self.chosen.examples and item.name == EXAMPLES.rpartition("::")[2]:
            return math.inf
        nearness = self.chosen.files.get(f"tests/{name}", 0.0)
        fits = any(case.startswith(each) or f"-{each}" in case for each in self.chosen.cases)
        if name in OF_CASES and hasattr(item, "callspec") and "case" in item.callspec.params:
            return nearness + AROUND if fits else -1.0
        return nearness + _score(self.chosen.words, _source(item)) + AROUND * fits

    def pytest_collection_modifyitems(self, items: list) -> None:
        scores = {item: self.score(item) for item in items}
        late = lambda item: getattr(item, "originalname", "") in LONG
        items[:] = sorted((i for i in items if scores[i] >= 0), key=lambda i: (late(i), -scores[i]))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.count += 1

    def pytest_runtest_setup(self, item: Any) -> None:
        if time.process_time() - self.begin > self.seconds:
            item.session.shouldstop = "the nearest tests have had their time"


def _source(item: Any) -> str:
    """The words of a test: its text and its parameters."""
    lines = _lines(str(item.path))
    first, *rest = lines.get(getattr(item, "originalname", ""), [item.name])
    return " ".join([first, *rest, item.name])


@functools.cache
def _lines(path: str) -> dict[str, list[str]]:
    found = {}
    for piece in _pieces(Path(path).read_text("utf-8")):
        name = re.search(r"def (test_\w+)", piece)
        if name:
            found[name[1]] = [piece]
    return found
