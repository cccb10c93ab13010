"""Lines of a metric for each label, group and site, from sums: against scikit-learn."""

import json
from dataclasses import replace
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest
from sklearn import metrics

import fedmin
from fedmin import ByClass, ByGroup, BySite, data
from fedmin.assembling import assemble
from fedmin.channels import SecureSum
from fedmin.core.metrics_by import plain_words
from fedmin.engines.sessions.guarded import GuardedSite
from fedmin.engines.transports import memory
from fedmin.privacy.departures import Departures
from fedmin.privacy.policy import Policy
from fedmin.reports import page
from fedmin.reports.quality import is_part, pictures
from fedmin.runs.config import Config

SITES = ("north", "south", "west")
GROUPS = ("a, b", "m")
RECORD = [
    fedmin.Objective(), ByGroup(fedmin.LogLoss(on="train")), ByGroup(fedmin.Auc()),
    ByGroup(fedmin.Scores()), BySite(fedmin.Scores(on="train")),
    BySite(fedmin.LogLoss(on="train")), ByClass(fedmin.Scores()), ByClass(fedmin.LogLoss()),
    ByClass(fedmin.Auc()), fedmin.Roc(label=2), ByGroup(fedmin.Confusion()),
]  # fmt: skip


@pytest.fixture(scope="module")
def made():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(240, 3))
    y = np.argmax(2 * x + rng.gumbel(size=(240, 3)), axis=1)
    groups = np.array(GROUPS)[(x[:, 0] + rng.normal(size=240) > 0).astype(int)]
    parts = [np.arange(50), np.arange(50, 120), np.arange(120, 160)]
    federation = fedmin.Federation.from_parts(
        x, y, parts, test=(x[160:], y[160:], groups[160:]), classes=3, groups=groups,
        names=SITES,
    )  # fmt: skip
    return x, y, groups, federation


def run(federation, record, **options):
    problem = fedmin.Softmax(3, 3)
    return fedmin.minimize(
        problem, federation, fedmin.FedSGD(1.0), rounds=3, every=3, record=record, **options
    )


@pytest.fixture(scope="module")
def result(made):
    record = [m for m in RECORD if m != ByGroup(fedmin.Auc())]  # an AUC of three labels is none
    return run(made[-1], record)


def test_every_line_is_that_of_scikit_learn_on_its_rows(made, result):
    x, y, groups, _ = made
    odds = result.model.predict_proba(x)
    chosen = odds.argmax(axis=1)
    train, test = np.arange(240) < 160, np.arange(240) >= 160
    got = result.final
    labels = [0, 1, 2]
    loss = lambda rows: metrics.log_loss(y[rows], odds[rows], labels=labels)
    for name, word in zip(GROUPS, ("a_b", "m"), strict=True):
        mine = groups == name
        np.testing.assert_allclose(got(f"train_log_loss_group_{word}"), loss(train & mine), 1e-6)
        right = np.mean((chosen == y)[test & mine])
        assert got(f"accuracy_group_{word}") == pytest.approx(right, rel=1e-6)
        table = metrics.confusion_matrix(y[test & mine], chosen[test & mine], normalize="all")
        found = [[got(f"confusion_{i}_{j}_group_{word}") for j in labels] for i in labels]
        np.testing.assert_allclose(found, table, rtol=1e-6)
    for k, name in enumerate(SITES):
        own = np.isin(np.arange(240), [range(50), range(50, 120), range(120, 160)][k])
        np.testing.assert_allclose(got(f"train_log_loss_site_{name}"), loss(own), 1e-6)
        right = np.mean((chosen == y)[own])
        assert got(f"train_accuracy_site_{name}") == pytest.approx(right, rel=1e-6)
    recall = metrics.recall_score(y[test], chosen[test], average=None)
    for k in labels:
        assert got(f"accuracy_class_{k}") == pytest.approx(recall[k], rel=1e-6)
        np.testing.assert_allclose(got(f"log_loss_class_{k}"), loss(test & (y == k)), 1e-6)
        area = metrics.roc_auc_score(y[test] == k, odds[test, k])
        assert abs(got(f"auc_class_{k}") - area) <= got(f"auc_error_class_{k}") + 1e-6
    wrong, found, _ = metrics.roc_curve(y[test] == 2, odds[test, 2], drop_intermediate=False)
    curve = [got(f"roc_{k + 1}") for k in range(20)]
    assert curve[-1] == pytest.approx(1.0)
    # a bin holds few rows: between two corners of the true curve
    for k, height in enumerate(curve[:-1]):
        near = found[np.abs(wrong - (k + 1) / 20) <= 1 / np.sum(y[test] != 2) + 0.02]
        assert near.min() - 0.05 <= height <= near.max() + 0.05


def test_between_halves_a_site_may_keep_its_own_line(made, result, monkeypatch, tmp_path):
    """The same numbers by messages; a site whose policy says so has none, and counts elsewhere."""

    class Guarded(memory.Memory):
        def __init__(self, sites, absent=()):
            super().__init__(sites)
            self.guarded = [
                GuardedSite(
                    site, Policy(own_line=site.name != "south"),
                    Departures(tmp_path / f"{site.name}.log", site.name), rounds=3,
                )
                for site in sites
            ]  # fmt: skip

        def deliver(self, messages, deadline=None, enough=None, before=None):
            return {i: self.guarded[i].answer(data) for i, data in messages.items()}

    monkeypatch.setattr(memory, "Memory", Guarded)
    record = [fedmin.Objective(), BySite(fedmin.Scores(on="train"))]
    same = run(made[-1], record, engine=fedmin.Loopback())
    for name in ("objective", "train_accuracy_site_north", "train_accuracy_site_west"):
        assert same.final(name) == pytest.approx(result.final(name), rel=1e-6)
    assert np.isnan(same.final("train_accuracy_site_south"))


def test_the_report_draws_them_and_says_what_was_not_told(result):
    history = {k: np.array(v) for k, v in result.history.items()}
    history["train_accuracy_site_south"][-1] = np.nan
    html = page("a page", {"fedsgd": replace(result, history=history)})
    drawn = pictures({"fedsgd": replace(result, history=history)})
    assert drawn in html
    figures = {f.findtext("figcaption/b") + (f.find("figcaption/b").tail or ""): f
               for f in fromstring(f"<div>{drawn}</div>").iter("figure")}  # fmt: skip
    words = {name: [t.text for t in f.iter("text")] for name, f in figures.items()}
    sites = words["Accuracy by site of the sites' rows"]
    assert [w for w in sites if w in SITES] == list(SITES)
    assert sites.count("not told") == 1
    assert sites[-1] == "accuracy"
    assert "AUC by class of test rows" in words
    axes = {"share of other rows taken for it", "share of its rows found"}
    assert axes <= set(words["ROC of test rows"])
    table = words["Confusion of shares of test rows, by group, m"]
    share = result.final("confusion_0_0_group_m")
    assert f"{100 * share:.1f} %" in table
    curves = json.loads(html.split('id="runs">')[1].split("</script>")[0])
    assert not any(is_part(chart["y"]) for chart in curves["charts"])
    assert "objective" in {chart["y"] for chart in curves["charts"]}


def run_of(made, record):
    return assemble(
        fedmin.Softmax(3, 3), made[-1], fedmin.FedSGD(1.0), fedmin.Everyone(), fedmin.Plain(),
        record, None,
    )  # fmt: skip


def test_a_policy_sees_the_metric_within(made):
    found = run_of(made, [BySite(fedmin.Confusion(on="train"))])
    allowed = Policy(metrics=("bysite",))
    assert "metric 'confusion'" in allowed.refuses(found, made[-1].roster(), 3)
    allowed = Policy(metrics=("bysite", "confusion"))
    assert allowed.refuses(found, made[-1].roster(), 3) == ""


@pytest.mark.parametrize(("make", "options", "words"), [
    (lambda: [BySite(fedmin.Scores())], {}, r"BySite is of the sites' own rows"),
    (lambda: [BySite(fedmin.Scores(on="train"))], {"channel": SecureSum(bound=8.0)},
     "shows each site by itself, and SecureSum is to hide that"),
    (lambda: [ByGroup(fedmin.GradientNorm())], {}, "GradientNorm is none of them"),
    (lambda: [ByClass(fedmin.Confusion())], {}, "has a line for each label itself"),
    (lambda: [fedmin.Auc()], {}, r"Auc is of two labels; the problem has 3: ByClass\(Auc\(\)\)"),
])  # fmt: skip
def test_what_cannot_be_is_refused(made, make, options, words):
    with pytest.raises(ValueError, match=words):
        run(made[-1], make(), **options)


def test_groups_are_needed(made):
    x, y, _, _ = made
    plain = fedmin.Federation.from_parts(x, y, [range(100), range(100, 240)], classes=3)
    with pytest.raises(ValueError, match="needs rows that are in groups"):
        run(plain, [ByGroup(fedmin.Scores(on="train"))])
    numbers = fedmin.Federation.from_parts(x, x[:, 0], [range(100), range(100, 240)])
    problem, record = fedmin.LeastSquares(3), [ByClass(fedmin.Objective())]
    with pytest.raises(ValueError, match="is of labels, and the rows have numbers"):
        fedmin.minimize(problem, numbers, fedmin.FedSGD(0.1), rounds=1, record=record)


def test_they_have_names_in_a_file():
    text = """
[data]
name = "breast_cancer"
[partition]
name = "iid"
clients = 3
[problem]
name = "logistic"
[method]
name = "fedsgd"
[run]
rounds = 2
record = ["objective", {name = "bysite", of = {name = "logloss", on = "train"}},
          {name = "byclass", of = {name = "scores"}}, {name = "roc", points = 5}]
"""
    config = Config(text)
    found = config.pieces(config.jobs()[0]).options["record"]
    assert found[1:] == [
        BySite(fedmin.LogLoss(on="train")), ByClass(fedmin.Scores()), fedmin.Roc(points=5)
    ]  # fmt: skip
    assert data.load("breast_cancer").classes == 2


def test_columns_of_parts_have_plain_names():
    assert plain_words(["f", "a, b", "a; b", "50-60"]) == ["f", "a_b_2", "a_b_3", "50-60"]
