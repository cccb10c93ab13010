"""Names of features: wherever a table knows them, its models, reports and machines say them."""

import json

import numpy as np
import pytest
from scipy import sparse
from typer.testing import CliRunner

import fedmin
from doors import served
from fedmin import Model, data
from fedmin.cli.app import app
from fedmin.data import Table
from fedmin.runs.config import Config
from fedmin.runs.folder import run_one
from fedmin.runs.own_rows import named_columns
from fedmin.runs.reading import load

NAMED = """
[data]
name = "diabetes"
standardize = true
[partition]
name = "iid"
clients = 3
[problem]
name = "leastsquares"
bias = true
[method]
name = "fednl"
[run]
rounds = 3
"""
DIABETES = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")
SAID = "standardized by all rows of the table"


def test_a_named_table_gives_its_names_to_the_model_also_standardized(tmp_path):
    (job,) = Config(NAMED).jobs()
    outcome = run_one(job, tmp_path / "run")
    model = outcome.result.model
    assert model.features == model.inputs == DIABETES
    assert model.about.scaled == SAID
    said = CliRunner().invoke(app, ["explain", str(outcome.folder)]).output
    assert all(name in said for name in DIABETES)
    assert f"columns: {SAID}" in said
    words = json.loads((outcome.folder / "model.json").read_text("utf-8"))
    assert list(words["coefficients"]["y"]["features"]) == list(DIABETES)
    again = Model.load(outcome.folder)
    assert (again.about.names, again.about.scaled) == (DIABETES, SAID)
    table = data.load("diabetes").standardized()
    columns = dict(zip(DIABETES, table.x.T.tolist(), strict=True))
    shuffled = {name: columns[name] for name in reversed(DIABETES)}
    np.testing.assert_allclose(again.predict(shuffled), again.predict(table.x), rtol=1e-6)


def test_columns_of_parties_keep_their_names_and_arrays_their_order(tmp_path, rng):
    x, w = rng.normal(size=(40, 3)), np.array([1.0, -2.0, 0.5])
    table = Table("t", x, x @ w, feature_names=("age", "dose", "days"))
    parties = data.ColumnNames({"b": ["days"], "a": ["age", "dose"]})
    federation = data.partition(table, parties)
    assert federation.about.names == ("days", "age", "dose")
    model = Model(fedmin.LeastSquares(3), np.float32([0.5, 1.0, -2.0]), federation.about)
    model = Model.load(model.save(tmp_path / "model.json"))
    assert model.inputs == table.feature_names
    np.testing.assert_allclose(model.predict(table.x), x @ w, atol=1e-5)
    named = {name: x[:, j].tolist() for j, name in enumerate(table.feature_names)}
    np.testing.assert_allclose(model.predict(named), x @ w, atol=1e-5)


def test_machines_that_hold_cut_rows_know_the_names(tmp_path):
    text = NAMED + '[federation]\nsites = ["a", "b", "c"]\n'
    outcome, _, _ = served(Config(text), tmp_path)
    model = load(outcome.folder).model
    assert model.features == outcome.result.model.features == DIABETES
    assert model.about.scaled == SAID


def sites(**columns):
    """The roster of sites with such columns, and what they say."""
    width = len(next(iter(columns.values())))
    pairs = [(np.ones((2, width)), np.zeros(2))] * len(columns)
    roster = fedmin.Federation.from_clients(pairs, names=list(columns)).roster()
    return roster, {name: {"columns": list(each)} for name, each in columns.items()}


def test_sites_that_call_or_order_their_columns_otherwise_are_refused():
    words = "the columns of south are dose, age, of north age, dose: all sites need the same"
    with pytest.raises(ValueError, match=words):
        named_columns(*sites(north=["age", "dose"], south=["dose", "age"]))
    assert named_columns(*sites(north=["age"], south=["age"])).names == ("age",)
    roster, said = sites(north=["age"], south=["age"])
    assert named_columns(roster, {name: {} for name in said}) is None


def test_what_was_done_to_a_table_is_told_in_order():
    table = data.load("wine")
    assert "scaled" not in table.meta
    twice = table.standardized().scaled("rows")
    assert twice.meta["scaled"] == f"{SAID}, then rows divided by their length"
    thin = Table("thin", sparse.csr_matrix(np.eye(3)), feature_names=("a", "b", "c"))
    assert thin.scaled().meta["scaled"] == "divided by their largest value by all rows of the table"


def test_units_are_kept_as_they_are_given(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("age,dose,days\n50,1,3\n60,2,5.5\n70,1,6\n65,3,9\n")
    text = """
[data]
files = ["a.csv", "b.csv"]
outcome = "days"
units = {age = "years", days = "d"}
[problem]
name = "leastsquares"
[method]
name = "fednl"
[run]
rounds = 3
"""
    (tmp_path / "run.toml").write_text(text)
    (job,) = Config.read(tmp_path / "run.toml").jobs()
    model = Model.load(run_one(job, tmp_path / "run").folder)
    assert model.about.units == {"age": "years", "days": "d"}
    assert "age [years]" in str(model)
    assert "dose [" not in str(model)
    assert model.features == ("age", "dose")
    tables = {"a": tmp_path / "a.csv", "b": tmp_path / "b.csv"}
    with pytest.raises(ValueError, match="unknown column in units 'agee'; did you mean 'age'"):
        data.read(tables, outcome="days", units={"agee": "years"})


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(ValueError, match="t: two columns are called 'age'"):
        Table("t", np.eye(3), feature_names=("age", "b", "age"))


def test_tables_without_names_have_numbers():
    federation = data.partition(Table("t", np.eye(4), np.arange(4.0)), data.IID(2))
    assert federation.about is None
