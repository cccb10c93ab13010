"""Check the claims of the FedFW paper.

    python -m experiments.fedfw                    all, as in the README
    python -m experiments.fedfw --only fw-penalty  some
    python -m experiments.fedfw --tables mnist     with some of the data
    python -m experiments.fedfw --quick            tiny: shows that everything runs
    python -m experiments.fedfw --again            forget the runs that are stored

Runs are kept in results/runs.json as they end, and taken from there the next time.
"""

from experiments.fedfw.claims import CHECKS
from experiments.fedfw.runs import World
from experiments.fedfw.setting import QUICK, Setting
from experiments.paper import Paper

PAPER = Paper(
    name="fedfw",
    words=__doc__,
    checks=CHECKS,
    setting=Setting(),
    quick=QUICK,
    book=lambda setting, path, say: World(path),
)
