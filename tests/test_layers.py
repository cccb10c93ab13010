"""The law of imports: core -> catalogues -> methods -> engines -> minimizing -> ... -> cli."""

import ast
from pathlib import Path

import pytest

from fedmin.methods import METHODS

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "fedmin"
ROOMS = [
    ["core"],
    ["problems", "domains", "client", "server", "channels"],
    ["privacy", "methods"],
    ["engines"],
    ["assembling", "judging"],
    ["minimizing"],
    ["data"],
    ["fedmin"],  # the public names
    ["reports", "sklearn"],
    ["runs"],
    ["cli"],
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
# nobody below knows these: a problem does not know a client's work, a channel no server's solver
STRANGERS = {("privacy", room) for room in ("problems", "domains", "client", "server")} | {
    ("methods", room) for room in ("problems", "domains", "channels")
}
# each noun imports only those before it
NOUNS = [
    "environment", "files", "kept", "checks", "groups", "serialize", "matrix", "payload", "rows",
    "release", "private", "domain", "choices", "schedule", "roster", "holdings", "curves", "given",
    "preparation", "raw_rows", "layers",
    "federation", "problem", "wrapped", "fitting", "column_problem", "method", "protocol",
    "channel", "participation", "ledger",
    "metrics", "prediction_metrics", "metrics_by", "stopping", "measured", "kkt", "certificate",
    "constants",
    "privacy", "result_files", "model_origin", "inference", "model_files", "model_table",
    "model_parts", "statistics", "onnx_graph", "estimator", "model", "result",
]  # fmt: skip
FILES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "fedmin" if parts == ("__init__",) else parts[0]


def imports(path: Path) -> list[list[str]]:
    """What of fedmin a file imports, also inside functions: the words after "fedmin"."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are written in full"
            found += [[*node.module.split("."), alias.name] for alias in node.names]
    return [words[1:] for words in found if words[0] == "fedmin"]


def rooms(path: Path) -> set[str]:
    """The rooms that a file imports from; a public name is of "fedmin" itself."""
    return {words[0] if words and words[0] in LEVEL else "fedmin" for words in imports(path)}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    me = room(path)
    assert me in LEVEL, f"{me} has no place: give it one in tests/test_layers.py"
    if me == "fedmin":
        return
    for other in rooms(path):
        lower = LEVEL[other] < LEVEL[me] and (me, other) not in STRANGERS
        assert lower or other == me, f"{path.name} ({me}) imports {other}"


def test_nouns_are_in_order():
    there = {p.stem for p in (PACKAGE / "core").glob("*.py")} - {"__init__"}
    assert there == set(NOUNS), "give every noun of core its place in NOUNS"
    for place, noun in enumerate(NOUNS):
        for words in imports(PACKAGE / "core" / f"{noun}.py"):
            other = words[1] if words[0] == "core" else words[0]
            assert other in NOUNS[: place + 1], f"core/{noun}.py imports {other}, a later noun"


def test_few_rooms_and_each_says_what_it_is():
    entries = [p for p in PACKAGE.iterdir() if p.name != "__pycache__"]
    assert len(entries) <= 20
    for path in PACKAGE.rglob("__init__.py"):
        doc = ast.get_docstring(ast.parse(path.read_text("utf-8")))
        assert doc, f"{path.parent.name} does not say what lives there"
        if path.parent.parent == PACKAGE:
            assert "May import:" in doc, f"{path.parent.name} does not say what it may import"
            assert len(doc.splitlines()) <= 14


def test_methods_never_see_an_engine():
    for path in (PACKAGE / "methods").glob("*.py"):
        assert not rooms(path) & {"engines", "minimizing", "fedmin"}, path.name


def test_engines_never_name_a_method():
    names = {m.__name__ for m in METHODS.values()} | {"Adam", "Yogi", "Adagrad"}
    for path in (PACKAGE / "engines").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        used |= {node.value for node in ast.walk(tree)
                 if isinstance(node, ast.Constant) and isinstance(node.value, str)}  # fmt: skip
        keys = set(METHODS) - {"done"}  # which is also the word for how a run ended
        assert not used & (names | keys), path.name
        assert not rooms(path) & {"methods", "problems", "data"}, path.name


def test_the_law_would_notice(tmp_path):
    """The reader of imports sees those inside functions and those through the package."""
    probe = tmp_path / "probe.py"
    probe.write_text(
        "def f():\n    from fedmin.engines import wire\n    from fedmin import FedAvg\n"
    )
    assert rooms(probe) == {"engines", "fedmin"}
    assert ["core", "curves", "draw"] in imports(PACKAGE / "core/result.py")


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
