"""`python -m experiments.fedsso`."""

from experiments.fedsso.run import PAPER

PAPER.main()
