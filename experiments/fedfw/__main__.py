"""`python -m experiments.fedfw`."""

from experiments.fedfw.run import main

main()
