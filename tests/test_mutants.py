"""The changes that `make mutants` tries: each one is one, and none is of what is only said."""

import ast
import textwrap

import mutants

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
            é = "ü"; return (x - LIMIT) if x is None else x
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
        assert mutants.tests_of(change.file)
        shown = mutants.shown(change)
        assert shown["before"] != shown["after"]


def test_what_is_equivalent_does_not_count():
    lines = [
        {"file": "a.py", "after": "x", "outcome": "noticed"},
        {"file": "a.py", "after": "y", "outcome": "not noticed"},
        {"file": "a.py", "after": "z", "outcome": "not noticed"},
    ]
    found = mutants.summary(lines, {"a.py: y": "the same"}, seed=0)
    assert (found["tried"], found["that count"], found["noticed"]) == (3, 2, 1)
