"""Fuzzers, a quick number of each: nothing ends in a traceback, hangs or means something else.

A million on demand: `python -m tests.fuzz toml --count 1000000`.
"""

import pytest

from fuzz.campaign import QUICK, Target, case_of, some, target, tried


@pytest.mark.parametrize("name", QUICK)
def test_no_case_fails(name):
    ended, failures = some(name, 20261118, range(QUICK[name]))
    assert not failures, f"{failures[0].kind}, case {failures[0].number}\n{failures[0].words}"
    assert ended["refused"] > QUICK[name] / 10  # they are changed enough to matter,
    assert ended["accepted"] > 0  # and little enough to reach what is behind the first check


@pytest.mark.parametrize("name", QUICK)
def test_a_case_is_made_from_its_number(name):
    chosen = target(name)
    shown = [chosen.show(case_of(chosen, name, 1, k)) for k in (0, 1, 0)]
    assert shown[0] == shown[2] != shown[1]


def test_a_failure_is_noticed_and_reduced():
    def attempt(text):
        if "needle" in text:
            raise KeyError("needle")
        return "accepted"

    fails = Target(lambda rng: "", attempt, target("toml").reduce, str)
    assert tried(fails, "hay")[0] == "accepted"
    how, kind, words = tried(fails, "hay\nhay needle hay\nhay")
    assert how == "failed"
    assert kind.startswith("KeyError at test_fuzz.py")
    assert "Traceback" in words
    same = lambda text: tried(fails, text)[1] == kind
    assert fails.reduce("hay\nhay needle hay\nhay", same) == "needle"
