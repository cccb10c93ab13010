"""examples/hospitals: three tables, one file, one model; against statsmodels on the pooled rows."""

import runpy
from pathlib import Path

import numpy as np
import pandas
import pytest
import statsmodels.api as sm

from doors import served
from fedmin.privacy import departures
from fedmin.runs.config import Config
from fedmin.runs.folder import run_one
from fedmin.runs.reading import load

HERE = Path(__file__).resolve().parents[1] / "examples" / "hospitals"
NAMES = ("north", "south", "west")


@pytest.fixture(scope="module")
def pooled():
    """Logit by statsmodels on all rows in one place, filled and coded by pandas."""
    table = pandas.concat([pandas.read_csv(HERE / f"{name}.csv") for name in NAMES])
    x = table[["diseases", "limited", "coinsurance"]].copy()
    x["diseases"] = x["diseases"].fillna(x["diseases"].mean())
    health = table["health"].fillna(table["health"].mode()[0])
    for level in ("fair", "good", "poor"):
        x[f"health={level}"] = (health == level).astype(float)
    y = (table["saw_doctor"] == "yes").astype(float)
    return sm.Logit(y.to_numpy(), sm.add_constant(x.to_numpy())).fit(disp=0, tol=1e-12), table


def test_the_files_are_what_make_writes():
    for name, made in runpy.run_path(str(HERE / "make.py"))["tables"]().items():
        assert (HERE / f"{name}.csv").read_text() == made.to_csv(index=False)


def compared(model, pooled, atol):
    fit, table = pooled
    found = np.concatenate([np.ravel(model.intercept), np.ravel(model.coefficients)])
    np.testing.assert_allclose(found, fit.params, atol=atol)
    chances = model.predict_proba(table)[:, 1]
    np.testing.assert_allclose(chances, fit.predict(), atol=atol)


def test_simulated_it_is_the_pooled_fit(pooled, tmp_path):
    (job,) = Config.read(HERE / "run.toml").jobs()
    outcome = run_one(job, tmp_path / "run")
    compared(outcome.result.model, pooled, 1e-5)
    compared(load(outcome.folder).model, pooled, 1e-5)


def test_machines_find_it_too_and_say_what_left(pooled, tmp_path):
    outcome, deployed, _ = served(Config.read(HERE / "run.toml"), tmp_path)
    compared(load(outcome.folder).model, pooled, 1e-5)
    log = departures.read(deployed.site_file("north").parent / "north.log")
    before = [left for left in log if left.when == departures.PREPARING]
    assert sum(left.bytes for left in before) == 1137
    assert len(before) == 8
