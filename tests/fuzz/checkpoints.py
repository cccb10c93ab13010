"""Checkpoints of a server and of its sites: a folder with damaged files, and a run that goes on.

Whatever was done to the files, the run must end as if nothing had happened. A case is accepted if
the newest files were left alone, and refused if damage was named on the way.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import fedmin

from . import damage
from .campaign import Target


class Case(NamedTuple):
    """Files of a folder that were changed, and what runs there."""

    engine: fedmin.engines.drive.Engine
    files: damage.Damage


def case(rng: Random) -> Case:
    """Some files changed by chance; half of them also with sites of their own."""
    engine = rng.choice((damage.SIMULATOR, damage.LOOPBACK))
    return Case(engine, damage.case(rng, engine))


def attempt(case: Case) -> str:
    """Go on from the folder."""
    return "refused" if damage.end(damage.kept(case.engine), case.files) else "accepted"


def reduce(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Files put back as they were, while the others still fail."""
    for name in sorted(case.files):
        fewer = Case(case.engine, {k: v for k, v in case.files.items() if k != name})
        if fewer.files and fails(fewer):
            case = fewer
    return case


def show(case: Case) -> str:
    """Which files were changed, and how they begin."""
    lines = [
        f"{name}: {data if data is None else data[:300]!r}" for name, data in case.files.items()
    ]
    return "\n".join([repr(case.engine), *lines])


TARGET = Target(case, attempt, reduce, show)
