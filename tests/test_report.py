"""The page and the picture of a run: whole, offline, and with the run's own numbers."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import fedmin
from fedmin import reports
from fedmin.core.holdings import Holdings
from fedmin.reports.figures import figure, in_logs
from fedmin.reports.holdings import holdings_picture
from fedmin.reports.page import MOST_POINTS, chart_data

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Whole(HTMLParser):
    """Refuses tags that do not close; keeps the text of cells and scripts."""

    def __init__(self, html: str):
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.scripts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert not {"src", "href"} & dict(attrs).keys(), (tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, words):
        if self.open and self.open[-1] in ("td", "th", "dd", "em"):
            self.cells.append(words)
        if self.open and self.open[-1] == "script":
            self.scripts.append(words)


class Made(NamedTuple):
    results: dict[str, fedmin.Result]
    federation: fedmin.Federation
    picture: Path


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Two methods on digits, three rounds each."""
    split = fedmin.data.LabelsPerClient(10, 2)
    federation = fedmin.data.partition(fedmin.data.load("digits"), split)
    record = (fedmin.Objective(), fedmin.Scores("test"), fedmin.GradientNorm())
    batches = fedmin.Blocks(32)
    methods = {
        "FedAvg": fedmin.FedAvg(0.1, epochs=1, batches=batches),
        "SCAFFOLD": fedmin.Scaffold(0.1, epochs=1, batches=batches),
    }
    problem = fedmin.Softmax(64, 10, l2=1e-3, bias=True)
    results = {
        name: fedmin.minimize(problem, federation, method, rounds=3, record=record)
        for name, method in methods.items()
    }
    path = tmp_path_factory.mktemp("report") / "runs.png"
    return Made(results, federation, figure(results, path, title="Two methods"))


@pytest.fixture(scope="module")
def html(found):
    held = dict.fromkeys(found.results, Holdings.of(found.federation))
    return reports.page("Two methods", found.results, held=held)


def test_page_is_whole_and_offline(html):
    Whole(html)
    assert not re.search(r"https?://|//[a-z]+\.|src=|@import|url\((?!#)", html)
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html


def test_page_has_the_runs_numbers(found, html):
    cells = Whole(html).cells
    for name, run in found.results.items():
        assert name in cells
        for column in ("objective", "accuracy", "gradient_norm"):
            assert f"{run.final(column):.4g}" in cells
        for size in run.ledger.by_kind().values():
            assert f"{size:,}" in cells
        assert f"{run.ledger.bytes():,}" in cells
        assert f"{run.ledger.bytes(evaluation=True):,}" in cells
    for line in reports.versions().values():
        assert line in cells


def test_bars_are_of_training_and_no_longer_than_the_page(html):
    (bars,) = re.findall(r'<div class="bars">.*?</table>', html, re.DOTALL)
    widths = [
        sum(map(float, re.findall(r"width:([\d.]+)%", bar)))
        for bar in bars.split('<div class="bar">')[1:]
    ]
    assert max(widths) == pytest.approx(100, abs=0.01)
    before, _, after = bars.partition(">all<")
    assert "evaluation" not in before
    assert "evaluation up sums" in after


def test_curves_are_the_history(found, html):
    data = json.loads(Whole(html).scripts[0])
    assert [run["name"] for run in data["runs"]] == ["FedAvg", "SCAFFOLD"]
    for run, result in zip(data["runs"], found.results.values(), strict=True):
        sent = (result.history["bytes_down"] + result.history["bytes_up"]) / 1e6
        np.testing.assert_allclose(run["values"]["megabytes"], sent, rtol=1e-6)
        np.testing.assert_allclose(
            run["values"]["objective"], result.history["objective"], rtol=1e-6
        )
    shown = {(chart["y"], chart["x"]) for chart in data["charts"]}
    assert {(y, x) for y in ("objective", "accuracy") for x in ("round", "megabytes")} <= shown


def test_scaffold_sends_twice_the_bytes(found):
    """The picture by bytes is only honest if the bytes are."""
    fedavg, scaffold = (run.ledger.by_kind() for run in found.results.values())
    payload = [
        sum(v for k, v in kinds.items() if not re.search("header|evaluation", k))
        for kinds in (fedavg, scaffold)
    ]
    assert payload[1] == 2 * payload[0]


def test_names_cannot_break_the_page(found):
    run = found.results["FedAvg"]
    html = reports.page("a < b & c", {'</script><b x="': run}, lead="<i>")
    names = [r["name"] for r in json.loads(Whole(html).scripts[0])["runs"]]
    assert names == ['</script><b x="']


def test_a_gap_where_a_number_is_not_finite(found):
    run = found.results["FedAvg"]
    broken = {**run.history, "objective": np.array([1.0, np.nan, np.inf, 0.5])}
    odd = fedmin.Result(**{**vars(run), "history": broken})
    values = chart_data({"odd": odd}, ["objective"], ["round"])["runs"][0]["values"]
    assert values["objective"] == [1.0, None, None, 0.5]
    Whole(reports.page("odd", {"odd": odd}))


def test_long_runs_are_thinned_with_their_ends(found):
    run = found.results["FedAvg"]
    count = 10 * MOST_POINTS
    long = {c: np.arange(count, dtype=float) for c in run.history}
    result = fedmin.Result(**{**vars(run), "history": long})
    values = chart_data({"long": result}, ["objective"], ["round"])["runs"][0]["values"]["round"]
    assert len(values) == MOST_POINTS
    assert (values[0], values[-1]) == (0, count - 1)


def test_a_page_needs_a_run():
    with pytest.raises(ValueError, match="at least one run"):
        reports.page("none", {})


def test_picture_is_a_png(found):
    from matplotlib.image import imread

    pixels = imread(found.picture)
    assert pixels.shape[0] > 500
    assert pixels.std() > 0.01  # not blank


def test_logs_only_where_they_help(found):
    assert not in_logs(found.results, "accuracy")
    wide = fedmin.Result(
        **{**vars(found.results["FedAvg"]), "history": {"objective": np.array([9.0, 0.1])}}
    )
    assert in_logs({"wide": wide}, "objective")


def test_the_picture_of_holdings_shows_every_count(found):
    counts = found.federation.label_counts()
    picture = holdings_picture(Holdings.of(found.federation))
    Whole(picture)
    shown = [int(n) for n in re.findall(r'class="(?:on|off)"[^>]*>(\d+)<', picture)]
    assert shown == [int(n) for n in counts.ravel() if n]


@pytest.mark.parametrize("clients", [3, 80])
def test_the_picture_of_holdings_without_labels(clients):
    made = fedmin.data.quadratics(clients=clients, dim=2)
    picture = holdings_picture(Holdings.of(fedmin.data.partition(made)))
    Whole(picture)
    assert ("and 20 more clients" in picture) == (clients == 80)


def test_a_page_says_what_to_cite(found):
    made = reports.page("A", found.results)
    assert "@inproceedings{mcmahan2017fedavg," in made
    assert "@inproceedings{karimireddy2020scaffold," in made
    assert "ma2023fedsso" not in made
