"""Privacy: who learns what of whom in a run, in words and as data.

May import: core, channels. Accountants, private set intersection and audits have their place here.
"""
