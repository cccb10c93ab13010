"""The nouns: what every other room speaks of.

Rows, rosters, problems, methods, channels, ledgers, results: one noun a file, each importing only
those before it in the order that tests/test_layers.py holds. No algorithm, no engine, no format.
May import: nothing of fedmin outside of core. To add a noun, copy the shape of `participation.py`:
an abstract value, its kinds, one registry.
"""
