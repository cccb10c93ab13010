"""`python -m experiments.fedht`."""

from experiments.fedht.run import main

main()
