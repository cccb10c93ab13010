"""One HTML page of several runs that opens offline: no script, font or picture from elsewhere.

Python writes the tables and the runs' numbers (as JSON); page.js draws the curves from them, so
that axes can be switched, values read off and runs hidden. page.css and page.js are pasted in.

What a page says may come from a folder of a stranger's: every value is escaped, and a policy in the
page itself lets a browser run page.js and nothing else (`policy`).
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from fedmin.core.curves import LABELS, axis_of
from fedmin.core.environment import versions
from fedmin.core.holdings import Holdings
from fedmin.core.result import Result
from fedmin.reports import quality, tables
from fedmin.reports.figures import in_logs, lowest
from fedmin.reports.holdings import holdings_picture

MOST_POINTS = 800  # a curve; more cannot be seen on a screen
Section = tuple[str, str]  # heading, HTML


def page(
    title: str,
    results: Mapping[str, Result],
    *,
    lead: str = "",
    held: Mapping[str, Holdings] | None = None,
    sections: Sequence[Section] = (),
    columns: Sequence[str] | None = None,
    against: Sequence[str] = ("round", "megabytes", "seconds"),
    made: Mapping[str, str] | None = None,
) -> str:
    """The page as one string of HTML.

    title, lead  what it says on top; `lead` is plain text
    results      the runs, by the names they go by on the page
    held         who holds what in each run
    sections     pairs (heading, HTML) of the caller's own, after the table of finals
    columns      which recorded columns get curves; all, unless said otherwise
    against      the axes to switch between; the first two are what is shown first, of what a
                 method itself reports the first
    made         what the runs were made with; if not said, what is here now
    """
    if not results:
        raise ValueError("a page needs at least one run, got none")
    if columns is None:  # parts of a picture are no curves
        columns = [c for c in tables.recorded(results) if not quality.is_part(c)]
    parts: list[Section] = [("How they ended", tables.finals(results)), *sections]
    drawn = quality.pictures(results)
    if drawn:
        parts.append(("How good the last model is", drawn))
    parts.append(("Bytes by kind", tables.by_kind(results)))
    if held:
        parts.append(("Who holds what", _held(held)))
    left = tables.left(results)
    if left:
        parts.append(("What left each site", left))
    certified = {name: run for name, run in results.items() if run.certificate is not None}
    if certified:
        parts.append(("Certificates", "".join(
            f"<h3>{escape(name)}</h3><pre>{escape(str(run.certificate))}</pre>"
            for name, run in certified.items()
        )))  # fmt: skip
    parts.append(("Parameters", tables.parameters(results) + _problem(results)))
    cited = citations({run.method.citation for run in results.values()})
    if cited:
        parts.append(("To cite", f"<pre>{escape(cited)}</pre>"))
    parts.append(("Made with", tables.pairs(made or versions())))
    body = "".join(f"<section><h2>{escape(head)}</h2>{html}</section>" for head, html in parts)
    return frame(title, lead, body, chart_data(results, columns, against))


def citations(keys: Iterable[str]) -> str:
    """The BibTeX entries with these keys."""
    text = files("fedmin").joinpath("references.bib").read_text("utf-8")
    found = re.findall(r"^@\w+\{([^,]+),.*?^\}", text, re.MULTILINE | re.DOTALL)
    entries = re.findall(r"^@\w+\{.*?^\}", text, re.MULTILINE | re.DOTALL)
    wanted = set(keys)
    return "\n\n".join(e for key, e in zip(found, entries, strict=True) if key in wanted)


def chart_data(
    results: Mapping[str, Result], columns: Sequence[str], against: Sequence[str]
) -> dict[str, Any]:
    """What page.js draws: every run's numbers, and which charts to begin with."""
    needed = list(dict.fromkeys([*against, *columns]))
    return {
        "runs": [
            {"name": name, "values": {c: _thin(axis_of(run, c)) for c in needed}}
            for name, run in results.items()
        ],
        "charts": [
            {"y": column, "x": x, "log": in_logs(results, column), "low": lowest(results, column)}
            for column in columns
            for x in against[: 2 if column in LABELS else 1]  # a method's own numbers once
        ],
        "against": list(against),
        "labels": {c: LABELS.get(c, c.replace("_", " ")) for c in needed},
    }


def _thin(values: np.ndarray) -> list[float | None]:
    """At most MOST_POINTS of them, the ends included; what is not finite becomes a gap."""
    count = len(values)
    kept = np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(int))
    numbers = (float(v) for v in np.asarray(values)[kept])
    return [float(f"{v:.7g}") if math.isfinite(v) else None for v in numbers]


def _held(held: Mapping[str, Holdings]) -> str:
    """Who holds what, once where runs share it."""
    runs: dict[str, list[str]] = {}
    for name, one in held.items():
        runs.setdefault(holdings_picture(one), []).append(name)
    if len(runs) == 1:
        return next(iter(runs))
    return "".join(f"<h3>{escape(', '.join(names))}</h3>{html}" for html, names in runs.items())


def _problem(results: Mapping[str, Result]) -> str:
    """The problem, once where all runs share it."""
    problems = [run.problem for run in results.values() if run.problem is not None]
    shown = {str(problem): tables.settings(problem) for problem in problems}
    return "".join(f"<h3>Problem</h3>{tables.pairs(values)}" for values in shown.values())


PLACES = """<nav id="legend" aria-label="runs; press to hide or show"></nav>
<div id="charts"><noscript>The curves are drawn by a script in this page; it is off here.
The tables below need none.</noscript></div>
"""


def policy() -> str:
    """What a browser may do with a page: run page.js as it is here, and load nothing at all."""
    content = base64.b64encode(hashlib.sha256(_script().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{content}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


def _script() -> str:
    return "\n" + files("fedmin.reports").joinpath("page.js").read_text("utf-8")


def frame(title: str, lead: str, body: str, data: dict[str, Any] | None) -> str:
    """A page around some HTML; with curves, if there are numbers for them."""
    style = files("fedmin.reports").joinpath("page.css").read_text("utf-8")
    places = scripts = ""
    if data is not None:
        places = PLACES
        # no "<" at all: "</script>" would end the element early, "<!--" and "<script" too late
        numbers = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
        scripts = f'<script type="application/json" id="runs">{numbers}</script>\n'
        scripts += f"<script>{_script()}</script>\n"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy()}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<header><h1>{escape(title)}</h1>{f"<p>{escape(lead)}</p>" if lead else ""}</header>
{places}{body}
</main>
{scripts}</body>
</html>
"""
