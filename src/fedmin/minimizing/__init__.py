"""The entry points: `minimize`, `sweep`, `refit`, `audit`, and `path`, which makes many runs.

May import: all rooms above, except data. `running.py` puts the pieces of one run together and
hands them to an engine; `paths.py` goes over sizes, radii or limits, and a run never knows of it.
"""

from fedmin.minimizing.found import Path, PathLedger, Point
from fedmin.minimizing.paths import path
from fedmin.minimizing.running import audit, carry_out, exposed, minimize, refit, sweep

__all__ = [
    "Path",
    "PathLedger",
    "Point",
    "audit",
    "carry_out",
    "exposed",
    "minimize",
    "path",
    "refit",
    "sweep",
]
