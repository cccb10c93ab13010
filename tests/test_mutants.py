"""The changes that `make mutants` tries: each one is one, and none is of what is only said."""

import ast
import textwrap

import mutants
from nearest import EXAMPLES, Near, Nearest, near
from nearest import SOURCE as LIBRARY

SOURCE = textwrap.dedent('''
    """A docstring - with 1 sign."""

    LIMIT = 3

    class Thing(Base):
        size: int = 4  # a default
        on = True

        def near(self, x: int | None = 5, *, tolerance=1e-6) -> int | None:
            """Is 1 < 2?"""
            if not x or (x
                    <= -0.5 * tolerance):
                raise ValueError(f"x must be {1 + 1}, got {x - 1}")
            é = "ü"; list(zip(x, x, strict=True)); return (x - LIMIT) if x is None else x
''')


def made() -> set[tuple[str, str]]:
    return {(c.old, c.new) for c in mutants.changes("thing.py", SOURCE)}


def test_operators_signs_comparisons_and_constants_are_changed():
    assert made() == {
        ("3", "4"), ("True", "False"), ("not ", ""), ("or", "and"), ("<=", "<"), ("-", "+"),
        ("0.5", "5.0"), ("*", "/"), ("is", "is not"),
    }  # fmt: skip


def test_a_change_is_one_change_at_its_line():
    tree = ast.dump(ast.parse(SOURCE))
    for change in mutants.changes("thing.py", SOURCE):
        changed = change.applied(SOURCE)
        assert ast.dump(ast.parse(changed)) != tree
        different = [
            number
            for number, lines in enumerate(
                zip(SOURCE.splitlines(), changed.splitlines(), strict=True), start=1
            )
            if lines[0] != lines[1]
        ]
        assert different == [change.line]


def test_the_sample_is_the_seeds():
    assert mutants.sample(5, seed=3) == mutants.sample(5, seed=3) != mutants.sample(5, seed=4)
    for change in mutants.sample(5, seed=3):
        assert near(change.file, change.line).files
        shown = mutants.shown(change)
        assert shown["before"] != shown["after"]


def test_a_change_is_found_again_where_its_line_has_moved_to():
    """A line that stands twice in its file is the nearer one; any other is found from anywhere."""
    drawn = {one: mutants.shown(one) for one in mutants.sample(20, seed=3)}
    for change, words in drawn.items():
        assert mutants.found_again({**words, "line": change.line}).line == change.line
        found = mutants.found_again({**words, "line": 1})
        assert mutants.shown(found)["before"] == words["before"]
        assert found.line <= change.line
    assert any(mutants.found_again({**words, "line": 1}) == one for one, words in drawn.items())
    words = drawn[next(iter(drawn))]
    assert mutants.found_again({**words, "before": "gone"}) is None


def test_what_is_equivalent_does_not_count():
    lines = [
        {"file": "a.py", "after": "x", "outcome": "noticed"},
        {"file": "a.py", "after": "y", "outcome": "not noticed"},
        {"file": "a.py", "after": "z", "outcome": "not noticed"},
    ]
    found = mutants.summary(lines, {"a.py: y": "the same"}, seed=0)
    assert (found["tried"], found["that count"], found["noticed"]) == (3, 2, 1)


def line_of(file: str, words: str) -> int:
    return 1 + (LIBRARY / file).read_text("utf-8").split(words)[0].count("\n")


def test_the_nearest_tests_come_first():
    """Those with the file's name, those that name the function, and the cases of a method."""
    for file, words, wanted in (
        ("server/qcqp.py", "def _search", "tests/test_qcqp.py"),
        ("engines/sessions/wire.py", "def decode", "tests/test_wire.py"),
        ("engines/transports/grpc/listener.py", "def _listen", "tests/test_grpc.py"),
        ("privacy/departures.py", "def totals", "tests/test_departures.py"),
    ):
        files = near(file, line_of(file, words)).files
        assert max(files.keys() - {EXAMPLES}, key=files.__getitem__) == wanted
    lbfgs = near("server/quasi_newton/lbfgs.py", 1)
    assert (next(iter(lbfgs.files)), lbfgs.examples) == (
        EXAMPLES, "fedmin.server.quasi_newton.lbfgs",
    )  # fmt: skip
    assert not near("engines/drive.py", 1).examples
    found = near("methods/scaffold.py", 1)
    assert found.cases == ["scaffold"]
    assert {"tests/test_common.py", "tests/test_oracles.py"} <= set(found.files)


def test_other_methods_cases_are_left_out():
    class Item:
        path = "tests/test_common.py"
        originalname = "test_any"

        def __init__(self, case):
            self.name = f"test_any[{case}]"
            self.callspec = type("Spec", (), {"params": {"case": case}})

    plugin = Nearest(Near({"tests/test_common.py": 1.0}, {}, ["fedsso"]), seconds=1.0)
    items = [Item("fedavg"), Item("fedsso_lbfgs"), Item("scaffold")]
    plugin.pytest_collection_modifyitems(items)
    assert [item.name for item in items] == ["test_any[fedsso_lbfgs]"]
