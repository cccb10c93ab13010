"""A site.toml to begin with: every key, what it is, and a policy to think about."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from fedmin.privacy.certificates import check_name
from fedmin.privacy.policy import Policy
from fedmin.runs.site_file import SiteData, SiteFile
from fedmin.runs.template import comments_of, toml

TEXT = """\
# What site {name} needs to take part in a federation, and what it allows. This file, the rows and
# the key stay here. Paths are relative to this file.
{site}

[data]
{data}

# What may be done with these rows, whatever the server says: what is left out is not limited. A run
# that goes beyond it is refused before it begins, and a round when it is asked for.
[policy]
{policy}
"""
# what stands there to begin with; everything else is shown behind a #
GIVEN: dict[type, dict[str, Any]] = {
    SiteFile: {"server": "fed.example.org:8443"},
    SiteData: {"file": "rows.csv", "outcome": "outcome"},
    Policy: {"smallest_roster": 3, "smallest_cohort": 3, "most_rounds": 500},
}
SHOWN: dict[type, dict[str, Any]] = {
    SiteFile: {"state": "state"},
    SiteData: {"features": ["age", "dose"], "groups": "sex", "id": "patient", "separator": ",",
               "rows_told": True},
    Policy: {
        "methods": ["fedavg", "scaffold"], "problems": ["logistic", "softmax"], "constraints": [],
        "channels": ["plain"], "metrics": ["objective"], "smallest_sum": 3, "largest_epsilon": 2.0,
        "columns": ["age", "dose", "outcome"], "modules": ["our_losses"],
        "runs": ["0123456789abcdef"], "own_line": False, "seeded": False,
    },
}  # fmt: skip


def site_template(name: str) -> str:
    """The text of a site's file to begin with.

    >>> from fedmin.runs.site_file import SiteFile
    >>> from fedmin.runs.site_template import site_template
    >>> SiteFile.of(site_template("a")).policy.smallest_cohort
    3
    """
    check_name(name)
    own = {"name": name, "keys": name}
    log = {"log": f"{name}.log"}
    return TEXT.format(
        name=name, site=_lines(SiteFile, own, log), data=_lines(SiteData, {}, {}),
        policy=_lines(Policy, {}, {}),
    )  # fmt: skip


def _lines(kind: Any, given: Mapping[str, Any], shown: Mapping[str, Any]) -> str:
    given, shown = {**GIVEN[kind], **given}, {**SHOWN[kind], **shown}
    comments, lines = comments_of(kind), []
    for field in dataclasses.fields(kind):
        if field.name in given or field.name in shown:
            before = "" if field.name in given else "# "
            text = f"{before}{field.name} = {toml({**given, **shown}[field.name])}"
            words = comments.get(field.name)
            lines.append(f"{text:<42} # {words}" if words else text)
    return "\n".join(lines)
