"""The papers' claims, each an executable check: what they printed, what we measured, the verdict.

The checks are in the repository's folder experiments/, a folder a paper, each with the full results
that were last measured. They need a checkout; an installed package has none of them.
"""

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from fedmin.core import checks
from fedmin.reports.page import frame
from fedmin.reports.tables import table

PAPERS = {
    "ssca": "Cui et al. 2022, SSCA",
    "fedsso": "Ma et al. 2023, FedSSO",
    "fedht": "Tong et al. 2022, Fed-HT",
    "fedfw": "Dadras et al. 2024, FedFW",
}
# claims of METHODS.md section 8 that no check is written for yet
UNTESTED: dict[str, str] = {}
TONES = {"holds": "k4", "holds in part": "k5", "does not hold": "k2"}  # green, amber, red
HEAD = ("id", "paper", "ours", "tolerance", "verdict", "reason")


class Claim(NamedTuple):
    """A line of the table."""

    id: str
    paper: str
    ours: str
    tolerance: str
    verdict: str
    reason: str


def folder() -> Path:
    """The folder experiments/ of the checkout."""
    for place in (Path(__file__).parents[3], Path.cwd()):
        if (place / "experiments" / "__init__.py").exists():
            return place / "experiments"
    raise ValueError("no folder experiments/ here: reproduce works in a checkout of fedmin")


def papers() -> dict[str, Any]:
    """The papers whose checks are there."""
    place = folder()
    if str(place.parent) not in sys.path:
        sys.path.insert(0, str(place.parent))
    return {
        name: importlib.import_module(f"experiments.{name}.run").PAPER
        for name in PAPERS
        if (place / name / "run.py").exists()
    }


def claims() -> dict[str, str]:
    """Every claim there is a check for, and its paper."""
    return {claim: name for name, paper in papers().items() for claim in paper.checks}


def kept(claim: str, paper: str) -> dict[str, Any]:
    """What was last measured in full, as its file has it; nothing if it never was."""
    path = folder() / paper / "results" / f"{claim}.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def stored(claim: str, paper: str) -> Claim:
    """What was last measured in full; "not run yet" if nothing was."""
    words = kept(claim, paper)
    if not words:
        return Claim(claim, "", "", "", "not run yet", "no full results are stored")
    return Claim(*(str(words[key]) for key in HEAD))


def all_claims() -> list[Claim]:
    """All claims with their stored results."""
    found = [stored(claim, paper) for claim, paper in claims().items()]
    missing = {k: why for k, why in UNTESTED.items() if k not in claims()}
    return found + [Claim(k, "", "", "", "not tested here", why) for k, why in missing.items()]


def reproduce(
    names: Iterable[str], out: Path, *, quick: bool = False, say: Callable[[str], None] = print
) -> list[Claim]:
    """Check the named claims ("all" is every one), the results and a page into `out`."""
    known = claims()
    names = list(known) if list(names) == ["all"] else list(names)
    for name in names:
        checks.known("claim", name, known)
    found: list[Claim] = []
    for title, paper in papers().items():
        wanted = [name for name in names if known[name] == title]
        if wanted:
            setting = paper.quick if quick else paper.setting
            done = paper.check(wanted, setting, out / title, say=say)
            found += [Claim(*(getattr(claim, key) for key in HEAD)) for claim in done]
    out.mkdir(parents=True, exist_ok=True)
    (out / "claims.html").write_text(page(found, quick), "utf-8")
    return found


def page(found: Iterable[Claim], quick: bool = False) -> str:
    """One HTML page over all of them."""
    lead = "What each paper claims, what was measured here, and whether it holds."
    if quick:
        lead += " Quick: tiny data and few rounds, to see that it runs; no verdict on the papers."
    found = list(found)
    first = table(
        ("id", "verdict", "paper"), ((c.id, c.verdict, c.paper) for c in found), numeric=False
    )
    for verdict, tone in TONES.items():
        first = first.replace(f"<td>{verdict}</td>", f'<td><i class="{tone}"></i>{verdict}</td>')
    body = f"<section><h2>All of them</h2>{first}</section>"
    return frame("The papers' claims", lead, body + "".join(map(_section, found)), None)


def _section(claim: Claim) -> str:
    """A claim with all that was measured, a part a line."""
    parts = {
        "what the paper says": claim.paper,
        "measured here": claim.ours,
        "to hold": claim.tolerance,
        "verdict": f"{claim.verdict}: {claim.reason}",
    }
    lines = "".join(
        f"<h3>{name}</h3>" + "".join(f"<div>{escape(one)}</div>" for one in parts_of(words))
        for name, words in parts.items()
        if words
    )
    return f'<section id="{escape(claim.id)}"><h2>{escape(claim.id)}</h2>{lines}</section>'


def markdown() -> str:
    """The page of the documentation, from the stored results: verdicts, then a section a claim."""
    lines = [
        "# The papers' claims", "",
        "Made by `fedmin reproduce --page` from the results in `experiments/*/results`, where the",
        "numbers behind a verdict are. `fedmin reproduce ID` checks one again,",
        "`fedmin reproduce all --quick` all of them, tiny.", "",
        "| id | verdict | claim |", "|---|---|---|",
    ]  # fmt: skip
    for claim in all_claims():
        name = f"[{claim.id}](#{claim.id.lower()})" if claim.ours else claim.id
        lines.append(f"| {name} | {claim.verdict} | {_cell(claim.paper or claim.reason)} |")
    for paper, title in PAPERS.items():
        lines += ["", f"## {title}"]
        found = [kept(name, paper) for name, of in claims().items() if of == paper]
        lines += [line for words in found if words for line in _full_section(words)]
    return "\n".join(lines) + "\n"


def _full_section(words: dict[str, Any]) -> list[str]:
    """A claim's file with all that was measured, a part a line."""
    made = words["measured"]
    versions = ", ".join(f"{name} {made['versions'][name]}" for name in ("fedmin", "jax"))
    paper, verdict = (words[key][:1].upper() + words[key][1:] for key in ("paper", "verdict"))
    return [
        "", f"### {words['id']}", "",
        f"{paper}.", "",
        f"**{verdict}**: {words['reason']}.", "",
        f"To hold: {words['tolerance']}.", "",
        f"Measured on {made['date']} with {versions}, `{made['command']}`:", "",
        *(f"- {part}" for part in parts_of(words["ours"])),
    ]  # fmt: skip


def parts_of(words: str) -> list[str]:
    """What stands between semicolons, but for those in brackets.

    >>> parts_of("a 1 (b; c); d 2")
    ['a 1 (b; c)', 'd 2']
    """
    return re.split(r"; (?![^(]*\))", words)


def _cell(words: str) -> str:
    return words.replace("|", "\\|")
