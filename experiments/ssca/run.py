"""Check the claims of the SSCA papers.

    python -m experiments.ssca                    all, as large as in the papers: an hour
    python -m experiments.ssca --only ssca-batch  some
    python -m experiments.ssca --quick            all, tiny: shows that everything runs
    python -m experiments.ssca --again            forget the runs that are stored

Runs are kept in results/runs.json as they end, and taken from there the next time.
"""

from experiments.paper import Paper
from experiments.ssca import figures
from experiments.ssca.claims import CHECKS
from experiments.ssca.setting import QUICK, Setting

PAPER = Paper(
    name="ssca",
    words=__doc__,
    checks=CHECKS,
    setting=Setting(),
    quick=QUICK,
    book=lambda setting, path, say: setting.world(path),
    draw=figures.draw,
)
