"""The demo: every card has its picture and its number, on a page that is whole and offline."""

import re
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

import fedmin
from fedmin.cli import app, demo
from fedmin.cli.demo import departures, sparse

TINY = demo.Setting(share=0.02)
pytestmark = pytest.mark.thorough  # eight programs are compiled


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The command's own words, and what it found."""
    out, kept = tmp_path_factory.mktemp("demo") / "new", []
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # so few rounds meet no limit
        whole = demo.run
        patch.setattr(demo, "run", lambda out, say: kept.append(whole(out, TINY, say)) or kept[0])
        outcome = CliRunner().invoke(app.app, ["demo", "--out", str(out)])
    assert outcome.exit_code == 0, outcome.output
    return outcome, kept[0]


def test_the_command_says_every_sentence_and_where_the_pictures_are(shown):
    outcome, found = shown
    for path in (found.picture, found.page):
        assert str(path) in outcome.stdout
        assert path.stat().st_size > 1000
    plain = " ".join(outcome.stdout.split())
    for card in found.cards:
        assert card.title in plain
        assert " ".join(card.sentence.split()) in plain
    assert "drawing" in outcome.stderr


def test_the_page_is_offline_and_follows_the_colors_of_the_reader(shown):
    _, found = shown
    html = found.page.read_text("utf-8")
    assert not re.search(r"https?://|//[a-z]+\.|src=|@import|url\((?!#)", html)
    assert html.count("<svg") == html.count("</svg>") == len(found.cards) == 5
    assert "var(--c0)" in html
    assert "#4477aa" not in html
    ids = re.findall(r'id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', html))
    assert used <= set(ids)


def test_the_picture_is_a_whole_sheet(shown):
    from matplotlib.image import imread

    pixels = imread(shown[1].picture)
    half, third = pixels.shape[0] // 2, pixels.shape[1] // 3
    cells = [
        pixels[i * half : (i + 1) * half, k * third : (k + 1) * third]
        for i in range(2)
        for k in range(3)
    ]
    assert all(cell[..., :3].std() > 0.01 for cell in cells)  # none is blank


def test_numbers_of_the_cards_are_those_of_the_runs(shown):
    bounded, few, atoms, curvature, left = shown[1].cards
    assert few.found["nonzeros"] <= sparse.NONZEROS
    w = np.asarray(few.results["sparse"].solution)
    assert np.count_nonzero(w) == few.found["nonzeros"]
    assert bounded.results["bounded"].privacy.sums
    ledger = bounded.results["bounded"].ledger
    sent = sum(size for kind, size in ledger.by_kind().items() if " up " in f" {kind}")
    assert sum(left.found["sent"].values()) == pytest.approx(sent / bounded.found["sites"])
    for run in atoms.results.values():
        assert run.history["objective"].min() <= atoms.found["level"] + 1e-6
    for name, run in curvature.results.items():
        first = run.first("accuracy", 0.93)
        assert curvature.found[name] == (np.inf if first is None else first)


def test_what_one_client_alone_shows_has_its_words(shown):
    assert set(shown[1].cards[-1].found["alone"]) == set(departures.WORDS)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_lines_that_are_shown_run(shown):
    x, y, _ = sparse.patients()
    sites = [(x[k::20], y[k::20]) for k in range(20)]
    known = {"fedmin": fedmin, "data": fedmin.data, "np": np, "sites": sites}
    for card in shown[1].cards:
        words = re.sub(r"rounds=\d+", "rounds=2", card.code)
        exec(words, known)  # what a card shows is a program
