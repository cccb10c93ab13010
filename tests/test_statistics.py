"""Statistics by sums over sites: those of statsmodels on all rows in one place."""

import jax.numpy as jnp
import numpy as np
import pandas
import pytest
import statsmodels.api as sm

import fedmin
from fedmin.core.result import Result
from fedmin.data import Prepare, read
from fedmin.runs.config import Config
from fedmin.runs.folder import run_one
from test_own_data import table

SITES = "abcd"
KINDS = {
    "died": (fedmin.Logistic, sm.families.Binomial()),
    "count": (fedmin.Poisson, sm.families.Poisson()),
    "level": (fedmin.LeastSquares, None),
}


@pytest.fixture(scope="module")
def tables():
    made = {name: table(seed, 60 + 10 * seed) for seed, name in enumerate(SITES)}
    for k, each in enumerate(made.values()):
        rng = np.random.default_rng(10 + k)
        age = each["age"].fillna(60)
        each["count"] = rng.poisson(np.exp((age - 60) / 30))
        each["level"] = age / 10 + 0.3 * k + rng.normal(size=len(each))
    return made


def federation_of(tables, outcome, **options):
    labels = None if outcome == "died" else False
    features = ("age", "lab", "ward", "seen")
    sites = read(tables, outcome=outcome, features=features, labels=labels, **options)
    return sites.federation(Prepare(missing="indicator", smallest_count=5))


def ran(tables, outcome, **options):
    federation = federation_of(tables, outcome)
    problem = KINDS[outcome][0](len(federation.about.names), bias=True)
    return fedmin.minimize(
        problem, federation, fedmin.FedNL(), rounds=40, statistics=True, **options
    )


def pooled(tables, outcome, model):
    """statsmodels on all rows, with raw columns that were filled by hand.

    A column of 1e8 + z and one of days are given around their means: slopes do not change, and the
    intercept is moved back. Else statsmodels itself has no six digits of them.
    """
    frame = pandas.concat(tables.values(), ignore_index=True)
    fill = {column.name: column.fill for column in model.about.preparation.columns}
    ward = frame["ward"].fillna(fill["ward"])
    days = (frame["seen"] - pandas.Timestamp(0)).dt.days
    means = {"lab": frame["lab"].mean(), "seen": days.mean()}
    columns = {
        "(intercept)": np.ones(len(frame)), "age": frame["age"].fillna(fill["age"]),
        "age is missing": frame["age"].isna(), "lab": frame["lab"] - means["lab"],
        "ward=y": ward == "y", "ward=z": ward == "z", "ward is missing": frame["ward"].isna(),
        "seen": days - means["seen"],
    }  # fmt: skip
    design = pandas.DataFrame({k: np.asarray(v, float) for k, v in columns.items()})
    y = (frame["died"] == "yes").astype(float) if outcome == "died" else frame[outcome]
    sites = np.repeat(np.arange(len(tables)), [len(each) for each in tables.values()])
    family = KINDS[outcome][1]
    make = sm.OLS(y, design) if family is None else sm.GLM(y, design, family=family)
    options = {} if family is None else {"tol": 1e-14}
    plain = make.fit(**options)
    clustered = make.fit(cov_type="cluster", cov_kwds={"groups": sites}, use_t=True, **options)
    return plain, clustered, list(design), means


@pytest.mark.parametrize("outcome", KINDS)
def test_statistics_are_those_of_statsmodels_on_pooled_rows(tables, outcome):
    result = ran(tables, outcome)
    found, near = result.statistics, {"rtol": 1e-6, "atol": 1e-9}
    plain, clustered, names, means = pooled(tables, outcome, result.model)
    assert list(found.names) == names
    slopes = slice(1, None)  # the intercept is where the means are not taken off
    np.testing.assert_allclose(found.estimates[slopes], plain.params[slopes], **near)
    moved = found.estimates[0] + sum(
        found.estimates[names.index(name)] * mean for name, mean in means.items()
    )
    np.testing.assert_allclose(moved, plain.params.iloc[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.errors[slopes], plain.bse[slopes], **near)
    np.testing.assert_allclose(found.values[slopes], plain.tvalues[slopes], **near)
    np.testing.assert_allclose(found.p_values()[slopes], plain.pvalues[slopes], **near)
    limits = plain.conf_int(0.1).to_numpy()
    np.testing.assert_allclose(found.intervals(0.9)[slopes], limits[slopes], **near)
    np.testing.assert_allclose(found.clustered[slopes], clustered.bse[slopes], **near)
    likelihood, parameters = plain.llf, len(names)
    np.testing.assert_allclose(found.log_likelihood, likelihood, rtol=1e-9)
    np.testing.assert_allclose(found.aic, plain.aic, rtol=1e-9)
    by_likelihood = -2 * likelihood + parameters * np.log(plain.nobs)
    np.testing.assert_allclose(found.bic, by_likelihood, rtol=1e-9)
    deviance = plain.ssr if outcome == "level" else plain.deviance
    np.testing.assert_allclose(found.deviance, deviance, rtol=1e-9)
    assert found.distance < 0.1
    assert not found.notes
    np.testing.assert_allclose(
        found.p_values(clustered=True)[slopes], clustered.pvalues[slopes], **near
    )
    assert all(name in str(found) for name in names)
    assert "AIC" in str(result.model)


def test_every_engine_takes_the_same_statistics_and_counts_their_bytes(tables):
    one, other = (ran(tables, "died", engine=e) for e in (fedmin.Simulator(), fedmin.Loopback()))
    np.testing.assert_allclose(one.statistics.errors, other.statistics.errors, rtol=1e-9)
    np.testing.assert_allclose(one.statistics.clustered, other.statistics.clustered, rtol=1e-9)
    kinds = one.ledger.by_kind()
    assert kinds == other.ledger.by_kind()
    size = len(one.solution)
    assert kinds["evaluation statistics up information"] == 5 * len(SITES) * size * size * 8
    assert kinds["evaluation statistics up meat"] == len(SITES) * size * size * 8
    assert kinds["evaluation statistics down model"] == 5 * len(SITES) * size * 8
    without = fedmin.minimize(one.problem, federation_of(tables, "died"), one.method, rounds=2)
    assert without.statistics is None
    assert not any("statistics" in kind for kind in without.ledger.by_kind())
    assert "statistics" in {s.when for s in one.privacy.shown}
    assert "statistics" not in {s.when for s in without.privacy.shown}


@pytest.mark.thorough  # processes to start
def test_processes_take_them_too(tables):
    few = {name: tables[name] for name in "ab"}
    one, other = (ran(few, "count", engine=e) for e in (fedmin.Loopback(), fedmin.Processes()))
    np.testing.assert_allclose(one.statistics.errors, other.statistics.errors, rtol=1e-9)
    np.testing.assert_allclose(one.statistics.estimates, other.statistics.estimates, rtol=1e-6)
    assert one.ledger.by_kind() == other.ledger.by_kind()


def test_statistics_stay_with_the_model(tables, tmp_path):
    result = ran(tables, "died")
    again = Result.load(result.save(tmp_path / "run"))
    assert str(again.statistics) == str(result.statistics)
    np.testing.assert_array_equal(again.statistics.errors, result.statistics.errors)
    assert again.ledger.by_kind() == result.ledger.by_kind()


def test_weights_count_as_so_many_rows(rng):
    x, w = rng.normal(size=(80, 2)), rng.integers(1, 4, 80)
    y = (rng.random(80) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)
    parts = [np.arange(40), np.arange(40, 80)]
    federation = fedmin.Federation.from_parts(x, y, parts, row_weights=w, classes=2)
    problem = fedmin.Logistic(2, bias=True)
    found = fedmin.minimize(problem, federation, fedmin.FedNL(), rounds=8, statistics=True)
    design = np.hstack([np.ones((80, 1)), x])
    expected = sm.GLM(y, design, family=sm.families.Binomial(), freq_weights=w).fit(tol=1e-14)
    np.testing.assert_allclose(found.statistics.errors, expected.bse, rtol=1e-6)
    np.testing.assert_allclose(found.statistics.deviance, expected.deviance, rtol=1e-9)
    assert found.statistics.rows == w.sum()


def test_sparse_rows_and_sites_that_weigh_alike(rng):
    import scipy.sparse

    x = rng.normal(size=(90, 3)) * (rng.random((90, 3)) < 0.6)
    y = x @ [1.0, 0.0, -1.0] + rng.normal(size=90)
    clients = [(scipy.sparse.csr_matrix(x[a:b]), y[a:b]) for a, b in ((0, 20), (20, 90))]
    federation = fedmin.Federation.from_clients(clients, weights="uniform")
    problem = fedmin.LeastSquares(3)
    found = fedmin.minimize(problem, federation, fedmin.FedNL(), rounds=8, statistics=True)
    expected = sm.OLS(y, x).fit()
    np.testing.assert_allclose(found.statistics.estimates, expected.params, rtol=1e-6)
    np.testing.assert_allclose(found.statistics.errors, expected.bse, rtol=1e-6)
    assert "weighs sites otherwise" in str(found.statistics)


@pytest.mark.parametrize("held", ["sparse", "limits"])
def test_a_held_model_has_them_on_its_entries_with_a_warning(tables, held):
    federation = federation_of(tables, "died", groups="sex")
    problem = fedmin.Logistic(len(federation.about.names), bias=True)
    if held == "sparse":
        problem = fedmin.over(problem, fedmin.L0Ball(3))
        method, rounds = fedmin.DistributedIHT(1.0), 200
    else:
        problem = fedmin.subject_to(problem, fedmin.LossAtMost(0.7))
        method, rounds = fedmin.SSCA(), 40
    result = fedmin.minimize(problem, federation, method, rounds=rounds, statistics=True)
    found, model = result.statistics, result.model
    words = "the constraints" if held == "limits" else "L0Ball"
    assert f"held by {words}" in found.notes[0]
    assert "p-values too small" in found.notes[0]
    x, chosen = np.asarray(result.solution, float), np.flatnonzero(result.solution)
    if len(x) - 1 not in chosen:
        chosen = np.append(chosen, len(x) - 1)
    z = np.concatenate([np.hstack([z, np.ones((len(z), 1))]) for z, *_ in federation.about.exact])
    odds = 1 / (1 + np.exp(-z @ x))
    information = (z * (odds * (1 - odds))[:, None]).T @ z
    fisher = np.linalg.inv(information[np.ix_(chosen, chosen)])
    errors = np.sqrt(np.diag(fisher))[:-1] / model.scales[1][chosen[:-1]]
    np.testing.assert_allclose(found.errors[1:], errors, rtol=1e-6)
    assert found.names == ("(intercept)", *(model.features[j] for j in chosen[:-1]))
    assert found.clustered is None


def refused(problem=None, channel=None, split=False, **options):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    cut = [range(15), range(15, 30), range(30, 40)]
    federation = fedmin.Federation.from_parts(x, y, cut, classes=2)
    method = fedmin.FedSGD(0.1)
    if split:
        federation = fedmin.Federation.from_columns(x, y, [[0], [1, 2]], classes=2)
        method = fedmin.SplitSGD(0.1)
    problem = fedmin.Logistic(3) if problem is None else problem
    more = {} if channel is None else {"channel": channel}
    return fedmin.minimize(problem, federation, method, rounds=1, statistics=True, **more)


@pytest.mark.parametrize(("options", "words"), [
    ({"problem": fedmin.Softmax(3, 2)}, "LeastSquares, Logistic, Poisson; the problem is Softmax"),
    ({"problem": fedmin.Logistic(3, l2=0.1)}, "l2 = 0.1, which moves the model away"),
    ({"channel": fedmin.SecureSum()}, "does not carry them: give Plain"),
    ({"split": True}, "nobody has one where columns are split"),
])  # fmt: skip
def test_what_has_no_statistics_is_refused_in_words(options, words):
    with pytest.raises(ValueError, match=words):
        refused(**options)


def test_labels_that_are_separable_have_none():
    x = np.linspace(-1, 1, 40)[:, None]
    federation = fedmin.Federation.from_clients(
        [(x[::2], (x[::2, 0] > 0).astype(int)), (x[1::2], (x[1::2, 0] > 0).astype(int))], classes=2
    )
    with pytest.warns(RuntimeWarning, match="no statistics"):
        result = fedmin.minimize(
            fedmin.Logistic(1), federation, fedmin.FedSGD(5.0), rounds=50, statistics=True
        )
    assert result.statistics is None


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
statistics = true
engine = "loopback"
"""


def test_a_file_asks_for_them(tables, tmp_path):
    for name in "ab":
        tables[name].to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "fedmin.toml").write_text(FILE)
    (job,) = Config.read(tmp_path / "fedmin.toml").jobs()
    outcome = run_one(job, tmp_path / "run")
    found = Result.load(outcome.folder).statistics
    assert found.names == ("(intercept)", "age", "ward=y", "ward=z")
    np.testing.assert_array_equal(found.errors, outcome.result.statistics.errors)


def test_single_precision_is_enough_of_the_run(rng):
    """The run's model may have seven digits only: Newton's steps are in double precision."""
    x = rng.normal(size=(120, 3))
    y = (rng.random(120) < 1 / (1 + np.exp(-x @ [1.0, -1.0, 0.5]))).astype(int)
    from fedmin.core.inference import Fit, site_sums

    problem = fedmin.Logistic(3, bias=True)
    rows = [fedmin.rows(x[a:b], jnp.asarray(y[a:b])) for a, b in ((0, 50), (50, 120))]
    model = sm.GLM(y, sm.add_constant(x), family=sm.families.Binomial())
    # it takes its errors one step before the end, which the deviance alone would end too early
    expected = model.fit(tol=1e-14, tol_criterion="params")
    start = np.append(expected.params[1:], expected.params[0]).astype(np.float16)
    fit = Fit(problem, start, 2, True)
    for k in range(Fit.steps(problem) + 1):
        fit.took([site_sums(problem, fit.x, each, k == Fit.steps(problem)) for each in rows])
    np.testing.assert_allclose(fit.x[:3], expected.params[1:], rtol=1e-10)
    np.testing.assert_allclose(np.sqrt(np.diag(fit.found.fisher))[:3], expected.bse[1:], rtol=1e-9)
