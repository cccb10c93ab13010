"""`python -m experiments.constrained`."""

from experiments.constrained.run import main

main()
