"""`python -m experiments.fedfw`."""

from experiments.fedfw.run import PAPER

PAPER.main()
