"""The page of promises is what was measured, and its tests are there."""

import json
import re
from pathlib import Path

import reliability

TESTS = Path(__file__).resolve().parent


def test_the_page_is_made_from_the_figures():
    assert reliability.PAGE.read_text("utf-8") == reliability.page()


def test_every_promise_names_tests_that_are_there():
    for promise in reliability.PROMISES:
        files = re.findall(r"\w+\.py", promise.tests)
        texts = "".join((TESTS / name).read_text("utf-8") for name in files)
        for name in re.findall(r"\btest_\w+\b(?!\.py)", promise.tests):
            assert f"def {name}(" in texts, f"{promise.tests}: there is no {name}"


def test_what_is_measured_is_on_the_page(monkeypatch, tmp_path):
    for name in ("FIGURES", "MUTANTS", "PAGE"):
        monkeypatch.setattr(reliability, name, tmp_path / name)
    assert reliability.page().count("**not measured yet**") == len(reliability.PROMISES) - 1
    reliability.keep("wire", {"cases": 10**6, "refused": 10**6, "failed": 0})
    words = (
        r"1,000,000 cases: 1,000,000 refused, 0 accepted, \*\*0 failed\*\* "
        r"\| \d{4}-\d\d-\d\d(, `\w+\+?`)? \|"
    )
    assert re.search(words, reliability.PAGE.read_text("utf-8"))
    figures = {"tried": 9, "that count": 8, "noticed": 7, "date": "2026-11-18", "seed": 0}
    rest = {"where": "all rooms", "against": "all tests", "changes": []}
    (tmp_path / "MUTANTS").write_text(json.dumps(figures | rest), "utf-8")
    assert "8 of them not equivalent: **7 noticed** | 2026-11-18 |" in reliability.page()
