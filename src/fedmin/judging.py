"""What is said of a run that has ended: by its metrics, its certificate and its constraints."""

import warnings
from dataclasses import replace

from fedmin.core.federation import Federation
from fedmin.core.result import Result
from fedmin.core.roster import Roster
from fedmin.core.rows import Rows
from fedmin.engines.messages import reports_of
from fedmin.engines.round import Run


def judged(result: Result, run: Run, federation: Federation) -> Result:
    """The result of an engine with all that can be said of it."""
    roster = federation.roster(run.participation.everyone)
    return judged_apart(result, run, roster, federation.server_rows)


def judged_apart(result: Result, run: Run, roster: Roster, server_rows: Rows | None) -> Result:
    """The same for whoever has a roster and no client's rows."""
    rising = reports_of(run, roster, server_rows).rising
    return _with_constraints(replace(result, rising=rising))


def _with_constraints(result: Result) -> Result:
    """With what the certificate says of the constraints; or with the words that nobody looked."""
    if not result.problem.num_constraints or result.status not in ("done", "stopped", "infeasible"):
        return result
    found, status, said = result.certificate, result.status, [result.reason]
    if found is not None and not found.feasible:
        status = "infeasible"
        said.append(found.verdict)
    if found is None and result.best is None:
        said.append("the constraints were not measured: record Optimality(), or take a certificate")
    return replace(result, status=status, reason="; ".join(words for words in said if words))


def warn(result: Result, stacklevel: int = 3) -> None:
    """Warn of a run that did not end well."""
    name, words = type(result.method).__name__, ""
    if result.status == "diverged":
        words = f"{name} stopped at {result.reason}; the result has what came before"
    if result.status == "infeasible":
        words = f"{name}: {result.reason}"
    if words:
        warnings.warn(words, RuntimeWarning, stacklevel=stacklevel)
