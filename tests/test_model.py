"""A run's model: on the original scale, used on raw rows, and in the forms of other programs."""

import json
import warnings

import jax.numpy as jnp
import numpy as np
import onnxruntime
import pandas
import polars
import pytest
import safetensors.numpy
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from typer.testing import CliRunner

import fedmin
from fedmin.cli.app import app
from fedmin.core.files import text_of
from fedmin.core.kept import DamagedError
from fedmin.core.model import Model
from fedmin.core.model_origin import unwrapped
from fedmin.core.preparation import About
from fedmin.core.result import Result
from fedmin.data import Prepare, read
from fedmin.reports.model_figure import model_figure
from fedmin.runs.config import Config
from fedmin.runs.folder import run_one
from test_own_data import table


@pytest.fixture(scope="module")
def tables():
    made = {name: table(seed, 40 + 10 * seed) for seed, name in enumerate("abc")}
    for each in made.values():
        each["lab"] -= 1e8
        each["count"] = np.random.default_rng(3).poisson(2, len(each))
        each["level"] = each["age"].fillna(60) / 10 + each["lab"]
    return made


def fitted(tables, problem, outcome, method=None, rounds=12, prepare=None):
    features = ("age", "lab", "ward", "seen")
    labels = False if outcome in ("count", "level") else None
    sites = read(tables, outcome=outcome, features=features, groups="sex", labels=labels)
    how = Prepare(missing="indicator", smallest_count=5) if prepare is None else prepare
    federation = sites.federation(how)
    made = problem(len(federation.about.names))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of runs that are too short
        return fedmin.minimize(made, federation, method or fedmin.FedNL(), rounds=rounds)


PROBLEMS = {
    "leastsquares": (lambda d: fedmin.LeastSquares(d, l2=1e-3, bias=True), "level", None),
    "huber": (lambda d: fedmin.Huber(d, l2=1e-3, bias=True), "level", fedmin.FedSGD(0.3)),
    "poisson": (lambda d: fedmin.Poisson(d, bias=True), "count", None),
    "logistic": (lambda d: fedmin.Logistic(d, l2=1e-3, bias=True), "died", None),
    "plain": (lambda d: fedmin.Logistic(d, l2=1e-3), "died", None),
    "softmax": (lambda d: fedmin.Softmax(d, 3, bias=True), "ward3", fedmin.FedSGD(0.5)),
    "mlp": (lambda d: fedmin.MLP(d, 2, hidden=(4, 3), bias=True), "died", fedmin.FedSGD(0.1)),
    "over": (
        lambda d: fedmin.over(fedmin.Logistic(d, bias=True), fedmin.L0Ball(3)), "died",
        fedmin.DistributedIHT(0.5),
    ),
    "constrained": (
        lambda d: fedmin.subject_to(
            fedmin.Logistic(d, bias=True), fedmin.GroupLossAtMost((0.7, 0.7), by="groups")
        ),
        "died", fedmin.SSCA(),
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=PROBLEMS)
def case(request, tables):
    problem, outcome, method = PROBLEMS[request.param]
    if outcome == "ward3":  # three labels in words
        for made in tables.values():
            made["ward3"] = np.array(["p", "q", "r"])[np.arange(len(made)) % 3]
    return request.param, fitted(tables, problem, outcome, method), tables


def raw_design(model, frame):
    """The features on the original scale, by pandas and by hand."""
    fill = {column.name: column.fill for column in model.about.preparation.columns}
    age = frame["age"].fillna(fill["age"])
    ward = frame["ward"].fillna(fill["ward"])
    days = (frame["seen"] - pandas.Timestamp(0)).dt.days
    columns = {
        "age": age, "age is missing": frame["age"].isna(), "lab": frame["lab"],
        "ward=y": ward == "y", "ward=z": ward == "z", "ward is missing": frame["ward"].isna(),
        "seen": days,
    }  # fmt: skip
    return np.stack([np.asarray(columns[name], float) for name in model.features], axis=1)


def test_a_model_predicts_as_the_run_did_and_is_on_the_original_scale(case):
    name, result, tables = case
    model, frame = result.model, pandas.concat(tables.values(), ignore_index=True)
    scores = model.scores(frame)
    problem = unwrapped(result.problem)
    z = model.prepare(frame)
    seen = problem.predict(jnp.asarray(result.solution), fedmin.rows(z, np.zeros(len(z))))
    np.testing.assert_allclose(scores, seen, rtol=2e-5, atol=2e-5)
    if model.linear:
        by_hand = raw_design(model, frame) @ model.coefficients.T + model.intercept
        np.testing.assert_allclose(by_hand.reshape(scores.shape), scores, rtol=1e-9, atol=1e-8)
        assert all(feature in str(model) for feature in model.features)
    if model.classes is not None:
        odds = model.predict_proba(frame)
        np.testing.assert_allclose(odds.sum(axis=1), 1, rtol=1e-12)
        chosen = np.array(model.classes)[odds.argmax(axis=1)]
        np.testing.assert_array_equal(model.predict(frame), chosen)
    if name == "poisson":
        np.testing.assert_allclose(model.predict(frame), np.exp(scores), rtol=1e-12)
    if name == "constrained":
        assert [each["on"] for each in model.limits] == ["loss of f", "loss of m"]
        assert model.certificate["feasible"] == result.certificate.feasible
    assert ("L0Ball" in model.domain) == (name == "over")
    assert model.citations == ((result.method.citation,) if result.method.citation else ())


def test_a_model_is_read_back_and_a_changed_file_is_refused(case, tmp_path):
    _, result, tables = case
    result.save(tmp_path / "run")
    again, path = Result.load(tmp_path / "run").model, tmp_path / "run" / "model.json"
    np.testing.assert_array_equal(again.scores(tables["a"]), result.model.scores(tables["a"]))
    assert str(again) == str(result.model)
    assert again.data == result.model.data
    assert set(again.data["sites"]) == {"a", "b", "c"}
    np.testing.assert_array_equal(Model.load(tmp_path / "run").x, result.solution)
    text = path.read_text("utf-8")
    path.write_text(text.replace('"seed": 0', '"seed": 1'), "utf-8")
    with pytest.raises(DamagedError, match="SHA-256"):
        Model.load(path)
    with pytest.raises(DamagedError, match=r"model\.json"):
        Result.load(tmp_path / "run")


def feeds(model, frame):
    """What ONNX is fed: numbers in double precision, words as words."""
    days = (frame["seen"] - pandas.Timestamp(0)).dt.days.to_numpy(float)
    columns = {
        "age": frame["age"].to_numpy(float), "lab": frame["lab"].to_numpy(float), "seen": days,
        "ward": np.array(frame["ward"].fillna("").tolist(), object),
    }  # fmt: skip
    return {name: columns[name][:, None] for name in model.inputs}


def test_onnx_says_the_same_of_raw_rows(case, tmp_path):
    _, result, tables = case
    model, frame = result.model, tables["b"].copy()
    session = onnxruntime.InferenceSession(model.onnx(tmp_path / "model.onnx"))
    said = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds(model, frame)),
                    strict=True))  # fmt: skip
    exact = 1e-12 if model.linear else 1e-5
    if model.classes is None:
        np.testing.assert_allclose(said["prediction"], model.predict(frame), rtol=exact)
    else:
        np.testing.assert_allclose(
            said["probabilities"], model.predict_proba(frame), rtol=exact, atol=exact
        )
        np.testing.assert_array_equal(said["label"], model.predict(frame))
    frame.loc[0, "ward"] = "never seen"
    out = session.run(["prediction" if model.classes is None else "probabilities"],
                      feeds(model, frame))[0]  # fmt: skip
    assert np.isnan(out[0]).all()
    assert not np.isnan(out[1:]).any()
    with pytest.raises(ValueError, match=r"row 0, column 'ward': 'never seen' is no level"):
        model.predict(frame)


@pytest.mark.parametrize("problem", [
    fedmin.CNN((9, 8, 2), 3, channels=(4, 3), kernel=3, hidden=(5,)),
    fedmin.CNN((12, 12, 1), 3, channels=(2,), kernel=5, same=(False,), hidden=()),
    fedmin.LeNet((28, 28, 1), 4),
    fedmin.MLP(7, 3, hidden=(4,)),
    fedmin.MLP(7, 3, hidden=(4,), activation=jnp.tanh),
])  # fmt: skip
def test_networks_in_onnx_and_safetensors(problem, tmp_path, rng):
    x = rng.normal(size=problem.size()).astype(np.float32)
    model = Model(problem, x, About(
        tuple(f"x{j}" for j in range(problem.features))))  # fmt: skip
    some = rng.normal(size=(6, problem.features))
    session = onnxruntime.InferenceSession(model.onnx(tmp_path / "model.onnx"))
    label, odds = session.run(None, {"rows": some})
    np.testing.assert_allclose(odds, model.predict_proba(some), rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(label, model.predict(some))
    stored = safetensors.numpy.load_file(model.safetensors(tmp_path / "model.safetensors"))
    assert list(stored) == list(problem.parts)
    joined = np.concatenate([stored[name].ravel() for name in problem.parts])
    np.testing.assert_array_equal(joined, x)
    again = Model.load(model.save(tmp_path / "model.json"))
    np.testing.assert_array_equal(again.scores(some), model.scores(some))
    with pytest.raises(fedmin.NoModelError, match="not linear"):
        _ = model.coefficients


def test_every_kind_of_rows_is_predicted_alike(tables, tmp_path):
    model = fitted(tables, *PROBLEMS["logistic"][:2], prepare=Prepare(missing="mean")).model
    frame = tables["a"][[*model.inputs]]
    expected = model.predict_proba(frame)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    array = frame.astype(object).to_numpy()
    shuffled = frame[[*reversed(frame.columns)]]
    for other in (polars.from_pandas(frame), frame.to_dict("list"), tmp_path / "rows.csv",
                  str(tmp_path / "rows.parquet"), array, shuffled):  # fmt: skip
        np.testing.assert_allclose(model.predict_proba(other), expected, rtol=1e-12)


@pytest.mark.parametrize(("change", "words"), [
    (lambda f: f.drop(columns="age"), "no column 'age', which the model needs"),
    (lambda f: f.assign(age="old"), "row 0, column 'age': 'old' is no number"),
    (lambda f: f.assign(seen="then"), "'then' is no date; write it as 2024-05-17"),
    (lambda f: f.assign(lab=np.inf), "inf is no finite number"),
    (lambda f: f.to_numpy()[:, :2], "an array of 4 columns in the order of model.inputs"),
])  # fmt: skip
def test_wrong_rows_are_named(tables, change, words):
    model = fitted(tables, *PROBLEMS["logistic"][:2], rounds=1).model
    with pytest.raises(ValueError, match=words):
        model.predict(change(tables["a"][[*model.inputs]]))


def test_left_out_columns_are_not_asked_for(tables):
    frames = {name: frame.assign(one=1.0) for name, frame in tables.items()}
    sites = read(frames, outcome="died", features=("age", "one"))
    with pytest.warns(UserWarning, match="constant"):
        federation = sites.federation()
    result = fedmin.minimize(fedmin.Logistic(1, bias=True), federation, fedmin.FedNL(), rounds=3)
    assert result.model.inputs == ("age",)
    assert len(result.model.predict({"age": [50, None]})) == 2


def test_the_estimator_has_the_manners_of_scikit_learn(tables):
    frame = tables["a"]
    model = fitted(tables, *PROBLEMS["logistic"][:2]).model
    estimator = clone(model.estimator())
    check_is_fitted(estimator)
    np.testing.assert_array_equal(estimator.predict(frame), model.predict(frame))
    assert estimator.score(frame, frame["died"]) == np.mean(model.predict(frame) == frame["died"])
    decided = estimator.decision_function(frame)
    np.testing.assert_allclose(
        decided, raw_design(model, frame) @ estimator.coef_[0] + estimator.intercept_[0]
    )
    assert list(estimator.classes_) == ["no", "yes"]
    assert list(estimator.feature_names_in_) == list(model.inputs)
    with pytest.raises(ValueError, match="fitted by a federated run"):
        estimator.fit(frame, frame["died"])
    numbers = fitted(tables, *PROBLEMS["leastsquares"][:2]).model.estimator()
    assert numbers.score(frame, frame["level"]) > 0.99  # which is linear


def test_columns_of_parties_keep_their_numbers(rng):
    x, w = rng.normal(size=(60, 3)), np.array([1.0, -2.0, 0.5])
    federation = fedmin.Federation.from_columns(x, x @ w, [[2], [0, 1]])
    method = fedmin.SplitSGD(0.3, batches=fedmin.Full())
    result = fedmin.minimize(fedmin.LeastSquares(3), federation, method, rounds=300)
    model = result.model
    assert model.features == ("x2", "x0", "x1")
    np.testing.assert_allclose(model.predict(x), x @ w, atol=1e-3)


def test_a_problem_without_predictions_says_why(tmp_path, rng):
    problem = fedmin.from_loss(lambda p, z, y: (p["w"] @ z - y) ** 2, {"w": jnp.zeros(3)})
    x = rng.normal(size=(20, 3))
    federation = fedmin.Federation.from_clients([(x, x.sum(axis=1))])
    result = fedmin.minimize(problem, federation, fedmin.FedSGD(0.1), rounds=2)
    with pytest.raises(fedmin.NoModelError, match=r"Loss has no predict"):
        _ = result.model
    assert not (result.save(tmp_path / "run") / "model.json").exists()


def test_a_problem_of_ones_own_is_given_to_load(tmp_path, rng):
    class Own(fedmin.Problem):
        features = 3

        def init(self, key):
            return jnp.zeros(3)

        def predict(self, x, rows):
            return rows.x @ x

        def losses(self, x, rows):
            return ((self.predict(x, rows) - rows.y) ** 2)[:, None]

    x = rng.normal(size=(20, 3))
    federation = fedmin.Federation.from_clients([(x, x.sum(axis=1))])
    result = fedmin.minimize(Own(), federation, fedmin.FedSGD(0.1), rounds=30)
    path = result.model.save(tmp_path / "model.json")
    with pytest.raises(fedmin.NoModelError, match=r"Model\.load\(path, problem=\.\.\.\)"):
        Model.load(path).predict(x)
    found = Model.load(path, problem=Own()).predict(x)
    np.testing.assert_allclose(found, x @ np.asarray(result.solution), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="3 parameters, and that problem has 4"):
        Model.load(path, problem=fedmin.LeastSquares(4))


@pytest.mark.parametrize(("key", "value", "words"), [
    ("format", 99, "newer fedmin"),
    ("features", ["x0"], "1 features, and the problem has 3"),
    ("parameters", {"type": "float32", "count": 9, "base64": "AAAA"}, "not as many as it says"),
    ("parameters", {"type": "float32", "count": 1, "base64": "AADAfw=="}, "not finite"),
    ("parameters", {"type": "float32", "count": 1, "base64": "AAAAAA=="}, "1 parameters"),
    ("preparation", {"columns": [{"kind": "x"}], "left_out": []}, "cannot be made"),
    ("classes", 7, "classes is 7"),
])  # fmt: skip
def test_what_is_wrong_with_a_file_is_said(tmp_path, key, value, words):
    about = About(("a", "b", "c"))
    model = Model(fedmin.Logistic(3), np.zeros(3, np.float32), about)
    path = model.save(tmp_path / "model.json")
    path.write_text(text_of(json.loads(path.read_text("utf-8")) | {key: value}), "utf-8")
    with pytest.raises(ValueError, match=words):
        Model.load(path)


FILE = """
[data]
files = ["a.csv", "b.csv"]
outcome = "died"
features = ["age", "ward"]
[problem]
name = "logistic"
[method]
name = "fednl"
[run]
rounds = 6
"""


def test_a_run_from_a_file_leaves_its_model(tables, tmp_path):
    for name in "ab":
        tables[name].to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "fedmin.toml").write_text(FILE)
    (job,) = Config.read(tmp_path / "fedmin.toml").jobs()
    outcome = run_one(job, tmp_path / "run")
    model = Model.load(outcome.folder)
    assert model.features == outcome.result.model.features == ("age", "ward=y", "ward=z")
    assert model.certificate["gradient"] < 1e-3
    stored = json.loads((outcome.folder / "model.json").read_text("utf-8"))["coefficients"]
    assert list(stored["died"]["features"]) == list(model.features)
    np.testing.assert_array_equal(
        model.predict(tmp_path / "a.csv"), outcome.result.model.predict(tables["a"])
    )


def test_predict_and_explain_of_a_file(tables, tmp_path):
    result = fitted(tables, *PROBLEMS["logistic"][:2])
    folder, frame = result.save(tmp_path / "run"), tables["a"].drop(columns="died")
    frame.to_csv(tmp_path / "rows.csv", index=False, sep=";")
    call = lambda *words: CliRunner().invoke(app, list(map(str, words)))
    out = tmp_path / "out.csv"
    said = call("predict", folder, tmp_path / "rows.csv", "-o", out, "--separator", ";")
    assert said.exit_code == 0, said.output
    found = pandas.read_csv(out)
    assert list(found.columns[: len(frame.columns)]) == list(frame.columns)
    assert list(found["predicted died"]) == list(result.model.predict(frame))
    odds = found[["probability of no", "probability of yes"]].to_numpy()
    np.testing.assert_array_equal(odds, result.model.predict_proba(frame))
    said = call("explain", folder / "model.json", "--plot", tmp_path / "a.png")
    assert said.exit_code == 0, said.output
    ratio = float(np.exp(result.model.coefficients[0, 0]))
    assert "odds ratio" in said.output
    assert f"{ratio:.5g}" in said.output
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    refused = call("predict", folder, tmp_path / "rows.csv", "-o", out)
    assert refused.exit_code == 2
    assert "no column 'age', which the model needs" in refused.stderr
    refused = call("explain", tmp_path)
    assert refused.exit_code == 2
    assert "has no model.json" in refused.stderr


@pytest.mark.parametrize("name", ["softmax", "poisson"])
def test_every_linear_model_is_drawn(tmp_path, name):
    made = PROBLEMS[name][0](3)
    x = np.linspace(-1, 1, made.size(), dtype=np.float32)
    model = Model(made, x, About(("a", "b", "c")))
    assert model_figure(model, tmp_path / "a.png").stat().st_size > 5000
