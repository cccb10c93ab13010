"""Fuzzers: what users and strangers may hand to fedmin, changed by chance, many times.

    python -m tests.fuzz                        a quick number of every kind
    python -m tests.fuzz toml --count 1000000   a million configuration files
    python -m tests.fuzz toml --case 4711       one case again, as it is made from its number

Every case is made from a valid one (`mutation.py`): a starter of `fedmin init`, a folder that
`fedmin run` wrote, a file of each reader. It may end in an error of fedmin's own, or be accepted
with the meaning that it says. Another exception, a hang, an explosion of memory, or another meaning
is a failure; it is printed, reduced to what it takes (`reducing.py`).

mutation.py  changes of trees, texts and bytes
campaign.py  many cases in several processes, each with a limit of time and memory
damage.py    a run's checkpoints, changed, and the run gone on with
toml.py, sites.py, folders.py, readers.py, wire.py, checkpoints.py: what is fuzzed
"""
