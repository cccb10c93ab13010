"""`python -m experiments.fedsso`."""

from experiments.fedsso.run import main

main()
