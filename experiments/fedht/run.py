"""Check the claims of the Fed-HT paper.

    python -m experiments.fedht                   all, as large as in the paper: hours
    python -m experiments.fedht --only ht-sim1    some
    python -m experiments.fedht --quick           all, tiny: shows that everything runs
    python -m experiments.fedht --again           forget the runs that are stored

Runs are kept in results/runs.json as they end, and taken from there the next time.
"""

from experiments.fedht import figures
from experiments.fedht.claims import CHECKS
from experiments.fedht.runs import Book
from experiments.fedht.setting import QUICK, Setting
from experiments.paper import Paper

PAPER = Paper(
    name="fedht",
    words=__doc__,
    checks=CHECKS,
    setting=Setting(),
    quick=QUICK,
    book=lambda setting, path, say: Book(setting.make, path, say=say),
    draw=figures.draw,
)
