"""The page of promises is what was measured, and its tests are there."""

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


def test_figures_without_a_form_are_shown_by_name(monkeypatch, tmp_path):
    monkeypatch.setattr(reliability, "FIGURES", tmp_path / "figures.json")
    monkeypatch.setattr(reliability, "PAGE", tmp_path / "page.md")
    assert "**not measured yet**" in reliability.page()
    reliability.keep("mutants", {"tried": 40, "noticed": 39})
    assert re.search(r"noticed 39, tried 40 \| \d{4}-\d\d-\d\d \|", reliability.PAGE.read_text())
