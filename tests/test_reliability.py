"""The page of promises is what was measured, and its tests are there."""

import json
import re
import subprocess
from pathlib import Path

import pytest

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


def test_where_figures_have_landed_is_in_the_history():
    """Not where there is no history, or only its end."""
    whole = ["git", "rev-parse", "--is-shallow-repository"]
    if subprocess.run(whole, cwd=TESTS, capture_output=True, check=False).stdout != b"false\n":
        pytest.skip("no whole history here")
    known = json.loads(reliability.FIGURES.read_text("utf-8"))
    path = reliability.FIGURES.relative_to(reliability.ROOT)
    places = {figures["landed"] for figures in known.values() if "landed" in figures}
    assert places
    for place in places:
        assert reliability.in_history(place)
        told = ["git", "show", f"{place}:{path}"]
        then = json.loads(subprocess.run(told, cwd=TESTS, capture_output=True, check=True).stdout)
        for key, figures in known.items():
            if figures.get("landed") == place:
                assert reliability.bare(figures) == reliability.bare(then[key]), key


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
