"""`python -m experiments.ssca`."""

from experiments.ssca.run import main

main()
