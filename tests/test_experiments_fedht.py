"""The machinery of experiments/fedht, tiny: it runs, keeps what it ran, and its rules are right."""

import dataclasses
import json

import numpy as np
import pytest

from experiments.fedht import claims, run, worlds
from experiments.fedht.runs import Book, Curve, Spec
from experiments.fedht.setting import QUICK

pytestmark = pytest.mark.usefixtures("quick_to_compile")
TINY = dataclasses.replace(QUICK, alphas=(0.1,), steps=(0.01,), local=(2,), one_rounds=4)


def curve(objective, status="done", method="fedht", sent=1.0) -> Curve:
    spec = Spec("sim1-0.1", method, 3, 0.1, len(objective) - 1, 1, 0, 0)
    rounds = list(range(len(objective)))
    return Curve(spec, status, 0.0, rounds, objective, [sent * t for t in rounds], None)


def test_a_claim_runs_and_is_kept(tmp_path):
    said = []
    (claim,) = run.PAPER.check(["ht-sim1"], TINY, tmp_path, say=said.append)
    assert said[-1].count(" | ") == 5
    assert json.loads((tmp_path / "ht-sim1.json").read_text())["verdict"] == claim.verdict
    assert (tmp_path / "sim1-0.1.png").stat().st_size > 10_000
    again = Book(TINY.make, tmp_path / "runs.json")
    again.recall()
    before = dict(again.done)
    assert {spec.method for spec in before} == {*claims.PAPERS, "distributediht", "sparsenewton"}
    assert claims.simulation_one(again, TINY) == claim
    assert again.done == before
    ends = [one.objective[0] for one in before.values()]
    assert np.ptp(ends) < 1e-5 * ends[0]  # all begin at 0, with the same objective


def test_rounds_to_a_level():
    slow, fast = curve([9.0, 5.0, 4.0, 3.0], method="distributediht"), curve([9.0, 3.0, 2.0, 1.0])
    lost = curve([9.0, np.inf], status="diverged")
    found = claims.speeds({"distributediht": slow, "fedht": fast, "fediterht": lost})
    assert [found[m]["rounds"] for m in found] == [3, 1, np.inf]
    assert [found[m]["megabytes"] for m in found] == [3.0, 1.0, None]
    assert lost.end == np.inf


def test_verdicts():
    assert claims.judge([True, True]) == "holds"
    assert claims.judge([True, False]) == "holds in part"
    assert claims.judge([False]) == "does not hold"


def test_each_client_has_two_clusters():
    clusters = np.repeat(np.arange(10), 40)
    parts = worlds.two_parts_each(clusters, 20, seed=0)
    assert len(parts) == 100
    assert {len(np.unique(clusters[part])) for part in parts} == {2}
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(400))
