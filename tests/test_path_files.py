"""Paths from files: the folder, its page, going on after an interruption, mistakes."""

import json

import numpy as np
import pytest

import fedmin
from fedmin.core.kept import DamagedError
from fedmin.reports.paths import path_section
from fedmin.runs.config import Config, ConfigError
from fedmin.runs.costs import fitted
from fedmin.runs.folder import run_one
from test_runs import call

FILE = """\
[data]
name = "diabetes"
standardize = true
[partition]
name = "iid"
clients = 3
[problem]
name = "leastsquares"
bias = true
[path]
radii = [10.0, 40.0]
choose = "holdout"
[run]
rounds = 8
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run's folder whose path was interrupted once, and went on."""
    place = tmp_path_factory.mktemp("path")
    (place / "path.toml").write_text(FILE, "utf-8")
    asked = []

    def why():  # in the middle of the second of four models
        asked.append(1)
        return "told to" if len(asked) == 3 else ""

    job = Config.read(place / "path.toml").jobs()[0]
    first = run_one(job, place / "out" / job.folder, interrupt=why)
    assert first.result.status == "interrupted"
    assert (first.folder / "path" / "holdout-1").is_dir()
    assert not (first.folder / "path.json").exists()
    done = call("run", place / "path.toml", "--out", place / "out", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["status"] == "done"
    return first.folder


def test_a_file_makes_the_path_of_python(folder):
    config = Config(FILE)
    pieces = config.pieces(config.jobs()[0])
    found = fedmin.path(
        fedmin.LeastSquares(10, bias=True), pieces.federation, radii=[10.0, 40.0],
        choose="holdout", rounds=8,
    )  # fmt: skip
    words = json.loads((folder / "path.json").read_text("utf-8"))
    assert words["value"] == found.value
    assert words["table"]["score"] == [point.score for point in found.points]
    assert words["bytes"] == found.ledger.by_kind()  # an interruption sends nothing twice
    kept = fedmin.Result.load(folder)
    np.testing.assert_array_equal(kept.solution, found.result.solution)
    assert {"path.csv", "path.npy", "path.png", "model.json"} <= {p.name for p in folder.iterdir()}
    assert not (folder / "path").exists()  # what it would go on from is of no use now


def test_the_page_has_the_scores_and_the_choice(folder):
    page = (folder / "report.html").read_text("utf-8")
    assert "<h2>Path</h2>" in page
    assert "radius of L1Ball" in page
    assert "chosen, " in page
    assert "Bytes of all its runs" in page


def test_a_damaged_path_is_named(folder, tmp_path):
    words = json.loads((folder / "path.json").read_text("utf-8"))
    del words["sha256"]  # which would be wrong first
    for change in (
        {"table": {"radius": [1.0], "score": [1.0, 2.0], "error": [0.1], "choice": [""]}},
        {"table": {"radius": ["<b>"], "score": [1.0], "error": [0.1], "choice": [""]}},
        {"table": {"radius": [1.0], "score": [None], "error": [0.1], "choice": [""]}},
        {"table": {}}, {"label": 3},
    ):  # fmt: skip
        (tmp_path / "path.json").write_text(json.dumps(words | change), "utf-8")
        with pytest.raises(DamagedError, match=r"path\.json"):
            path_section(tmp_path)
    words["table"]["choice"], words["label"] = ["<script>", ""], "<b>"
    (tmp_path / "path.json").write_text(json.dumps(words), "utf-8")
    html = path_section(tmp_path)
    assert "<script" not in html
    assert "<b>" not in html


def test_a_file_is_shown_and_known_by_all_its_defaults(folder, tmp_path):
    (tmp_path / "path.toml").write_text(FILE, "utf-8")
    shown = call("show", tmp_path / "path.toml")
    assert shown.exit_code == 0, shown.output
    assert "2 radii on all rows and once with rows held out" in shown.output
    job = Config(FILE).jobs()[0]
    assert folder.name == job.folder
    again = Config.read(folder / "run.toml").jobs()[0]
    assert again.id == job.id
    assert again.words["method"]["name"] == "ssca"
    longer = FILE.replace('choose = "holdout"', 'choose = "holdout"\none_standard_error = false')
    assert Config(longer).jobs()[0].id != job.id


def test_what_is_left_out_has_a_value():
    """A method that finds its own step, and rounds for it."""
    own = FILE.replace("radii = [10.0, 40.0]", "sizes = [3, 5]").replace("rounds = 8\n", "")
    words = Config(own).jobs()[0].words
    assert words["method"]["name"] == "sparsenewton"
    assert words["run"]["rounds"] == 60
    pieces, _ = fitted(Config(own).jobs()[0])
    assert (pieces.problem.domain.tau, pieces.problem.domain.free) == (5, ("bias",))


MISTAKES = {
    "line 11: radii must rise": ("radii = [10.0, 40.0]", "radii = [40.0, 10.0]"),
    "line 11: radii is an empty list": ("radii = [10.0, 40.0]", "radii = []"),
    "give one of them, got sizes and radii": ("choose =", "sizes = [3]\nchoose ="),
    "line 12: choose: unknown word 'aic'": ('"holdout"', '"aic"'),
    "line 11: unknown key 'size' in .path.; did you mean 'sizes'": (
        "radii = [10.0, 40.0]",
        "size = 3",
    ),
    "line 13: set: unknown domain|line 13: .*'l1bal'": ("[run]", 'set = "l1bal"\n[run]'),
    "is of one run, and a path is many": ("rounds = 8", "rounds = 8\nevery = 2"),
    "a path asks all sites in every round": (
        "[run]",
        '[participation]\nname = "cyclic"\ncount = 2\n[run]',
    ),
    "choose there without": ("[run]", '[federation]\nsites = ["a", "b", "c"]\n[run]'),
    "line 11: sizes has 11, which does not fit": ("radii = [10.0, 40.0]", "sizes = [2, 11]"),
    "limits need a problem with a constraint": ("radii = [10.0, 40.0]", "limits = [2.0]"),
    "path must be a section": ('[path]\nradii = [10.0, 40.0]\nchoose = "holdout"\n', ""),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_are_named_with_their_line(words):
    old, new = MISTAKES[words]
    assert old in FILE
    text = ("path = 3\n" if not new else "") + FILE.replace(old, new)
    with pytest.raises(ConfigError, match=words):
        fitted(Config(text).jobs()[0])
