"""`python -m experiments.fedht`."""

from experiments.fedht.run import PAPER

PAPER.main()
