"""Which tests look at a changed line? They come first, and within a limit of time no others.

Tests are found by words: those that name the function around the change, its class, what else is in
its file, what is in a file that imports it, or a method that uses it. Rare words count more than
common ones. Tests of every method (`test_common.py`) name none: they are taken by the names of
their cases. Of a test with many parameters the first cases come first, the others after tests that
have not run yet. Where what is refused was changed, tests of refusals come first. First of all come
the examples in the docstrings of the file.
"""

import ast
import functools
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "fedmin"
LONG = (  # of a minute or more, with processes of their own: after all others, if there is time
    "test_killed_at_any_moment_it_ends_the_same", "test_claims_of_a_paper",
    "test_scikit_learns_own_checks",
)  # fmt: skip
MINUTES = 120.0  # seconds: a limit from which on the long ones are run at all
FILES = 8  # files of tests that are looked through
OF_CASES = ("test_common.py", "test_oracles.py", "test_sessions.py")
ENGINES = {"scaffold", "fedavg"}  # cases that stand for all where an engine was changed
AROUND = 3.0  # how much more the function around a change counts than others of its file
OWN = 20.0  # for the file of tests that has the file's name
ROOM = 8.0  # for those of its room
USING = 0.5  # how much names count in a file that imports the changed one, and that file's tests
AGAIN = 1.5  # how much less each further case of one test counts
REFUSING = 8.0  # for tests of refusals, where a refusal was changed
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
        name: max((_sum(words, found) for found in pieces), default=0.0)
        for name, pieces in _sets().items()
    }
    *rooms, last = Path(file).with_suffix("").parts
    for part, weight in (*((room, 1.0) for room in rooms), (last, OWN)):
        if f"tests/test_{part}.py" in scores:
            scores[f"tests/test_{part}.py"] += weight
    for user in _users(file):
        if f"tests/test_{Path(user).stem}.py" in scores:
            scores[f"tests/test_{Path(user).stem}.py"] += USING * OWN
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


@functools.cache
def _sets() -> dict[str, list[set[str]]]:
    """The words of every test of every file of tests."""
    split = lambda text: [set(re.findall(r"\w+", piece)) for piece in _pieces(text)]
    return {name: split(text) for name, text in _tests().items()}


@functools.cache
def _counted() -> Counter:
    """In how many files of tests a word is."""
    return Counter(w for text in _tests().values() for w in set(re.findall(r"\w+", text)))


def _score(words: dict[str, float], text: str) -> float:
    return _sum(words, set(re.findall(r"\w+", text)))


def _sum(words: dict[str, float], found: set[str]) -> float:
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
    named = {name: USING for user in _users(file) for name in _tops(user)}
    named |= {Path(file).stem: 1.0, **{node.name: 1.0 for node in top}}
    named |= dict.fromkeys(around, AROUND)
    counted = _counted()
    rare = {word: math.log((len(_tests()) + 1) / (1 + counted[word])) for word in named}
    found = {w: weight * rare[w] for w, weight in named.items() if counted[w] and rare[w] > 0.1}
    refuses = any(
        isinstance(node, ast.If)
        and node.lineno <= line <= (node.test.end_lineno or 0)
        and any(isinstance(each, ast.Raise) for each in node.body)
        for node in ast.walk(tree)
    )
    return {**found, **({"raises": REFUSING} if refuses else {})}


@functools.cache
def _imported() -> dict[str, dict[str, set[str]]]:
    """What each file of the library imports from the library: names, by where from."""
    found: dict[str, dict[str, set[str]]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        given = found.setdefault(str(path.relative_to(SOURCE)), {})
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedmin"):
                names = given.setdefault(str(node.module), set())
                names |= {each.name for each in node.names}
    return found


@functools.cache
def _tops(file: str) -> set[str]:
    """The public names of a file."""
    tree = ast.parse((SOURCE / file).read_text("utf-8"))
    kinds = ast.ClassDef | ast.FunctionDef
    return {n.name for n in tree.body if isinstance(n, kinds) and not n.name.startswith("_")}


@functools.cache
def _users(file: str) -> list[str]:
    """The files that import this one, or something of it through its package."""
    module = ".".join(["fedmin", *Path(file).with_suffix("").parts]).removesuffix(".__init__")
    package, _, stem = module.rpartition(".")
    tops = _tops(file)
    return [
        user
        for user, given in _imported().items()
        if user != file and not user.endswith("__init__.py")
        if given.get(module)
        or stem in given.get(package, set())
        or any(tops & names for of, names in given.items() if package.startswith(of))
    ]


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
        self.begin, self.count, self.failed = _spent(), 0, ""

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
        seen: Counter = Counter()
        for item in sorted(items, key=lambda i: -scores[i]):
            test = str(item.path), item.name.partition("[")[0]
            if scores[item] > 0:
                scores[item] = max(scores[item] - AGAIN * seen[test], 0.0)
            seen[test] += 1
        fit = [i for i in items if scores[i] >= 0 and (not late(i) or self.seconds >= MINUTES)]
        items[:] = sorted(fit, key=lambda i: (late(i), -scores[i]))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.count += 1

    def pytest_runtest_setup(self, item: Any) -> None:
        if _spent() - self.begin > self.seconds:
            item.session.shouldstop = "the nearest tests have had their time"


def _spent() -> float:
    """Processor time of this process, and of those it has started that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


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
