"""The machinery of experiments/ and examples/, tiny: it runs, and its rules are right."""

import dataclasses
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from experiments.ssca import claims, search
from experiments.ssca.runs import Curve, Spec, World
from experiments.ssca.setting import QUICK
from fedmin import data

ROOT = Path(__file__).resolve().parents[1]


def made(costs, squares=None, status="done", **changes) -> Curve:
    spec = Spec("alg1", 1, 0, 2, 1, (0.4, 0.4, 0.4))._replace(**changes)
    rounds = list(range(len(costs)))
    return Curve(spec, status, 0.0, rounds, costs, squares or costs, costs)


def test_costs_leave_out_the_regularizer(tmp_path):
    """At the start w is the same for both algorithms, and so is F."""
    world = QUICK.world()
    heavy = dataclasses.replace(QUICK, weight=10.0)
    first, second = (heavy.spec(name, 1, 0, rounds=1) for name in ("alg1", "alg2"))
    one, two = world.curves([first, second], "start")
    assert one.cost[0] == pytest.approx(two.cost[0], rel=1e-4)
    assert one.square[0] == pytest.approx(two.square[0], rel=1e-4)
    assert one.accuracy[0] == two.accuracy[0]


def test_means_and_levels():
    curves = [made([3.0, 2.0, 1.0]), made([5.0, 2.0, 0.0], seed=1)]
    assert claims.mean(curves).tolist() == [4.0, 2.0, 0.5]
    assert claims.reached(curves, 2.0) == 1
    assert claims.reached(curves, 0.1) == float("inf")
    diverged = [made([1.0], status="diverged")]
    assert diverged[0].end == claims.reached(diverged, 5.0) == float("inf")
    assert search.objective(made([1.0, 2.0], [3.0, 4.0], weight=0.5)) == 4.0


def test_rivals_do_the_same_work():
    assert search.rivals(1) == [(1, 1)]
    assert search.rivals(100) == [(100, 1), (50, 2)]


def test_sizes_are_compared_at_equal_cost():
    second = [{"cost": 0.1, "square": 100.0}, {"cost": 0.3, "square": 50.0}]
    first = [{"cost": c, "square": 150.0} for c in (0.05, 0.2, 0.3, 0.4)]
    assert claims.shrinkage(first, second) == pytest.approx([2.0, 3.0])  # the others have no match


def table(rows: int, seed: int) -> data.Table:
    """Like a9a in what the example needs: 123 columns, one of them the sex."""
    rng = np.random.default_rng(seed)
    x = (rng.random((rows, 123)) < 0.1).astype(np.float32)
    x[:, 72] = rng.random(rows) < 0.67
    y = (x[:, :5].sum(1) + x[:, 72] + rng.normal(0, 0.5, rows) > 1).astype(int)
    return data.Table("made", x, y, classes=2)


@pytest.mark.filterwarnings("ignore:SSCA. the last model exceeds:RuntimeWarning")
def test_the_fairness_example(tmp_path):
    source = importlib.util.spec_from_file_location("fairness", ROOT / "examples/fairness.py")
    fairness = importlib.util.module_from_spec(source)
    source.loader.exec_module(fairness)
    rows = dataclasses.replace(table(400, 0), test=table(100, 1))
    tight = {"women who earn more": 0.5}  # below what the free fit has on these rows
    fairness.CASES["both"] = fairness.CASES["both"]._replace(limits=tight)
    found = fairness.study(rows, ["both"], rounds=20)
    result, lines = found["both"]
    assert sum(line.share for line in lines) == pytest.approx(1)
    assert result.history["constraint"][-1] == pytest.approx(
        lines[0].losses[1] - lines[0].limit, rel=1e-3
    )
    assert lines[0].losses[1] < lines[0].losses[0]
    assert "women who earn more" in fairness.show(found)
    fairness.draw(found, tmp_path / "fairness.png")
    assert (tmp_path / "fairness.png").stat().st_size > 5_000


def test_a_world_without_a_book_keeps_nothing(tmp_path):
    world = World(None, tmp_path / "none.json")
    world.recall()
    assert not world.done


def test_frank_wolfe_claims_by_made_runs(tmp_path, monkeypatch):
    """Every rule over runs that were not run: FedDR at 80 %, ours better by the penalty."""
    from experiments.fedfw import claims as fw
    from experiments.fedfw import leakage
    from experiments.fedfw import run as fw_run
    from experiments.fedfw import runs as fw_runs
    from experiments.fedfw.setting import Setting as FWSetting

    def made_run(world, spec, records):
        end = 0.8 if spec.method == "feddr" else 0.85 - 0.01 * spec.knobs[0]
        losses = [2.0, 1.0 / spec.p, 1 - end]
        gaps = [9.0, spec.knobs[0], 0.1]
        return fw_runs.Curve(spec, "done", 0.1, 8, 8, [0, 1, 2], losses, gaps, [0.1, 0.5, end])

    monkeypatch.setattr(fw_runs.World, "run", made_run)
    setting = FWSetting(tables=("mnist", "synthetic"), penalties=(0.001, 1.0), scales=(1.0,))
    made_up = {"gradient": 40.0, "model": 40.0, "l2": 30.0}

    def made_rebuilt(cell, clients, steps):
        return leakage.Rebuilt(cell, made_up.get(cell.message, 13.0), 13.0, "made", 1.0, 0.1)

    monkeypatch.setattr(leakage, "rebuild", made_rebuilt)
    found = fw_run.PAPER.check(list(fw.CHECKS), setting, tmp_path, say=lambda line: None)
    verdicts = {claim.id: claim.verdict for claim in found}
    assert (
        verdicts["fw-participation"] == verdicts["fw-penalty"] == verdicts["fw-table3"] == "holds"
    )
    assert verdicts["fw-leakage"] == "holds"
    assert verdicts["fw-table1"] == "holds in part"  # ours wins everywhere here, not in the paper
    table = next(claim for claim in found if claim.id == "fw-table1")
    cell = table.numbers["mnist 0-1 iid l2"]
    assert cell["fedfw"]["knobs"] == (0.001,)  # the best of the grid, by the objective
    assert cell["fedfw"]["accuracy"] == pytest.approx(84.999)
    world = fw_runs.World(tmp_path / "runs.json")
    world.recall()
    assert fw.penalty(world, setting) == next(c for c in found if c.id == "fw-penalty")


def test_the_low_rank_example(monkeypatch):
    source = importlib.util.spec_from_file_location("lowrank", ROOT / "examples/lowrank.py")
    lowrank = importlib.util.module_from_spec(source)
    source.loader.exec_module(lowrank)
    monkeypatch.setattr(lowrank, "PARTIES", 3)
    monkeypatch.setattr(lowrank, "ROWS", 8)
    atoms, whole = lowrank.study(6, 5, rounds=8)
    assert (atoms["method"], whole["method"]) == ("FedFW", "FedMid")
    assert whole["loss"] <= atoms["loss"] or whole["rounds"] == 8
    assert "FedMid" in lowrank.show([atoms, whole])
