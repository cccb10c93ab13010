"""`fedmin reproduce ... --quick`, a paper a test: claims run, are kept and have a verdict."""

import json

import pytest

from experiments.paper import judge
from fedmin.reports import claims as reproduce

VERDICTS = ("holds", "holds in part", "does not hold", "measured")


@pytest.mark.thorough
@pytest.mark.parametrize("name", reproduce.papers())
def test_claims_of_a_paper(name, tmp_path):
    paper = reproduce.papers()[name]
    wanted = list(paper.checks)
    said = []
    found = reproduce.reproduce(wanted, tmp_path, quick=True, say=said.append)
    assert [claim.id for claim in found] == wanted
    page = (tmp_path / "claims.html").read_text("utf-8")
    for claim in found:
        assert claim.verdict in VERDICTS
        assert all(claim)
        assert any(line.startswith(f"{claim.id} | {claim.paper} | ") for line in said)
        assert claim.id in page
        kept = json.loads((tmp_path / name / f"{claim.id}.json").read_text("utf-8"))
        assert kept["verdict"] == claim.verdict
        assert kept["measured"]["command"].endswith(f"--only {claim.id} --quick")
        assert set(kept["measured"]["versions"]) >= {"fedmin", "jax", "python"}
    # what was run is in the book: a second look runs nothing, and says the same
    book = paper.book(paper.quick, tmp_path / name / "runs.json", said.append)
    book.recall()
    before = dict(book.done)
    again = [paper.checks[claim.id](book, paper.quick) for claim in found]
    assert book.done == before
    assert [(claim.ours, claim.verdict) for claim in again] == [
        (claim.ours, claim.verdict) for claim in found
    ]


def test_verdicts():
    parts = ([True, True], [True, False], [False, False])
    assert [judge(some) for some in parts] == ["holds", "holds in part", "does not hold"]


def test_stored_results_say_how_they_were_made():
    for name, paper in reproduce.papers().items():
        for path in sorted(paper.results.glob("*-*.json")):
            kept = json.loads(path.read_text("utf-8"))
            assert kept["verdict"] in VERDICTS, path.name
            command = f"python -m experiments.{name} --only {path.stem}"
            assert kept["measured"]["command"].startswith(command)
            assert kept["measured"]["date"] > "2026"
