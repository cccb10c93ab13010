"""Privacy: who learns what of whom in a run, in words and as data.

`observers.py` lists what leaves each party and who sees it; `fedmin show` prints it. Accountants,
private set intersection and audits have their place here too. May import: core, channels.
"""
