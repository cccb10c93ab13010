"""The law of imports: nouns -> catalogues -> engines -> minimize -> what is around them."""

import ast
from pathlib import Path

import pytest

from fedmin.methods import METHODS

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "fedmin"
NOUNS = [
    "devices", "checks", "describe", "matrix", "payload", "rows", "domain", "schedule", "holdings",
    "curves", "federation", "problem", "split", "method", "channel", "participation", "ledger",
    "metrics", "rules", "certificate", "constants", "result",
]  # fmt: skip
CATALOGUES = ["domains", "problems", "local", "inner", "methods", "channels", "data"]
AROUND = [
    "reports", "listing", "demo", "logs", "document", "config", "runs", "compare", "starter",
    "live", "watch", "estimator", "reproduce", "cli",
]  # fmt: skip
LEVEL = {
    **dict.fromkeys(NOUNS, 0),
    **dict.fromkeys(CATALOGUES, 1),
    "engines": 2,
    "minimize": 3,
    **dict.fromkeys(AROUND, 4),
    "fedmin": 3,  # the public names, for what is around
}
# what a catalogue may know of another: methods use local work and inner solvers, that is all
SIDEWAYS = {("methods", "local"), ("methods", "inner")}
# a noun may look back only: these are drawn inside functions, after everything is there
FILES = sorted(PACKAGE.rglob("*.py"))


def layer(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "fedmin" if parts == ("__init__",) else parts[0]


def imports(path: Path, top_only: bool = False) -> set[str]:
    """The layers of fedmin that a file imports, also inside functions."""
    tree = ast.parse(path.read_text("utf-8"))
    found = set()
    for node in ast.iter_child_nodes(tree) if top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are written in full"
            plain = node.module == "fedmin"
            names = [f"fedmin.{a.name}" for a in node.names] if plain else [node.module]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "fedmin":
                known = len(parts) > 1 and parts[1] in LEVEL
                found.add(parts[1] if known else "fedmin")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    me = layer(path)
    assert me in LEVEL, f"{me} has no place: give it one in tests/test_layers.py"
    if me == "fedmin":
        return
    for other in imports(path):
        allowed = (
            LEVEL[other] < LEVEL[me]
            or other == me
            or (LEVEL[me] in (0, 4) and LEVEL[other] == LEVEL[me])
            or (me, other) in SIDEWAYS
        )
        assert allowed, f"{path.name} ({me}) imports {other}"


def test_nouns_do_not_go_in_circles():
    """None imports a later one as it is loaded."""
    order: list[str] = []
    left = {noun: imports(PACKAGE / f"{noun}.py", top_only=True) & set(NOUNS) for noun in NOUNS}
    while left:
        free = [noun for noun, needs in left.items() if needs <= set(order) | {noun}]
        assert free, f"these nouns import each other: {sorted(left)}"
        order += free
        left = {noun: needs for noun, needs in left.items() if noun not in free}
    assert len(order) == len(NOUNS)


def test_methods_never_see_an_engine():
    for path in (PACKAGE / "methods").glob("*.py"):
        assert not imports(path) & {"engines", "minimize", "fedmin"}, path.name


def test_engines_never_name_a_method():
    names = {m.__name__ for m in METHODS.values()} | {"Adam", "Yogi", "Adagrad"}
    for path in (PACKAGE / "engines").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        used |= {node.value for node in ast.walk(tree)
                 if isinstance(node, ast.Constant) and isinstance(node.value, str)}  # fmt: skip
        keys = set(METHODS) - {"done"}  # which is also the word for how a run ended
        assert not used & (names | keys), path.name
        assert not imports(path) & {"methods", "problems", "data"}, path.name


def test_the_law_would_notice():
    """The reader of imports sees those inside functions and those through the package."""
    source = "def f():\n    from fedmin.engines import wire\n    from fedmin import data, FedAvg\n"
    probe = PACKAGE / "problem.py"
    tree = ast.parse(source)
    assert any(isinstance(n, ast.ImportFrom) for n in ast.walk(tree))
    assert "rows" in imports(probe)
    assert "curves" in imports(PACKAGE / "result.py")
    assert "curves" not in imports(PACKAGE / "result.py", top_only=True)


def test_files_and_functions_stay_small():
    """STYLE.md: no file much over 300 lines, no function much over 40."""
    for path in FILES:
        text = path.read_text("utf-8")
        assert len(text.splitlines()) <= 330, path.name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
                assert lines <= 60, f"{path.name}: {node.name} has {lines} lines"
