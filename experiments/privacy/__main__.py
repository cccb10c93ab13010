"""`python -m experiments.privacy`."""

from experiments.privacy.run import main

main()
