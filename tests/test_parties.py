"""examples/parties: two tables of the same people, aligned, prepared, fitted, predicted, cut."""

import json
import runpy
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pandas
import pytest
import statsmodels.api as sm
from typer.testing import CliRunner

import fedmin
from fedmin import Model
from fedmin.cli.app import app
from fedmin.data import read_parties
from fedmin.runs.config import Config
from fedmin.runs.document import ConfigError
from fedmin.runs.own_tables import own_frames

HERE = Path(__file__).resolve().parents[1] / "examples" / "parties"
COLUMNS = {"clinic": ["diseases", "limited", "health"], "insurer": ["coinsurance", "plan"]}


def called(*words):
    done = CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "300"})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The example in a folder of its own, run by its two commands."""
    place = tmp_path_factory.mktemp("parties") / "parties"
    shutil.copytree(HERE, place)
    called("align", *(place / name / "site.toml" for name in COLUMNS))
    called("run", place / "run.toml", "--out", place / "runs", "--quiet")
    return place


@pytest.fixture(scope="module")
def whole(place):
    """All columns in one place, which nobody has: joined by pandas on the ids."""
    parts = [pandas.read_csv(place / name / f"{name}.csv") for name in COLUMNS]
    return parts[0].merge(parts[1], on="patient")


def test_the_files_are_what_make_writes():
    for name, made in runpy.run_path(str(HERE / "make.py"))["tables"]().items():
        assert (HERE / name / f"{name}.csv").read_text() == made.to_csv(index=False)


@pytest.fixture(scope="module")
def model(place):
    (folder,) = (place / "runs").iterdir()
    return Model.load(folder)


def test_it_is_the_fit_of_the_joined_table(model, whole):
    x = whole[["diseases", "limited"]].copy()
    x["diseases"] = x["diseases"].fillna(x["diseases"].mean())
    health = whole["health"].fillna(whole["health"].mode()[0])
    for level in model.features[2:-2]:
        found = health == level.partition("=")[2]
        if level == "health=other":
            found = ~health.isin(["excellent", *(n.partition("=")[2] for n in model.features)])
        x[level] = found.astype(float)
    x["coinsurance"] = whole["coinsurance"]
    x["plan=free"] = (whole["plan"] == "free").astype(float)
    assert list(x.columns) == list(model.features)
    y = (whole["saw_doctor"] == "yes").astype(float)
    fit = sm.Logit(y.to_numpy(), sm.add_constant(x.to_numpy())).fit(disp=0, tol=1e-12)
    found = np.concatenate([np.ravel(model.intercept), np.ravel(model.coefficients)])
    np.testing.assert_allclose(found, fit.params, atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(whole)[:, 1], fit.predict(), atol=1e-4)


def test_two_parts_predict_together(model, whole, tmp_path):
    parts = {
        name: model.part(columns, intercept=name == "clinic") for name, columns in COLUMNS.items()
    }
    total = 0.0
    for name, part in parts.items():
        assert list(part.inputs) == COLUMNS[name]
        mine = whole[COLUMNS[name]]
        again = Model.load(part.save(tmp_path / f"{name}.json"))
        np.testing.assert_array_equal(again.predict(mine), part.predict(mine))
        session = onnxruntime.InferenceSession(part.onnx(tmp_path / f"{name}.onnx"))
        feed = {}
        for column in COLUMNS[name]:
            values = mine[column].to_numpy()
            words = values.dtype == object
            made = mine[column].fillna("").to_numpy(object) if words else values.astype(float)
            feed[column] = made[:, None]
        (said,) = session.run(None, feed)
        np.testing.assert_allclose(np.ravel(said), part.predict(mine), rtol=1e-5, atol=1e-6)
        total = total + part.predict(mine)
    np.testing.assert_allclose(total, model.scores(whole), rtol=1e-6)
    chances = 1 / (1 + np.exp(-total))
    np.testing.assert_allclose(chances, model.predict_proba(whole)[:, 1], rtol=1e-6)
    with pytest.raises(ValueError, match="did you mean 'plan'"):
        model.part(["plann"])


def test_the_insurer_never_has_the_outcome(place):
    config = Config.read(place / "run.toml")
    federation = config.pieces(config.jobs()[0]).federation
    assert federation.labels == "clinic"
    assert not federation.client(1).y.any()
    assert not federation.about.lines  # and nothing was sent to prepare columns
    words = json.loads((next((place / "runs").iterdir()) / "model.json").read_text("utf-8"))
    assert words["data"]["sites"].keys() == {"clinic", "insurer"}


def test_machines_are_told_what_to_do(place):
    config = Config.read(place / "run.toml")
    with pytest.raises(ConfigError, match="prepared in a simulation"):
        own_frames(config.jobs()[0].document, config.jobs()[0].words)


BANK = {"id": [7, 8, 9], "income": [3.0, 5.0, 4.0], "paid": ["no", "yes", "yes"]}
SHOP = {"id": [7, 8, 9], "visits": [1.0, 9.0, 2.0]}


@pytest.mark.parametrize(("bank", "shop", "options", "words"), [
    ({}, {"id": [8, 7, 9]}, {}, r"party shop, row 0, column 'id': the id is 8.0, and 7.0 in row 0 "
     r"of bank: fedmin align"),
    ({}, {"id": [7, 8], "visits": [1.0, 2.0]}, {}, "party shop has 2 rows, and bank 3: fedmin al"),
    ({}, {"income": [1.0, 2.0, 4.0]}, {}, "the column 'income' is of bank and of shop"),
    ({}, {"paid": ["no", "no", "yes"]}, {}, "the outcome 'paid' is a column of bank and of shop"),
    ({}, {}, {"outcome": "payd"}, "no party has the column 'payd', which outcome names; did"),
    ({}, {}, {"features": ("income", "visit")}, "did you mean 'visits'"),
    ({}, {}, {"id": "number"}, "there is no column 'number', which id names"),
    ({"income": [3.0, "a", 4.0]}, {}, {"kinds": {"income": "number"}}, "site bank, row 1, col"),
])  # fmt: skip
def test_mistakes_of_parties_are_named(bank, shop, options, words):
    tables = {"bank": BANK | bank, "shop": SHOP | shop}
    given = {"outcome": "paid", "id": "id", **options}
    with pytest.raises(ValueError, match=words):
        read_parties(tables, **given)


def test_groups_and_numbers_of_parties():
    groups = {"sex": ["f", "m", "f"], "paid": [1.5, 2.5, 3.0]}
    tables = {"bank": BANK | groups, "shop": SHOP}
    made = read_parties(tables, outcome="paid", id="id", groups="sex", labels=False,
                        units={"visits": "a year"})  # fmt: skip
    assert made.about.units == {"visits": "a year"}
    assert (made.classes, made.groups, made.about.names) == (None, ("f", "m"), ("income", "visits"))
    assert isinstance(made, fedmin.Federation)
