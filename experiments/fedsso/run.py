"""Check the claims of the FedSSO paper.

    python -m experiments.fedsso                    all, as large as in the paper
    python -m experiments.fedsso --only sso-rounds  some
    python -m experiments.fedsso --quick            all, tiny: shows that everything runs
    python -m experiments.fedsso --again            forget the runs that are stored

Runs are kept in results/runs.json as they end, and taken from there the next time.
"""

from experiments.fedsso import figures
from experiments.fedsso.claims import CHECKS
from experiments.fedsso.setting import QUICK, Setting
from experiments.paper import Paper

PAPER = Paper(
    name="fedsso",
    words=__doc__,
    checks=CHECKS,
    setting=Setting(),
    quick=QUICK,
    book=lambda setting, path, say: setting.book(path, say),
    draw=figures.draw,
)
