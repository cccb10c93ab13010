"""Constrained federated learning: the optimum, the table and its page."""

import json

import numpy as np
import pytest
import scipy.optimize

from experiments.constrained import page, run
from experiments.constrained.worlds import TINY, optimum


def test_the_optimum_is_scipys():
    """By the dual here, by SLSQP on the problem itself there: two labels of breast cancer."""
    federation = TINY.federation()
    z, y = np.asarray(federation.pool.x.values, float), np.asarray(federation.pool.y)
    z = np.hstack([z, np.ones((len(z), 1))])
    losses = lambda x: np.logaddexp(0, z @ x) - y * (z @ x)
    objective = lambda x: losses(x).mean() + TINY.l2 / 2 * x[:-1] @ x[:-1]
    residual = lambda x: 1 / (1 + np.exp(-z @ x)) - y
    found = scipy.optimize.minimize(
        objective, np.zeros(z.shape[1]), method="SLSQP", options={"ftol": 1e-12, "maxiter": 500},
        jac=lambda x: residual(x) @ z / len(y) + TINY.l2 * np.append(x[:-1], 0),
        constraints=[{
            "type": "ineq", "fun": lambda x: 0.05 - losses(x)[y == 0].mean(),
            "jac": lambda x: -residual(x)[y == 0] @ z[y == 0] / (y == 0).sum(),
        }],
    )  # fmt: skip
    assert optimum(TINY, federation) == pytest.approx(found.fun, abs=1e-7)


def test_it_runs_and_goes_on_from_what_is_kept(tmp_path, monkeypatch, capsys):
    """A tiny run of two methods; the second call runs nothing, and the page has a line for each."""
    names = ["SSCA()", "PrimalDualAvg"]
    for _ in range(2):
        runs = run.everything({"tiny": TINY}, names, (0,), tmp_path)
        monkeypatch.setattr(run, "one", None)  # nothing is left to do
    assert [line["method"] for line in runs] == names
    kept = json.loads((tmp_path / "runs.json").read_text("utf-8"))
    assert kept["runs"] == runs
    lines = run.table(runs, {"tiny": TINY})
    assert [line["seeds"] for line in lines] == [1, 1]
    text = page.page(lines)
    assert text.count("\n| `") == 2
    assert TINY.title in text


def test_the_page_is_made_from_the_stored_table():
    lines = json.loads(page.TABLE.read_text("utf-8"))["lines"]
    assert page.PAGE.read_text("utf-8") == page.page(lines)
