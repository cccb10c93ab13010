"""Every name that a configuration file may use: the registries of all rooms, and nothing else.

A field's type decides which of them may stand in it: `batches: Batches` takes the classes of
`BATCHES`, `local_steps: int | Stages` only "stages". To give a file new names, give them a line in
the registry of their room, and a new registry a line in `KINDS`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx

from fedmin.channels import CHANNELS
from fedmin.client import BATCHES, COMPRESSORS
from fedmin.core import checks
from fedmin.core.metrics import METRICS
from fedmin.core.metrics_by import METRICS_BY
from fedmin.core.participation import PARTICIPATIONS
from fedmin.core.prediction_metrics import PREDICTION_METRICS
from fedmin.core.schedule import FRANK_WOLFE_STEPS, SCHEDULES
from fedmin.core.serialize import ACTIVATIONS
from fedmin.core.stopping import RULES
from fedmin.data import PARTITIONERS
from fedmin.domains import DOMAINS
from fedmin.engines.simulator.simulator import Simulator
from fedmin.engines.transports.memory import Loopback
from fedmin.engines.transports.processes import Processes
from fedmin.methods import METHODS, PENALTIES, SECOND_MOMENTS, TAU_RULES
from fedmin.problems import CONSTRAINTS, PROBLEMS
from fedmin.runs.fields import Field, options_of
from fedmin.runs.loggers import LOGGERS
from fedmin.server.quasi_newton.forms import CURVATURES


class Kind(NamedTuple):
    """Names that may stand in the same place."""

    one: str  # what one of them is called, with its article
    registry: Mapping[str, Any]

    def missing(self, name: Any) -> str:
        """What to say of a name that is not here: the nearest that is, and what it is instead."""
        near = checks.nearest(name, self.registry)
        elsewhere = [kind.one for kind in KINDS.values() if name in list(kind.registry)]
        if self.one in elsewhere:
            return f"{name!r} is {self.one} that cannot stand here; {near}"
        if elsewhere:
            return f"{name!r} is {elsewhere[0]}, not {self.one}; {near}"
        return f"unknown {self.one.partition(' ')[2]} {name!r}; {near}"


ENGINES = {"simulator": Simulator, "loopback": Loopback, "processes": Processes}

# by the name of their list in `fedmin list`
KINDS: dict[str, Kind] = {
    "methods": Kind("a method", METHODS),
    "problems": Kind("a problem", PROBLEMS),
    "partitioners": Kind("a partitioner", PARTITIONERS),
    "domains": Kind("a domain", DOMAINS),
    "constraints": Kind("a constraint", CONSTRAINTS),
    "channels": Kind("a channel", CHANNELS),
    "participations": Kind("a participation", PARTICIPATIONS),
    "metrics": Kind("a metric", {**METRICS, **PREDICTION_METRICS, **METRICS_BY}),
    "rules": Kind("a stopping rule", RULES),
    "engines": Kind("an engine", ENGINES),
    "loggers": Kind("a logger", LOGGERS),
    "batches": Kind("a way to draw batches", BATCHES),
    "schedules": Kind("a schedule", SCHEDULES),
    "frank_wolfe_steps": Kind("a rule for Frank-Wolfe steps", FRANK_WOLFE_STEPS),
    "compressors": Kind("a compressor", COMPRESSORS),
    "curvatures": Kind("a form of curvature", CURVATURES),
    "second_moments": Kind("a second moment", SECOND_MOMENTS),
    "tau_rules": Kind("a rule for tau", TAU_RULES),
    "penalties": Kind("a penalty", PENALTIES),
    "activations": Kind("an activation", ACTIVATIONS),
}


def registered_classes() -> list[type]:
    """Every class that has a name here, also those that a user has registered."""
    found = [each for kind in KINDS.values() for each in kind.registry.values()]
    return [each for each in found if isinstance(each, type)]


def kind_for(field: Field) -> Kind | None:
    """The names that may stand in a field; None if a file cannot name its values."""
    options = options_of(field.hint)
    if eqx.Module in options:
        return _kind_by_default(field.default)
    wanted = tuple(o for o in options if isinstance(o, type) and issubclass(o, eqx.Module))
    for kind in KINDS.values():
        named = {
            name: each
            for name, each in kind.registry.items()
            if isinstance(each, type) and issubclass(each, wanted)
        }
        if named:
            return Kind(kind.one, named)
    return None


def _kind_by_default(default: Any) -> Kind:
    """For types that allow any module, as a step's does: what the default is an example of.

    A number stands for a schedule, which is a number that changes from round to round.
    """
    for kind in KINDS.values():
        if type(default) in kind.registry.values():
            return kind
    return KINDS["schedules"]
