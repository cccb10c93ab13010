"""`python -m experiments.ssca`."""

from experiments.ssca.run import PAPER

PAPER.main()
